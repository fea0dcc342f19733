//! The agent channel: gRPC over TLS 1.3 on port 9443.
//!
//! ```text
//! accept ─► TLS handshake ─► stream ─► token review, pod ─► Session of the hub ─► messages out
//! listener.rs                service.rs   auth/              stream.rs           ◄─ messages in
//! ```
//!
//! Bounds: connections, handshakes and their time, streams a connection, message size, idle time, the life of a session.
//! A session carries no queue: what it is sent next follows from what its agent was sent before.

pub mod auth;
mod inbound;
mod listener;
pub mod metrics;
mod outbound;
mod service;
#[cfg(test)]
mod tests;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rustls::ServerConfig;
use spawnery_proto::AgentServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use crate::hub::Hub;
use auth::Authenticate;
use listener::Listener;
use metrics::ChannelMetrics;
use service::Service;

/// Bounds and times of the channel.
#[derive(Debug, Clone, Copy)]
pub struct ChannelConfig {
    /// When agents are asked to open their next session.
    pub renew_after: Duration,
    /// When the operator ends a session.
    pub hard_deadline: Duration,
    /// How often agents report, at least; also how often a silent connection is probed, and for how long.
    pub report_interval: Duration,
    /// How long after the last message an agent that wants it is sent a sign of life.
    pub keep_alive: Duration,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long a connection may stay open without a stream.
    pub idle: Duration,
    /// How long streams may take to end when the process ends, or when they were ended.
    pub grace: Duration,
    /// Most connections at a time.
    pub connections: usize,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            renew_after: Duration::from_mins(8),
            hard_deadline: Duration::from_mins(10),
            report_interval: Duration::from_secs(5),
            keep_alive: Duration::from_secs(5),
            handshake: Duration::from_secs(30),
            idle: Duration::from_mins(5),
            grace: Duration::from_secs(5),
            connections: 16_384,
        }
    }
}

/// Streams a connection may carry: one and its successor, and room for other tools (upstream's bound).
const STREAMS: u32 = 8;
/// Largest message: a proxy's count with some ten thousand servers.
const MESSAGE_BYTES: usize = 1 << 20;
/// Largest header list: a token of a few KiB.
const HEADER_BYTES: u32 = 32 * 1024;

/// Serves agents until `stop`.
///
/// # Errors
///
/// The listener cannot be used, or the server ends by itself.
pub async fn serve(
    config: ChannelConfig,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    hub: Arc<Hub>,
    authenticator: Arc<dyn Authenticate>,
    metrics: ChannelMetrics,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let listener = Listener::new(listener, tls, config, metrics.clone()).context("could not listen for agents")?;
    let service = Service::new(config, hub, authenticator, metrics, stop.clone());
    let agents = AgentServiceServer::new(service).max_decoding_message_size(MESSAGE_BYTES);
    let server = Server::builder()
        .max_concurrent_streams(STREAMS)
        .http2_max_header_list_size(HEADER_BYTES)
        .http2_keepalive_interval(Some(config.report_interval))
        .http2_keepalive_timeout(Some(config.report_interval))
        .tcp_nodelay(true)
        .add_service(agents);
    let incoming = listener.accept(stop.clone());
    let serving = server.serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended.context("the agent channel ended"),
        () = stop.cancelled() => {}
    }
    // Streams end at once when told to; whoever does not is cut when this returns.
    match tokio::time::timeout(config.grace, serving).await {
        Ok(ended) => ended.context("the agent channel ended"),
        Err(_) => Ok(()),
    }
}
