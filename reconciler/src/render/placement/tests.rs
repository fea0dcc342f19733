use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::render::{ProxyPod, ServerPod, proxy_pod, server_pod, testing};

const ENDPOINT: &str = "spawnery-operator.spawnery-system.svc:9443";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// A server whose group has this scheduling, and says what it needs.
fn server(scheduling: &Value) -> Pod {
    let mut group = testing::server_group();
    group.spec.scheduling = serde_json::from_value(scheduling.clone()).unwrap();
    group.spec.resources = serde_json::from_value(json!({"limits": {"cpu": "1", "memory": "1Gi"}})).unwrap();
    let request = ServerPod {
        server: &testing::server("lobby", "lobby-a"),
        group: &group,
        network: &testing::network(),
        inputs: &testing::server_inputs(&group),
        endpoint: ENDPOINT,
    };
    server_pod(&request).unwrap()
}

/// A proxy whose group has this scheduling.
fn proxy(scheduling: &Value) -> Pod {
    let mut group = testing::proxy_group();
    group.spec.scheduling = serde_json::from_value(scheduling.clone()).unwrap();
    let request = ProxyPod {
        name: "gateway-a",
        group: &group,
        network: &testing::network(),
        inputs: &testing::proxy_inputs(&group),
        endpoint: ENDPOINT,
    };
    proxy_pod(&request).unwrap()
}

fn spec(placement: &Placement, role: Role, pod: Pod) -> Value {
    serde_json::to_value(placement.of(role, pod).spec).unwrap()
}

fn named(scheduler: &str) -> Placement {
    Placement { scheduler: Some(scheduler.to_owned()), resource: false }
}

#[test]
fn by_default_pods_say_their_neighbours_and_nothing_else() {
    let mut spec = placed_by_default(Role::Server, server(&Value::Null));
    assert_eq!(spec["affinity"]["podAffinity"][PREFERRED].as_array().map(Vec::len), Some(2));
    spec["affinity"].take();
    let mut bare = serde_json::to_value(server(&Value::Null).spec).unwrap();
    bare["affinity"] = Value::Null;
    assert_eq!(spec, bare);
    let spec = placed_by_default(Role::Proxy, proxy(&Value::Null));
    assert_eq!(spec["affinity"]["podAntiAffinity"][PREFERRED].as_array().map(Vec::len), Some(1));
}

fn placed_by_default(role: Role, pod: Pod) -> Value {
    spec(&Placement::default(), role, pod)
}

/// The schema says of an owner's affinity that it replaces the other.
#[rstest]
#[case::an_empty_one(json!({}))]
#[case::of_nodes_alone(json!({"nodeAffinity": {PREFERRED: []}}))]
#[case::of_pods(json!({"podAntiAffinity": {PREFERRED: []}}))]
fn an_owners_affinity_is_the_pods(#[case] own: Value) {
    let scheduling = json!({ "affinity": own });
    assert_eq!(placed_by_default(Role::Server, server(&scheduling))["affinity"], own);
    assert_eq!(placed_by_default(Role::Proxy, proxy(&scheduling))["affinity"], own);
}

#[test]
fn what_else_an_owner_says_about_scheduling_leaves_the_default() {
    let scheduling = json!({"nodeSelector": {"pool": "fast"}, "tolerations": [{"operator": "Exists"}]});
    assert!(placed_by_default(Role::Server, server(&scheduling))["affinity"]["podAffinity"].is_object());
    assert!(placed_by_default(Role::Proxy, proxy(&scheduling))["affinity"]["podAntiAffinity"].is_object());
}

#[test]
fn a_server_that_does_not_say_what_it_needs_is_not_packed() {
    let mut pod = server(&Value::Null);
    pod.spec.as_mut().unwrap().containers.first_mut().unwrap().resources = None;
    assert_eq!(placed_by_default(Role::Server, pod).get("affinity"), None);
}

#[rstest]
#[case::our_scheduler(named("spawnery"), false)]
#[case::marked(Placement { scheduler: None, resource: true }, false)]
#[case::marked_for_a_scheduler(Placement { scheduler: Some("theirs".to_owned()), resource: true }, false)]
#[case::a_scheduler_of_the_owners(named("theirs"), true)]
#[case::the_default(Placement::default(), true)]
fn who_asks_the_extender_is_told_nothing(#[case] placement: Placement, #[case] said: bool) {
    assert_eq!(spec(&placement, Role::Server, server(&Value::Null)).get("affinity").is_some(), said);
    assert_eq!(spec(&placement, Role::Proxy, proxy(&Value::Null)).get("affinity").is_some(), said);
}

/// The hashes are those of pods that were made before there was a default affinity, so that an upgrade rolls none.
#[test]
fn what_pods_say_to_schedulers_is_not_in_their_hash() {
    let pods = [
        (Role::Server, server(&Value::Null), "826aa86806f8ac05"),
        (Role::Proxy, proxy(&Value::Null), "042d38073c772f16"),
    ];
    let placements = [Placement::default(), named("spawnery"), Placement { scheduler: None, resource: true }];
    for placement in placements {
        for (role, pod, hash) in pods.clone() {
            let before = pod.metadata.clone();
            let after = placement.of(role, pod).metadata;
            assert_eq!(after, before, "{placement:?}");
            assert_eq!(after.labels.unwrap()["spawnery.cloud/pod-hash"], hash);
            assert!(!after.annotations.unwrap()["spawnery.cloud/pod-inputs"].contains("ffinity"));
        }
    }
}

#[test]
fn a_scheduler_is_named() {
    let spec = spec(&named("theirs"), Role::Server, server(&Value::Null));
    assert_eq!(spec["schedulerName"], "theirs");
    assert_eq!(spec["containers"][0]["resources"], json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
}

#[test]
fn the_game_is_marked_and_keeps_what_it_asks_for() {
    let spec = spec(&Placement { scheduler: None, resource: true }, Role::Server, server(&Value::Null));
    assert!(spec.get("schedulerName").is_none());
    let want = json!({
        "limits": { "cpu": "1", "memory": "1Gi", "spawnery.cloud/placement": "1" },
        "requests": { "spawnery.cloud/placement": "1" },
    });
    assert_eq!(spec["containers"][0]["resources"], want);
}
