//! A Server's plans: the pod of its name, the door, the seal, and how it goes.

use super::super::observed::{GroupRules, PodFacts};
use super::*;
use crate::server::life::UNUSED_SEAL;
use rstest::rstest;
use spawnery_api::names::finalizer;
use spawnery_api::v1alpha1::Server;
use spawnery_core::door::{DoorView, ServerView};
use spawnery_core::drain::{Cause, Clock, OnDeadline};
use spawnery_core::occupancy::Carried;
use std::collections::BTreeSet;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn at(seconds: i64) -> Timestamp {
    Timestamp::constant(1_800_000_000 + seconds, 0)
}

#[path = "start_tests.rs"]
mod start;

#[path = "loss_tests.rs"]
mod loss;

#[path = "closing_tests.rs"]
mod closing;

/// A Server with its pod, and what surrounds them.
struct Scene {
    server: Server,
    pod: PodSight,
    view: Option<ServerView>,
    group: Option<GroupRules>,
    network: bool,
    node_departing: bool,
    node_down: bool,
    fallback_ready: bool,
    memory: Memory,
}

fn pod() -> PodFacts {
    PodFacts {
        uid: "p".to_owned(),
        running: true,
        ready: true,
        terminal: false,
        node: "games-1".to_owned(),
        game_ends: 0,
        game_runs: true,
        address: Some("10.0.0.1:25565".to_owned()),
        started: Some(at(-600)),
        carried: Carried { occupied: false, safe_to_evict: Some("true".to_owned()), do_not_disrupt: None },
        sealed: None,
        eviction_requested: None,
        overridden: false,
        killed_at: None,
    }
}

fn view() -> ServerView {
    ServerView {
        connected: true,
        ready: true,
        players: Some(0),
        last_players: 0,
        slots: 20,
        stale: false,
        silent_for: Duration::ZERO,
        ever_connected: true,
        stream_down_for: Duration::ZERO,
        empty_for: Some(Duration::from_mins(1)),
        occupied: false,
        deaf: BTreeSet::new(),
        enforced: true,
        door: DoorView::Open,
    }
}

impl Scene {
    /// A new Server without a pod.
    fn new() -> Self {
        let mut server = Server::default();
        server.metadata.name = Some("lobby-abcd".to_owned());
        server.metadata.uid = Some("s".to_owned());
        server.metadata.finalizers = Some(vec![finalizer::DRAIN.to_owned()]);
        server.spec.group_ref = "lobby".into();
        Self {
            server,
            pod: PodSight::Absent,
            view: None,
            group: Some(GroupRules::default()),
            network: true,
            node_departing: false,
            node_down: false,
            fallback_ready: true,
            memory: Memory { since: Some(at(-3600)), ..Memory::default() },
        }
    }

    /// A Server whose pod was made.
    fn with_pod() -> Self {
        let mut scene = Self::new();
        scene.pod = PodSight::Here(pod());
        scene.view = Some(view());
        scene.status(|status| status.pod_name = "lobby-abcd".to_owned())
    }

    /// A ready server that takes players, as it settles.
    fn ready() -> Self {
        let mut scene = Self::with_pod().status(|status| status.phase = "Starting".to_owned());
        scene.server.status = Some(scene.plan().status);
        scene
    }

    fn status(mut self, change: impl FnOnce(&mut ServerStatus)) -> Self {
        change(self.server.status.get_or_insert_default());
        self
    }
    fn pod(mut self, change: impl FnOnce(&mut PodFacts)) -> Self {
        if let PodSight::Here(pod) | PodSight::Going(pod) = &mut self.pod {
            change(pod);
        }
        self
    }
    fn view(mut self, change: impl FnOnce(&mut ServerView)) -> Self {
        self.view.as_mut().map(change);
        self
    }
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
    fn players(self, players: u32) -> Self {
        self.view(|view| {
            (view.players, view.last_players, view.occupied, view.empty_for) = (Some(players), players, true, None);
        })
    }
    fn door(self, door: DoorView) -> Self {
        self.view(|view| view.door = door)
    }
    fn deleted(self) -> Self {
        self.with(|scene| scene.server.metadata.deletion_timestamp = Some(at(-1).into()))
    }
    fn requested(self, seconds: i64) -> Self {
        self.pod(|pod| pod.eviction_requested = Some(at(seconds)))
    }
    /// Whose players were told to move so long ago, by this process.
    fn moving_for(self, seconds: i64) -> Self {
        let started = Some(at(-seconds));
        self.status(|status| status.drain_started_at = started.map(Into::into))
            .with(|scene| scene.memory.clock = Some(Clock { started, held_since: None }))
    }
    fn sealed(self, reason: SealReason) -> Self {
        self.pod(|pod| pod.sealed = Some(reason)).door(DoorView::Sealed)
    }
    fn going(self) -> Self {
        self.with(|scene| {
            scene.pod = PodSight::Going(PodFacts { killed_at: Some(at(60)), ..pod() });
        })
    }

    fn observed(&self) -> Observed<'_> {
        Observed {
            server: &self.server,
            group: self.group,
            network: self.network,
            pod: self.pod.clone(),
            view: self.view.clone(),
            node_departing: self.node_departing,
            node_down: self.node_down,
            fallback_ready: self.fallback_ready,
            memory: self.memory.clone(),
            startup_deadline: Duration::from_mins(5),
            now: NOW,
        }
    }

    fn plan(&self) -> Plan {
        plan(&self.observed())
    }

    /// The plan after this one was carried out as far as the status goes.
    fn next(mut self) -> Self {
        let plan = self.plan();
        self.server.status = Some(plan.status);
        self.memory = plan.memory;
        self
    }
}

fn reasons(plan: &Plan) -> Vec<&str> {
    plan.events.iter().map(|event| event.reason.as_str()).collect()
}

fn condition_reason<'a>(plan: &'a Plan, kind: &str) -> Option<&'a str> {
    conditions::get(&plan.status.conditions, kind).map(|condition| condition.reason.as_str())
}

// The pod of its name.

fn unguarded(mut scene: Scene) -> Scene {
    scene.server.metadata.finalizers = None;
    scene
}

#[rstest]
#[case::a_new_server_gets_a_pod(Scene::new(), PodStep::Create, "Accepted")]
#[case::not_twice(Scene::new().with(|s| s.memory.pod_made = Some(at(-29))), PodStep::Keep, "")]
#[case::again_when_it_never_showed(Scene::new().with(|s| s.memory.pod_made = Some(at(-30))), PodStep::Create, "Accepted")]
#[case::not_without_a_group(Scene::new().with(|s| s.group = None), PodStep::Keep, "GroupNotFound")]
#[case::not_without_a_network(Scene::new().with(|s| s.network = false), PodStep::Keep, "NetworkNotFound")]
#[case::not_over_somebody_s_pod(Scene::new().with(|s| s.pod = PodSight::Foreign { going: false }), PodStep::Keep, "PodNameConflict")]
#[case::not_over_a_leaving_pod(Scene::new().with(|s| s.pod = PodSight::Foreign { going: true }), PodStep::Keep, "PodNameTerminating")]
#[case::not_over_our_own_leaving_pod(Scene::new().with(|s| s.pod = PodSight::Going(pod())), PodStep::Keep, "PodNameTerminating")]
fn makes_a_pod(#[case] scene: Scene, #[case] step: PodStep, #[case] accepted: &str) {
    let plan = scene.plan();
    assert_eq!(plan.pod, step);
    assert_eq!(condition_reason(&plan, condition::ACCEPTED).unwrap_or_default(), accepted);
    assert_eq!((plan.finalizer, plan.door), (Finalizer::Keep, None));
}

#[rstest]
#[case::before_anything_else(unguarded(Scene::new()), Finalizer::Add)]
#[case::not_on_one_that_goes(unguarded(Scene::new().deleted()), Finalizer::Keep)]
#[case::off_when_there_never_was_a_pod(Scene::new().deleted(), Finalizer::Release)]
#[case::off_over_somebody_s_pod(Scene::new().deleted().with(|s| s.pod = PodSight::Foreign { going: false }), Finalizer::Release)]
fn guards(#[case] scene: Scene, #[case] want: Finalizer) {
    let plan = scene.plan();
    assert_eq!((plan.finalizer, plan.pod), (want, PodStep::Keep));
}

#[test]
fn a_conflict_is_told_once() {
    let scene = Scene::new().with(|s| s.pod = PodSight::Foreign { going: false });
    assert_eq!(reasons(&scene.plan()), ["PodNameConflict"]);
    assert!(scene.next().plan().events.is_empty());
}

#[rstest]
#[case::ours_from_before(None, &["PodAdopted", "ReadyGatePassed"])]
#[case::just_made(Some(at(-1)), &["ReadyGatePassed"])]
fn a_pod_that_is_there_is_taken_over(#[case] made: Option<Timestamp>, #[case] want: &[&str]) {
    let scene = Scene::with_pod().status(|s| s.pod_name.clear()).with(|s| s.memory.pod_made = made);
    let plan = scene.plan();
    assert_eq!((plan.status.pod_name.as_str(), plan.pod), ("lobby-abcd", PodStep::Keep));
    assert_eq!(reasons(&plan), want);
}

// Opening.

#[test]
fn a_ready_server_opens_and_stays_as_it_is() {
    let scene = Scene::ready();
    let status = scene.server.status.clone().unwrap();
    assert_eq!((status.phase.as_str(), status.registered, status.was_registered), ("Ready", true, true));
    assert_eq!((status.door.as_deref(), status.address.as_str()), (Some("Open"), "10.0.0.1:25565"));
    let plan = scene.plan();
    assert_eq!(plan.door, Some(WantDoor::Open));
    assert_eq!(plan.status, status, "nothing to write");
    assert_eq!((plan.pod, plan.seal, plan.marks, plan.moving), (PodStep::Keep, None, None, false));
    assert!(plan.events.is_empty() && plan.wake.is_none());
}

#[rstest]
#[case::lost_readiness(Scene::ready().pod(|p| p.ready = false), "Starting", 1)]
#[case::agent_silent_for_a_while(Scene::ready().view(|v| { v.connected = false; v.stream_down_for = Duration::from_secs(14); }), "Ready", 0)]
#[case::agent_silent_for_too_long(Scene::ready().view(|v| { v.connected = false; v.stream_down_for = Duration::from_secs(15); }), "Starting", 1)]
fn loses_readiness(#[case] scene: Scene, #[case] phase: &str, #[case] losses: i32) {
    let plan = scene.players(2).plan();
    assert_eq!((plan.status.phase.as_str(), plan.status.readiness_losses), (phase, losses));
    assert_eq!(plan.status.registered, losses == 0);
    assert_eq!(plan.door, Some(if losses == 0 { WantDoor::Open } else { WantDoor::Closed }));
    assert!(plan.marks.is_some_and(|marks| marks.occupied), "whoever is on it is protected all the while");
    assert_eq!((plan.pod, plan.seal), (PodStep::Keep, None));
}

#[rstest]
#[case::in_time(Scene::with_pod().status(|s| s.started_at = Some(at(-300).into())), "Starting")]
#[case::too_late(Scene::with_pod().status(|s| s.started_at = Some(at(-301).into())), "Failed")]
#[case::nobody_could_hear_it(Scene::with_pod().status(|s| s.started_at = Some(at(-9000).into())).with(|s| s.memory.since = Some(at(-300))), "Starting")]
#[case::this_leader_s_first_look(Scene::with_pod().status(|s| s.started_at = Some(at(-9000).into())).with(|s| s.memory = Memory::default()), "Starting")]
#[case::may_be_on_its_way_back(Scene::with_pod().status(|s| { s.started_at = Some(at(-9000).into()); s.was_registered = true; }).view(|v| { v.connected = false; v.ever_connected = false; }), "Starting")]
#[case::is_not_coming_back(Scene::with_pod().status(|s| { s.started_at = Some(at(-9000).into()); s.was_registered = true; }).view(|v| { v.connected = false; v.ever_connected = false; v.stream_down_for = Duration::from_secs(16); }), "Failed")]
fn the_startup_deadline(#[case] scene: Scene, #[case] phase: &str) {
    let scene = scene.status(|s| s.phase = "Starting".to_owned()).view(|v| v.ready = false);
    assert_eq!(scene.plan().status.phase, phase);
}

#[test]
fn the_third_loss_fails_it_and_moves_its_players() {
    let scene = Scene::ready().players(2).status(|s| s.readiness_losses = 2).pod(|p| p.ready = false);
    let plan = scene.plan();
    assert_eq!((plan.status.phase.as_str(), plan.pod, plan.moving), ("Failed", PodStep::Keep, true));
    assert_eq!(reasons(&plan), ["ReadinessLost", "ReadinessLost", "Flapping"]);
    assert_eq!(plan.status.drain_started_at, Some(NOW.into()));
}

// Marks.

#[rstest]
#[case::somebody_joins(Scene::ready().players(1), Some(true))]
#[case::nobody_can_tell(Scene::ready().view(|v| { v.players = None; v.occupied = true; }), Some(true))]
#[case::still_empty(Scene::ready(), None)]
#[case::the_game_is_dead(Scene::ready().players(1).pod(|p| p.terminal = true), None)]
#[case::the_last_one_leaves(Scene::ready().pod(|p| p.carried.occupied = true), Some(false))]
fn marks(#[case] scene: Scene, #[case] occupied: Option<bool>) {
    assert_eq!(scene.plan().marks.map(|marks| marks.occupied), occupied);
}

// Closing for a reason that may pass.

#[rstest]
#[case::eviction(Scene::ready().requested(0), "EvictionRequested")]
#[case::node(Scene::ready().with(|s| s.node_departing = true), "NodeDraining")]
fn closes(#[case] scene: Scene, #[case] cause: &str) {
    let plan = scene.players(2).plan();
    assert_eq!((plan.status.phase.as_str(), plan.status.registered), ("Ready", false));
    assert_eq!((plan.door, plan.moving, plan.seal), (Some(WantDoor::Closed), true, None));
    assert_eq!(condition_reason(&plan, condition::DRAINING), Some(cause));
    assert_eq!(reasons(&plan), ["DoorClosing"]);
    assert_eq!((plan.pod, plan.delete_server), (PodStep::Keep, false));
}

#[rstest]
#[case::the_request_ran_out(Scene::ready().requested(0).next().requested(-600), true)]
#[case::the_node_takes_pods_again(Scene::ready().requested(0).with(|s| s.node_departing = true).next().with(|s| s.node_departing = false), true)]
#[case::the_node_was_all_there_was(Scene::ready().with(|s| s.node_departing = true).next().with(|s| s.node_departing = false), false)]
fn reopens(#[case] scene: Scene, #[case] clears: bool) {
    let plan = scene.players(2).door(DoorView::Closed { waiting_for: vec![] }).plan();
    assert_eq!((plan.door, plan.status.registered, plan.moving), (Some(WantDoor::Open), true, false));
    assert_eq!(condition_reason(&plan, condition::DRAINING), Some("NotDraining"));
    assert_eq!((plan.clear_request, plan.status.drain_started_at.is_some()), (clears, false));
    assert_eq!(reasons(&plan), ["DoorReopened"]);
}

#[rstest]
#[case::closed_and_empty(Scene::ready().requested(0).door(DoorView::Empty), Some(SealReason::Empty))]
#[case::still_open(Scene::ready().requested(0), None)]
#[case::not_confirmed(Scene::ready().requested(0).door(DoorView::Closing { waiting_for: vec!["gate".to_owned()] }), None)]
#[case::somebody_inside(Scene::ready().players(1).requested(0).door(DoorView::Closed { waiting_for: vec![] }), None)]
#[case::without_a_cause(Scene::ready().door(DoorView::Empty), None)]
#[case::already(Scene::ready().requested(0).sealed(SealReason::Empty), None)]
#[case::never_opened(Scene::with_pod().view(|v| { v.ready = false; v.door = DoorView::Empty; }).requested(0), Some(SealReason::Empty))]
#[case::overridden(Scene::ready().players(1).requested(0).pod(|p| p.overridden = true), Some(SealReason::Override))]
#[case::the_deadline(Scene::ready().players(1).requested(0).moving_for(60), Some(SealReason::Deadline))]
#[case::a_deadline_of_an_earlier_leader(Scene::ready().players(1).requested(0).moving_for(60).with(|s| s.memory = Memory::default()), None)]
#[case::nowhere_to_go(Scene::ready().players(1).requested(0).moving_for(60).with(|s| s.fallback_ready = false), None)]
#[case::proxies_do_not_hear(Scene::ready().players(1).requested(0).moving_for(60).view(|v| v.deaf = deaf()), None)]
fn seals(#[case] scene: Scene, #[case] want: Option<SealReason>) {
    assert_eq!(scene.plan().seal, want);
}

fn deaf() -> BTreeSet<String> {
    BTreeSet::from(["edge-2".to_owned(), "edge-1".to_owned()])
}

#[test]
fn who_looks_is_told_which_proxies_a_drain_waits_for() {
    let plan = Scene::ready().players(1).requested(0).moving_for(60).view(|v| v.deaf = deaf()).plan();
    let draining = conditions::get(&plan.status.conditions, condition::DRAINING).unwrap();
    assert_eq!(draining.message, "proxies that cannot be told to move players, so the drain waits: edge-1, edge-2");
}

#[test]
fn a_seal_that_nobody_uses_ends_the_server() {
    let scene = Scene::ready().requested(0).sealed(SealReason::Empty);
    let plan = scene.plan();
    assert!(!plan.delete_server);
    assert_eq!(plan.wake, Some(NOW + UNUSED_SEAL));
    let plan = scene.with(|s| s.memory.sealed_at = Some(NOW.checked_sub(UNUSED_SEAL).unwrap())).plan();
    assert_eq!((plan.delete_server, plan.pod, plan.door), (true, PodStep::Keep, Some(WantDoor::Closed)));
}

#[test]
fn a_seal_is_final() {
    let scene = Scene::ready().requested(0).next().sealed(SealReason::Empty).requested(-600);
    let plan = scene.plan();
    assert_eq!((plan.door, plan.status.registered, plan.clear_request), (Some(WantDoor::Closed), false, false));
    assert_eq!(plan.wake, Some(NOW + UNUSED_SEAL), "it is replaced although the cause has passed");
    assert!(plan.events.is_empty(), "it does not claim to take newcomers again");
}

#[test]
fn an_empty_server_needs_nowhere_to_go() {
    let plan = Scene::ready()
        .with(|s| {
            s.node_departing = true;
            s.fallback_ready = false;
        })
        .plan();
    assert_eq!(reasons(&plan), ["DoorClosing"]);
    assert_eq!(condition_reason(&plan, condition::DRAINING), Some("NodeDraining"));
}

#[test]
fn nowhere_to_go_is_told_once() {
    let scene = Scene::ready().players(1).with(|s| {
        s.node_departing = true;
        s.fallback_ready = false;
    });
    let plan = scene.plan();
    assert_eq!(condition_reason(&plan, condition::DRAINING), Some("NoFallbackAvailable"));
    assert_eq!(reasons(&plan), ["DoorClosing", "NoFallbackAvailable"]);
    let scene = scene.next();
    assert!(scene.plan().events.is_empty());
    assert_eq!(scene.plan().memory.cause, Some(Cause::NodeDraining));
}

// Going for good.

#[rstest]
#[case::empty_and_not_sealed(Scene::ready().deleted().door(DoorView::Empty), "Draining", PodStep::Keep, Some(SealReason::Empty))]
#[case::with_players(Scene::ready().deleted().players(2), "Draining", PodStep::Keep, None)]
#[case::sealed(Scene::ready().deleted().sealed(SealReason::Empty), "Terminating", PodStep::Delete, None)]
#[case::past_its_deadline(Scene::ready().deleted().players(2).sealed(SealReason::Deadline), "Terminating", PodStep::Delete, None)]
#[case::never_opened(Scene::with_pod().deleted().view(|v| v.ready = false), "Terminating", PodStep::Delete, None)]
#[case::dead(Scene::ready().next().deleted().pod(|p| p.terminal = true), "Terminating", PodStep::Delete, None)]
fn is_deleted(#[case] scene: Scene, #[case] phase: &str, #[case] step: PodStep, #[case] seal: Option<SealReason>) {
    let plan = scene.plan();
    assert_eq!((plan.status.phase.as_str(), plan.pod, plan.seal), (phase, step, seal));
    assert_eq!((plan.door, plan.finalizer), (Some(WantDoor::Closed), Finalizer::Keep));
}

#[rstest]
#[case::retires(Scene::ready().with(|s| s.server.spec.retire = true).players(2), "Retiring", false)]
#[case::retires_empty(Scene::ready().with(|s| s.server.spec.retire = true), "Retiring", false)]
#[case::retired_and_sealed(Scene::ready().with(|s| s.server.spec.retire = true).sealed(SealReason::Empty), "Terminating", false)]
#[case::stayed_too_long(Scene::ready().with(|s| { s.server.spec.retire = true; s.group = Some(GroupRules { max_stale: Some(Duration::from_secs(5)), ..GroupRules::default() }); }).players(2).next().status(|s| s.retiring_since = Some(at(-5).into())), "Draining", true)]
fn is_replaced(#[case] scene: Scene, #[case] phase: &str, #[case] moving: bool) {
    let plan = scene.plan();
    assert_eq!((plan.status.phase.as_str(), plan.moving), (phase, moving));
    assert_eq!(plan.door, Some(WantDoor::Closed));
}

#[rstest]
#[case::its_pod_is_gone(Scene::ready().with(|s| { s.pod = PodSight::Absent; s.view = None; }), Finalizer::Keep, true)]
#[case::deleted_and_its_pod_is_gone(Scene::ready().deleted().with(|s| { s.pod = PodSight::Absent; s.view = None; }), Finalizer::Release, false)]
#[case::its_dead_pod_is_going(Scene::ready().players(2).going().pod(|p| p.terminal = true), Finalizer::Keep, true)]
#[case::its_released_pod_is_going(Scene::ready().going().sealed(SealReason::Empty), Finalizer::Keep, true)]
#[case::its_pod_is_going_and_never_opened(Scene::with_pod().going().door(DoorView::Closing { waiting_for: vec![] }), Finalizer::Keep, true)]
#[case::its_sealed_pod_is_going(Scene::ready().players(2).deleted().going().sealed(SealReason::Deadline).next(), Finalizer::Release, false)]
#[case::its_sealed_pod_is_going_with_people_who_are_to_be_counted(Scene::ready().players(2).deleted().going().sealed(SealReason::Deadline), Finalizer::Keep, false)]
#[case::somebody_else_has_the_name_now(Scene::ready().with(|s| { s.pod = PodSight::Foreign { going: false }; s.view = None; }), Finalizer::Keep, true)]
fn ends(#[case] scene: Scene, #[case] finalizer: Finalizer, #[case] delete_server: bool) {
    let plan = scene.plan();
    assert_eq!((plan.finalizer, plan.delete_server), (finalizer, delete_server));
    assert_eq!((plan.status.phase.as_str(), plan.status.registered, plan.pod), ("Terminating", false, PodStep::Keep));
}

// A pod that somebody deleted past us, held up by its pre-stop hook.

#[rstest]
#[case::with_players(Scene::ready().players(2).going(), "Draining", true, None)]
#[case::empty_and_not_confirmed(Scene::ready().going(), "Draining", false, None)]
#[case::empty(Scene::ready().going().door(DoorView::Empty), "Draining", false, Some(SealReason::Empty))]
#[case::with_players_at_the_end_of_its_grace(Scene::ready().players(2).going().pod(|p| p.killed_at = Some(at(5))), "Draining", true, Some(SealReason::Deadline))]
#[case::of_a_patient_group(Scene::ready().players(2).going().with(|s| s.group.as_mut().unwrap().drain.move_after = Duration::from_mins(5)), "Draining", true, None)]
#[case::of_a_group_that_waits_for_ever(Scene::ready().players(2).going().pod(|p| p.killed_at = Some(at(5))).with(|s| s.group.as_mut().unwrap().drain.on_deadline = OnDeadline::Hold), "Draining", true, Some(SealReason::Deadline))]
#[case::whose_server_is_deleted_too(Scene::ready().players(2).deleted().next().going(), "Draining", true, None)]
#[case::whose_server_retires(Scene::ready().with(|s| s.server.spec.retire = true).players(2).next().going(), "Draining", true, None)]
#[case::whose_server_failed(Scene::ready().players(2).status(|s| s.readiness_losses = 3).next().going(), "Failed", true, None)]
#[case::that_never_opened(Scene::with_pod().going().door(DoorView::Empty), "Terminating", false, Some(SealReason::Empty))]
#[case::that_never_opened_and_its_server_is_deleted(Scene::with_pod().deleted().going().door(DoorView::Empty), "Terminating", false, Some(SealReason::Empty))]
fn a_terminating_pod(
    #[case] scene: Scene,
    #[case] phase: &str,
    #[case] moving: bool,
    #[case] seal: Option<SealReason>,
) {
    let plan = scene.plan();
    assert_eq!((plan.status.phase.as_str(), plan.moving, plan.seal), (phase, moving, seal));
    // Until it is released its Server stays, and nothing is done to the pod beside sealing it.
    assert_eq!((plan.finalizer, plan.delete_server, plan.pod), (Finalizer::Keep, false, PodStep::Keep));
    assert_eq!((plan.door, plan.status.registered), (Some(WantDoor::Closed), false));
}

#[test]
fn a_terminating_pod_says_what_its_server_waits_for() {
    let plan = Scene::ready().players(2).going().plan();
    assert_eq!(reasons(&plan), ["PodTerminating"]);
    assert_eq!(condition_reason(&plan, condition::DRAINING), Some("PodTerminating"));
    assert_eq!(condition_reason(&plan, condition::READY), Some("PodTerminating"));
    assert!(plan.wake.is_some_and(|wake| wake <= at(55)), "{:?}", plan.wake);
}

#[test]
fn a_failed_server_is_kept_and_then_emptied_and_removed() {
    let failed = Scene::ready().players(1).status(|s| s.phase = "Failed".to_owned()).pod(|p| p.ready = false);
    let plan = failed.plan();
    assert_eq!((plan.status.phase.as_str(), plan.pod, plan.moving), ("Failed", PodStep::Keep, false));
    let old = failed.status(|s| s.failed_at = Some(at(-3600).into()));
    let plan = old.plan();
    assert_eq!((plan.status.phase.as_str(), plan.pod, plan.moving), ("Failed", PodStep::Keep, true));
    let plan = old.sealed(SealReason::Empty).plan();
    assert_eq!((plan.status.phase.as_str(), plan.pod), ("Terminating", PodStep::Delete));
}

#[test]
fn a_failed_server_that_is_sealed_is_kept_for_as_long_as_it_is_to_be() {
    let scene = Scene::ready().status(|s| {
        s.phase = "Failed".to_owned();
        s.drain_started_at = Some(at(-30).into());
    });
    let plan = scene.sealed(SealReason::Empty).with(|s| s.memory.sealed_at = Some(at(-100))).plan();
    assert_eq!((plan.status.phase.as_str(), plan.delete_server, plan.pod), ("Failed", false, PodStep::Keep));
}
