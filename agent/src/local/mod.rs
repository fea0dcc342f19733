//! The local HTTP API, over which the game says its count and learns where it may route.
//!
//! | | |
//! |---|---|
//! | `GET /healthz` | the agent runs |
//! | `GET /v1/state` | everything it knows |
//! | `PUT /v1/count` | `{"players":3,"slots":20}`: the count; players `null` is unknown |
//! | `PUT /v1/ready` | `{"ready":true}`: the server has loaded |
//! | `GET /v1/directory?after=SEQ&timeoutSeconds=20` | what to carry out, as soon as it is another than SEQ |
//! | `POST /v1/applied` | `{"seq":SEQ,"occupancy":{..}}`: carried out, and the count since then |
//! | `PUT /v1/occupancy` | a proxy's count with its players by server |
//!
//! An answer to a count means that it is queued in its place on the stream, or kept for the next session: whoever waits
//! for it before letting a player in is never reported too late. Counts may carry a `serial` that grows; a late one is
//! answered like any other and changes nothing.

pub mod body;
pub mod refusal;
pub mod view;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, RawQuery, State as Extract};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post, put};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::session::Role;
use crate::session::state::{Adapter, Character, Source, State};
use crate::shared::Shared;
use body::Body;
use refusal::Refusal;

/// Largest body taken: a proxy's occupancy of some ten thousand servers.
const LARGEST_BODY: usize = 1024 * 1024;
/// Requests that may wait for a change at the same time; one adapter needs one.
const WAITERS: usize = 16;
/// Longest wait for a change.
const LONGEST_WAIT: u64 = 60;
/// Wait when none is asked for.
const USUAL_WAIT: u64 = 20;

/// What the handlers need.
#[derive(Clone, Debug)]
pub struct Local {
    shared: Arc<Shared>,
    name: Arc<str>,
    slots: Option<u32>,
    waiters: Arc<Semaphore>,
}

impl Local {
    /// For the pod `name`, whose slots are `slots` where a body does not say.
    pub fn new(shared: Arc<Shared>, name: &str, slots: Option<u32>) -> Self {
        Self { shared, name: name.into(), slots, waiters: Arc::new(Semaphore::new(WAITERS)) }
    }

    /// The API.
    pub fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(healthz))
            .route("/v1/state", get(state))
            .route("/v1/count", put(count))
            .route("/v1/ready", put(ready))
            .route("/v1/directory", get(directory))
            .route("/v1/applied", post(applied))
            .route("/v1/occupancy", put(occupancy))
            .fallback(nowhere)
            .method_not_allowed_fallback(no_method)
            .layer(DefaultBodyLimit::max(LARGEST_BODY))
            .with_state(self)
    }
}

/// Binds the API's address.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves the API until `stop`.
pub async fn serve(listener: TcpListener, local: Local, stop: CancellationToken) -> std::io::Result<()> {
    axum::serve(listener, local.router()).with_graceful_shutdown(stop.cancelled_owned()).await
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn nowhere() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "there is nothing here; accepted: /healthz, /v1/state, /v1/count, /v1/ready, /v1/directory, /v1/applied, /v1/occupancy",
    )
}

async fn no_method() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "accepted: GET /v1/state and /v1/directory, PUT /v1/count, /v1/ready and /v1/occupancy, POST /v1/applied",
    )
}

async fn state(Extract(local): Extract<Local>) -> Json<view::StateView> {
    Json(local.shared.with(|state| view::StateView::of(state, &local.name)))
}

/// 204 where there is nothing to tell.
fn done() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Counts come over this API only if nobody else brings them.
fn local_source(character: Character) -> Result<(), Refusal> {
    match character.source {
        Source::Local => Ok(()),
        Source::Ping => Err(Refusal::conflict("this agent counts by ping; start it with --count-source local")),
    }
}

fn proxies_only(character: Character) -> Result<(), Refusal> {
    match character.role {
        Role::Proxy => Ok(()),
        Role::Server => Err(Refusal::conflict("this agent is a server's; only proxies have an occupancy by server")),
    }
}

async fn count(Extract(local): Extract<Local>, bytes: Bytes) -> Result<Response, Refusal> {
    let character = local.shared.with(|state| state.character());
    local_source(character)?;
    if character.role == Role::Proxy && character.adapter == Adapter::External {
        return Err(Refusal::conflict(
            "this proxy's adapter says its count; use PUT /v1/occupancy or POST /v1/applied",
        ));
    }
    let body = Body::parse(&bytes)?;
    let counted = body::counted(&body.root(&["players", "slots", "serial"])?, local.slots)?;
    local.shared.with(|state| state.counted(counted.tally, counted.serial));
    Ok(done())
}

async fn occupancy(Extract(local): Extract<Local>, bytes: Bytes) -> Result<Response, Refusal> {
    let character = local.shared.with(|state| state.character());
    proxies_only(character)?;
    let body = Body::parse(&bytes)?;
    let counted = body::counted(&body.root(&["players", "slots", "serial", "servers"])?, local.slots)?;
    local.shared.with(|state| state.counted(counted.tally, counted.serial));
    Ok(done())
}

async fn ready(Extract(local): Extract<Local>, bytes: Bytes) -> Result<Response, Refusal> {
    if local.shared.with(|state| state.character()).role == Role::Proxy {
        return Err(Refusal::conflict("this agent is a proxy's; its readiness is its gate"));
    }
    let body = Body::parse(&bytes)?;
    let ready = body.root(&["ready"])?.boolean("ready")?;
    local.shared.with(|state| state.loaded(ready));
    Ok(done())
}

async fn directory(
    Extract(local): Extract<Local>,
    RawQuery(query): RawQuery,
) -> Result<Json<view::DirectoryView>, Refusal> {
    let query = body::query(query.as_deref().unwrap_or_default(), &["after", "timeoutSeconds"])?;
    let after = query.get("after").copied();
    let wait = query.get("timeoutSeconds").copied().unwrap_or(USUAL_WAIT).min(LONGEST_WAIT);
    let Ok(_place) = local.waiters.try_acquire() else {
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "16 requests wait for a change already"));
    };
    let mut seq = local.shared.seq();
    // Another number, not only a greater one: a game that outlived an agent may hold a number from before.
    let changed = seq.wait_for(|seq| Some(*seq) != after);
    // At the limit the unchanged directory is the answer. The result holds a lock on the number, so it is let go at once.
    drop(tokio::time::timeout(Duration::from_secs(wait), changed).await);
    Ok(Json(local.shared.with(|state| view::DirectoryView::of(state))))
}

async fn applied(Extract(local): Extract<Local>, bytes: Bytes) -> Result<Response, Refusal> {
    let character = local.shared.with(|state| state.character());
    if character.adapter == Adapter::None {
        return Err(Refusal::conflict("this agent confirms at once; start it with --adapter external"));
    }
    let body = Body::parse(&bytes)?;
    let root = body.root(&["seq", "occupancy"])?;
    let seq = root.whole("seq", u64::MAX)?;
    let fields = match character.role {
        Role::Proxy => &["players", "slots", "serial", "servers"][..],
        Role::Server => &["players", "slots", "serial"][..],
    };
    let occupancy = root.object("occupancy", fields)?;
    let counted = body::counted(&occupancy, local.slots)?;
    let Some(tally) = counted.tally else {
        return Err(occupancy.refuse("players", "a whole number: a confirmation needs the count that goes before it"));
    };
    local.shared.with(|state: &mut State| state.applied(seq, tally, counted.serial)).map_err(|ahead| {
        let mut refusal = root.refuse("seq", &format!("at most {}, the newest; get /v1/directory again", ahead.newest));
        refusal.status = StatusCode::CONFLICT;
        refusal
    })?;
    Ok(done())
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
