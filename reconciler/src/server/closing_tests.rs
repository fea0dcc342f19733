//! Doors that must not open again, retiring servers that somebody wants gone, and what a new leader makes of a drain.

use super::*;

// A seal whose answer was lost: it may have been written, so there is no way back from it.

#[rstest]
#[case::while_it_is_asked_for(Scene::ready().requested(0).next(), Some(SealReason::Empty))]
#[case::although_nobody_asks_any_more(Scene::ready().requested(0).next().requested(-600), Some(SealReason::Empty))]
#[case::although_the_node_takes_pods_again(Scene::ready().with(|s| s.node_departing = true).next().with(|s| s.node_departing = false), Some(SealReason::Empty))]
#[case::of_a_retiring_server(Scene::ready().with(|s| s.server.spec.retire = true).next(), Some(SealReason::Empty))]
#[case::not_with_players(Scene::ready().requested(0).next().requested(-600).players(1), None)]
fn a_seal_that_was_begun_is_written_again(#[case] scene: Scene, #[case] want: Option<SealReason>) {
    let plan = scene.door(DoorView::Sealing).plan();
    assert_eq!(plan.seal, want);
    assert_eq!((plan.door, plan.status.registered), (Some(WantDoor::Closed), false));
    assert_eq!(plan.status.door.as_deref(), Some("Sealing"));
    assert!(!reasons(&plan).contains(&"DoorReopened"), "it does not claim to take newcomers again");
}

/// A server that retires with players on it.
fn retiring() -> Scene {
    Scene::ready().with(|s| s.server.spec.retire = true).players(2).next()
}

#[rstest]
#[case::whose_node_is_emptied(retiring().with(|s| s.node_departing = true), "NodeDraining")]
#[case::that_is_asked_to_leave(retiring().requested(0), "EvictionRequested")]
fn players_are_moved_off_a_retiring_server(#[case] scene: Scene, #[case] cause: &str) {
    let plan = scene.plan();
    assert_eq!((plan.status.phase.as_str(), plan.moving, plan.seal), ("Retiring", true, None));
    assert_eq!(condition_reason(&plan, condition::DRAINING), Some(cause));
    assert_eq!(plan.status.drain_started_at, Some(NOW.into()));
    let plan = scene.next().sealed(SealReason::Deadline).plan();
    assert_eq!((plan.status.phase.as_str(), plan.pod), ("Terminating", PodStep::Delete));
}

/// Whose agent fell silent, or counts no more, so many seconds ago.
fn uncounted(scene: Scene, seconds: i64) -> Scene {
    let silent = scene.view(|v| {
        (v.connected, v.ready, v.players, v.stale, v.occupied) = (false, false, None, true, true);
        (v.ever_connected, v.stream_down_for) = (true, Duration::from_secs(seconds.unsigned_abs()));
    });
    silent.with(|s| s.memory.silent_since = Some(at(-seconds)))
}

/// Its players may stay for as long as somebody sees them.
#[rstest]
#[case::counted(retiring(), "Retiring", None)]
#[case::silent_since_now(uncounted(retiring(), 0), "Retiring", Some(300))]
#[case::for_as_long_as_a_start_may_take(uncounted(retiring(), 300), "Retiring", Some(0))]
#[case::for_too_long(uncounted(retiring(), 301), "Draining", Some(60))]
#[case::whose_agent_may_be_on_its_way_to_a_new_leader(
    uncounted(retiring(), 301).view(|v| (v.ever_connected, v.stream_down_for) = (false, Duration::ZERO)),
    "Retiring",
    None
)]
#[case::whose_agent_never_found_the_new_leader(uncounted(retiring(), 301).view(|v| v.ever_connected = false), "Draining", Some(60))]
#[case::that_is_up_and_cannot_be_counted(
    uncounted(retiring(), 301).view(|v| (v.connected, v.ready) = (true, true)),
    "Retiring",
    None
)]
#[case::whose_game_hangs(uncounted(retiring(), 301).view(|v| v.connected = true), "Draining", Some(60))]
#[case::until_it_counts_again(uncounted(retiring(), 301).players(2).view(|v| v.stale = false), "Retiring", None)]
#[case::a_ready_one_loses_its_readiness(uncounted(Scene::ready(), 301).view(|v| v.stream_down_for = Duration::from_secs(301)), "Starting", Some(300))]
fn a_retiring_server_that_nobody_counts_is_drained(
    #[case] scene: Scene,
    #[case] phase: &str,
    #[case] looks_in: Option<i64>,
) {
    let plan = scene.plan();
    assert_eq!((plan.status.phase.as_str(), plan.seal, plan.pod), (phase, None, PodStep::Keep));
    assert_eq!(plan.moving, phase == "Draining", "its players are moved as its group says");
    assert_eq!(reasons(&plan).contains(&"AgentSilent"), phase == "Draining");
    assert_eq!(plan.wake.map(|wake| wake.as_second() - NOW.as_second()), looks_in);
}

#[test]
fn a_silence_is_charged_to_nobody_before_this_process_looked() {
    let plan = uncounted(retiring(), 9000).with(|s| s.memory = Memory::default()).plan();
    assert_eq!((plan.status.phase.as_str(), plan.memory.silent_since), ("Retiring", Some(NOW)));
    let plan = uncounted(retiring(), 9000).players(2).view(|v| v.stale = false).plan();
    assert_eq!(plan.memory.silent_since, None);
}

#[test]
fn a_retiring_server_whose_node_takes_pods_again_goes_on_retiring() {
    let drained = retiring().requested(0).with(|s| s.node_departing = true).next();
    let plan = drained.with(|s| s.node_departing = false).plan();
    assert_eq!((plan.status.phase.as_str(), plan.moving, plan.door), ("Retiring", false, Some(WantDoor::Closed)));
    assert_eq!(condition_reason(&plan, condition::DRAINING), Some("Retiring"));
    assert_eq!((plan.clear_request, plan.status.drain_started_at), (true, None));
}

/// What is withdrawn stays so until it is off the pod.
#[rstest]
#[case::ready(Scene::ready().players(2), Some(WantDoor::Open))]
#[case::retiring(retiring(), Some(WantDoor::Closed))]
fn a_request_that_could_not_be_cleared_stays_void(#[case] scene: Scene, #[case] door: Option<WantDoor>) {
    let drained = scene.requested(0).with(|s| s.node_departing = true).next();
    let tried = drained.with(|s| s.node_departing = false).next();
    let plan = tried.plan();
    assert_eq!((plan.clear_request, plan.door, plan.moving), (true, door, false));
    let late = tried.pod(|pod| pod.eviction_requested = None).next().requested(30);
    let plan = late.plan();
    assert_eq!((plan.clear_request, plan.door, plan.moving), (true, door, false), "the drain's last word came late");
    let plan = late.requested(31).plan();
    assert_eq!((plan.clear_request, plan.door), (false, Some(WantDoor::Closed)), "the next one counts");
}

/// What an earlier leader wrote hides why the door closed.
#[rstest]
#[case::the_node_takes_pods_again(false, None, true)]
#[case::the_node_is_still_emptied(true, Some("NoFallbackAvailable"), false)]
fn a_new_leader_charges_no_drain_that_may_be_called_off(
    #[case] departing: bool,
    #[case] said: Option<&str>,
    #[case] clears: bool,
) {
    let stranded = Scene::ready().players(1).requested(0).with(|s| {
        s.node_departing = true;
        s.fallback_ready = false;
    });
    let scene = stranded.next().with(|s| s.memory = Memory::default()).with(|s| s.node_departing = departing);
    let plan = scene.plan();
    assert_eq!(plan.clear_request, clears);
    assert_eq!(condition_reason(&plan, condition::DRAINING), Some(said.unwrap_or("NotDraining")));
    assert_eq!(plan.door == Some(WantDoor::Open), said.is_none());
}
