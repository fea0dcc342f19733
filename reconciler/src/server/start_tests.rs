//! Before players can get in: what is told of a server, and that its door stays shut.

use super::*;

#[test]
fn a_pod_that_went_before_it_was_written_is_not_made_again() {
    let plan = Scene::new().with(|scene| scene.memory.declared = Some("p".to_owned())).plan();
    assert_eq!((plan.status.phase.as_str(), plan.pod, plan.delete_server), ("Terminating", PodStep::Keep, true));
}

#[rstest]
#[case::starting(Scene::with_pod().view(|v| v.ready = false))]
#[case::pending(Scene::with_pod().pod(|p| p.running = false))]
#[case::no_address(Scene::with_pod().pod(|p| p.address = None))]
#[case::asked_to_leave_before_it_opened(Scene::with_pod().requested(0))]
#[case::node_is_emptied_before_it_opened(Scene::with_pod().with(|s| s.node_departing = true))]
#[case::sealed_before_it_opened(Scene::with_pod().sealed(SealReason::Empty))]
fn a_door_that_never_opened_stays_shut(#[case] scene: Scene) {
    let plan = scene.plan();
    assert_eq!(plan.door, Some(WantDoor::Closed));
    assert!(!plan.status.registered && !plan.status.was_registered);
}

#[rstest]
#[case::before_anybody_could_get_in(Scene::with_pod().view(|view| view.ready = false), 0)]
#[case::when_it_opens(Scene::with_pod().status(|status| status.phase = "Starting".to_owned()), 20)]
#[case::ever_after(Scene::ready().pod(|pod| pod.ready = false), 20)]
fn counts_are_told_from_when_players_can_get_in(#[case] scene: Scene, #[case] slots: i32) {
    assert_eq!(scene.plan().status.slots, slots);
}

#[rstest]
#[case::nobody_waits_for_it(Scene::with_pod(), None)]
#[case::asked_to_leave(Scene::with_pod().requested(0), Some("Closing: waits for gate"))]
#[case::players_reached_it(Scene::with_pod().status(|s| s.was_registered = true), Some("Closing: waits for gate"))]
fn a_door_that_never_opened_is_told_of_where_somebody_waits_for_it(#[case] scene: Scene, #[case] told: Option<&str>) {
    let closing = DoorView::Closing { waiting_for: vec!["gate".to_owned()] };
    assert_eq!(scene.view(|view| view.ready = false).door(closing).plan().status.door.as_deref(), told);
}
