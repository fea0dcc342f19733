//! What programs have in common that answer over HTTPS from watch caches: the webhook and the extender.
//!
//! ```text
//! Frame::start: clock, signals, clients, registry, readiness
//!      │   the program adds its watches, checks and handlers
//! Frame::serve: certificate by its Secret, health and metrics, HTTPS until the process is asked to end
//! ```

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use spawnery_certs::serve::ServeError;
use spawnery_certs::{EvictionTokens, ServingCert};

use crate::args::{AdminArgs, ClientArgs, ShutdownArgs};
use crate::client::{self, Clients};
use crate::clock::Clock;
use crate::readiness::Readiness;
use crate::serve::certificate::{CertificateTask, Owner};
use crate::serve::{self, Limits};
use crate::shutdown::Supervisor;
use crate::{admin, process};

/// What a program builds its own parts with.
#[derive(Debug)]
pub struct Frame {
    /// Time.
    pub clock: Clock,
    /// Signals and tasks.
    pub supervisor: Supervisor,
    /// Clients of the API server.
    pub clients: Clients,
    /// What /metrics shows; holds the process' own already.
    pub registry: Registry,
    /// What /readyz asks.
    pub readiness: Readiness,
    shutdown: ShutdownArgs,
}

/// Where and how a program answers.
#[derive(Debug)]
pub struct Front<'a> {
    /// Address to listen on.
    pub address: SocketAddr,
    /// Whose certificate is served.
    pub owner: Owner<'a>,
    /// Kept as the Secret says, where there are any.
    pub tokens: Option<Arc<EvictionTokens>>,
    /// Which protocols are spoken.
    pub tls: fn(Arc<ServingCert>) -> Result<ServerConfig, ServeError>,
    /// Shows when the certificate ends, in seconds since 1970; 0 before there is one.
    pub certificate_ends: Gauge,
    /// The handlers.
    pub router: Router,
    /// Largest body that is read.
    pub body_bytes: usize,
}

impl Frame {
    /// Begins a process.
    ///
    /// # Errors
    /// When there is no way to the API server, or signals cannot be heard.
    pub async fn start(client: &ClientArgs, shutdown: ShutdownArgs) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let supervisor = Supervisor::new();
        supervisor.watch_signals(shutdown.shutdown_delay)?;
        let clients = client::connect(client).await?;
        let mut registry = Registry::default();
        process::register(&mut registry, clock);
        Ok(Self { clock, supervisor, clients, registry, readiness: Readiness::new(), shutdown })
    }

    /// Serves until the process is asked to end.
    ///
    /// # Errors
    /// When an address cannot be had, or a task that must not end has ended.
    pub async fn serve(self, admin: &AdminArgs, front: Front<'_>) -> anyhow::Result<()> {
        let Self { clock, supervisor, clients, registry, readiness, shutdown } = self;
        let serving = ServingCert::empty();
        let follow = Arc::clone(&serving);
        let mut certificate =
            CertificateTask::new(clients.api, front.owner, follow, front.certificate_ends, &readiness, clock);
        if let Some(tokens) = front.tokens {
            certificate = certificate.with_tokens(tokens, &readiness);
        }
        supervisor.spawn_until_stopped("certificate", certificate.run());
        admin::serve(admin, readiness, registry, &supervisor)?;

        let address = front.address;
        let listener = TcpListener::bind(address).with_context(|| format!("could not listen on {address}"))?;
        let tls = Arc::new((front.tls)(serving)?);
        let limits = Limits { body_bytes: front.body_bytes, drain: shutdown.shutdown_grace, ..Limits::default() };
        supervisor.spawn("https", serve::https(listener, tls, front.router, limits, supervisor.clone()));
        supervisor.join(shutdown.shutdown_grace + Duration::from_secs(1)).await
    }
}
