//! Specs that are accepted, and edits of them.

use serde_json::{Value, json};

pub(crate) fn network() -> Value {
    json!({"forwardingSecretRef": {"name": "forwarding"}})
}

pub(crate) fn proxies() -> Value {
    json!({
        "networkRef": {"name": "production"}, "replicas": 2, "image": "velocity:1",
        "expose": {"type": "NodePort", "nodePort": {"port": 30565}},
        "routing": {"fallbackGroups": ["lobby"]},
    })
}

pub(crate) fn exposed(expose: Value) -> Value {
    let mut spec = proxies();
    spec["expose"] = expose;
    spec
}

pub(crate) fn ephemeral() -> Value {
    json!({
        "networkRef": {"name": "production"}, "type": "Ephemeral", "image": "paper:1", "maxPlayers": 20,
        "scaling": {"minReplicas": 1, "maxReplicas": 4, "spareSlots": 10},
    })
}

pub(crate) fn persistent() -> Value {
    json!({
        "networkRef": {"name": "production"}, "type": "Persistent", "image": "paper:1", "maxPlayers": 20,
        "replicas": 2, "storage": {"size": "10Gi", "storageClassName": "fast"},
    })
}

pub(crate) fn server() -> Value {
    json!({"groupRef": {"name": "lobby"}})
}

/// `base` with a JSON merge patch laid over it: `null` removes.
pub(crate) fn with(mut base: Value, patch: &Value) -> Value {
    json_patch_merge(&mut base, patch);
    base
}

fn json_patch_merge(base: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *base = patch.clone();
        return;
    };
    if !base.is_object() {
        *base = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            base.as_object_mut().unwrap().remove(key);
        } else {
            json_patch_merge(&mut base[key], value);
        }
    }
}
