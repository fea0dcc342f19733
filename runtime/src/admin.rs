//! Health and metrics over plain HTTP: /livez, /healthz, /readyz, /metrics.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::args::AdminArgs;
use crate::readiness::Readiness;
use crate::serve::drained;
use crate::shutdown::Supervisor;

/// Media type that Prometheus expects for this format.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Binds and serves until the process has ended its other work.
///
/// # Errors
/// When an address cannot be listened on.
pub fn serve(
    args: &AdminArgs,
    readiness: Readiness,
    registry: Registry,
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    let router = router(readiness, Arc::new(registry), supervisor.terminating());
    let mut addresses: Vec<SocketAddr> =
        [args.metrics_bind_address.0, args.health_probe_bind_address.0].into_iter().flatten().collect();
    // A port that the system picks is a different one each time.
    addresses.dedup_by(|a, b| a == b && a.port() != 0);
    for address in addresses {
        let listener = TcpListener::bind(address).with_context(|| format!("could not listen on {address}"))?;
        let address = listener.local_addr().context("could not read the listener's address")?;
        let server = axum_server::from_tcp(listener)
            .with_context(|| format!("could not listen on {address}"))?
            .first_request_timeout(Duration::from_secs(10))
            .handle(drained(supervisor.stopping(), Duration::from_millis(500)));
        let router = router.clone();
        tracing::info!(%address, "serving health and metrics");
        supervisor.spawn("admin", async move {
            server.serve(router.into_make_service()).await.with_context(|| format!("could not serve on {address}"))
        });
    }
    Ok(())
}

fn router(readiness: Readiness, registry: Arc<Registry>, terminating: CancellationToken) -> Router {
    let alive = get(|| std::future::ready("ok"));
    let ready = get(move || std::future::ready(ready(&readiness, &terminating)));
    let metrics = get(move || std::future::ready(metrics(&registry)));
    Router::new()
        .route("/livez", alive.clone())
        .route("/healthz", alive)
        .route("/readyz", ready)
        .route("/metrics", metrics)
}

fn ready(readiness: &Readiness, terminating: &CancellationToken) -> Response {
    let mut missing = readiness.missing();
    if terminating.is_cancelled() {
        missing.push("terminating".to_owned());
    }
    if missing.is_empty() {
        "ok".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}", missing.join(", "))).into_response()
    }
}

fn metrics(registry: &Registry) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("could not encode metrics: {error}")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn get(router: &Router, path: &str) -> (u16, String) {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a valid request");
        let response = router.clone().oneshot(request).await.expect("routers do not fail");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing() {
        let (readiness, terminating) = (Readiness::new(), CancellationToken::new());
        let pods = readiness.flag("pods");
        let router = router(readiness, Arc::new(Registry::default()), terminating.clone());
        assert_eq!(get(&router, "/readyz").await, (503, "not ready: pods".to_owned()));
        pods.set(true);
        assert_eq!(get(&router, "/readyz").await, (200, "ok".to_owned()));
        terminating.cancel();
        assert_eq!(get(&router, "/readyz").await, (503, "not ready: terminating".to_owned()));
        assert_eq!(get(&router, "/livez").await, (200, "ok".to_owned()));
    }

    #[tokio::test]
    async fn metrics_include_the_process() {
        let mut registry = Registry::default();
        crate::process::register(&mut registry, crate::clock::Clock::system());
        let router = router(Readiness::new(), Arc::new(registry), CancellationToken::new());
        let (status, text) = get(&router, "/metrics").await;
        assert_eq!(status, 200);
        for name in
            ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "process_threads"]
        {
            assert!(text.contains(name), "{name} is missing in:\n{text}");
        }
    }
}
