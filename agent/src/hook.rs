//! The pre-stop hook: the kubelet calls it before it tells the game to stop, and waits for the answer.
//!
//! The endpoint is the only part of the agent that the pod's network reaches. A call changes nothing: it waits until the
//! game may be stopped, which [`spawnery_core::stop`] decides, and answers. So a stranger who calls it learns why a pod may
//! stop, and no more; of too many who wait, those of the address with the most calls are turned away.

mod waiters;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{ConnectInfo, RawQuery, State as Extract};
use axum::http::StatusCode;
use axum::response::Json;
use axum::routing::get;
use serde::Serialize;
use spawnery_core::stop::{self, Facts, Verdict, Why};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock;
use crate::local::body;
use crate::local::refusal::Refusal;
use crate::session::state::Standing;
use crate::shared::Shared;
use waiters::Waiters;

/// Where the kubelet calls.
pub const PATH: &str = "/v1/pre-stop";
/// How long the pod's grace is, as the query says it, in seconds.
const GRACE: &str = "graceSeconds";
/// How long to wait before a listener that could not be had is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What the handler needs.
#[derive(Clone, Debug)]
struct Hook {
    shared: Arc<Shared>,
    waiters: Waiters,
    stop: CancellationToken,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// Why the game may be stopped.
    why: &'static str,
    /// How long the call has waited, in milliseconds.
    waited_ms: u128,
}

/// Serves the hook on `address` until `stop`. A port that is taken costs the hook, never the agent: it is tried again.
pub async fn run(address: SocketAddr, shared: Arc<Shared>, stop: CancellationToken) {
    let router = router(shared, stop.clone());
    let mut warned = false;
    while !stop.is_cancelled() {
        let served = match TcpListener::bind(address).await {
            Ok(listener) => {
                info!(%address, "the pre-stop hook is served");
                let service = router.clone().into_make_service_with_connect_info::<SocketAddr>();
                axum::serve(listener, service).with_graceful_shutdown(stop.clone().cancelled_owned()).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = served
            && !std::mem::replace(&mut warned, true)
        {
            warn!(%address, %error, "cannot serve the pre-stop hook; trying again every second");
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

fn router(shared: Arc<Shared>, stop: CancellationToken) -> Router {
    let hook = Hook { shared, waiters: Waiters::default(), stop };
    Router::new().route(PATH, get(pre_stop)).with_state(hook)
}

async fn pre_stop(
    Extract(hook): Extract<Hook>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
) -> Result<Json<Answer>, Refusal> {
    let query = body::query(query.as_deref().unwrap_or_default(), &[GRACE])?;
    // Whoever does not say would wait for ever.
    let Some(grace) = query.get(GRACE).copied().map(Duration::from_secs) else {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "graceSeconds is missing: the pod's grace in seconds"));
    };
    let place = hook.waiters.take(from.ip());
    let begun = clock::now();
    info!(%from, grace_seconds = grace.as_secs(), "asked to stop; waiting for players to leave");
    let why = tokio::select! {
        biased;
        why = may_stop(&hook.shared, grace, begun) => why,
        () = place.taken() => {
            let full = format!("{} calls wait, and most of them from here: this one gives way", waiters::PLACES);
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, &full));
        }
        () = hook.stop.cancelled() => {
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the agent itself was told to stop"));
        }
    };
    let waited = clock::now().saturating_duration_since(begun);
    info!(why = why.as_str(), waited_ms = waited.as_millis(), "the game may stop");
    Ok(Json(Answer { why: why.as_str(), waited_ms: waited.as_millis() }))
}

/// Waits until the game may be stopped.
async fn may_stop(shared: &Shared, grace: Duration, begun: Instant) -> Why {
    let mut standing = shared.standing();
    let mut empty_since = None;
    loop {
        let (now, seen) = (clock::now(), *standing.borrow_and_update());
        empty_since = (seen.players == Some(0)).then(|| empty_since.unwrap_or(now));
        match stop::decide(&facts(seen, empty_since, begun, grace, now)) {
            Verdict::Stop(why) => return why,
            Verdict::Wait(wait) => {
                tokio::select! {
                    // Its sender lives as long as what is waited in.
                    _ = standing.changed() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
    }
}

fn facts(seen: Standing, empty_since: Option<Instant>, begun: Instant, grace: Duration, now: Instant) -> Facts {
    Facts {
        released: seen.released,
        connected: seen.connected,
        empty_for: empty_since.map(|since| now.saturating_duration_since(since)),
        waited: now.saturating_duration_since(begun),
        grace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::state::{Adapter, Character, Source, State};
    use crate::session::{Incoming, Role, Tally};
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use rstest::rstest;
    use std::net::{IpAddr, Ipv4Addr};
    use tower::ServiceExt as _;

    const SERVER: Character =
        Character { role: Role::Server, source: Source::Local, adapter: Adapter::None, door_enforced: false };

    const KUBELET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 244, 0, 1)), 40000);
    const STRANGER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 244, 0, 9)), 40000);

    fn shared(players: Option<u32>, connected: bool) -> Arc<Shared> {
        let shared = Arc::new(Shared::new(State::new(SERVER, 1)));
        shared.with(|state| {
            if connected {
                let hello = state.hello();
                state.begin(&hello);
            }
            state.counted(players.map(|players| Tally::new(players, 20)), None);
        });
        shared
    }

    async fn call(router: Router, query: &str) -> (u16, String) {
        call_from(KUBELET, router, query).await
    }

    async fn call_from(from: SocketAddr, router: Router, query: &str) -> (u16, String) {
        let mut request = Request::get(format!("{PATH}{query}")).body(Body::empty()).expect("a request");
        request.extensions_mut().insert(ConnectInfo(from));
        let answer = router.oneshot(request).await.expect("an answer");
        let (status, body) = (answer.status().as_u16(), answer.into_body().collect().await.expect("a body").to_bytes());
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        (status, body["why"].as_str().unwrap_or_default().to_owned())
    }

    /// Calls the hook, lets `then` happen after ten seconds, and says why and after how many seconds it answers.
    async fn waits(shared: &Arc<Shared>, query: &str, then: impl FnOnce(&mut State)) -> (String, u64) {
        let begun = tokio::time::Instant::now();
        let asked = tokio::spawn({
            let (router, query) = (router(Arc::clone(shared), CancellationToken::new()), query.to_owned());
            async move {
                let (status, why) = call(router, &query).await;
                assert_eq!(status, 200);
                (why, begun.elapsed().as_secs())
            }
        });
        tokio::time::sleep(Duration::from_secs(10)).await;
        shared.with(then);
        asked.await.expect("no panic")
    }

    fn release(state: &mut State) {
        state.hear(&Incoming::Release { epoch: 1 });
    }
    fn everybody_leaves(state: &mut State) {
        state.counted(Some(Tally::new(0, 20)), None);
    }
    fn nobody_knows(state: &mut State) {
        state.counted(None, None);
    }
    fn operator_goes(state: &mut State) {
        state.end();
    }
    fn nothing(_: &mut State) {}

    #[rstest]
    #[case::released(Some(3), true, release, "Released", 10)]
    #[case::released_without_a_count(None, true, release, "Released", 10)]
    #[case::everybody_leaves_and_the_operator_is_silent_about_it(Some(3), true, everybody_leaves, "Empty", 25)]
    #[case::everybody_leaves_without_an_operator(Some(3), false, everybody_leaves, "Empty", 10)]
    #[case::empty_without_an_operator(Some(0), false, nothing, "Empty", 0)]
    #[case::empty_when_the_operator_goes(Some(0), true, operator_goes, "Empty", 10)]
    #[case::somebody_stays(Some(3), true, nothing, "GraceOver", 55)]
    #[case::somebody_stays_without_an_operator(Some(3), false, nothing, "GraceOver", 55)]
    #[case::a_game_that_hangs_is_occupied(Some(0), true, nobody_knows, "GraceOver", 55)]
    #[tokio::test(start_paused = true)]
    async fn answers_when_the_game_may_stop(
        #[case] players: Option<u32>,
        #[case] connected: bool,
        #[case] then: fn(&mut State),
        #[case] why: &str,
        #[case] seconds: u64,
    ) {
        let shared = shared(players, connected);
        assert_eq!(waits(&shared, "?graceSeconds=60", then).await, (why.to_owned(), seconds));
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_comes_and_goes_starts_the_wait_for_an_empty_game_anew() {
        let shared = shared(Some(0), true);
        let asked = tokio::spawn(call(router(Arc::clone(&shared), CancellationToken::new()), "?graceSeconds=600"));
        let begun = tokio::time::Instant::now();
        for players in [1, 0] {
            tokio::time::sleep(Duration::from_secs(10)).await;
            shared.with(|state| state.counted(Some(Tally::new(players, 20)), None));
        }
        assert_eq!(asked.await.expect("no panic"), (200, "Empty".to_owned()));
        assert_eq!(begun.elapsed().as_secs(), 35);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_of_a_released_pod_answers_at_once_and_says_so_again() {
        let shared = shared(Some(3), true);
        shared.with(release);
        let router = router(Arc::clone(&shared), CancellationToken::new());
        for _ in 0..2 {
            assert_eq!(call(router.clone(), "?graceSeconds=600").await, (200, "Released".to_owned()));
        }
    }

    #[rstest]
    #[case::unreadable("?graceSeconds=soon", 400)]
    #[case::unknown("?grace=5", 400)]
    #[case::nobody_said_how_long("", 400)]
    #[tokio::test]
    async fn refuses_what_it_does_not_understand(#[case] query: &str, #[case] status: u16) {
        assert_eq!(call(router(shared(Some(0), false), CancellationToken::new()), query).await.0, status);
    }

    #[tokio::test]
    async fn an_agent_that_stops_holds_nobody_up() {
        let stop = CancellationToken::new();
        stop.cancel();
        assert_eq!(call(router(shared(Some(3), true), stop), "?graceSeconds=60").await.0, 503);
    }

    /// A hook that fails is followed by SIGTERM at once.
    #[rstest]
    #[case::before_the_kubelet(true)]
    #[case::after_the_kubelet(false)]
    #[tokio::test(start_paused = true)]
    async fn strangers_who_take_all_places_do_not_take_the_kubelet_s(#[case] before: bool) {
        let router = router(shared(Some(3), true), CancellationToken::new());
        let mut calls = vec![STRANGER; waiters::PLACES * 2];
        calls.insert(if before { calls.len() } else { 0 }, KUBELET);
        let mut answers = Vec::new();
        for from in calls {
            let router = router.clone();
            let asked = tokio::spawn(async move { call_from(from, router, "?graceSeconds=60").await });
            answers.push((from, asked));
            // With the clock paused, it waits by the time that this ends.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut refused = 0;
        for (from, answer) in answers {
            let answer = answer.await.expect("no panic");
            refused += usize::from(answer.0 == 429);
            assert!(from != KUBELET || answer == (200, "GraceOver".to_owned()), "{answer:?}");
        }
        assert_eq!(refused, waiters::PLACES + 1, "no more than that wait at once");
    }
}
