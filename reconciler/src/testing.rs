//! An API server that answers as it is told and remembers what it was asked, and a leader that speaks to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use clap::Parser as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use spawnery_core::floor::Width;
use spawnery_runtime::client::Clients;
use spawnery_runtime::clock::Clock;
use spawnery_runtime::events::Events;
use spawnery_runtime::leader::Leadership;
use tokio::sync::watch;

use crate::args::{Args, Config};
use crate::bootstrap::Accounts;
use crate::channel::metrics::ChannelMetrics;
use crate::context::Context;
use crate::feeds;
use crate::hub::{Hub, HubConfig};
use crate::metrics::Metrics;

/// Method and path of each request, and what was sent.
pub(crate) type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Which requests are refused, by a part of method and path, and with which code; tests may change it.
pub(crate) type Refusal = Arc<Mutex<Option<(&'static str, u16)>>>;

/// Answers every request with what was sent, a delete with success, or with a refusal.
pub(crate) fn api_server(refusal: &Refusal) -> (Client, Asked) {
    let asked = Asked::default();
    let (seen, refusal) = (Arc::clone(&asked), Arc::clone(refusal));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (seen, refusal) = (Arc::clone(&seen), Arc::clone(&refusal));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let what = format!("{} {}", parts.method, parts.uri.path());
            let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
            let refused = refusal.lock().filter(|(part, _)| what.contains(part)).map(|(_, code)| code);
            seen.lock().push((what, sent));
            let (code, answer) = match refused {
                Some(code) => {
                    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "as told", "reason": "Told", "code": code });
                    (code, status.to_string().into_bytes())
                }
                None if parts.method == http::Method::DELETE => {
                    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" });
                    (200, status.to_string().into_bytes())
                }
                None => (200, body.to_vec()),
            };
            let response = Response::builder().status(code).body(Body::from(answer))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
        }
    });
    (Client::new(service, "default"), asked)
}

/// What controllers of a leader are handed.
pub(crate) fn context(client: &Client, hub: HubConfig) -> Context {
    let args = Args::try_parse_from(["spawnery-reconciler", "--operator-namespace=ops", "--pod-name="]).unwrap();
    let config = Config::new(&args, 1).unwrap();
    let clock = Clock::system();
    let (wake, _) = feeds::queues();
    let (feeds, _) = feeds::start(client, &config, &wake, clock);
    let (events, _) = Events::start(client.clone(), "test".to_owned(), clock);
    let mut registry = Registry::default();
    let hub = Hub::new(hub, ChannelMetrics::new(&mut registry));
    hub.lead(1, || true);
    hub.listed();
    Context {
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
    }
}
