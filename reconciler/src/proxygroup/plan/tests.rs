use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use spawnery_api::view::PodView;
use spawnery_core::door::{DoorView, ProxyView};
use spawnery_core::rollout::HAND_OVER;

use super::*;
use crate::network::plan::NotUsable;
use crate::proxygroup::memory::OfGroup;
use crate::render::testing;

const HASH: &str = "0123456789abcdef";

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> String {
    (now() - jiff::SignedDuration::from_secs(seconds)).to_string()
}

/// A ready proxy whose door is open and on which nobody is.
fn sight(name: &str, annotations: Value, labels: Value) -> Sight {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "minecraft", "uid": format!("uid-of-{name}"),
            "creationTimestamp": ago(3600),
            "labels": {"spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": "proxy",
                       "spawnery.cloud/pod-hash": HASH},
            "annotations": {"spawnery.cloud/pod-inputs": "{}",
                            "cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        },
        "spec": {"nodeName": "node-a"},
        "status": {"phase": "Running", "hostIP": "192.0.2.7", "startTime": ago(3600),
                   "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (key, values) in [("annotations", annotations), ("labels", labels)] {
        for (name, value) in values.as_object().unwrap() {
            pod["metadata"][key][name] = value.clone();
        }
    }
    Sight {
        pod: Arc::new(serde_json::from_value::<PodView>(pod).unwrap()),
        view: ProxyView {
            connected: true,
            players: Some(0),
            last_players: 0,
            slots: 500,
            stale: false,
            ever_connected: true,
            stream_down_for: Duration::ZERO,
            empty_for: Some(Duration::from_mins(1)),
            occupied: false,
            enforced: true,
            door: DoorView::Open,
        },
        departing: false,
        caused_for: Duration::ZERO,
        sealed_for: Duration::ZERO,
        diverged_for: Duration::ZERO,
    }
}

fn plain(name: &str) -> Sight {
    sight(name, json!({}), json!({}))
}

fn with_players(mut sight: Sight, players: u32) -> Sight {
    sight.view.players = Some(players);
    sight.view.last_players = players;
    sight.view.occupied = players > 0;
    sight
}

fn door(mut sight: Sight, door: DoorView) -> Sight {
    sight.view.door = door;
    sight
}

fn requested(seconds: i64) -> Value {
    let request = json!({"time": ago(seconds), "requester": "admin"}).to_string();
    json!({"spawnery.cloud/eviction-requested": request})
}

fn draining(seconds: i64) -> Value {
    json!({"spawnery.cloud/draining-since": ago(seconds)})
}

fn both(mut a: Value, b: &Value) -> Value {
    a.as_object_mut().unwrap().extend(b.as_object().unwrap().clone());
    a
}

fn observed(pods: Vec<Sight>) -> Observed {
    let mut group = testing::proxy_group();
    group.metadata.finalizers = Some(vec!["spawnery.cloud/group".to_owned()]);
    Observed {
        group: Arc::new(group),
        pods,
        network: Ok(()),
        desired_hash: Some(HASH.to_owned()),
        creating: 0,
        service: None,
        foreign_budgets: vec![],
        memory: OfGroup::default(),
        now: now(),
    }
}

fn edit(mut seen: Observed, change: impl FnOnce(&mut spawnery_api::v1alpha1::ProxyGroup)) -> Observed {
    let mut group = (*seen.group).clone();
    change(&mut group);
    seen.group = Arc::new(group);
    seen
}

fn names<'a>(pods: impl IntoIterator<Item = &'a PodId>) -> Vec<&'a str> {
    pods.into_iter().map(|pod| pod.name.as_str()).collect()
}

fn closed(plan: &Plan) -> Vec<&str> {
    names(plan.doors.iter().filter(|door| !door.open).map(|door| &door.pod))
}

#[test]
fn a_new_group_gets_its_finalizer_first() {
    let seen = edit(observed(vec![]), |group| group.metadata.finalizers = None);
    assert_eq!(plan(&seen).finalizer, Finalizer::Add);
    assert_eq!(plan(&observed(vec![])).finalizer, Finalizer::Keep);
}

#[test]
fn a_group_at_rest_does_nothing() {
    let plan = plan(&observed(vec![plain("a"), plain("b")]));
    assert_eq!((plan.create, plan.marks, plan.seals, plan.removals, plan.wake), (0, vec![], vec![], vec![], None));
    assert!(plan.doors.iter().all(|door| door.open && door.since.is_none()), "{:?}", plan.doors);
}

#[test]
fn somebody_joins() {
    let plan = plan(&observed(vec![with_players(plain("a"), 3), plain("b")]));
    let [(pod, marks)] = plan.marks.as_slice() else { panic!("{:?}", plan.marks) };
    assert_eq!((pod.name.as_str(), pod.uid.as_str()), ("a", "uid-of-a"));
    assert!(marks.occupied && marks.do_not_disrupt.is_some());
    assert_eq!(plan.status.connected_players, 3);
}

/// A proxy whose agent nobody has heard, which counts as occupied wherever somebody may be on it.
fn unheard(conditions: &Value) -> Sight {
    let mut unheard = plain("a");
    let mut pod = (*unheard.pod).clone();
    pod.status =
        serde_json::from_value(json!({"phase": "Running", "startTime": ago(60), "conditions": conditions})).unwrap();
    unheard.pod = Arc::new(pod);
    unheard.view.ever_connected = false;
    unheard.view.occupied = true;
    unheard
}

#[rstest]
#[case::not_ready_since_it_began(json!([{"type": "Ready", "status": "False", "lastTransitionTime": ago(59)}]), false)]
#[case::it_was_ready_once(json!([{"type": "Ready", "status": "False", "lastTransitionTime": ago(30)}]), true)]
#[case::it_is_ready(json!([{"type": "Ready", "status": "True", "lastTransitionTime": ago(59)}]), true)]
#[case::since_when_is_unknown(json!([{"type": "Ready", "status": "False"}]), true)]
#[case::nobody_says(json!([]), true)]
fn a_proxy_that_was_never_ready_holds_nobody(#[case] conditions: Value, #[case] occupied: bool) {
    let by_service = plan(&observed(vec![unheard(&conditions), plain("b")]));
    assert_eq!(by_service.marks.iter().any(|(pod, marks)| pod.name == "a" && marks.occupied), occupied);
    let by_node = edit(observed(vec![unheard(&conditions), plain("b")]), |group| {
        group.spec.expose = serde_json::from_value(json!({"type": "HostPort", "hostPort": {"port": 25565}})).unwrap();
    });
    assert!(plan(&by_node).marks.iter().any(|(_, marks)| marks.occupied), "players need no Service there");
}

#[test]
fn a_network_that_cannot_be_used_stops_creation_and_nothing_else() {
    let mut seen = observed(vec![with_players(sight("a", requested(1), json!({})), 2)]);
    seen.network = Err(NotUsable::NotFound);
    seen.desired_hash = None;
    seen.pods[0].caused_for = PATIENCE;
    let plan = plan(&seen);
    assert_eq!((plan.create, closed(&plan)), (0, vec!["a"]));
    assert_eq!(plan.marks.len(), 1, "players are protected all the same");
}

#[test]
fn a_requested_eviction_waits_for_a_replacement_and_then_closes() {
    let waiting = plan(&observed(vec![sight("a", requested(1), json!({})), plain("b")]));
    assert_eq!((waiting.create, closed(&waiting)), (1, vec![]));
    assert_eq!(waiting.wake, Some(PATIENCE));
    let replaced = plan(&observed(vec![sight("a", requested(1), json!({})), plain("b"), plain("n")]));
    assert_eq!((replaced.create, closed(&replaced)), (0, vec!["a"]));
    let since = replaced.doors.iter().find(|door| !door.open).unwrap().since.clone();
    assert_eq!(since, Some(Since::Written(now())));
}

#[test]
fn a_request_that_nobody_repeats_reopens_the_door() {
    let expired = both(requested(601), &draining(300));
    let plan = plan(&observed(vec![sight("a", expired, json!({})), plain("b")]));
    assert_eq!(closed(&plan), [""; 0]);
    assert_eq!(names(&plan.expired), ["a"]);
    assert_eq!(plan.doors[0].since, Some(Since::Removed));
}

#[test]
fn an_unreadable_request_counts() {
    let mut seen = observed(vec![sight("a", json!({"spawnery.cloud/eviction-requested": "?"}), json!({})), plain("b")]);
    seen.pods[0].caused_for = PATIENCE;
    let plan = plan(&seen);
    assert_eq!((closed(&plan), plan.expired.clone()), (vec!["a"], vec![]));
}

#[test]
fn an_empty_closed_proxy_is_sealed_and_one_with_players_is_not() {
    let leaving = |state| door(sight("a", both(requested(1), &draining(5)), json!({})), state);
    let empty = plan(&observed(vec![leaving(DoorView::Empty), plain("b")]));
    assert_eq!(empty.seals, [(PodId { name: "a".to_owned(), uid: "uid-of-a".to_owned() }, SealReason::Empty)]);
    assert_eq!(empty.removals, []);
    let closing = DoorView::Closing { waiting_for: vec![] };
    let full = plan(&observed(vec![with_players(leaving(closing), 2), plain("b")]));
    assert_eq!((full.seals, full.removals), (vec![], vec![]));
}

#[test]
fn players_who_stay_are_disconnected_at_the_deadline_and_it_is_told() {
    let late = || {
        with_players(
            door(sight("a", both(requested(1), &draining(301)), json!({})), DoorView::Closing { waiting_for: vec![] }),
            7,
        )
    };
    let over = plan(&observed(vec![late(), plain("b")]));
    assert_eq!(over.seals[0].1, SealReason::Deadline);
    let told = over.events.iter().find(|told| told.reason == "ProxyDrainTimeout").unwrap();
    assert!(told.warning && told.note.contains('7') && told.note.contains("300"), "{told:?}");
    let patient = edit(observed(vec![late(), plain("b")]), |group| {
        group.spec.drain.on_deadline = spawnery_api::v1alpha1::OnDeadline::Hold;
    });
    assert_eq!(plan(&patient).seals, []);
}

fn sealed(name: &str, seconds: u64) -> Sight {
    let mut sight = sight(name, both(requested(1), &draining(9)), json!({"spawnery.cloud/sealed": "true"}));
    sight.view.door = DoorView::Sealed;
    sight.sealed_for = Duration::from_secs(seconds);
    sight
}

#[test]
fn a_sealed_pod_is_left_to_the_evictor_for_ten_seconds() {
    let fresh = plan(&observed(vec![sealed("a", 3), plain("b"), plain("c")]));
    assert_eq!((names(&fresh.removals), fresh.wake.unwrap() <= HAND_OVER), (vec![], true));
    let old = plan(&observed(vec![sealed("a", 10), plain("b"), plain("c")]));
    assert_eq!(names(&old.removals), ["a"]);
}

#[test]
fn a_sealed_pod_counts_for_nothing_and_never_opens() {
    let plan = plan(&observed(vec![sealed("a", 3), plain("b")]));
    assert_eq!((plan.create, closed(&plan)), (1, vec!["a"]));
}

#[test]
fn a_departing_node_is_told_once() {
    let mut leaving = plain("a");
    leaving.departing = true;
    let seen = observed(vec![leaving, plain("b"), plain("n")]);
    let first = plan(&seen);
    assert_eq!(closed(&first), ["a"]);
    assert!(
        first.events.iter().any(|told| told.reason == "NodeDraining" && told.note.contains("node-a")),
        "{:?}",
        first.events
    );
    let mut marked = sight("a", draining(3), json!({}));
    marked.departing = true;
    let later = plan(&observed(vec![marked, plain("b"), plain("n")]));
    assert!(later.events.iter().all(|told| told.action != "DrainProxy"), "{:?}", later.events);
}

#[test]
fn an_uncordoned_node_keeps_its_proxy() {
    let plan = plan(&observed(vec![sight("a", draining(3), json!({})), plain("b")]));
    assert_eq!((closed(&plan), plan.doors[0].since.clone()), (vec![], Some(Since::Removed)));
}

#[rstest]
#[case::another_hash(json!({}), json!({"spawnery.cloud/pod-hash": "ffffffffffffffff"}), 1)]
#[case::of_another_scheme(json!({"spawnery.cloud/pod-inputs": null}), json!({"spawnery.cloud/pod-hash": "ffffffffffffffff"}), 0)]
fn an_edit_surges_first(#[case] annotations: Value, #[case] labels: Value, #[case] create: u32) {
    let mut pod = sight("a", json!({}), labels);
    if annotations["spawnery.cloud/pod-inputs"].is_null() && annotations.get("spawnery.cloud/pod-inputs").is_some() {
        let mut view = (*pod.pod).clone();
        view.metadata.annotations.as_mut().unwrap().remove("spawnery.cloud/pod-inputs");
        pod.pod = Arc::new(view);
    }
    let plan = plan(&observed(vec![pod, plain("b")]));
    assert_eq!((plan.create, closed(&plan)), (create, vec![]));
}

#[test]
fn a_dead_pod_is_removed_and_replaced() {
    let mut dead = with_players(plain("a"), 3);
    let mut view = (*dead.pod).clone();
    view.status.phase = spawnery_api::view::PodPhase::Failed;
    dead.pod = Arc::new(view);
    let plan = plan(&observed(vec![dead, plain("b")]));
    assert_eq!((plan.create, names(&plan.removals), plan.marks), (1, vec!["a"], vec![]));
}

#[test]
fn a_deleted_group_drains_all_and_goes_last() {
    let deleted = |pods| {
        edit(observed(pods), |group| {
            group.metadata.deletion_timestamp = serde_json::from_value(json!(ago(1))).unwrap();
        })
    };
    let draining_group = plan(&deleted(vec![with_players(plain("a"), 2), door(plain("b"), DoorView::Empty)]));
    assert_eq!((draining_group.create, closed(&draining_group)), (0, vec!["a", "b"]));
    assert_eq!(draining_group.finalizer, Finalizer::Keep);
    assert_eq!(draining_group.seals.len(), 1);
    assert_eq!(plan(&deleted(vec![])).finalizer, Finalizer::Release);
}

#[test]
fn an_administrators_word_goes_over_a_hold() {
    let annotations = both(both(requested(1), &draining(3)), &json!({"spawnery.cloud/override": "true"}));
    let pod = with_players(door(sight("a", annotations, json!({})), DoorView::Closing { waiting_for: vec![] }), 2);
    let seen = edit(observed(vec![pod, plain("b")]), |group| {
        group.spec.drain.on_deadline = spawnery_api::v1alpha1::OnDeadline::Hold;
    });
    assert_eq!(plan(&seen).seals[0].1, SealReason::Override);
}

#[test]
fn a_foreign_budget_is_told_once() {
    let mut seen = observed(vec![plain("a"), plain("b")]);
    seen.foreign_budgets = vec!["mine".to_owned()];
    let first = plan(&seen);
    let told: Vec<_> = first.events.iter().map(|told| (told.warning, told.reason)).collect();
    assert_eq!(told, [(true, "OverlappingBudget")]);
    assert!(first.events[0].note.contains("mine"));
    let seen = edit(seen, |group| group.status = Some(first.status.clone()));
    assert_eq!(plan(&seen).events, []);
}

#[test]
fn a_changed_overlay_is_told_before_a_proxy_goes() {
    let old = sight("a", json!({}), json!({"spawnery.cloud/pod-hash": "ffffffffffffffff"}));
    let plan = plan(&observed(vec![old, plain("b")]));
    assert_eq!((closed(&plan), plan.removals.clone()), (vec![], vec![]));
    let told = plan.events.iter().find(|told| told.reason == "ConfigChanged").unwrap();
    assert!(told.warning && told.note.starts_with("1 proxies"), "{told:?}");
}

/// A proxy that somebody deleted past us, and that the kubelet ends in so many seconds.
fn going(name: &str, seconds: i64) -> Sight {
    let mut sight = plain(name);
    let mut pod = (*sight.pod).clone();
    pod.metadata.deletion_timestamp = Some(ago(-seconds).parse::<Timestamp>().unwrap().into());
    pod.metadata.deletion_grace_period_seconds = Some(300);
    sight.pod = Arc::new(pod);
    sight
}

#[rstest]
#[case::with_players(with_players(going("a", 200), 3), None, Some(195))]
#[case::empty(door(going("a", 200), DoorView::Empty), Some(SealReason::Empty), None)]
#[case::with_players_at_the_end_of_its_grace(with_players(going("a", 5), 3), Some(SealReason::Deadline), None)]
#[case::with_players_past_its_grace(with_players(going("a", -5), 3), Some(SealReason::Deadline), None)]
fn the_players_of_a_terminating_proxy_keep_its_grace(
    #[case] sight: Sight,
    #[case] seal: Option<SealReason>,
    #[case] wake: Option<u64>,
) {
    let plan = plan(&observed(vec![sight, plain("b"), plain("c")]));
    let closed: Vec<_> = plan.doors.iter().filter(|door| !door.open).collect();
    assert_eq!(closed.iter().map(|door| door.pod.name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(closed[0].since, None);
    assert_eq!(
        plan.seals.iter().map(|(pod, reason)| (pod.name.as_str(), *reason)).collect::<Vec<_>>(),
        seal.map(|reason| ("a", reason)).into_iter().collect::<Vec<_>>()
    );
    assert_eq!((plan.create, plan.removals, plan.wake), (0, vec![], wake.map(Duration::from_secs)));
}
