//! Objects that the tests of builders start from.

use serde_json::{Value, json};
use spawnery_api::inputs;
use spawnery_api::v1alpha1::{Network, ProxyGroup, Server, ServerGroup};
use spawnery_core::pod_hash::PodInputs;

/// An object of ours in the namespace of the tests.
fn object<K: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: &Value) -> K {
    serde_json::from_value(json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "minecraft", "uid": format!("uid-of-{name}"), "generation": 1},
        "spec": spec,
    }))
    .unwrap()
}

pub(crate) fn network() -> Network {
    let mut network: Network = object(
        "Network",
        "production",
        &json!({"forwardingSecretRef": {"name": "forwarding"}, "defaults": {
            "imagePullSecrets": [{"name": "registry"}],
            "resources": {"limits": {"memory": "1Gi"}},
            "scheduling": {"nodeSelector": {"pool": "games"}},
        }}),
    );
    network.status = serde_json::from_value(json!({"forwardingSecretHash": "0123456789abcdef"})).unwrap();
    network
}

pub(crate) fn server_group() -> ServerGroup {
    object(
        "ServerGroup",
        "lobby",
        &json!({
            "networkRef": {"name": "production"}, "type": "Ephemeral", "image": "paper:1", "maxPlayers": 20,
            "scaling": {"minReplicas": 1, "maxReplicas": 3, "spareSlots": 5},
        }),
    )
}

pub(crate) fn persistent_group() -> ServerGroup {
    object(
        "ServerGroup",
        "survival",
        &json!({
            "networkRef": {"name": "production"}, "type": "Persistent", "image": "paper:1", "maxPlayers": 20,
            "replicas": 2, "storage": {"size": "1Gi"}, "terminationGracePeriodSeconds": 90,
        }),
    )
}

pub(crate) fn proxy_group() -> ProxyGroup {
    object(
        "ProxyGroup",
        "gateway",
        &json!({
            "networkRef": {"name": "production"}, "replicas": 2, "image": "velocity:1",
            "expose": {"type": "NodePort", "nodePort": {"port": 30565}},
            "routing": {"fallbackGroups": ["lobby", "limbo"]},
        }),
    )
}

pub(crate) fn server(group: &str, name: &str) -> Server {
    object("Server", name, &json!({"groupRef": {"name": group}}))
}

pub(crate) fn server_inputs(group: &ServerGroup) -> PodInputs {
    inputs::server(&group.spec, Some(&network().spec), None).unwrap()
}

pub(crate) fn proxy_inputs(group: &ProxyGroup) -> PodInputs {
    inputs::proxy(&group.spec, Some(&network().spec), None).unwrap()
}
