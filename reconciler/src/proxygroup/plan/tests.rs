use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use spawnery_core::door::DoorView;
use spawnery_core::rollout::{Departure, HAND_OVER};

use super::*;
use crate::network::plan::NotUsable;
use crate::proxygroup::observed::one_per_node;
use crate::proxygroup::testing::{
    ago, both, closed, door, draining, edit, names, now, observed, plain, requested, sight, with_players,
};
use crate::render;

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

/// A proxy with players whose door was told to close longer ago than they may take.
fn late(state: DoorView) -> Sight {
    with_players(door(sight("a", both(requested(1), &draining(301)), json!({})), state), 7)
}

fn shut(mut sight: Sight, seconds: u64) -> Sight {
    sight.view.shut_for = Duration::from_secs(seconds);
    sight
}

#[test]
fn no_deadline_runs_while_somebody_may_still_get_in() {
    let mut deaf = late(DoorView::Closing { waiting_for: vec!["the service's endpoints".to_owned()] });
    deaf.diverged_for = Duration::from_mins(1);
    let first = plan(&observed(vec![deaf, plain("b")]));
    assert_eq!((first.seals.clone(), closed(&first)), (vec![], vec!["a"]));
    let told = first.events.iter().find(|told| told.reason == "ReadinessDiverged").unwrap();
    assert!(told.warning && told.note.contains(": a."), "{told:?}");
    let heard = plan(&observed(vec![shut(late(DoorView::Closed { waiting_for: vec![] }), 20), plain("b")]));
    assert_eq!((heard.seals, heard.wake), (vec![], Some(Duration::from_secs(280))));
    // The kubelet took it off the Service; whether its agent ever says so does not matter.
    let silent = shut(late(DoorView::Closing { waiting_for: vec!["a".to_owned()] }), 300);
    assert_eq!(plan(&observed(vec![silent, plain("b")])).seals[0].1, SealReason::Deadline);
}

#[test]
fn players_who_stay_are_disconnected_at_the_deadline_and_it_is_told() {
    let late = || shut(late(DoorView::Closed { waiting_for: vec![] }), 300);
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
    leaving.departure = Departure::Underway;
    let seen = observed(vec![leaving, plain("b"), plain("n")]);
    let first = plan(&seen);
    assert_eq!(closed(&first), ["a"]);
    assert!(
        first.events.iter().any(|told| told.reason == "NodeDraining" && told.note.contains("node-a")),
        "{:?}",
        first.events
    );
    let mut marked = sight("a", draining(3), json!({}));
    marked.departure = Departure::Underway;
    let later = plan(&observed(vec![marked, plain("b"), plain("n")]));
    assert!(later.events.iter().all(|told| told.action != "DrainProxy"), "{:?}", later.events);
}

#[test]
fn an_uncordoned_node_keeps_its_proxy() {
    let plan = plan(&observed(vec![sight("a", draining(3), json!({})), plain("b")]));
    assert_eq!((closed(&plan), plan.doors[0].since.clone()), (vec![], Some(Since::Removed)));
}

#[test]
fn an_uncordoned_node_takes_what_its_drain_asked_for_back() {
    let asked = || sight("a", both(requested(60), &draining(50)), json!({}));
    let mut called_off = asked();
    called_off.departure = Departure::CalledOff(now());
    let reopened = plan(&observed(vec![called_off, plain("b")]));
    assert_eq!((closed(&reopened), names(&reopened.expired)), (vec![], vec!["a"]));
    assert_eq!(reopened.doors[0].since, Some(Since::Removed));
    // Its replacement is the one too many, not the proxy with people on it.
    let mut replaced = with_players(asked(), 2);
    replaced.departure = Departure::CalledOff(now());
    replaced.released_for = Some(Duration::ZERO);
    let replaced = plan(&observed(vec![replaced, plain("b"), plain("n")]));
    assert_eq!((closed(&replaced), replaced.seals.len()), (vec![], 0));
    // Where nothing was cordoned nothing is called off.
    let elsewhere = plan(&observed(vec![asked(), plain("b")]));
    assert_eq!((closed(&elsewhere), names(&elsewhere.expired)), (vec!["a"], vec![]));
}

#[test]
fn a_newcomer_without_a_node_is_waited_for() {
    let old = || sight("a", json!({}), json!({"spawnery.cloud/pod-hash": "ffffffffffffffff"}));
    let homeless = |seconds| {
        let mut newcomer = plain("n");
        let mut pod = (*newcomer.pod).clone();
        pod.status = serde_json::from_value(json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no free ports"}]}))
        .unwrap();
        newcomer.pod = Arc::new(pod);
        newcomer.unschedulable_for = Duration::from_secs(seconds);
        newcomer
    };
    let apart = |pods, replicas| {
        let seen = edit(observed(pods), |group| group.spec.replicas = replicas);
        plan(&Observed { one_per_node: true, ..seen })
    };
    let two = |seconds| vec![old(), plain("b"), homeless(seconds)];
    let young = apart(two(20), 2);
    assert_eq!((closed(&young), young.wake), (vec![], Some(Duration::from_secs(40))));
    let late = apart(two(60), 2);
    assert_eq!((closed(&late), late.create), (vec!["a"], 0));
    let only = apart(vec![old(), homeless(60)], 1);
    assert_eq!((closed(&only), only.wake), (vec![], Some(Duration::from_mins(9))), "a node may be on its way");
    assert_eq!(closed(&apart(vec![old(), homeless(600)], 1)), ["a"]);
    let elsewhere = plan(&observed(two(600)));
    assert_eq!((closed(&elsewhere), elsewhere.wake), (vec![], None), "another proxy's going would not help it");
    assert_eq!(apart(vec![plain("a"), homeless(20)], 2).wake, None, "nothing waits for it");
}

/// Two of them never on one node.
fn apart() -> Value {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "proxy"}}});
    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
}

#[rstest]
#[case::a_port_of_the_node(json!({"expose": {"type": "HostPort", "hostPort": {"port": 25565}}}), json!({}), true)]
#[case::kept_apart(json!({"scheduling": {"affinity": apart()}}), json!({}), true)]
#[case::kept_apart_by_the_network(json!({}), json!({"scheduling": {"affinity": apart()}}), true)]
#[case::its_own_word_counts(json!({"scheduling": {"affinity": {}}}), json!({"scheduling": {"affinity": apart()}}), false)]
#[case::apart_if_possible(json!({"scheduling": {"affinity": {"podAntiAffinity": {
    "preferredDuringSchedulingIgnoredDuringExecution": []}}}}), json!({}), false)]
#[case::anywhere(json!({}), json!({}), false)]
fn a_node_takes_one_proxy(#[case] spec: Value, #[case] defaults: Value, #[case] one: bool) {
    let mut group = json!(render::testing::proxy_group().spec);
    group["scheduling"] = Value::Null;
    let group = serde_json::from_value(both(group, &spec)).unwrap();
    let network = json!({"forwardingSecretRef": {"name": "forwarding"}, "defaults": defaults});
    assert_eq!(one_per_node(&group, Some(&serde_json::from_value(network).unwrap())), one);
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
fn a_deleted_group_waits_for_no_agent_that_never_came() {
    let pod = || sight("a", draining(301), json!({}));
    let broken = |shut_for| {
        let mut sight = shut(door(pod(), DoorView::Closed { waiting_for: vec!["a".to_owned()] }), shut_for);
        sight.view.ever_connected = false;
        edit(observed(vec![sight]), |group| {
            group.spec.expose =
                serde_json::from_value(json!({"type": "HostPort", "hostPort": {"port": 25565}})).unwrap();
            group.metadata.deletion_timestamp = serde_json::from_value(json!(ago(301))).unwrap();
        })
    };
    let waiting = plan(&broken(0));
    assert_eq!((waiting.seals.len(), waiting.finalizer), (0, Finalizer::Keep));
    assert_eq!(plan(&broken(300)).seals[0].1, SealReason::Deadline);
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
