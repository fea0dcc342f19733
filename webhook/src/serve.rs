//! From HTTP to the handlers and back: limits, deadlines, one defined answer for everything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{StatusCode, header};
use parking_lot::Mutex;
use spawnery_runtime::args::duration;
use tokio::sync::Semaphore;

use crate::review::{Answer, MAX_BODY_BYTES, Malformed, Request, decode};
use crate::{App, evict, mutate, validate};

/// For the whole body to arrive. The API server sends it at once.
const BODY_DEADLINE: Duration = Duration::from_secs(5);
/// How long the API server waits when it does not say: its own default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// After a request was refused for lack of room, this replica says for so long that it does not answer well, so that the
/// leader widens the floor.
const OVERLOADED_FOR: Duration = Duration::from_secs(10);

/// The three hooks.
#[derive(Debug, Clone, Copy)]
enum Endpoint {
    Validate,
    MutatePods,
    Evictions,
}

impl Endpoint {
    fn label(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::MutatePods => "mutate-pods",
            Self::Evictions => "evictions",
        }
    }
}

/// Room for requests, for each endpoint on its own: a flood at one leaves the others alone.
#[derive(Debug)]
pub(crate) struct InFlight {
    validate: Semaphore,
    mutate_pods: Semaphore,
    evictions: Semaphore,
    overloaded: Mutex<Option<Instant>>,
}

impl InFlight {
    pub(crate) fn new(each: usize) -> Self {
        Self {
            validate: Semaphore::new(each),
            mutate_pods: Semaphore::new(each),
            evictions: Semaphore::new(each),
            overloaded: Mutex::new(None),
        }
    }

    fn of(&self, endpoint: Endpoint) -> &Semaphore {
        match endpoint {
            Endpoint::Validate => &self.validate,
            Endpoint::MutatePods => &self.mutate_pods,
            Endpoint::Evictions => &self.evictions,
        }
    }
}

/// All paths of the webhook.
pub fn router(app: Arc<App>) -> Router {
    let hook = |endpoint: Endpoint| {
        post(move |State(app): State<Arc<App>>, request: http::Request<Body>| async move {
            serve(&app, endpoint, request).await
        })
    };
    Router::new()
        .route("/validate", hook(Endpoint::Validate))
        .route("/mutate-pods", hook(Endpoint::MutatePods))
        .route("/evictions", hook(Endpoint::Evictions))
        .route("/probe", get(probe))
        .with_state(app)
}

async fn probe(State(app): State<Arc<App>>) -> Response {
    let mut missing = app.readiness.missing();
    let overloaded = *app.in_flight.overloaded.lock();
    if overloaded.is_some_and(|at| app.clock.now().saturating_duration_since(at) < OVERLOADED_FOR) {
        missing.push("room".to_owned());
    }
    if missing.is_empty() {
        "ok".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}", missing.join(", "))).into_response()
    }
}

async fn serve(app: &App, endpoint: Endpoint, request: http::Request<Body>) -> Response {
    let arrived = app.clock.now();
    match answered(app, endpoint, request, arrived).await {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(malformed) => {
            app.metrics.malformed(malformed.label());
            tracing::debug!(endpoint = endpoint.label(), reason = malformed.label(), error = %malformed, "not a review");
            malformed.into_response()
        }
    }
}

async fn answered(
    app: &App,
    endpoint: Endpoint,
    request: http::Request<Body>,
    arrived: Instant,
) -> Result<Bytes, Malformed> {
    let Ok(_room) = app.in_flight.of(endpoint).try_acquire() else {
        *app.in_flight.overloaded.lock() = Some(arrived);
        return Err(Malformed::Busy);
    };
    let gives_up = arrived + timeout(request.uri().query());
    let (head, body) = request.into_parts();
    let body = read(body).await?;
    let review = decode(&head.headers, &body)?;
    let started = app.clock.now();
    let answer = match endpoint {
        Endpoint::Validate => validate::validate(app, &review),
        Endpoint::MutatePods => mutate::mutate(&review),
        Endpoint::Evictions => evict::evict(app, &review, gives_up).await,
    };
    let took = app.clock.now().saturating_duration_since(started);
    app.metrics.decided(endpoint.label(), answer.decision, took);
    log(endpoint, &review, &answer, took);
    Ok(answer.body(&review.uid))
}

/// A refused edit is news. An eviction is refused every few seconds while a drain runs: what is news about it is told where
/// it is recorded.
fn log(endpoint: Endpoint, review: &Request<'_>, answer: &Answer, took: Duration) {
    if answer.refusal.is_some() && matches!(endpoint, Endpoint::Validate) {
        tracing::info!(
            namespace = review.namespace,
            name = review.name,
            kind = review.kind,
            user = review.username,
            "refused an edit"
        );
    }
    tracing::debug!(
        endpoint = endpoint.label(),
        namespace = review.namespace,
        name = review.name,
        verdict = answer.decision,
        elapsed_ms = took.as_millis(),
        "answered"
    );
}

async fn read(body: Body) -> Result<Bytes, Malformed> {
    match tokio::time::timeout(BODY_DEADLINE, axum::body::to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_length_limit(&error) => Err(Malformed::TooLong),
        Ok(Err(_)) => Err(Malformed::Broken),
        Err(_) => Err(Malformed::Slow),
    }
}

fn is_length_limit(error: &axum::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// How long the API server waits for us, as it says in the query.
fn timeout(query: Option<&str>) -> Duration {
    query
        .unwrap_or_default()
        .split('&')
        .find_map(|pair| pair.strip_prefix("timeout="))
        .and_then(|value| duration(value).ok())
        .unwrap_or(DEFAULT_TIMEOUT)
        .min(DEFAULT_TIMEOUT * 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::none(None, 10_000)]
    #[case::three_seconds(Some("timeout=3s"), 3_000)]
    #[case::among_others(Some("a=b&timeout=500ms&c=d"), 500)]
    #[case::not_a_duration(Some("timeout=soon"), 10_000)]
    #[case::more_than_the_api_server_allows(Some("timeout=5h"), 30_000)]
    fn reads_the_callers_timeout(#[case] query: Option<&str>, #[case] want_ms: u64) {
        assert_eq!(timeout(query), Duration::from_millis(want_ms));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_given_up() {
        let never = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let begin = tokio::time::Instant::now();
        assert_eq!(read(never).await.unwrap_err().label(), "slow");
        assert_eq!(begin.elapsed(), BODY_DEADLINE);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_told_from_one_that_is_too_long() {
        let broken = futures::stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("reset"))]);
        assert_eq!(read(Body::from_stream(broken)).await.unwrap_err().label(), "broken");
        assert_eq!(read(Body::from(vec![b' '; MAX_BODY_BYTES + 1])).await.unwrap_err().label(), "too-long");
    }
}
