//! What a kubelet would take from a pod's object.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use spawnery_api::names::{env, label, object, port, volume};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

/// What a pod is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Players play here.
    Server,
    /// Routes players to servers.
    Proxy,
}

/// A running pod of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// What it is for.
    pub role: Role,
    /// The group that it belongs to.
    pub group: String,
    /// The node that it is on.
    pub node: String,
    /// Its address, on loopback.
    pub address: IpAddr,
    /// Environment of the game's container.
    pub env: BTreeMap<String, String>,
    /// Whose token the agent presents.
    pub service_account: String,
    /// Whom that token is for, as the pod's own volume says.
    pub audience: String,
    /// How long that token is good, in seconds, as the pod's own volume says.
    pub token_seconds: i64,
    /// The `ConfigMap` of its group that its configuration volume shows, if it has one.
    pub config_map: Option<String>,
    /// Port that must take connections for the pod to be Ready.
    pub probe_port: u16,
    /// Port and path of its pre-stop hook, if it has one.
    pub pre_stop: Option<(u16, String)>,
}

impl PodFacts {
    /// The facts of a pod that runs and has an address; none of any other.
    pub fn of(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref()?;
        if status.phase.as_deref() != Some("Running") {
            return None;
        }
        let (meta, spec) = (&pod.metadata, pod.spec.as_ref()?);
        let labels = meta.labels.as_ref()?;
        let role = match labels.get(label::ROLE)?.as_str() {
            label::ROLE_SERVER => Role::Server,
            label::ROLE_PROXY => Role::Proxy,
            _ => return None,
        };
        let container = spec.containers.first()?;
        let sources = |name: &'static str| {
            let volumes = spec.volumes.iter().flatten().filter(move |volume| volume.name == name);
            volumes.filter_map(|volume| volume.projected.as_ref()?.sources.as_ref()).flatten()
        };
        let token = sources(volume::AGENT).find_map(|source| source.service_account_token.clone());
        let config_map = sources(volume::CONFIG).find_map(|source| source.config_map.clone());
        let token_seconds = token.as_ref().and_then(|token| token.expiration_seconds);
        Some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            role,
            group: labels.get(label::GROUP).cloned().unwrap_or_default(),
            node: spec.node_name.clone().unwrap_or_default(),
            address: status.pod_ip.as_ref()?.parse().ok()?,
            env: environment(container),
            service_account: spec.service_account_name.clone().unwrap_or_default(),
            audience: token.and_then(|token| token.audience).unwrap_or_else(|| volume::TOKEN_AUDIENCE.to_owned()),
            token_seconds: token_seconds.unwrap_or(volume::TOKEN_EXPIRATION_SECONDS),
            config_map: config_map.map(|map| map.name),
            probe_port: probe_port(container),
            pre_stop: pre_stop(container),
        })
    }

    /// The pod's address with a port.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    /// A number out of the environment.
    pub fn env_number(&self, key: &str, otherwise: u32) -> u32 {
        self.env.get(key).and_then(|value| value.parse().ok()).unwrap_or(otherwise)
    }

    /// The fallback groups of a proxy, in order.
    pub fn fallback_groups(&self) -> Vec<String> {
        let list = self.env.get(env::FALLBACK_GROUPS).map(String::as_str).unwrap_or_default();
        list.split(',').filter(|group| !group.is_empty()).map(str::to_owned).collect()
    }

    /// The `ConfigMap` that holds the operator's CA.
    pub fn ca_config_map(&self) -> &'static str {
        object::CA_CONFIG_MAP
    }
}

fn environment(container: &Container) -> BTreeMap<String, String> {
    let literal = container.env.iter().flatten().filter_map(|env| Some((env.name.clone(), env.value.clone()?)));
    literal.collect()
}

/// The port of a TCP probe; of any other (the server's is a command in its image) the port that players use.
fn probe_port(container: &Container) -> u16 {
    let tcp = container.readiness_probe.as_ref().and_then(|probe| probe.tcp_socket.as_ref());
    let number = match tcp.map(|tcp| &tcp.port) {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name));
            named.map_or(port::MINECRAFT, |port| port.container_port)
        }
        None => port::MINECRAFT,
    };
    u16::try_from(number).unwrap_or_default()
}

/// A hook by HTTP; no other is ever asked for.
fn pre_stop(container: &Container) -> Option<(u16, String)> {
    let get = container.lifecycle.as_ref()?.pre_stop.as_ref()?.http_get.as_ref()?;
    let IntOrString::Int(port) = &get.port else { return None };
    Some((u16::try_from(*port).ok()?, get.path.clone().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn pod(phase: &str, role: &str, probe: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "namespace": "game", "name": "lobby-x7kd", "uid": "u1", "labels": {
                "spawnery.cloud/role": role, "spawnery.cloud/group": "lobby" } },
            "spec": { "nodeName": "node-1", "serviceAccountName": "spawnery-server",
                "containers": [{
                    "name": "minecraft", "readinessProbe": probe,
                    "lifecycle": { "preStop": { "httpGet": { "port": 8091, "path": "/v1/pre-stop?graceSeconds=60" } } },
                    "ports": [{ "name": "ready", "containerPort": 8081 }],
                    "env": [{ "name": "SPAWNERY_FALLBACK_GROUPS", "value": "lobby,spare" },
                        { "name": "SECRET", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
                }],
                "volumes": [{ "name": "spawnery-agent", "projected": { "sources": [
                        { "serviceAccountToken": { "audience": "somebody", "expirationSeconds": 900, "path": "token" } }] } },
                    { "name": "spawnery-config", "projected": { "sources": [
                        { "configMap": { "name": "lobby-server-config" } }] } }] },
            "status": { "phase": phase, "podIP": "127.9.0.1" },
        }))
        .unwrap()
    }

    #[test]
    fn takes_what_a_kubelet_would() {
        let facts = PodFacts::of(&pod("Running", "server", &Value::Null)).unwrap();
        assert_eq!((facts.audience.as_str(), facts.token_seconds), ("somebody", 900));
        assert_eq!(facts.fallback_groups(), ["lobby", "spare"]);
        assert_eq!(facts.env.len(), 1, "only literals");
        assert_eq!(facts.config_map.as_deref(), Some("lobby-server-config"));
        assert_eq!(facts.pre_stop, Some((8091, "/v1/pre-stop?graceSeconds=60".to_owned())));
        assert_eq!(facts.at(8090).to_string(), "127.9.0.1:8090");
    }

    #[rstest]
    #[case::command(json!({ "exec": { "command": ["slp"] } }), 25565)]
    #[case::number(json!({ "tcpSocket": { "port": 8081 } }), 8081)]
    #[case::name(json!({ "tcpSocket": { "port": "ready" } }), 8081)]
    fn probes_what_the_pod_says(#[case] probe: Value, #[case] port: u16) {
        assert_eq!(PodFacts::of(&pod("Running", "proxy", &probe)).unwrap().probe_port, port);
    }

    #[rstest]
    #[case::not_yet(pod("Pending", "server", &Value::Null))]
    #[case::neither(pod("Running", "backup", &Value::Null))]
    fn leaves_others_alone(#[case] pod: Pod) {
        assert_eq!(PodFacts::of(&pod), None);
    }
}
