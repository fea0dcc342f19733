//! Asks every second whether the webhook answers, because while none does the budgets must cover empty pods too.
//!
//! Asked as the API server asks: over HTTPS, on a new connection, verified with our CA.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Uri;
use http_body_util::Empty;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use spawnery_core::floor::{LEADERLESS, Sight, Width};
use spawnery_runtime::client::CALL;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::context::Context;
use crate::floor;

/// Pause between two probes.
const EVERY: Duration = Duration::from_secs(1);
/// Limit of one attempt. A second one follows at once, on a new connection, in case the first met a replica that ended.
const ATTEMPT: Duration = Duration::from_millis(700);
/// How often it is looked whether all budgets are wide, while that is awaited.
const WIDENED: Duration = Duration::from_millis(20);

type Https = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// What budgets have to cover. Once nobody looks at the webhook any more, nothing that still writes one relies on it.
struct Published(watch::Sender<Width>);

impl Drop for Published {
    fn drop(&mut self) {
        self.0.send_replace(LEADERLESS);
    }
}

/// Probes for ever, publishes what budgets have to cover, wakes every group on a change and measures how long it takes
/// until the budgets follow.
///
/// # Errors
/// When the probe's URL is none; otherwise it never ends.
pub async fn run(ctx: Arc<Context>, width: watch::Sender<Width>) -> anyhow::Result<()> {
    let width = Published(width);
    let uri: Uri = ctx.config.webhook_probe_url.parse()?;
    let mut ca = ctx.ca.clone();
    let mut client: Option<Https> = None;
    let mut sight = Sight::default();
    let mut silent_since: Option<Instant> = None;
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if client.is_none() || ca.has_changed().unwrap_or(false) {
            client = ca.borrow_and_update().as_deref().and_then(connector);
        }
        let asked = ctx.now();
        let answered = match &client {
            Some(client) => answers(client, &uri).await,
            None => false,
        };
        ctx.metrics.webhook_answers.set(i64::from(answered));
        sight = sight.after(answered);
        let changed = width.0.send_if_modified(|current| std::mem::replace(current, sight.width()) != sight.width());
        if changed {
            ctx.wake.all_groups(&ctx.feeds);
            tracing::info!(answered, width = ?sight.width(), "budgets have to follow");
            silent_since = (sight.width() == Width::Unsealed).then_some(asked);
        }
        if let Some(since) = silent_since
            && tokio::time::timeout(CALL, all_wide(&ctx)).await.is_ok()
        {
            let took = ctx.now().saturating_duration_since(since);
            ctx.metrics.floor_widening.observe(took.as_secs_f64());
            tracing::info!(elapsed_ms = took.as_millis(), "every budget covers empty pods");
            silent_since = None;
        }
    }
}

fn connector(ca: &str) -> Option<Https> {
    let mut tls = match spawnery_certs::client::client_config(ca) {
        Ok(tls) => tls,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "could not probe the webhook with our CA");
            return None;
        }
    };
    // The connector offers its own protocols.
    tls.alpn_protocols.clear();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(ATTEMPT));
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().wrap_connector(http);
    Some(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(https))
}

async fn answers(client: &Https, uri: &Uri) -> bool {
    for _ in 0..2 {
        let answer = tokio::time::timeout(ATTEMPT, client.get(uri.clone())).await;
        match answer {
            Ok(Ok(response)) if response.status().is_success() => return true,
            // It said no: a replica that starts or ends.
            Ok(Ok(response)) => tracing::debug!(status = response.status().as_u16(), "the webhook is not ready"),
            Ok(Err(error)) => tracing::debug!(error = &error as &dyn std::error::Error, "the webhook does not answer"),
            Err(_) => tracing::debug!(limit_ms = ATTEMPT.as_millis(), "the webhook does not answer in time"),
        }
    }
    false
}

async fn all_wide(ctx: &Context) {
    while ctx.feeds.budgets.all().iter().any(|budget| floor::is_narrow(budget)) {
        tokio::time::sleep(WIDENED).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_written_after_the_last_probe_are_wide() {
        let (width, seen) = watch::channel(Width::Occupied);
        drop(Published(width));
        assert_eq!(*seen.borrow(), Width::Unsealed);
    }
}
