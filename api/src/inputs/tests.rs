use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn network() -> NetworkSpec {
    serde_json::from_value(json!({
        "forwardingSecretRef": {"name": "forwarding"},
        "defaults": {"imagePullSecrets": [{"name": "registry"}],
                     "resources": {"limits": {"memory": "1Gi"}},
                     "scheduling": {"nodeSelector": {"pool": "games"}}}
    }))
    .unwrap()
}

fn server_group() -> Value {
    json!({
        "networkRef": {"name": "main"}, "type": "Ephemeral", "image": "paper:1", "maxPlayers": 20,
        "scaling": {"minReplicas": 1, "maxReplicas": 3, "spareSlots": 5}
    })
}

fn proxy_group() -> Value {
    json!({
        "networkRef": {"name": "main"}, "replicas": 1, "image": "velocity:1",
        "expose": {"type": "NodePort", "nodePort": {"port": 30000}}, "routing": {"fallbackGroups": ["lobby"]}
    })
}

fn patched(mut base: Value, patch: &Value) -> Value {
    merge(&mut base, patch);
    base
}

fn merge(base: &mut Value, patch: &Value) {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, patch) => *base = patch.clone(),
    }
}

fn server_hash(spec: Value, overlay: Option<ContentDigest>) -> String {
    let spec = serde_json::from_value(spec).unwrap();
    server(&spec, Some(&network()), overlay).unwrap().hash().to_string()
}

fn proxy_hash(spec: Value) -> String {
    proxy(&serde_json::from_value(spec).unwrap(), Some(&network()), None).unwrap().hash().to_string()
}

#[rstest]
#[case::image(json!({"image": "paper:2"}))]
#[case::max_players(json!({"maxPlayers": 21}))]
#[case::grace(json!({"terminationGracePeriodSeconds": 61}))]
#[case::own_resources(json!({"resources": {"limits": {"memory": "2Gi"}}}))]
#[case::own_scheduling(json!({"scheduling": {"nodeSelector": {"pool": "other"}}}))]
#[case::toleration(json!({"scheduling": {"tolerations": [{"key": "k", "operator": "Exists"}]}}))]
#[case::affinity(json!({"scheduling": {"affinity": {"podAntiAffinity": {}}}}))]
#[case::mount(json!({"mounts": [{"name": "m", "mountPath": "/m", "configMap": {"name": "c"}}]}))]
#[case::overlay_name(json!({"configOverlay": {"name": "overlay"}}))]
fn an_edit_of_a_server_groups_inputs_changes_the_hash(#[case] edit: Value) {
    assert_ne!(server_hash(patched(server_group(), &edit), None), server_hash(server_group(), None));
}

#[rstest]
#[case::scaling(json!({"scaling": {"minReplicas": 2, "spareSlots": 50}}))]
#[case::update(json!({"update": {"maxUnavailable": 3}}))]
#[case::drain(json!({"drain": {"timeoutSeconds": 5, "moveAfterSeconds": 9, "onDeadline": "Hold"}}))]
#[case::retention(json!({"failedRetentionSeconds": 5}))]
#[case::grace_spelled_out(json!({"terminationGracePeriodSeconds": 60}))]
#[case::what_was_inherited_spelled_out(json!({"resources": {"limits": {"memory": "1Gi"}}}))]
fn an_edit_of_anything_else_does_not(#[case] edit: Value) {
    assert_eq!(server_hash(patched(server_group(), &edit), None), server_hash(server_group(), None));
}

#[test]
fn the_overlays_contents_are_an_input() {
    let spec = patched(server_group(), &json!({"configOverlay": {"name": "overlay"}}));
    let hash = |text: &[u8]| server_hash(spec.clone(), Some(ContentDigest::of_files([("a.yml", text)])));
    assert_ne!(hash(b"one"), hash(b"two"));
    assert_eq!(hash(b"one"), hash(b"one"));
}

#[test]
fn mounts_are_a_set() {
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}"), "secret": {"secretName": "s"}});
    let hash = |mounts: Value| server_hash(patched(server_group(), &json!({ "mounts": mounts })), None);
    assert_eq!(hash(json!([mount("a"), mount("b")])), hash(json!([mount("b"), mount("a")])));
}

#[rstest]
#[case::image(json!({"image": "velocity:2"}), true)]
#[case::player_limit(json!({"config": {"playerLimit": 7}}), true)]
#[case::motd(json!({"config": {"motd": "hello"}}), true)]
#[case::online_mode(json!({"config": {"onlineMode": false}}), true)]
#[case::host_port(json!({"expose": {"type": "HostPort", "hostPort": {"port": 25565}}}), true)]
#[case::replicas(json!({"replicas": 9}), false)]
#[case::routing(json!({"routing": {"fallbackGroups": ["a", "b"]}}), false)]
#[case::drain(json!({"drain": {"timeoutSeconds": 1}}), false)]
#[case::node_port(json!({"expose": {"nodePort": {"port": 30001}}}), false)]
#[case::another_service_type(json!({"expose": {"type": "LoadBalancer", "nodePort": null}}), false)]
#[case::limit_spelled_out(json!({"config": {"playerLimit": 500, "onlineMode": true}}), false)]
#[case::empty_motd(json!({"config": {"motd": ""}}), false)]
fn edits_of_a_proxy_group(#[case] edit: Value, #[case] rolls: bool) {
    let changed = proxy_hash(patched(proxy_group(), &edit)) != proxy_hash(proxy_group());
    assert_eq!(changed, rolls);
}

#[test]
fn the_networks_defaults_are_inputs_where_a_group_inherits_them() {
    let spec: ServerGroupSpec = serde_json::from_value(server_group()).unwrap();
    let own: ServerGroupSpec =
        serde_json::from_value(patched(server_group(), &json!({"resources": {"limits": {"memory": "9Gi"}}}))).unwrap();
    let mut other = network();
    other.defaults.as_mut().unwrap().resources = serde_json::from_value(json!({"limits": {"memory": "3Gi"}})).unwrap();
    let hash = |spec: &ServerGroupSpec, network: &NetworkSpec| server(spec, Some(network), None).unwrap().hash();
    assert_ne!(hash(&spec, &network()), hash(&spec, &other));
    assert_eq!(hash(&own, &network()), hash(&own, &other));
}
