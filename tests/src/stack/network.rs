//! A network small enough for a test.

use super::Stack;
use crate::eventually::eventually;
use anyhow::{Result, ensure};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use spawnery_api::v1alpha1::{ProxyGroup, Server};
use std::time::Duration;

/// Servers and proxies of the mini game are up within two seconds; beside a build it takes longer.
const READY_LIMIT: Duration = Duration::from_mins(1);
/// What each lobby may add to that: an agent takes a tenth of a second of a processor to start.
const READY_LIMIT_EACH: Duration = Duration::from_secs(1);
/// Longer than any test: players stay where they are until the test says otherwise.
const NEVER_SECONDS: u32 = 3600;

/// The group that players land in.
pub const LOBBY: &str = "lobby";
/// The group of the proxies.
pub const GATEWAY: &str = "gateway";

/// One network with a lobby and proxies in front of it.
#[derive(Debug, Clone)]
pub struct SmallNetwork {
    /// Least number of lobbies.
    pub lobbies: u32,
    /// Players that a lobby takes.
    pub max_players: u32,
    /// Free places that there shall be.
    pub spare_slots: u32,
    /// Number of proxies.
    pub proxies: u32,
    /// The lobby's `drain` field. By default nobody is moved.
    pub drain: Value,
    /// The proxies' `expose` field. By default something else leads players there.
    pub expose: Value,
    /// Node for the proxies; any when there is none.
    pub proxy_node: Option<String>,
    /// Nodes for the lobbies; any when there is none.
    pub lobby_nodes: Vec<String>,
    /// The lobbies tolerate every taint.
    pub tolerant: bool,
    /// What lobbies and proxies need; they do not say when there is none.
    pub resources: Option<Value>,
    /// The owner's affinity of those that are on no named nodes; theirs is not set when there is none.
    pub affinity: Option<Value>,
}

impl Default for SmallNetwork {
    fn default() -> Self {
        Self {
            lobbies: 1,
            max_players: 20,
            spare_slots: 0,
            proxies: 1,
            drain: json!({ "moveAfterSeconds": NEVER_SECONDS, "timeoutSeconds": NEVER_SECONDS }),
            expose: json!({ "type": "ClusterIP", "clusterIP": { "address": "play.example.test" } }),
            proxy_node: None,
            lobby_nodes: Vec::new(),
            tolerant: false,
            resources: None,
            affinity: None,
        }
    }
}

impl SmallNetwork {
    /// The manifests of its objects.
    pub fn manifests(&self, namespace: &str) -> String {
        let object = |kind: &str, name: &str, spec: Value| {
            json!({
                "apiVersion": "spawnery.cloud/v1alpha1",
                "kind": kind,
                "metadata": { "name": name, "namespace": namespace },
                "spec": spec,
            })
        };
        let network = json!({ "name": "main" });
        let resources = self.resources.as_ref().map(|resources| json!({ "resources": resources }));
        let defaults = resources.unwrap_or_else(|| json!({}));
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": "forwarding", "namespace": namespace },
            "stringData": { "secret": "not-a-secret" },
        });
        let objects = [
            secret,
            object("Network", "main", json!({ "forwardingSecretRef": { "name": "forwarding" }, "defaults": defaults })),
            object(
                "ServerGroup",
                LOBBY,
                json!({
                    "networkRef": network,
                    "type": "Ephemeral",
                    "image": "example.test/lobby:1",
                    "maxPlayers": self.max_players,
                    "scaling": { "minReplicas": self.lobbies, "maxReplicas": 500, "spareSlots": self.spare_slots },
                    "drain": self.drain,
                    "scheduling": tolerating(self.scheduling(&self.lobby_nodes), self.tolerant),
                }),
            ),
            object(
                "ProxyGroup",
                GATEWAY,
                json!({
                    "networkRef": network,
                    "replicas": self.proxies,
                    "image": "example.test/gateway:1",
                    "expose": self.expose,
                    "routing": { "fallbackGroups": [LOBBY] },
                    "scheduling": self.scheduling(self.proxy_node.as_slice()),
                }),
            ),
        ];
        let documents = objects.iter().map(|object| format!("---\n{object}\n"));
        documents.collect()
    }

    /// Scheduling onto these nodes; none leaves it to the affinity.
    fn scheduling(&self, nodes: &[String]) -> Value {
        match &self.affinity {
            _ if !nodes.is_empty() => on(nodes),
            Some(affinity) => json!({ "affinity": affinity }),
            None => json!({}),
        }
    }

    /// Applies it, and waits until players can join: all lobbies registered at all proxies.
    ///
    /// # Errors
    /// When something is refused or does not come up.
    pub async fn start(&self, stack: &Stack, namespace: &str) -> Result<()> {
        stack.cluster().apply(&self.manifests(namespace)).await?;
        self.wait_ready(stack, namespace).await
    }

    /// Waits until at least the least number of lobbies, and all proxies, take players.
    ///
    /// # Errors
    /// When they do not.
    pub async fn wait_ready(&self, stack: &Stack, namespace: &str) -> Result<()> {
        let client = stack.cluster().client().await?;
        let servers: Api<Server> = Api::namespaced(client.clone(), namespace);
        let proxies: Api<ProxyGroup> = Api::namespaced(client, namespace);
        eventually(READY_LIMIT + READY_LIMIT_EACH * self.lobbies, "lobbies and proxies that take players", || async {
            let mut registered: Vec<String> = Vec::new();
            for server in servers.list(&ListParams::default()).await? {
                if server.status.as_ref().is_some_and(|status| status.registered) {
                    registered.push(server.name_any());
                }
            }
            ensure!(registered.len() >= usize::try_from(self.lobbies)?, "registered are {registered:?}");
            let group = proxies.get(GATEWAY).await?.status.unwrap_or_default();
            ensure!(u32::try_from(group.ready_replicas)? >= self.proxies, "ready proxies: {}", group.ready_replicas);
            let mut listening = 0;
            for pod in stack.runner().pods_in(namespace, crate::runner::Role::Proxy) {
                let Some(game) = pod.game() else { continue };
                let Some(proxy) = game.mini_proxy() else { continue };
                let known = proxy.servers();
                ensure!(registered.iter().all(|name| known.contains(name)), "{} knows {known:?}", pod.facts().name);
                listening += 1;
            }
            ensure!(listening >= self.proxies, "only {listening} proxies listen");
            Ok(())
        })
        .await
    }
}

/// Scheduling onto these nodes.
fn on(nodes: &[String]) -> Value {
    let names = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": nodes });
    let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [names] }] });
    json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } })
}

/// Such scheduling also onto nodes with any taint.
fn tolerating(mut scheduling: Value, tolerant: bool) -> Value {
    if let Some(scheduling) = scheduling.as_object_mut().filter(|_| tolerant) {
        scheduling.insert("tolerations".to_owned(), json!([{ "operator": "Exists" }]));
    }
    scheduling
}
