//! The table: for each rule a case that only this rule refuses, and what lies around it.

use serde_json::{Value, json};

use crate::spec::{ephemeral, exposed, network, persistent, proxies, server, with};
use crate::world::Kind;

pub(crate) enum Verdict {
    Accepted,
    /// Refused by types and bounds, with all these words.
    Refused(&'static [&'static str]),
    /// Refused by the rule with this message and by nothing else: without the rule it is accepted.
    ByRule(&'static str),
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The object that is there, for rules about changes.
    pub(crate) before: Option<Value>,
    pub(crate) spec: Value,
    pub(crate) verdict: Verdict,
}

use Kind::{Network, ProxyGroup, Server, ServerGroup};
use Verdict::{Accepted, ByRule, Refused};

fn new(name: &'static str, kind: Kind, spec: Value, verdict: Verdict) -> Case {
    Case { name, kind, before: None, spec, verdict }
}

fn edit(name: &'static str, kind: Kind, before: Value, patch: &Value, verdict: Verdict) -> Case {
    Case { name, kind, spec: with(before.clone(), patch), before: Some(before), verdict }
}

pub(crate) fn all() -> Vec<Case> {
    [networks(), proxy_groups(), exposes(), ephemeral_groups(), persistent_groups(), group_edits(), servers()]
        .into_iter()
        .flatten()
        .collect()
}

fn networks() -> Vec<Case> {
    vec![
        new("a network", Network, network(), Accepted),
        new("no spec at all, as upstream", Network, Value::Null, Accepted),
        new("an empty spec", Network, json!({}), Refused(&["spec.forwardingSecretRef", "Required value"])),
        new(
            "an empty secret name",
            Network,
            json!({"forwardingSecretRef": {"name": ""}}),
            Refused(&["spec.forwardingSecretRef.name", "at least 1 chars long"]),
        ),
        new(
            "defaults with numbers as quantities",
            Network,
            with(
                network(),
                &json!({"defaults": {"minecraftVersion": "26.2", "imagePullSecrets": [{"name": "registry"}],
                    "resources": {"requests": {"cpu": 1, "memory": "1Gi"}},
                    "scheduling": {"tolerations": [{"key": "games", "operator": "Exists"}]}}}),
            ),
            Accepted,
        ),
    ]
}

fn proxy_groups() -> Vec<Case> {
    vec![
        new("proxies", ProxyGroup, proxies(), Accepted),
        new("proxies without an image", ProxyGroup, with(proxies(), &json!({"image": ""})), Refused(&["spec.image"])),
        new("no proxies", ProxyGroup, with(proxies(), &json!({"replicas": 0})), Refused(&["spec.replicas", "0", "1"])),
        new(
            "no fallback groups",
            ProxyGroup,
            with(proxies(), &json!({"routing": {"fallbackGroups": []}})),
            Refused(&["spec.routing.fallbackGroups", "at least 1 items"]),
        ),
        new(
            "a proxy for nobody",
            ProxyGroup,
            with(proxies(), &json!({"config": {"playerLimit": 0}})),
            Refused(&["spec.config.playerLimit", "greater than or equal to 1"]),
        ),
        new(
            "an instant proxy drain",
            ProxyGroup,
            with(proxies(), &json!({"drain": {"timeoutSeconds": 0}})),
            Refused(&["spec.drain.timeoutSeconds"]),
        ),
        new(
            "an unknown deadline action",
            ProxyGroup,
            with(proxies(), &json!({"drain": {"timeoutSeconds": 9, "onDeadline": "Kick"}})),
            Refused(&["spec.drain.onDeadline", "\"Kick\"", "\"Disconnect\"", "\"Hold\""]),
        ),
        edit(
            "another network",
            ProxyGroup,
            proxies(),
            &json!({"networkRef": {"name": "staging"}}),
            ByRule("spec.networkRef is immutable"),
        ),
        edit("more proxies", ProxyGroup, proxies(), &json!({"replicas": 5}), Accepted),
    ]
}

fn exposes() -> Vec<Case> {
    let case = |name, expose, verdict| new(name, ProxyGroup, exposed(expose), verdict);
    let address = "expose.clusterIP.address is a host name or address with an optional port: not a URL, and no spaces";
    vec![
        case("load balancer without a block", json!({"type": "LoadBalancer"}), Accepted),
        case(
            "load balancer with a block",
            json!({"type": "LoadBalancer", "loadBalancer": {"annotations": {"a": "b"}}}),
            Accepted,
        ),
        case("host port with its block", json!({"type": "HostPort", "hostPort": {"port": 25565}}), Accepted),
        case(
            "cluster IP with its block",
            json!({"type": "ClusterIP", "clusterIP": {"address": "play:25565"}}),
            Accepted,
        ),
        case(
            "node port without its block",
            json!({"type": "NodePort"}),
            ByRule("expose.nodePort is required for type NodePort"),
        ),
        case(
            "host port without its block",
            json!({"type": "HostPort"}),
            ByRule("expose.hostPort is required for type HostPort"),
        ),
        case(
            "cluster IP without its block",
            json!({"type": "ClusterIP"}),
            ByRule("expose.clusterIP is required for type ClusterIP"),
        ),
        case(
            "a load balancer's block on a node port",
            json!({"type": "NodePort", "nodePort": {"port": 30000}, "loadBalancer": {}}),
            ByRule("expose.loadBalancer is only allowed for type LoadBalancer"),
        ),
        case(
            "a node port's block on a load balancer",
            json!({"type": "LoadBalancer", "nodePort": {"port": 30000}}),
            ByRule("expose.nodePort is only allowed for type NodePort"),
        ),
        case(
            "a host port's block on a node port",
            json!({"type": "NodePort", "nodePort": {"port": 30000}, "hostPort": {"port": 25565}}),
            ByRule("expose.hostPort is only allowed for type HostPort"),
        ),
        case(
            "a cluster IP's block on a node port",
            json!({"type": "NodePort", "nodePort": {"port": 30000}, "clusterIP": {"address": "play"}}),
            ByRule("expose.clusterIP is only allowed for type ClusterIP"),
        ),
        case("a URL as address", json!({"type": "ClusterIP", "clusterIP": {"address": "tcp://play"}}), ByRule(address)),
        case(
            "an address with a space",
            json!({"type": "ClusterIP", "clusterIP": {"address": "play here"}}),
            ByRule(address),
        ),
        case(
            "an empty address",
            json!({"type": "ClusterIP", "clusterIP": {"address": ""}}),
            Refused(&["spec.expose.clusterIP.address", "at least 1 chars long"]),
        ),
        case(
            "a port that is none",
            json!({"type": "NodePort", "nodePort": {"port": 65536}}),
            Refused(&["spec.expose.nodePort.port", "65536", "65535"]),
        ),
        case(
            "an unknown way",
            json!({"type": "Ingress"}),
            Refused(&[
                "spec.expose.type",
                "\"Ingress\"",
                "\"LoadBalancer\"",
                "\"NodePort\"",
                "\"HostPort\"",
                "\"ClusterIP\"",
            ]),
        ),
        case("an explicit null is nothing", json!({"type": "LoadBalancer", "nodePort": null}), Accepted),
    ]
}

fn ephemeral_groups() -> Vec<Case> {
    let case = |name, patch: Value, verdict| new(name, ServerGroup, with(ephemeral(), &patch), verdict);
    let mount = |sources: Value| {
        let mut mount = json!({"name": "files", "mountPath": "/files"});
        mount.as_object_mut().unwrap().extend(sources.as_object().unwrap().clone());
        json!({"mounts": [mount]})
    };
    let one_source = "exactly one of configMap and secret is required";
    vec![
        case("an ephemeral group", json!({}), Accepted),
        case(
            "the additions to drain",
            json!({"drain": {"timeoutSeconds": 5, "moveAfterSeconds": 60, "onDeadline": "Hold"}}),
            Accepted,
        ),
        case(
            "a drain before it begins",
            json!({"drain": {"timeoutSeconds": 5, "moveAfterSeconds": -1}}),
            Refused(&["moveAfterSeconds"]),
        ),
        case("an update", json!({"update": {"maxUnavailable": 2}}), Accepted),
        case(
            "nobody may be unavailable",
            json!({"update": {"maxUnavailable": 0}}),
            Refused(&["spec.update.maxUnavailable"]),
        ),
        case(
            "an unknown type",
            json!({"type": "Transient"}),
            Refused(&["spec.type", "\"Transient\"", "\"Ephemeral\"", "\"Persistent\""]),
        ),
        case(
            "a server for nobody",
            json!({"maxPlayers": 0}),
            Refused(&["spec.maxPlayers", "greater than or equal to 1"]),
        ),
        case(
            "ephemeral with storage",
            json!({"storage": {"size": "1Gi"}}),
            ByRule("spec.storage is only allowed for type Persistent"),
        ),
        case(
            "ephemeral with replicas",
            json!({"replicas": 2}),
            ByRule("spec.replicas is only allowed for type Persistent"),
        ),
        case(
            "ephemeral without scaling",
            json!({"scaling": null}),
            ByRule("spec.scaling is required for type Ephemeral"),
        ),
        case(
            "more at least than at most",
            json!({"scaling": {"minReplicas": 5}}),
            ByRule("scaling.minReplicas must not be larger than scaling.maxReplicas"),
        ),
        case("as many at least as at most", json!({"scaling": {"minReplicas": 4}}), Accepted),
        case("a mount of a ConfigMap", mount(json!({"configMap": {"name": "c"}})), Accepted),
        case("a mount of a Secret", mount(json!({"secret": {"secretName": "s"}})), Accepted),
        case("a mount of nothing", mount(json!({})), ByRule(one_source)),
        case(
            "a mount of both",
            mount(json!({"configMap": {"name": "c"}, "secret": {"secretName": "s"}})),
            ByRule(one_source),
        ),
        case(
            "a relative mount path",
            json!({"mounts": [{"name": "m", "mountPath": "files", "secret": {"secretName": "s"}}]}),
            Refused(&["spec.mounts[0].mountPath", "\"files\"", "^/.*"]),
        ),
        case(
            "a mount named twice",
            json!({"mounts": [{"name": "m", "mountPath": "/a", "secret": {"secretName": "s"}},
                              {"name": "m", "mountPath": "/b", "secret": {"secretName": "s"}}]}),
            Refused(&["spec.mounts[1]", "Duplicate value"]),
        ),
    ]
}

fn persistent_groups() -> Vec<Case> {
    let case = |name, patch: Value, verdict| new(name, ServerGroup, with(persistent(), &patch), verdict);
    vec![
        case("a persistent group", json!({}), Accepted),
        case("a parked group", json!({"replicas": 0}), Accepted),
        case("a size as a number", json!({"storage": {"size": 1_073_741_824}}), Accepted),
        case("a size that is none", json!({"storage": {"size": "huge"}}), Refused(&["spec.storage.size", "\"huge\""])),
        case(
            "persistent with scaling",
            json!({"scaling": {"minReplicas": 0, "maxReplicas": 1, "spareSlots": 0}}),
            ByRule("spec.scaling is only allowed for type Ephemeral"),
        ),
        case("persistent with update", json!({"update": {}}), ByRule("spec.update is only allowed for type Ephemeral")),
        case(
            "persistent without storage",
            json!({"storage": null}),
            ByRule("spec.storage is required for type Persistent"),
        ),
        case(
            "persistent without replicas",
            json!({"replicas": null}),
            ByRule("spec.replicas is required for type Persistent"),
        ),
    ]
}

fn group_edits() -> Vec<Case> {
    let case = |name, patch: Value, verdict| edit(name, ServerGroup, persistent(), &patch, verdict);
    let class = "storage.storageClassName is immutable";
    let classless = with(persistent(), &json!({"storage": {"storageClassName": null}}));
    // Valid as a persistent group in every other respect, so that nothing but the type's own rule refuses it.
    let turned = with(
        persistent(),
        &json!({"type": "Ephemeral", "storage": null, "replicas": null, "scaling": {
        "minReplicas": 0, "maxReplicas": 1, "spareSlots": 0}}),
    );
    vec![
        Case {
            name: "another type",
            kind: ServerGroup,
            before: Some(persistent()),
            spec: turned,
            verdict: ByRule("spec.type is immutable"),
        },
        edit("another network", ServerGroup, ephemeral(), &json!({"networkRef": {"name": "staging"}}), Accepted),
        case("growing storage", json!({"storage": {"size": "20Gi"}}), Accepted),
        case("the same size in other words", json!({"storage": {"size": "10240Mi"}}), Accepted),
        case("shrinking storage", json!({"storage": {"size": "9Gi"}}), ByRule("storage.size must not shrink")),
        case("shrinking storage to a number", json!({"storage": {"size": 1}}), ByRule("storage.size must not shrink")),
        case("another storage class", json!({"storage": {"storageClassName": "slow"}}), ByRule(class)),
        case("no storage class any more", json!({"storage": {"storageClassName": null}}), ByRule(class)),
        edit(
            "a storage class set later",
            ServerGroup,
            classless.clone(),
            &json!({"storage": {"storageClassName": "fast"}}),
            ByRule(class),
        ),
        edit("still no storage class", ServerGroup, classless, &json!({"replicas": 3}), Accepted),
        case(
            "other access modes",
            json!({"storage": {"accessModes": ["ReadWriteMany"]}}),
            ByRule("storage.accessModes is immutable"),
        ),
        case("the default access modes spelled out", json!({"storage": {"accessModes": ["ReadWriteOnce"]}}), Accepted),
    ]
}

fn servers() -> Vec<Case> {
    vec![
        new("a server", Server, server(), Accepted),
        new("a server of no group", Server, json!({"groupRef": {"name": ""}}), Refused(&["spec.groupRef.name"])),
        new(
            "a negative ordinal",
            Server,
            with(server(), &json!({"ordinal": -1})),
            Refused(&["spec.ordinal", "greater than or equal to 0"]),
        ),
    ]
}
