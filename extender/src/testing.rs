//! Objects as an API server shows them.

use serde_json::{Value, json};
use spawnery_api::view::{NodeView, PodView, ServerView};

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

/// A node with this spec and these labels.
pub(crate) fn node(name: &str, spec: &Value, labels: &Value) -> NodeView {
    read(json!({ "metadata": { "name": name, "labels": labels }, "spec": spec }))
}

/// A plain node.
pub(crate) fn plain(name: &str) -> NodeView {
    node(name, &json!({}), &json!({}))
}

/// A pod of ours in namespace `games` as JSON; a server says that it takes 20.
pub(crate) fn pod_json(name: &str, role: &str, group: &str, node: &str) -> Value {
    let inputs = json!({ "role": role, "maxPlayers": 20 }).to_string();
    json!({
        "metadata": {
            "name": name, "namespace": "games", "uid": name,
            "labels": {
                "spawnery.cloud/managed-by": "spawnery-operator",
                "spawnery.cloud/role": role,
                "spawnery.cloud/group": group,
            },
            "annotations": { "spawnery.cloud/pod-inputs": inputs },
        },
        "spec": { "nodeName": node },
        "status": { "phase": "Running" },
    })
}

/// A server's pod.
pub(crate) fn server(name: &str, node: &str) -> PodView {
    read(pod_json(name, "server", "lobby", node))
}

/// A proxy's pod.
pub(crate) fn proxy(name: &str, group: &str, node: &str) -> PodView {
    read(pod_json(name, "proxy", group, node))
}

/// A Server with so many players on it.
pub(crate) fn people(name: &str, players: i32, slots: i32) -> ServerView {
    read(json!({
        "metadata": { "name": name, "namespace": "games" },
        "status": { "players": players, "slots": slots },
    }))
}
