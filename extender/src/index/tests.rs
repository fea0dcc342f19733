use serde_json::{Value, json};

use super::*;
use crate::testing::{node, people, plain, pod_json, proxy, server};

fn index() -> Index {
    let mut index = Index::new(vec!["going".to_owned()], None);
    index.node_applied(&plain("n1"));
    index.node_applied(&plain("n2"));
    index
}

fn asked(role: &str, group: &str) -> Asked {
    let pod: PodView = serde_json::from_value(pod_json("new", role, group, "")).unwrap();
    Asked::of(&pod).unwrap()
}

fn server_at(index: &Index, node: &str) -> Place {
    index.seen_by(&asked("server", "lobby")).place(node).unwrap()
}

/// The pod of a server with something about it changed.
fn changed(pointer: &str, value: Value) -> PodView {
    let mut pod = pod_json("a", "server", "lobby", "n1");
    let (parent, field) = pointer.rsplit_once('|').unwrap();
    pod.pointer_mut(parent).unwrap()[field] = value;
    serde_json::from_value(pod).unwrap()
}

#[test]
fn counts_people_where_the_pod_is() {
    let mut index = index();
    index.server_applied(&people("a", 3, 20));
    index.pod_applied(&server("a", "n1"));
    index.pod_applied(&server("b", "n1"));
    let want = Place { people: 3, servers: 2, slots: 40, ..Place::default() };
    assert_eq!(server_at(&index, "n1"), want);
    index.server_applied(&people("a", 5, 20));
    assert_eq!(server_at(&index, "n1").people, 5);
    assert_eq!(server_at(&index, "n2"), Place::default());
}

#[test]
fn what_goes_is_no_longer_counted() {
    let mut index = index();
    index.server_applied(&people("a", 3, 20));
    index.pod_applied(&server("a", "n1"));
    index.server_gone(&people("a", 3, 20));
    assert_eq!(server_at(&index, "n1"), Place { servers: 1, slots: 20, ..Place::default() });
    index.pod_gone(&server("a", "n1"));
    assert_eq!(server_at(&index, "n1"), Place::default());
    assert!(index.homes.is_empty() && index.people.is_empty());
}

#[test]
fn a_pod_that_ended_or_moved_leaves_its_node() {
    let mut index = index();
    index.pod_applied(&server("a", "n1"));
    index.pod_applied(&server("a", "n2"));
    assert_eq!((server_at(&index, "n1").servers, server_at(&index, "n2").servers), (0, 1));
    index.pod_applied(&changed("/status|phase", json!("Failed")));
    assert_eq!(server_at(&index, "n2"), Place::default());
}

#[test]
fn what_leaves_keeps_its_slots_and_attracts_nobody() {
    for leaving in [
        changed("/metadata|deletionTimestamp", json!("2026-11-29T12:00:00Z")),
        changed("/metadata/labels|spawnery.cloud/sealed", json!("true")),
    ] {
        let mut index = index();
        index.server_applied(&people("a", 3, 20));
        index.pod_applied(&leaving);
        assert_eq!(server_at(&index, "n1"), Place { slots: 20, ..Place::default() });
    }
}

#[test]
fn unknown_is_somebody() {
    let mut index = index();
    index.pod_applied(&changed("/metadata/labels|spawnery.cloud/occupied", json!("true")));
    assert_eq!(server_at(&index, "n1").people, 1);
}

#[test]
fn slots_are_those_declared_else_those_reported() {
    let mut index = index();
    index.server_applied(&people("a", 0, 60));
    index.pod_applied(&server("a", "n1"));
    assert_eq!(server_at(&index, "n1").slots, 20);
    index.pod_applied(&changed("/metadata|annotations", json!({})));
    assert_eq!(server_at(&index, "n1").slots, 60);
    index.server_applied(&people("a", 70, 60));
    assert_eq!(server_at(&index, "n1").slots, 70);
}

#[test]
fn siblings_are_proxies_of_the_same_group() {
    let mut index = index();
    index.pod_applied(&proxy("p", "gateway", "n1"));
    index.pod_applied(&proxy("q", "bedrock", "n1"));
    let place = index.seen_by(&asked("proxy", "gateway")).place("n1").unwrap();
    assert_eq!((place.siblings, place.proxies, place.servers), (1, 2, 0));
    assert_eq!(server_at(&index, "n1").siblings, 0);
    for gone in ["p", "q"] {
        let siblings = || index.seen_by(&asked("proxy", "gateway")).place("n1").unwrap().siblings;
        assert_eq!(siblings(), u32::from(gone == "p"));
        index.pod_gone(&proxy(gone, "gateway", "n1"));
    }
    assert_eq!(format!("{:?}", index.board), format!("{:?}", super::tests::index().board));
}

#[test]
fn a_node_departs_and_has_a_budget() {
    let mut index = Index::new(vec!["going".to_owned()], Some(100));
    index.node_applied(&plain("n1"));
    assert_eq!(server_at(&index, "n1"), Place { budget: Some(100), ..Place::default() });
    let spec = json!({ "taints": [{ "key": "going", "effect": "NoSchedule" }] });
    index.node_applied(&node("n1", &spec, &json!({ "spawnery.cloud/player-budget": "40" })));
    assert_eq!(server_at(&index, "n1"), Place { departing: true, budget: Some(40), ..Place::default() });
    index.node_applied(&node("n1", &json!({}), &json!({ "spawnery.cloud/player-budget": "many" })));
    assert_eq!(server_at(&index, "n1"), Place { budget: Some(100), ..Place::default() });
}

#[test]
fn a_node_is_known_while_the_api_server_shows_it() {
    let mut index = index();
    let asked = asked("server", "lobby");
    assert_eq!(index.seen_by(&asked).place("elsewhere"), None);
    // The watch of pods may be ahead of that of nodes.
    index.pod_applied(&server("a", "n3"));
    assert_eq!(index.seen_by(&asked).place("n3"), None);
    index.node_applied(&plain("n3"));
    assert_eq!(server_at(&index, "n3").servers, 1);
    index.node_gone(&plain("n3"));
    assert_eq!(index.seen_by(&asked).place("n3"), None);
    index.pod_gone(&server("a", "n3"));
    assert!(!index.nodes.contains_key("n3"));
}

#[test]
fn others_pods_are_none_of_our_business() {
    let pod: PodView = serde_json::from_value(json!({ "metadata": { "name": "x", "namespace": "y" } })).unwrap();
    assert_eq!(Asked::of(&pod), None);
    let mut index = index();
    index.pod_applied(&changed("/metadata/labels|spawnery.cloud/managed-by", json!("somebody")));
    assert_eq!(server_at(&index, "n1"), Place::default());
}
