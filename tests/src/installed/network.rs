//! The example network, as the administrator of two small nodes would change it.

use crate::{image::games, target};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use spawnery_api::names::label;
use std::{fmt::Write as _, fs};

/// The node for the proxy, through which every player plays.
pub const PROXY_NODE: &str = "node-b";
/// The node that the lobby starts on. It may move.
pub const SERVER_NODE: &str = "node-a";
/// Where players knock, on every node: the example's NodePort.
pub const DOOR_PORT: u16 = 30565;

/// Longer than a lobby takes to load beside a build: a player who cannot be moved yet is waited for.
const GRACE_SECONDS: u32 = 240;
/// Document of `examples/network.yaml` that is left out: nobody plays there, and a game takes a core to load.
const LEFT_OUT: &str = "bedwars";
/// Kubernetes' words for what a scheduler should, and must, heed.
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// How many lobbies there are, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lobbies {
    /// One, on [`SERVER_NODE`] while that takes pods.
    One,
    /// Two, each on a node of its own while there are two.
    OnePerNode,
}

impl Lobbies {
    fn count(self) -> u32 {
        match self {
            Self::One => 1,
            Self::OnePerNode => 2,
        }
    }

    /// Preferences only: lobbies must find a place when a node is gone.
    fn affinity(self) -> Value {
        match self {
            Self::One => json!({ "nodeAffinity": { PREFERRED: [{ "weight": 100, "preference": on(SERVER_NODE) }] } }),
            Self::OnePerNode => {
                let term = json!({
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": { "matchLabels": { label::ROLE: label::ROLE_SERVER } },
                });
                json!({ "podAntiAffinity": { PREFERRED: [{ "weight": 100, "podAffinityTerm": term }] } })
            }
        }
    }
}

/// `examples/network.yaml` with images that run here, less memory, one proxy on a node of its own, and a lobby whose
/// pods wait for their players when they are deleted.
///
/// # Errors
/// When the example is no longer as it is read here.
pub(super) fn manifests(lobbies: Lobbies) -> Result<String> {
    let path = target::workspace().join("examples/network.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    let mut manifests = String::new();
    let mut seen = Vec::new();
    for document in text.split("\n---\n") {
        let mut object: Value = serde_saphyr::from_str(document).context("the example is no YAML")?;
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name) = (word("/kind"), word("/metadata/name"));
        if name == LEFT_OUT {
            continue;
        }
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            for (key, value) in changes(&kind, lobbies) {
                spec.insert(key.to_owned(), value);
            }
        }
        seen.push(kind);
        // Writing to a string cannot fail.
        let _ = write!(manifests, "---\n{object}\n");
    }
    ensure!(seen == ["Secret", "Network", "ServerGroup", "ProxyGroup"], "the example holds {seen:?}");
    Ok(manifests)
}

fn changes(kind: &str, lobbies: Lobbies) -> Vec<(&'static str, Value)> {
    match kind {
        "Network" => {
            let resources = json!({
                "requests": { "cpu": "100m", "memory": "128Mi" },
                "limits": { "memory": "1Gi" },
            });
            vec![("defaults", json!({ "minecraftVersion": "1.12.2", "resources": resources }))]
        }
        "ServerGroup" => vec![
            ("image", json!(games::LOBBY)),
            ("terminationGracePeriodSeconds", json!(GRACE_SECONDS)),
            ("drain", json!({ "timeoutSeconds": GRACE_SECONDS })),
            ("scaling", json!({ "minReplicas": lobbies.count(), "maxReplicas": 3, "spareSlots": 0 })),
            ("scheduling", json!({ "affinity": lobbies.affinity() })),
        ],
        "ProxyGroup" => vec![
            ("image", json!(games::GATEWAY)),
            ("replicas", json!(1)),
            (
                "scheduling",
                json!({ "affinity": { "nodeAffinity": { REQUIRED: { "nodeSelectorTerms": [on(PROXY_NODE)] } } } }),
            ),
        ],
        _ => Vec::new(),
    }
}

fn on(node: &str) -> Value {
    json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_changed_where_it_must_be() {
        let manifests = manifests(Lobbies::One).unwrap();
        assert!(!manifests.contains("ghcr.io") && !manifests.contains(LEFT_OUT), "{manifests}");
        let wanted = [games::LOBBY, games::GATEWAY, r#""port":30565"#];
        assert!(wanted.iter().all(|word| manifests.contains(word)), "{manifests}");
    }
}
