//! An HTTPS server with a limit on everything a peer can make us hold: connections, handshakes, heads, bodies, time.

pub mod body;
mod bounded;
pub mod certificate;
pub mod room;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::Response;
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use http::{HeaderValue, StatusCode, header};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;

use crate::shutdown::Supervisor;
use bounded::Bounded;

/// What one peer, and all together, may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// From the handshake to the complete head of the first request.
    pub first_request: Duration,
    /// From one answer to the complete head of the next request. Above the 90 s for which the API server keeps an idle
    /// connection, so that it is never us who close one that it is about to use.
    pub idle: Duration,
    /// For one request, from head to answer, its body included; over it the answer is 503.
    pub request: Duration,
    /// Largest body; over it the answer is 413. The API server never sends more than about 3 MiB.
    pub body_bytes: usize,
    /// Connections at once; more are closed at once.
    pub connections: usize,
    /// For what is under way when the process stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            first_request: Duration::from_secs(10),
            idle: Duration::from_mins(2),
            request: Duration::from_secs(10),
            body_bytes: 3 << 20,
            connections: 1024,
            drain: Duration::from_secs(5),
        }
    }
}

/// Serves `router` until the process stops; answers while it terminates ask peers to go elsewhere.
///
/// # Errors
/// When the listener fails.
pub async fn https(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    router: Router,
    limits: Limits,
    supervisor: Supervisor,
) -> anyhow::Result<()> {
    let address = listener.local_addr().context("could not read the listener's address")?;
    let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(tls))
        .handshake_timeout(limits.handshake)
        .acceptor(Bounded::new(limits.connections));
    let mut server = axum_server::from_tcp(listener)
        .with_context(|| format!("could not listen on {address}"))?
        .acceptor(acceptor)
        .first_request_timeout(limits.first_request)
        .handle(drained(supervisor.stopping(), limits.drain));
    server.http_builder().http1().header_read_timeout(limits.idle);
    tracing::info!(%address, "serving https");
    let router = limited(router, limits, supervisor.terminating());
    server.serve(router.into_make_service()).await.with_context(|| format!("could not serve on {address}"))
}

/// A server's handle that begins to drain when `stopping` is cancelled.
pub(crate) fn drained(stopping: CancellationToken, drain: Duration) -> Handle<std::net::SocketAddr> {
    let handle = Handle::new();
    let drains = handle.clone();
    tokio::spawn(async move {
        stopping.cancelled().await;
        drains.graceful_shutdown(Some(drain));
    });
    handle
}

fn limited(router: Router, limits: Limits, terminating: CancellationToken) -> Router {
    let close = move |mut response: Response| {
        if terminating.is_cancelled() {
            // The API server keeps connections open, also to pods that their Service has left.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        std::future::ready(response)
    };
    router
        .layer(DefaultBodyLimit::disable())
        .layer(RequestBodyLimitLayer::new(limits.body_bytes))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, limits.request))
        .layer(CatchPanicLayer::new())
        .layer(axum::middleware::map_response(close))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::{get, post};
    use http::Request;
    use tower::ServiceExt;

    use super::*;

    async fn broken() {
        panic!("on purpose")
    }

    fn router(terminating: CancellationToken) -> Router {
        let routes = Router::new()
            .route("/echo", post(|body: Bytes| async move { body }))
            .route("/panic", get(broken))
            .route("/slow", get(std::future::pending::<()>));
        limited(routes, Limits { body_bytes: 10, ..Limits::default() }, terminating)
    }

    async fn answer(request: Request<Body>) -> Response {
        router(CancellationToken::new()).oneshot(request).await.expect("routers do not fail")
    }

    fn request(path: &str, body: &'static str) -> Request<Body> {
        let method = if body.is_empty() { "GET" } else { "POST" };
        Request::builder().method(method).uri(path).body(Body::from(body)).expect("a valid request")
    }

    #[tokio::test]
    async fn large_bodies_are_refused() {
        assert_eq!(answer(request("/echo", "0123456789")).await.status(), 200);
        assert_eq!(answer(request("/echo", "0123456789a")).await.status(), 413);
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        assert_eq!(answer(request("/panic", "")).await.status(), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_cut_off() {
        assert_eq!(answer(request("/slow", "")).await.status(), 503);
    }

    #[tokio::test]
    async fn peers_are_sent_elsewhere_while_terminating() {
        let terminating = CancellationToken::new();
        let router = router(terminating.clone());
        let before = router.clone().oneshot(request("/echo", "x")).await.expect("routers do not fail");
        terminating.cancel();
        let after = router.oneshot(request("/echo", "x")).await.expect("routers do not fail");
        let header = |response: &Response| response.headers().get(header::CONNECTION).cloned();
        assert_eq!((header(&before), header(&after)), (None, Some(HeaderValue::from_static("close"))));
    }
}
