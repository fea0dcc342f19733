//! A group's plans. The sizing rule itself has its table in the core; here is what surrounds it.

use super::super::observed::Refusal;
use super::*;
use rstest::rstest;
use spawnery_api::names::finalizer;
use spawnery_api::v1alpha1::{Scaling, ServerGroup};
use spawnery_core::sizing::Reservations;
use std::collections::BTreeSet;
use std::time::Duration;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn at(seconds: i64) -> Timestamp {
    Timestamp::constant(1_800_000_000 + seconds, 0)
}

struct Scene {
    group: ServerGroup,
    usable: Result<(), Refusal>,
    members: Vec<Member>,
    departing_nodes: BTreeSet<String>,
    foreign_budgets: BTreeSet<String>,
    reserved: Reservations,
    refused: Option<&'static str>,
}

/// A ready, empty server of 20 slots.
fn member(name: &str) -> Member {
    Member {
        name: name.to_owned(),
        phase: Phase::Ready,
        generation: 3,
        current: true,
        created_at: at(-600),
        players: 0,
        slots: 20,
        stale: false,
        silent_for: Duration::ZERO,
        was_registered: true,
        retire: false,
        deleting: false,
        condemned: false,
        closing: false,
        sessions_gone: false,
        empty_for: Some(Duration::from_mins(1)),
        ready_since: Some(at(-600)),
        failed_at: None,
    }
}

/// One that failed before it ever took players.
fn failed(name: &str, seconds: i64) -> Member {
    let failed_at = Some(at(seconds));
    Member { phase: Phase::Failed, failed_at, ready_since: None, was_registered: false, ..member(name) }
}

/// Six of them, each made after the one before it had failed.
fn failed_in_a_row() -> Vec<Member> {
    let attempt = |n: i64| Member { created_at: at(-20 * n - 5), ..failed(&format!("f{n}"), -20 * n) };
    (0..6).map(attempt).collect()
}

impl Scene {
    /// 1 to 5 servers of 20 slots, 10 of them spare.
    fn new(members: Vec<Member>) -> Self {
        let mut group = ServerGroup::default();
        group.metadata.generation = Some(3);
        group.metadata.finalizers = Some(vec![finalizer::GROUP.to_owned()]);
        group.spec.max_players = 20;
        group.spec.scaling =
            Some(Scaling { min_replicas: 1, max_replicas: 5, spare_slots: 10, scale_down_stabilization_seconds: 300 });
        Self {
            group,
            usable: Ok(()),
            members,
            departing_nodes: BTreeSet::new(),
            foreign_budgets: BTreeSet::new(),
            reserved: Reservations::default(),
            refused: None,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn unusable(self) -> Self {
        self.with(|s| s.usable = Err(Refusal { reason: reason::NETWORK_NOT_FOUND, message: "gone".to_owned() }))
    }

    fn deleted(self) -> Self {
        self.with(|s| s.group.metadata.deletion_timestamp = Some(at(-1).into()))
    }

    fn plan(&self) -> Plan {
        plan(&Observed {
            group: &self.group,
            usable: self.usable.clone(),
            members: self.members.clone(),
            departing_nodes: self.departing_nodes.clone(),
            foreign_budgets: self.foreign_budgets.clone(),
            reserved: self.reserved.clone(),
            refused: self.refused,
            now: NOW,
        })
    }

    /// The plan after this one was carried out as far as the status goes.
    fn next(mut self) -> Self {
        self.group.status = Some(self.plan().status);
        self
    }
}

fn condition_of(plan: &Plan, kind: &str) -> (bool, String) {
    let condition = conditions::get(&plan.status.conditions, kind).unwrap();
    (condition.status == "True", condition.reason.clone())
}

fn told(plan: &Plan) -> Vec<(bool, &str)> {
    plan.events.iter().map(|event| (event.warning, event.reason)).collect()
}

fn removals(plan: &Plan) -> Vec<(&str, &str)> {
    plan.delete.iter().map(|removal| (removal.name.as_str(), removal.reason)).collect()
}

#[test]
fn a_settled_group_writes_nothing() {
    let scene = Scene::new(vec![member("a")]).next();
    let plan = scene.plan();
    assert_eq!(Some(&plan.status), scene.group.status.as_ref());
    assert_eq!((plan.create, plan.delete.len(), plan.retire, plan.finalizer), (0, 0, None, Finalizer::Keep));
    assert!(plan.events.is_empty());
    assert_eq!(plan.wake, Some(at(240)), "when the idle server's time comes up");
}

#[test]
fn a_silent_server_keeps_its_room_for_a_moment_and_is_looked_at_when_that_is_over() {
    let silent = |seconds| {
        let silent_for = Duration::from_secs(seconds);
        Scene::new(vec![Member { stale: true, silent_for, empty_for: None, ..member("a") }]).plan()
    };
    let (patient, over) = (silent(12), silent(30));
    assert_eq!((patient.create, patient.wake), (0, Some(at(18))));
    assert_eq!(over.create, 1);
}

#[test]
fn the_finalizer_comes_first() {
    let plan = Scene::new(vec![]).with(|s| s.group.metadata.finalizers = None).plan();
    assert_eq!((plan.finalizer, plan.create), (Finalizer::Add, 0));
}

#[rstest]
#[case::usable(Scene::new(vec![]), (true, "Accepted"), 1)]
#[case::not_usable(Scene::new(vec![]).unusable(), (false, "NetworkNotFound"), 0)]
fn accepts(#[case] scene: Scene, #[case] accepted: (bool, &str), #[case] create: u32) {
    let plan = scene.plan();
    assert_eq!(condition_of(&plan, condition::ACCEPTED), (accepted.0, accepted.1.to_owned()));
    assert_eq!(plan.create, create);
}

#[test]
fn an_unusable_group_still_condemns_prunes_and_counts() {
    let coming_up = Member { was_registered: false, stale: true, condemned: true, ..member("c") };
    let plan = Scene::new(vec![failed("a", -9), failed("b", -8), coming_up]).unusable().plan();
    assert_eq!(removals(&plan), [("b", event::FAILED_SERVER_PRUNED), ("c", event::NODE_DRAINING)]);
    assert_eq!(plan.status.replicas, 3);
    assert!(plan.events.is_empty());
}

// Failures.

#[test]
fn failures_delay_the_next_server_and_then_end_it() {
    let one = Scene::new(vec![failed("a", -4)]);
    let plan = one.plan();
    assert_eq!((plan.create, plan.wake), (0, Some(at(6))));
    assert_eq!(condition_of(&plan, condition::BACKING_OFF), (true, "CrashLoopBackoff".to_owned()));
    assert_eq!(told(&plan), [(true, "CrashLoopBackoff")]);
    let again = one.next();
    assert!(again.plan().events.is_empty());
    assert_eq!(again.plan().status.consecutive_failures, 1, "counted once");

    let plan = Scene::new(failed_in_a_row()).plan();
    assert_eq!((plan.create, plan.status.phase.as_str()), (0, "Degraded"));
    assert_eq!(condition_of(&plan, condition::DEGRADED), (true, "CrashLoopBackoff".to_owned()));
}

#[test]
fn a_crashed_node_leaves_no_group_without_replacement() {
    let on_it = |n: i64| Member { was_registered: true, stale: true, ..failed(&format!("f{n}"), -n) };
    let plan = Scene::new((0..6).map(on_it).collect()).plan();
    assert_eq!((plan.create, plan.status.consecutive_failures), (1, 0));
    assert!(plan.delete.is_empty(), "nobody knows yet whether people are on them: {:?}", plan.delete);
}

#[test]
fn an_edit_forgives() {
    let scene = Scene::new(failed_in_a_row()).next();
    let plan = scene.with(|s| s.group.metadata.generation = Some(4)).plan();
    assert_eq!((plan.create, plan.status.consecutive_failures, plan.status.observed_generation), (1, 0, 4));
    assert_eq!(told(&plan), [(false, "NoRecentFailures")]);
}

// Objects around its servers that the API server refuses.

/// What the API server says.
const REFUSAL: &str = "could not apply the PodDisruptionBudget: exceeded quota";

#[rstest]
#[case::none_is_made(Scene::new(vec![]), |plan: &Plan| plan.create > 0)]
#[case::none_is_taken_away(Scene::new(vec![member("a"), member("b")]).with(|s| s.group.spec.scaling.as_mut().unwrap().max_replicas = 1), |plan: &Plan| !plan.delete.is_empty())]
#[case::none_is_replaced(Scene::new(vec![Member { generation: 2, current: false, players: 1, empty_for: None, ..member("a") }, member("b")]), |plan: &Plan| plan.retire.is_some())]
fn while_an_object_is_refused(#[case] scene: Scene, #[case] acts: fn(&Plan) -> bool) {
    assert!(acts(&scene.plan()), "otherwise it would: {:?}", scene.plan());
    let plan = scene.with(|s| s.refused = Some(REFUSAL)).plan();
    assert!((plan.create, plan.delete.len(), plan.retire.as_ref()) == (0, 0, None), "{plan:?}");
}

#[test]
fn while_an_object_is_refused_what_nobody_can_be_on_still_goes() {
    let coming_up = Member { was_registered: false, stale: true, condemned: true, ..member("c") };
    let scene = Scene::new(vec![failed("a", -9), failed("b", -8), coming_up]).with(|s| s.refused = Some(REFUSAL));
    assert_eq!(removals(&scene.plan()), [("b", event::FAILED_SERVER_PRUNED), ("c", event::NODE_DRAINING)]);
}

#[test]
fn a_refused_object_is_told_once_and_when_it_is_taken() {
    let scene = Scene::new(vec![member("a")]).next().with(|s| s.refused = Some(REFUSAL));
    let plan = scene.plan();
    let degraded = conditions::get(&plan.status.conditions, condition::DEGRADED).unwrap();
    assert_eq!((degraded.reason.as_str(), degraded.message.as_str()), ("ObjectRejected", REFUSAL));
    assert_eq!((told(&plan), plan.status.phase.as_str()), (vec![(true, "ObjectRejected")], "Degraded"));
    let scene = scene.next();
    assert_eq!(told(&scene.plan()), []);
    let plan = scene.with(|s| s.refused = None).plan();
    assert_eq!((told(&plan), plan.status.phase.as_str()), (vec![(false, "NoRecentFailures")], "Ready"));
    assert_eq!(plan.events[0].note, "Degraded holds no more");
}

#[rstest]
#[case::before_servers_that_do_not_come_up(Scene::new(failed_in_a_row()), (true, "CrashLoopBackoff"))]
#[case::also_where_the_group_is_not_accepted(Scene::new(vec![]).unusable(), (false, "NoRecentFailures"))]
#[case::also_where_no_size_is_decided(Scene::new(vec![]).with(|s| s.group.spec.scaling = None), (false, "NoRecentFailures"))]
fn a_refused_object_is_told(#[case] scene: Scene, #[case] otherwise: (bool, &str)) {
    assert_eq!(condition_of(&scene.plan(), condition::DEGRADED), (otherwise.0, otherwise.1.to_owned()));
    let plan = scene.with(|s| s.refused = Some(REFUSAL)).plan();
    assert_eq!(condition_of(&plan, condition::DEGRADED), (true, "ObjectRejected".to_owned()));
}

// Limits, nodes, budgets.

#[test]
fn the_ceiling_is_told_when_it_is_met_and_when_it_is_left() {
    let full = || Member { players: 20, empty_for: None, ..member("a") };
    let scene = Scene::new(vec![full()]).with(|s| s.group.spec.scaling.as_mut().unwrap().max_replicas = 1);
    assert_eq!(told(&scene.plan()), [(true, "MaxReplicasReached")]);
    let scene = scene.next();
    assert!(scene.plan().events.is_empty());
    let plan = scene.with(|s| s.group.spec.scaling.as_mut().unwrap().max_replicas = 2).plan();
    assert_eq!((told(&plan), plan.create), (vec![(false, "WithinLimits")], 1));
}

#[test]
fn departing_nodes_are_named() {
    let plan = Scene::new(vec![]).with(|s| s.departing_nodes = ["n2".to_owned(), "n1".to_owned()].into()).plan();
    let condition = conditions::get(&plan.status.conditions, condition::NODE_DRAINING).unwrap();
    assert!(condition.status == "True" && condition.message.ends_with("n1, n2"), "{}", condition.message);
}

#[test]
fn a_foreign_budget_is_told() {
    let scene = Scene::new(vec![member("a")]).with(|s| s.foreign_budgets = ["mine".to_owned()].into());
    assert_eq!(told(&scene.plan()), [(true, "OverlappingBudget")]);
    let plan = scene.next().with(|s| s.foreign_budgets.clear()).plan();
    assert_eq!(told(&plan), [(false, "NoOverlap")]);
}

#[test]
fn changed_contents_are_told_before_a_server_is_replaced() {
    let stale = Member { current: false, players: 1, empty_for: None, ..member("a") };
    let scene = Scene::new(vec![stale.clone(), member("b")]);
    let plan = scene.plan();
    assert_eq!((told(&plan), plan.retire.as_deref()), (vec![(true, "ConfigChanged")], Some("a")));
    let plan = scene.next().with(|s| s.members.truncate(0)).plan();
    assert_eq!(told(&plan), [(false, "ConfigCurrent")]);
    let edited = Member { generation: 2, ..stale };
    assert!(Scene::new(vec![edited, member("b")]).plan().events.is_empty(), "of an edit the webhook warns");
}

// Its end.

#[rstest]
#[case::servers_go_first(Scene::new(vec![member("a"), member("b")]).deleted(), &["a", "b"], Finalizer::Keep)]
#[case::each_is_asked_once(Scene::new(vec![member("a"), Member { deleting: true, ..member("b") }]).deleted().with(|s| { s.reserved.deletes.insert("a".to_owned()); }), &[], Finalizer::Keep)]
#[case::also_with_players(Scene::new(vec![Member { players: 3, ..member("a") }]).deleted(), &["a"], Finalizer::Keep)]
#[case::also_without_a_network(Scene::new(vec![member("a")]).deleted().unusable(), &["a"], Finalizer::Keep)]
#[case::also_without_a_budget(Scene::new(vec![member("a")]).deleted().with(|s| s.refused = Some(REFUSAL)), &["a"], Finalizer::Keep)]
#[case::the_group_goes_last(Scene::new(vec![]).deleted(), &[], Finalizer::Release)]
#[case::not_before_a_server_just_made_shows(Scene::new(vec![]).deleted().with(|s| s.reserved.creates = 1), &[], Finalizer::Keep)]
fn dissolves(#[case] scene: Scene, #[case] names: &[&str], #[case] finalizer: Finalizer) {
    let plan = scene.plan();
    assert_eq!(removals(&plan).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
    assert_eq!((plan.finalizer, plan.create), (finalizer, 0));
}

// Totals.

#[test]
fn adds_up() {
    let members = vec![
        Member { players: 5, ..member("a") },
        Member { players: 2, current: false, ..member("b") },
        Member { players: 4, stale: true, ..member("c") },
        Member { players: 3, closing: true, ..member("d") },
        Member { phase: Phase::Draining, players: 1, ..member("e") },
    ];
    let status = Scene::new(members).plan().status;
    assert_eq!((status.replicas, status.ready_replicas), (5, 4));
    assert_eq!(status.online_players, 5 + 2 + 3 + 1);
    assert_eq!(status.free_slots, 15);
    assert_eq!(status.phase, "Ready");
}

#[rstest]
#[case::players(|s: &mut ServerGroupStatus| s.online_players = 9, true)]
#[case::replicas(|s: &mut ServerGroupStatus| s.replicas = 9, true)]
#[case::phase(|s: &mut ServerGroupStatus| s.phase = "Degraded".to_owned(), false)]
#[case::generation(|s: &mut ServerGroupStatus| s.observed_generation = 9, false)]
fn counts_may_wait(#[case] change: impl FnOnce(&mut ServerGroupStatus), #[case] want: bool) {
    let current = Scene::new(vec![member("a")]).plan().status;
    let mut next = current.clone();
    change(&mut next);
    assert_eq!(only_counts_differ(&current, &next), want);
}
