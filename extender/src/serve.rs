//! From HTTP to the decisions and back.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{StatusCode, header};
use spawnery_core::placement::Refusal;
use spawnery_runtime::serve::body::{self, Unread};

use crate::answers::{prioritize, sift};
use crate::index::Asked;
use crate::wire::{Call, Filtered, MAX_BODY_BYTES, Scored, Unusable};
use crate::{App, patience};

/// What a scheduler asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    /// Which of these nodes may have the pod?
    Filter,
    /// How much should each have it?
    Prioritize,
}

impl Verb {
    fn label(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
        }
    }
}

/// On what an answer rests.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Basis {
    /// On what we know of the nodes.
    Known(Asked),
    /// On nothing: the pod is not ours.
    Foreign,
    /// On nothing: what we know may be old, and a scheduler that waits for us places no pod at all.
    Stale,
}

impl Basis {
    /// What is asked of what we know, if anything.
    fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Known(asked) => Some(asked),
            Self::Foreign | Self::Stale => None,
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Known(_) => "decided",
            Self::Foreign => "foreign",
            Self::Stale => "stale",
        }
    }
}

/// Why a call gets no answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Unread(#[from] Unread),
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error("too many calls at once: try again")]
    Busy,
    #[error("could not write the answer")]
    Unwritable(#[from] serde_json::Error),
}

impl Failure {
    fn label(&self) -> &'static str {
        match self {
            Self::Unread(unread) => unread.label(),
            Self::Unusable(unusable) => unusable.label(),
            Self::Busy => "busy",
            Self::Unwritable(_) => "unwritable",
        }
    }

    /// Whatever is not 200 fails the call; only the log of a scheduler that is told to log much shows the text.
    fn status(&self) -> StatusCode {
        match self {
            Self::Unread(unread) => unread.status(),
            Self::Unusable(_) => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unwritable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// All paths of the extender.
pub fn router(app: Arc<App>) -> Router {
    let on = |verb: Verb| {
        post(move |State(app): State<Arc<App>>, request: http::Request<Body>| async move {
            serve(&app, verb, request).await
        })
    };
    Router::new().route("/filter", on(Verb::Filter)).route("/prioritize", on(Verb::Prioritize)).with_state(app)
}

async fn serve(app: &App, verb: Verb, request: http::Request<Body>) -> Response {
    match answered(app, verb, request).await {
        Ok(body) => json(body),
        Err(failure) => {
            app.metrics.failed(verb.label(), failure.label());
            let error = &failure as &dyn std::error::Error;
            tracing::debug!(verb = verb.label(), reason = failure.label(), error, "could not answer");
            match failure {
                // The one failure that somebody has to mend in the scheduler's configuration: in `Error` the text shows
                // in the scheduler's log at any level.
                Failure::Unusable(error @ Unusable::NoNames) if verb == Verb::Filter => {
                    let refusal = Filtered { error: error.to_string(), ..Filtered::default() };
                    json(refusal.to_json(0).unwrap_or_default())
                }
                other => (other.status(), other.to_string()).into_response(),
            }
        }
    }
}

fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], Bytes::from(body)).into_response()
}

async fn answered(app: &App, verb: Verb, request: http::Request<Body>) -> Result<Vec<u8>, Failure> {
    let _place = app.room.enter(app.clock.now()).ok_or(Failure::Busy)?;
    let body = body::read(request.into_body(), MAX_BODY_BYTES).await?;
    let started = app.clock.now();
    let call = Call::read(&body)?;
    let basis = match Asked::of(&call.pod) {
        None => Basis::Foreign,
        Some(_) if !app.stores.fresh(started) => Basis::Stale,
        Some(asked) => Basis::Known(asked),
    };
    let (answer, waited) = match verb {
        Verb::Filter => {
            let (filtered, waited) = filter(app, &basis, &call).await;
            (filtered.to_json(body.len())?, waited)
        }
        Verb::Prioritize => {
            let index = app.index.read();
            let scored = prioritize(&index, basis.asked(), &call.nodes);
            (Scored::to_json(scored, body.len())?, Duration::ZERO)
        }
    };
    let took = app.clock.now().saturating_duration_since(started).saturating_sub(waited);
    app.metrics.called(verb.label(), basis.label(), took);
    log(verb, &basis, &call, took);
    Ok(answer)
}

fn log(verb: Verb, basis: &Basis, call: &Call<'_>, took: Duration) {
    tracing::debug!(
        verb = verb.label(),
        namespace = call.pod.namespace(),
        name = call.pod.name(),
        verdict = basis.label(),
        nodes = call.nodes.len(),
        elapsed_us = took.as_micros(),
        "answered"
    );
}

async fn filter<'a>(app: &App, basis: &Basis, call: &'a Call<'_>) -> (Filtered<'a>, Duration) {
    let Some(asked) = basis.asked() else {
        return (sift(&app.index.read(), None, &call.nodes), Duration::ZERO);
    };
    let (filtered, waited) = patience::filter(app, asked, call).await;
    if !filtered.node_names.is_empty() {
        app.flights.begin(call.pod.uid(), asked, app.clock.now());
    }
    for refusal in Refusal::ALL {
        let count = filtered.failed_and_unresolvable_nodes.iter().filter(|(_, why)| *why == refusal.message()).count();
        if count > 0 {
            app.metrics.refused(refusal, count as u64);
        }
    }
    (filtered, waited)
}

#[cfg(test)]
mod tests;
