//! The order in which a plan is carried out, against an API server that answers as it is told and remembers what it was
//! asked.

use super::*;
use crate::hub::HubConfig;
use crate::latest::Latest;
use crate::overlay::Overlays;
use crate::server::look::Scene;
use crate::server::observed::{Memory, PodFacts, PodSight};
use crate::server::plan;
use crate::testing::{self, Asked, Refusal};
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use spawnery_core::door::DoorView;
use spawnery_core::loss::Cause;
use spawnery_core::occupancy::Carried;
use std::collections::HashMap;
use std::sync::Arc;

fn api_server(refusal: Option<(&'static str, u16)>) -> (Client, Asked) {
    testing::api_server(&Refusal::new(Mutex::new(refusal)))
}

fn shared(client: &Client) -> Shared {
    let ctx = Arc::new(testing::context(client, HubConfig::default()));
    Shared {
        recorder: ctx.events.recorder(event::reporter::SERVER),
        ctx,
        servers: Latest::default(),
        pods: Latest::default(),
        overlays: Overlays::default(),
        memories: Mutex::new(HashMap::new()),
    }
}

/// A server whose pod is up and whose agent is ready, in this phase.
fn scene(shared: &Shared, phase: &str, change: impl FnOnce(&mut Server, &mut PodFacts)) -> Scene {
    let mut server = Server::new("lobby-abcd", spawnery_api::v1alpha1::ServerSpec::default());
    server.metadata.uid = Some("s".to_owned());
    server.metadata.namespace = Some("games".to_owned());
    server.metadata.finalizers = Some(vec![finalizer::DRAIN.to_owned()]);
    let status = ServerStatus { phase: phase.to_owned(), pod_name: "lobby-abcd".to_owned(), ..ServerStatus::default() };
    server.status = Some(status);
    let mut pod = PodFacts {
        uid: "p".to_owned(),
        running: true,
        ready: true,
        terminal: false,
        node: "games-1".to_owned(),
        game_ends: 0,
        game_runs: true,
        address: Some("127.0.0.1:25565".to_owned()),
        started: None,
        carried: Carried { occupied: false, safe_to_evict: Some("true".to_owned()), do_not_disrupt: None },
        sealed: None,
        eviction_requested: None,
        overridden: false,
        killed_at: None,
    };
    change(&mut server, &mut pod);
    let registered = server.status.as_ref().is_some_and(|status| status.registered);
    let mut scene = Scene::of_parts(Arc::new(server), PodSight::Here(pod), shared.ctx.wall());
    let door = if registered { WantDoor::Open } else { WantDoor::Closed };
    scene.want(door, registered).into_iter().for_each(|want| shared.ctx.hub.want(want));
    let mut view = shared.ctx.hub.server(&PodUid::from("p"), shared.ctx.now());
    (view.connected, view.ready, view.ever_connected) = (true, true, true);
    scene.view = Some(view);
    scene.memory = Memory { since: Some(scene.now), declared: Some("p".to_owned()), ..Memory::default() };
    scene
}

fn registered(server: &mut Server, _: &mut PodFacts) {
    if let Some(status) = &mut server.status {
        (status.registered, status.was_registered) = (true, true);
    }
}

async fn carry_out(shared: &Shared, scene: &Scene) -> Result<Done, Failure> {
    apply(shared, scene, plan::plan(&scene.observed())).await
}

fn door(shared: &Shared) -> DoorView {
    shared.ctx.hub.server(&PodUid::from("p"), shared.ctx.now()).door
}

#[tokio::test]
async fn a_door_opens_after_it_is_written_that_it_will_have_been_open() {
    let (client, asked) = api_server(None);
    let shared = shared(&client);
    carry_out(&shared, &scene(&shared, "Starting", |_, _| ())).await.unwrap();
    assert_eq!(shared.ctx.hub.directory("games"), ["lobby-abcd"]);
    let asked = asked.lock();
    let (what, sent) = &asked[0];
    assert!(what.starts_with("PUT") && what.ends_with("/lobby-abcd/status"), "{what}");
    assert_eq!((&sent["status"]["wasRegistered"], &sent["status"]["registered"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn a_door_stays_shut_when_that_cannot_be_written() {
    let (client, _) = api_server(Some(("PUT", 500)));
    let shared = shared(&client);
    assert!(carry_out(&shared, &scene(&shared, "Starting", |_, _| ())).await.is_err());
    assert!(shared.ctx.hub.directory("games").is_empty());
}

#[tokio::test]
async fn a_door_closes_although_nothing_can_be_written() {
    let (client, _) = api_server(Some(("/", 500)));
    let shared = shared(&client);
    let scene = scene(&shared, "Ready", |server, pod| {
        registered(server, pod);
        pod.eviction_requested = Some(shared.ctx.wall());
    });
    assert_eq!(shared.ctx.hub.directory("games"), ["lobby-abcd"]);
    assert!(matches!(carry_out(&shared, &scene).await, Ok(Done::Again)));
    assert!(shared.ctx.hub.directory("games").is_empty());
}

#[tokio::test]
async fn a_seal_is_written_on_the_pod_that_was_judged_and_remembered() {
    let (client, asked) = api_server(None);
    let shared = shared(&client);
    let scene = scene(&shared, "Starting", |_, pod| pod.eviction_requested = Some(shared.ctx.wall()));
    assert!(matches!(carry_out(&shared, &scene).await, Ok(Done::Again)));
    assert_eq!(door(&shared), DoorView::Sealed);
    let (what, sent) = asked.lock()[0].clone();
    assert_eq!(what, "PATCH /api/v1/namespaces/games/pods/lobby-abcd/status");
    assert_eq!(
        (&sent["metadata"]["uid"], &sent["metadata"]["labels"]["spawnery.cloud/sealed"]),
        (&json!("p"), &json!("true"))
    );
}

#[tokio::test]
async fn a_seal_that_was_surely_not_written_is_given_up_and_one_that_may_have_been_is_not() {
    for (code, want) in [(404, DoorView::Empty), (409, DoorView::Empty), (500, DoorView::Sealing)] {
        let (client, _) = api_server(Some(("PATCH", code)));
        let shared = shared(&client);
        let scene = scene(&shared, "Starting", |_, pod| pod.eviction_requested = Some(shared.ctx.wall()));
        let _ = carry_out(&shared, &scene).await;
        assert_eq!(door(&shared), want, "after {code}");
    }
}

#[tokio::test]
async fn a_pod_is_deleted_after_its_phase_is_written_and_only_that_pod() {
    let (client, asked) = api_server(None);
    let shared = shared(&client);
    let scene = scene(&shared, "Draining", |server, pod| {
        server.metadata.deletion_timestamp = Some(shared.ctx.wall().into());
        pod.sealed = Some(SealReason::Empty);
    });
    let _ = carry_out(&shared, &scene).await;
    let asked = asked.lock();
    let what: Vec<&str> = asked.iter().map(|(what, _)| what.split(' ').next().unwrap()).collect();
    assert_eq!(what, ["PUT", "DELETE"]);
    assert_eq!(asked[0].1["status"]["phase"], "Terminating");
    assert_eq!(asked[1].1["preconditions"]["uid"], "p");
}

/// A drain that an earlier leader began ten minutes ago: nobody knows whether its players could be moved since.
#[tokio::test]
async fn a_clock_that_was_put_off_stays_so_when_that_cannot_be_written() {
    for (refusal, code) in [("PUT", 409), ("PUT", 500), ("PATCH", 500)] {
        let (client, _) = api_server(Some((refusal, code)));
        let shared = shared(&client);
        let mut scene = scene(&shared, "Draining", |server, pod| {
            registered(server, pod);
            let status = server.status.get_or_insert_default();
            status.registered = false;
            status.drain_started_at = Some(shared.ctx.wall().checked_sub(Duration::from_mins(10)).unwrap().into());
        });
        scene.memory.since = None;
        let view = scene.view.as_mut().unwrap();
        (view.occupied, view.door) = (true, DoorView::Closed { waiting_for: Vec::new() });
        let done = carry_out(&shared, &scene).await;
        assert!(done.is_err(), "{refusal} {code}: {done:?}");
        scene.memory = shared.memory("s");
        let plan = plan::plan(&scene.observed());
        assert_eq!(plan.seal, None, "after {refusal} {code}");
        let started = plan.status.drain_started_at.unwrap().0;
        assert!(started >= scene.now, "after {refusal} {code}: {started}");
    }
}

#[tokio::test]
async fn players_are_counted_as_lost_after_that_is_written() {
    for (refusal, want) in [(None, 3), (Some(("PUT", 500)), 0)] {
        let (client, asked) = api_server(refusal);
        let shared = shared(&client);
        let scene = scene(&shared, "Starting", |server, pod| {
            registered(server, pod);
            let status = server.status.get_or_insert_default();
            (status.players, status.game_ends, status.registered) = (3, Some(0), false);
            (pod.game_ends, pod.game_runs, pod.ready) = (1, false, false);
        });
        let done = carry_out(&shared, &scene).await;
        assert_eq!(shared.ctx.metrics.players_lost(Cause::GameEnded), want, "{done:?}");
        assert_eq!(shared.memory("s").players, (want > 0).then_some(0));
        assert_eq!(asked.lock()[0].1["status"]["gameEnds"], 1);
    }
}

#[tokio::test]
async fn a_start_is_written_when_it_takes_its_time() {
    let (client, asked) = api_server(None);
    let shared = shared(&client);
    let mut scene = scene(&shared, "", |_, pod| pod.running = false);
    let Ok(Done::Until(Some(wait))) = carry_out(&shared, &scene).await else { panic!("nothing to look for") };
    assert!(wait <= status::START_SETTLES && asked.lock().is_empty(), "{wait:?}");
    scene.memory = shared.memory("s");
    scene.now += Duration::from_millis(1499);
    carry_out(&shared, &scene).await.unwrap();
    assert!(asked.lock().is_empty(), "the clock began to run at the first look");
    scene.memory = shared.memory("s");
    scene.now += Duration::from_millis(1);
    carry_out(&shared, &scene).await.unwrap();
    assert_eq!(asked.lock().iter().map(|(_, sent)| sent["status"]["phase"].clone()).collect::<Vec<_>>(), ["Pending"]);
    assert_eq!(shared.memory("s").unwritten_since, None);
}
