//! From HTTP to the handlers and back: limits, deadlines, one defined answer for everything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{StatusCode, header};
use spawnery_runtime::args::duration;
use spawnery_runtime::serve::body;
use spawnery_runtime::serve::room::Room;

use crate::review::{Answer, MAX_BODY_BYTES, Malformed, Request, decode};
use crate::{App, evict, mutate, validate};

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
    validate: Room,
    mutate_pods: Room,
    evictions: Room,
}

impl InFlight {
    pub(crate) fn new(each: usize) -> Self {
        Self { validate: Room::new(each), mutate_pods: Room::new(each), evictions: Room::new(each) }
    }

    fn were_full(&self, now: Instant) -> bool {
        [&self.validate, &self.mutate_pods, &self.evictions].iter().any(|room| room.was_full(now, OVERLOADED_FOR))
    }

    fn of(&self, endpoint: Endpoint) -> &Room {
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
        .route("/evictions/{token}", post(evictions).fallback(nothing_here))
        .route("/probe", get(probe))
        .fallback(nothing_here)
        .with_state(app)
}

/// Only the API server knows the path that it was registered with.
async fn evictions(State(app): State<Arc<App>>, request: http::Request<Body>) -> Response {
    let token = request.uri().path().strip_prefix("/evictions/").unwrap_or_default();
    if app.tokens.accepts(token, app.clock.now()) {
        serve(&app, Endpoint::Evictions, request).await
    } else {
        nothing_here(State(app)).await
    }
}

/// Says nothing, to whoever guesses.
async fn nothing_here(State(app): State<Arc<App>>) -> Response {
    app.metrics.unknown_path();
    StatusCode::NOT_FOUND.into_response()
}

async fn probe(State(app): State<Arc<App>>) -> Response {
    let mut missing = app.readiness.missing();
    if app.in_flight.were_full(app.clock.now()) {
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
    let Some(_place) = app.in_flight.of(endpoint).enter(arrived) else {
        return Err(Malformed::Busy);
    };
    let gives_up = arrived + timeout(request.uri().query());
    let (head, body) = request.into_parts();
    let body = body::read(body, MAX_BODY_BYTES).await?;
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
}
