//! The order in which a plan is carried out, against an API server that answers as it is told and remembers what it was
//! asked.

use super::*;
use crate::args::{Args, Config};
use crate::bootstrap::Accounts;
use crate::channel::metrics::ChannelMetrics;
use crate::context::Context;
use crate::feeds;
use crate::hub::{Hub, HubConfig};
use crate::latest::Latest;
use crate::metrics::Metrics;
use crate::overlay::Overlays;
use crate::server::look::Scene;
use crate::server::observed::{Memory, PodFacts, PodSight};
use crate::server::plan;
use clap::Parser as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::json;
use spawnery_core::door::DoorView;
use spawnery_core::floor::Width;
use spawnery_core::occupancy::Carried;
use spawnery_runtime::client::Clients;
use spawnery_runtime::clock::Clock;
use spawnery_runtime::events::Events;
use spawnery_runtime::leader::Leadership;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::watch;

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers every request with what was sent, or with `refusal` where its method and path contain these.
fn api_server(refusal: Option<(&'static str, u16)>) -> (Client, Asked) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let what = format!("{} {}", parts.method, parts.uri.path());
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            seen.lock().push((what.clone(), sent));
            let refused = refusal.filter(|(part, _)| what.contains(part)).map(|(_, code)| code);
            let (code, answer) = match refused {
                Some(code) => {
                    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "as told", "reason": "Told", "code": code });
                    (code, status.to_string().into_bytes())
                }
                None => (200, body.to_vec()),
            };
            let response = Response::builder().status(code).body(Body::from(answer))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
        }
    });
    (Client::new(service, "default"), asked)
}

fn shared(client: &Client) -> Shared {
    let args = Args::try_parse_from(["spawnery-reconciler", "--operator-namespace=ops", "--pod-name="]).unwrap();
    let config = Config::new(&args, 1).unwrap();
    let clock = Clock::system();
    let (wake, _) = feeds::queues();
    let (feeds, _) = feeds::start(client, &config, &wake, clock);
    let (events, _) = Events::start(client.clone(), "test".to_owned(), clock);
    let mut registry = Registry::default();
    let hub = Hub::new(HubConfig::default(), ChannelMetrics::new(&mut registry));
    hub.lead(1, || true);
    hub.listed();
    let recorder = events.recorder(event::action::SYNC_STATUS);
    let ctx = Context {
        metrics: Metrics::new(&mut registry, events.counts()),
        clients: Clients { api: client.clone(), strict: client.clone() },
        leadership: Leadership::without_election(1),
        width: watch::channel(Width::Occupied).1,
        ca: watch::channel(None).1,
        watched: watch::channel(Arc::new(BTreeSet::new())).1,
        accounts: Accounts::default(),
        wake,
        config,
        clock,
        feeds,
        hub,
        events,
    };
    Shared {
        ctx: Arc::new(ctx),
        recorder,
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
