//! Elections against a scripted API server that knows one Lease: compare-and-set, failures and silence on demand.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::leader::{Election, Lost, Term};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Works,
    Fails,
    /// Accepts writes but never answers.
    Silent,
}

#[derive(Debug)]
struct State {
    lease: Option<Value>,
    version: u64,
    mode: Mode,
    writes: usize,
}

#[derive(Debug, Clone)]
struct Server(Arc<Mutex<State>>);

impl Server {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(State { lease: None, version: 0, mode: Mode::Works, writes: 0 })))
    }

    fn client(&self) -> Client {
        let state = Arc::clone(&self.0);
        let service = tower::service_fn(move |request: Request<Body>| {
            let state = Arc::clone(&state);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let mode = state.lock().mode;
                let (code, answer) = match mode {
                    Mode::Fails => status(500, "InternalError"),
                    Mode::Works | Mode::Silent => handle(&mut state.lock(), &parts.method, &body),
                };
                if mode == Mode::Silent {
                    std::future::pending::<()>().await;
                }
                let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
            }
        });
        Client::new(service, "default")
    }

    fn election(&self, identity: &str) -> Election {
        Election::new(self.client(), "spawnery-system", "lease", identity.to_owned(), Clock::system())
    }

    fn field(&self, name: &str) -> Value {
        self.0
            .lock()
            .lease
            .as_ref()
            .and_then(|lease| lease.pointer(&format!("/spec/{name}")))
            .cloned()
            .unwrap_or_default()
    }

    fn set(&self, name: &str, value: Value) {
        let mut state = self.0.lock();
        state.version += 1;
        let version = state.version.to_string();
        let lease = state.lease.as_mut().expect("there is a lease");
        set(lease, &format!("/spec/{name}"), value);
        set(lease, VERSION, version.into());
    }

    fn mode(&self, mode: Mode) {
        self.0.lock().mode = mode;
    }
}

const VERSION: &str = "/metadata/resourceVersion";

/// Sets a field of the lease; a new one where it has none.
fn set(lease: &mut Value, path: &str, value: Value) {
    let (parent, field) = path.rsplit_once('/').expect("a path");
    let parent = lease.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
    parent.insert(field.to_owned(), value);
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason}),
    )
}

fn handle(state: &mut State, method: &Method, body: &[u8]) -> (u16, Value) {
    match *method {
        Method::GET => state.lease.clone().map_or_else(|| status(404, "NotFound"), |lease| (200, lease)),
        Method::POST if state.lease.is_some() => status(409, "AlreadyExists"),
        _ => {
            let mut lease: Value = serde_json::from_slice(body).expect("a lease");
            let known = state.lease.as_ref().map(|lease| lease.pointer(VERSION).cloned());
            if *method == Method::PUT && known.is_some_and(|known| known.as_ref() != lease.pointer(VERSION)) {
                return status(409, "Conflict");
            }
            state.version += 1;
            state.writes += 1;
            set(&mut lease, VERSION, state.version.to_string().into());
            state.lease = Some(lease.clone());
            (200, lease)
        }
    }
}

async fn win(election: Election, limit: Duration) -> Option<Term> {
    tokio::time::timeout(limit, election.win()).await.ok()
}

const S: fn(u64) -> Duration = Duration::from_secs;

fn now() -> std::time::Instant {
    Clock::system().now()
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_and_renewed() {
    let server = Server::new();
    let term = win(server.election("a"), S(1)).await.expect("nobody else is there");
    let leadership = term.leadership();
    assert_eq!(server.field("holderIdentity"), "a");
    assert_eq!(leadership.epoch(), server.field("leaseTransitions").as_u64().unwrap_or_default());
    let holding = tokio::spawn(term.hold(CancellationToken::new()));
    tokio::time::sleep(S(60)).await;
    assert!(leadership.check(now()) && !holding.is_finished());
    assert!(server.0.lock().writes > 25, "renewed every 2 s");
}

#[tokio::test(start_paused = true)]
async fn a_release_hands_over_at_once_and_raises_the_epoch() {
    let server = Server::new();
    let first = win(server.election("a"), S(1)).await.expect("nobody else is there");
    let (leadership, release) = (first.leadership(), CancellationToken::new());
    let holding = tokio::spawn(first.hold(release.clone()));
    let waiting = tokio::spawn(server.election("b").win());
    tokio::time::sleep(S(30)).await;
    assert!(!waiting.is_finished(), "a renews");
    release.cancel();
    let second =
        tokio::time::timeout(Duration::from_millis(2_100), waiting).await.expect("within one retry").expect("no panic");
    assert!(holding.await.expect("no panic").is_ok());
    assert!(!leadership.check(now()), "a released lease is not held");
    assert_eq!(second.leadership().epoch(), leadership.epoch() + 1);
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_belongs_to_nobody() {
    let server = Server::new();
    let term = win(server.election("a"), S(1)).await.expect("nobody else is there");
    let release = CancellationToken::new();
    release.cancel();
    term.hold(release).await.expect("released");
    assert_eq!(server.field("holderIdentity"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_replaced_after_its_promise() {
    let server = Server::new();
    let term = win(server.election("a"), S(1)).await.expect("nobody else is there");
    drop(term);
    let started = now();
    let second = win(server.election("b"), S(60)).await.expect("the lease runs out");
    let waited = now().duration_since(started);
    assert!(waited >= S(15) && waited < S(18), "waited {waited:?}");
    assert!(second.leadership().check(now()));
}

#[tokio::test(start_paused = true)]
async fn a_failing_server_ends_leadership_before_anybody_takes_over() {
    for mode in [Mode::Fails, Mode::Silent] {
        let server = Server::new();
        let term = win(server.election("a"), S(1)).await.expect("nobody else is there");
        let leadership = term.leadership();
        let holding = tokio::spawn(term.hold(CancellationToken::new()));
        tokio::time::sleep(S(5)).await;
        let (broken, before) = (now(), server.0.lock().writes);
        server.mode(mode);
        let lost = holding.await.expect("no panic").unwrap_err();
        assert!(matches!(lost, Lost::NotRenewed { .. }), "{mode:?}: {lost}");
        let after = now().duration_since(broken);
        assert!(after <= S(10), "{mode:?}: gave up after {after:?}");
        assert!(!leadership.check(now()), "{mode:?}");
        assert!(before > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_token_runs_out_by_itself_even_if_nobody_renews() {
    let server = Server::new();
    let term = win(server.election("a"), S(1)).await.expect("nobody else is there");
    let leadership = term.leadership();
    tokio::time::advance(S(9)).await;
    assert!(leadership.check(now()));
    tokio::time::advance(S(2)).await;
    assert!(!leadership.check(now()), "a frozen process must not act when it wakes up");
}

#[tokio::test(start_paused = true)]
async fn a_stolen_lease_ends_leadership() {
    let server = Server::new();
    let term = win(server.election("a"), S(1)).await.expect("nobody else is there");
    let leadership = term.leadership();
    let holding = tokio::spawn(term.hold(CancellationToken::new()));
    server.set("holderIdentity", "thief".into());
    let lost = holding.await.expect("no panic").unwrap_err();
    assert!(matches!(&lost, Lost::Taken { by, .. } if by == "thief"), "{lost}");
    assert!(!leadership.check(now()));
}

#[tokio::test(start_paused = true)]
async fn somebody_touching_the_lease_does_not_end_leadership() {
    let server = Server::new();
    let term = win(server.election("a"), S(1)).await.expect("nobody else is there");
    let leadership = term.leadership();
    let holding = tokio::spawn(term.hold(CancellationToken::new()));
    server.set("renewTime", "2026-01-01T00:00:00.000000Z".into());
    tokio::time::sleep(S(20)).await;
    assert!(leadership.check(now()) && !holding.is_finished());
}
