//! Who is counted as lost, once, and to what.

use super::*;
use crate::server::loss::settled;
use spawnery_core::loss::{Cause, Lost};

/// Three players on a server that settled.
fn played() -> Scene {
    Scene::ready().players(3).next().next()
}

fn gone(mut scene: Scene) -> Scene {
    (scene.pod, scene.view) = (PodSight::Absent, None);
    scene
}

fn crashed(scene: Scene) -> Scene {
    silent(scene.pod(|pod| (pod.game_ends, pod.game_runs, pod.ready) = (pod.game_ends + 1, false, false)))
}

fn silent(scene: Scene) -> Scene {
    scene.view(|view| (view.connected, view.ready, view.players, view.stale) = (false, false, None, true))
}

/// Another process of the game runs and its agent has counted.
fn restarted(scene: Scene) -> Scene {
    counts(crashed(scene).pod(|pod| pod.game_runs = true), 0)
}

fn counts(scene: Scene, players: u32) -> Scene {
    scene.view(|view| {
        (view.connected, view.ready, view.stale) = (true, true, false);
        (view.players, view.last_players, view.occupied) = (Some(players), players, players > 0);
        view.silent_for = Duration::ZERO;
    })
}

fn node_down(mut scene: Scene, down: bool) -> Scene {
    scene.node_down = down;
    scene
}

/// Another leader knows what is written, and nothing else.
fn taken_over(scene: Scene) -> Scene {
    scene.with(|scene| scene.memory = Memory::default())
}

/// The plan was carried out, and a moment has passed.
fn settle(scene: Scene) -> Scene {
    let lost = scene.plan().lost.is_some();
    let mut scene = scene.next();
    if lost {
        scene.memory = settled(scene.memory, at(-1));
    }
    scene.view(|view| view.silent_for = Duration::from_secs(2))
}

#[rstest]
#[case::they_play_on(played(), None)]
#[case::its_agent_is_silent(silent(played()), None)]
#[case::its_node_is_silent(node_down(silent(played()), true), None)]
#[case::the_game_crashed(crashed(played()), Some(Cause::GameEnded))]
#[case::the_game_crashed_and_runs_again(restarted(played()), Some(Cause::GameEnded))]
#[case::its_agent_was_back_before_the_crash_was_told(restarted(counts(silent(played()).next(), 0).next()), Some(Cause::GameEnded))]
#[case::everybody_left_before_the_crash(restarted(counts(played(), 0).next()), None)]
#[case::the_pod_went_for_good(crashed(played()).pod(|pod| pod.terminal = true), Some(Cause::GameEnded))]
#[case::the_pod_is_gone(gone(played()), Some(Cause::PodDeleted))]
#[case::the_pod_of_a_deleted_server_is_gone(gone(played().deleted()), Some(Cause::PodDeleted))]
#[case::somebody_else_has_the_name_now(gone(played()).with(|s| s.pod = PodSight::Foreign { going: false }), Some(Cause::PodDeleted))]
#[case::the_pod_is_gone_with_its_node(node_down(gone(played()), true), Some(Cause::NodeLost))]
#[case::the_node_crashed_and_is_back(restarted(silent(node_down(node_down(silent(played()), true).next(), false)).next()), Some(Cause::NodeLost))]
#[case::the_node_was_down_long_ago(crashed(played().with(|s| s.memory.node_down_at = Some(at(-60))).next()), Some(Cause::GameEnded))]
#[case::a_deleted_pod_still_holds_them(played().going(), None)]
#[case::a_deleted_pod_is_over(played().going().next().sealed(SealReason::Deadline), Some(Cause::PodDeleted))]
#[case::a_dead_node_is_given_up(node_down(silent(played()).going(), true).next().sealed(SealReason::Deadline), Some(Cause::NodeLost))]
#[case::the_deadline_passed(played().deleted().next().sealed(SealReason::Deadline), Some(Cause::Deadline))]
#[case::let_go(played().deleted().next().sealed(SealReason::Override), Some(Cause::Override))]
#[case::let_go_while_it_retired(played().with(|s| s.server.spec.retire = true).next().sealed(SealReason::Override), Some(Cause::Override))]
#[case::all_were_moved(counts(played(), 0).deleted().next().sealed(SealReason::Empty), None)]
#[case::all_were_moved_and_the_pod_is_gone(gone(counts(played(), 0).deleted().next()), None)]
fn losses(#[case] scene: Scene, #[case] cause: Option<Cause>) {
    let want = cause.map(|cause| Lost { players: 3, cause });
    let plan = scene.plan();
    assert_eq!(plan.lost, want);
    assert_eq!(reasons(&plan).contains(&"PlayersLost"), want.is_some());
    assert_eq!(settle(scene).plan().lost, None, "counted once");
}

#[rstest]
#[case::the_game_crashed(crashed(played()))]
#[case::the_game_crashed_and_runs_again(restarted(played()))]
#[case::the_pod_is_gone(gone(played()))]
#[case::the_deadline_passed(played().deleted().next().sealed(SealReason::Deadline))]
fn a_successor_counts_what_is_not_counted_and_nothing_else(#[case] scene: Scene) {
    let not_yet = taken_over(scene);
    assert!(not_yet.plan().lost.is_some_and(|lost| lost.players == 3));
    assert_eq!(taken_over(settle(not_yet)).plan().lost, None, "its predecessor has counted them");
}

#[test]
fn a_pass_that_was_not_finished_is_taken_again() {
    let scene = restarted(counts(silent(played()).next(), 0).next());
    let again = scene.plan().memory;
    assert_eq!(scene.with(|s| s.memory = again).plan().lost, Some(Lost { players: 3, cause: Cause::GameEnded }));
}

#[test]
fn whoever_comes_after_a_crash_is_lost_by_the_next() {
    let scene = settle(crashed(played()));
    assert_eq!(scene.plan().status.players, 0, "the old count is of nobody");
    let scene = scene.pod(|pod| pod.game_runs = true);
    let scene = settle(counts(scene, 2));
    assert_eq!(crashed(scene).plan().lost, Some(Lost { players: 2, cause: Cause::GameEnded }));
}

#[test]
fn a_crash_before_the_next_count_loses_nobody_again() {
    let scene = settle(crashed(played()));
    assert_eq!(crashed(scene.pod(|pod| pod.game_runs = true)).plan().lost, None);
}

#[test]
fn what_an_older_version_wrote_says_nothing_about_ends() {
    let scene = played().status(|status| status.game_ends = None).pod(|pod| pod.game_ends = 2);
    let plan = scene.plan();
    assert_eq!((plan.lost, plan.status.game_ends), (None, Some(2)));
}

#[test]
fn people_are_told_how_many_where_and_why() {
    let plan = crashed(played()).plan();
    let told = plan.events.iter().find(|told| told.reason == "PlayersLost");
    let want = "3 players were lost, as last reported, on games-1: its game ended with them on it";
    assert_eq!(told.map(|told| (told.warning, told.note.as_str())), Some((true, want)));
}

#[test]
fn a_count_changes_the_mirror() {
    let plan = Scene::ready().players(7).plan();
    assert_eq!((plan.status.players, plan.status.slots, plan.status.players_updated_at), (7, 20, Some(NOW.into())));
}
