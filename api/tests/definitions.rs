//! What the definitions say, without a server. Whether a server takes them is `tests/tests/crds.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail by panicking")]

use std::path::Path;

use serde_json::Value;
use spawnery_api::v1alpha1::{Network, ProxyGroup, Server, ServerGroup, crds};

fn schema(kind: &str) -> Value {
    let crd = crds().unwrap().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    serde_json::to_value(crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap()).unwrap()
}

#[test]
fn names_are_upstreams() {
    let names: Vec<_> = crds()
        .unwrap()
        .into_iter()
        .map(|crd| (crd.metadata.name.unwrap(), crd.spec.names.short_names.unwrap(), crd.spec.scope))
        .collect();
    let want = [("networks", "mcnet"), ("proxygroups", "mcproxy"), ("servergroups", "mcgroup"), ("servers", "mcsrv")]
        .map(|(plural, short)| (format!("{plural}.spawnery.cloud"), vec![short.to_owned()], "Namespaced".to_owned()));
    assert_eq!(names, want);
}

#[test]
fn print_columns_are_upstreams_and_extras_are_wide_only() {
    let columns = |kind: &str| -> Vec<String> {
        let crd = crds().unwrap().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let columns = crd.spec.versions[0].additional_printer_columns.clone().unwrap();
        columns.into_iter().filter(|column| column.priority.unwrap_or(0) == 0).map(|column| column.name).collect()
    };
    assert_eq!(columns("Network"), ["Server Groups", "Players", "Age"]);
    assert_eq!(columns("ProxyGroup"), ["Phase", "Ready", "Address", "Players", "Age"]);
    assert_eq!(columns("ServerGroup"), ["Type", "Phase", "Ready", "Players", "Free Slots", "Age"]);
    assert_eq!(columns("Server"), ["Group", "Phase", "Players", "Slots", "Registered", "Age"]);
}

#[test]
fn the_root_requires_nothing_and_nothing_is_nullable() {
    for kind in ["Network", "ProxyGroup", "ServerGroup", "Server"] {
        let schema = schema(kind);
        assert_eq!(schema.get("required"), None, "{kind}");
        assert!(!schema.to_string().contains("\"nullable\""), "{kind}");
        assert!(!schema["properties"]["status"].to_string().contains("\"default\""), "{kind}");
    }
}

#[test]
fn required_fields_are_upstreams() {
    let required = |kind: &str, pointer: &str| schema(kind).pointer(pointer).unwrap()["required"].clone();
    let spec = "/properties/spec";
    assert_eq!(required("Network", spec), serde_json::json!(["forwardingSecretRef"]));
    assert_eq!(
        required("ProxyGroup", spec),
        serde_json::json!(["expose", "image", "networkRef", "replicas", "routing"])
    );
    assert_eq!(required("ServerGroup", spec), serde_json::json!(["image", "maxPlayers", "networkRef", "type"]));
    assert_eq!(required("Server", spec), serde_json::json!(["groupRef"]));
    let scaling = "/properties/spec/properties/scaling";
    assert_eq!(required("ServerGroup", scaling), serde_json::json!(["maxReplicas", "minReplicas", "spareSlots"]));
    for kind in ["Network", "ProxyGroup", "ServerGroup", "Server"] {
        assert_eq!(required(kind, "/properties/status"), Value::Null, "{kind}");
    }
}

#[test]
fn defaults_are_upstreams_and_the_additions_are_harmless() {
    let groups = schema("ServerGroup");
    let default = |pointer: &str| groups.pointer(pointer).unwrap()["default"].clone();
    let spec = "/properties/spec/properties";
    assert_eq!(
        default(&format!("{spec}/drain")),
        serde_json::json!({"timeoutSeconds": 60, "moveAfterSeconds": 0, "onDeadline": "Disconnect"})
    );
    assert_eq!(default(&format!("{spec}/terminationGracePeriodSeconds")), 60);
    assert_eq!(default(&format!("{spec}/failedRetentionSeconds")), 3600);
    assert_eq!(default(&format!("{spec}/scaling/properties/scaleDownStabilizationSeconds")), 300);
    assert_eq!(default(&format!("{spec}/update/properties/maxUnavailable")), 1);
    assert_eq!(default(&format!("{spec}/update/properties/maxStaleSeconds")), 0);
    assert_eq!(default(&format!("{spec}/storage/properties/accessModes")), serde_json::json!(["ReadWriteOnce"]));
    let proxies = schema("ProxyGroup");
    let spec = &proxies["properties"]["spec"]["properties"];
    assert_eq!(spec["drain"]["default"], serde_json::json!({"timeoutSeconds": 300, "onDeadline": "Disconnect"}));
    assert_eq!(spec["config"]["properties"]["onlineMode"]["default"], true);
    let balancer = &spec["expose"]["properties"]["loadBalancer"]["properties"];
    assert_eq!(balancer["externalTrafficPolicy"]["default"], "Local");
}

#[test]
fn lists_merge_by_their_keys() {
    let groups = schema("ServerGroup");
    let mounts = &groups["properties"]["spec"]["properties"]["mounts"];
    assert_eq!(mounts["x-kubernetes-list-type"], "map");
    assert_eq!(mounts["x-kubernetes-list-map-keys"], serde_json::json!(["name"]));
    for kind in ["Network", "ProxyGroup", "ServerGroup", "Server"] {
        let conditions = schema(kind)["properties"]["status"]["properties"]["conditions"].clone();
        assert_eq!(conditions["x-kubernetes-list-map-keys"], serde_json::json!(["type"]), "{kind}");
    }
}

/// What a Go client writes is read: zeros, unset pointers, numbers as quantities.
#[test]
fn objects_of_upstream_decode() {
    let server: Server = serde_json::from_value(serde_json::json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server", "metadata": {"name": "lobby-abcd"},
        "spec": {"groupRef": {"name": "lobby"}, "groupGeneration": 3, "podHash": "", "retire": false},
        "status": {"phase": "Ready", "players": 0, "slots": 0, "registered": false, "wasRegistered": false,
                   "readinessLosses": 0, "startedAt": "2026-08-22T10:00:00Z"}
    }))
    .unwrap();
    assert_eq!(server.spec.group_generation, 3);
    let group: ServerGroup = serde_json::from_value(serde_json::json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "ServerGroup", "metadata": {"name": "lobby"},
        "spec": {"networkRef": {"name": "n"}, "type": "Ephemeral", "image": "i", "maxPlayers": 100,
                 "scaling": {"minReplicas": 0, "maxReplicas": 1, "spareSlots": 0},
                 "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}, "drain": {"timeoutSeconds": 5}}
    }))
    .unwrap();
    assert_eq!(group.spec.drain.timeout_seconds, 5);
    assert_eq!(group.spec.drain.move_after_seconds, 0);
    assert_eq!(group.spec.scaling.unwrap().scale_down_stabilization_seconds, 300);
    assert_eq!(group.spec.resources.unwrap().limits.unwrap()["cpu"].0, "2");
    assert_eq!(group.status, None);
}

/// The examples hold to the types, nested fields included: what is not known would vanish on the way.
#[test]
fn examples_decode_without_loss() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for document in text.split("\n---\n") {
            let value: Value = serde_saphyr::from_str(document).unwrap();
            let again = match value["kind"].as_str().unwrap() {
                "Network" => serde_json::to_value(serde_json::from_value::<Network>(value.clone()).unwrap()),
                "ProxyGroup" => serde_json::to_value(serde_json::from_value::<ProxyGroup>(value.clone()).unwrap()),
                "ServerGroup" => serde_json::to_value(serde_json::from_value::<ServerGroup>(value.clone()).unwrap()),
                _ => continue,
            };
            assert_contains(&again.unwrap(), &value, &path.display().to_string());
            seen += 1;
        }
    }
    assert!(seen >= 5, "found {seen} of our objects in examples/");
}

fn assert_contains(whole: &Value, part: &Value, path: &str) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (key, value) in part {
                assert_contains(whole.get(key).unwrap_or(&Value::Null), value, &format!("{path}.{key}"));
            }
        }
        (Value::Array(whole), Value::Array(part)) if whole.len() == part.len() => {
            for (index, (whole, part)) in whole.iter().zip(part).enumerate() {
                assert_contains(whole, part, &format!("{path}[{index}]"));
            }
        }
        _ => assert_eq!(whole, part, "{path}"),
    }
}
