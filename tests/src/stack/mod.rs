//! Everything of Spawnery on one cluster: installed, running, with agents and games in its pods.
//!
//! ```text
//!  API server ──https──► Doorway ──► webhook  1..n   ┐ processes, each under its own ServiceAccount's rights
//!  agents ─────gRPC────► Doorway ──► reconciler 1..n ┘
//!     └── Runner: an agent and a game for each pod ◄── players
//! ```
//!
//! A [`Doorway`] stands for a Service: kwok clusters have nobody who carries packets for those.

mod arena;
mod crowd;
mod doorway;
mod extender;
mod guard;
mod install;
mod losses;
mod network;
mod replica;
mod vigil;

pub use arena::{Arena, Evicted, refusals, wait_refusals};
pub use crowd::Crowd;
pub use doorway::Doorway;
pub use extender::LoneExtender;
pub use guard::{ensure_guarded, eviction_path};
pub use install::install;
pub use losses::{ToldLoss, losses, told_losses};
pub use network::{GATEWAY, LOBBY, SmallNetwork};
pub use replica::{Replica, WEBHOOK_PORT};
pub use vigil::{Happened, Vigil, What};

use crate::{
    Cluster, Launch,
    runner::{Games, Runner, RunnerOptions},
    target::binary,
};
use anyhow::{Context as _, Result};
use spawnery_api::names::{object, port};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Certificates, caches and a lease take about a second; beside a build it takes longer.
const READY_LIMIT: Duration = Duration::from_mins(1);

/// Where the leader's own way to the webhooks begins, when it has one.
const PROBE_PORT: u16 = WEBHOOK_PORT + 1;

/// What a stack should be like.
#[derive(Debug, Clone)]
pub struct StackOptions {
    /// How many reconcilers; one leads.
    pub reconcilers: usize,
    /// How many webhooks; all serve.
    pub webhooks: usize,
    /// Which games the pods play.
    pub games: Games,
    /// The leader probes the webhooks on a way of its own, which stays open when [`Stack::reviews`] is blocked: then the
    /// API server alone is cut off from them, and the budgets stay as narrow as they are.
    pub probes_apart: bool,
    /// What reconcilers and webhooks write down.
    pub log_level: String,
    /// More flags for the reconcilers.
    pub reconciler_flags: Vec<String>,
    /// More flags for the webhooks.
    pub webhook_flags: Vec<String>,
    /// How many extenders. No scheduler asks them until [`Stack::ask_extenders`].
    pub extenders: usize,
    /// More flags for the extenders.
    pub extender_flags: Vec<String>,
    /// How long webhooks that are told to end serve on, as the flag has it.
    pub shutdown_delay: String,
    /// Somebody has installed definitions, accounts and rights already, such as helm.
    pub installed: bool,
}

impl Default for StackOptions {
    fn default() -> Self {
        Self {
            reconcilers: 1,
            webhooks: 1,
            games: Games::Mini,
            probes_apart: false,
            log_level: "info,spawnery=debug".to_owned(),
            reconciler_flags: Vec::new(),
            webhook_flags: Vec::new(),
            extenders: 0,
            extender_flags: Vec::new(),
            shutdown_delay: "0s".to_owned(),
            installed: false,
        }
    }
}

/// Spawnery, running. It ends when this is dropped.
pub struct Stack {
    // In the order in which they end: what speaks to the API server goes before it.
    runner: Runner,
    reconcilers: Vec<Arc<Replica>>,
    webhooks: Vec<Arc<Replica>>,
    extenders: extender::Extenders,
    reviews: Doorway,
    _doorways: Vec<Doorway>,
    cluster: Cluster,
}

impl Stack {
    /// Installs Spawnery on the cluster and starts it; returns when everything is ready.
    ///
    /// # Errors
    /// When something is refused or does not become ready; the cluster's logs say more.
    pub async fn start(cluster: &Cluster, options: StackOptions) -> Result<Self> {
        let (reconciler, webhook) = tokio::try_join!(binary("spawnery-reconciler"), binary("spawnery-webhook"))?;
        if !options.installed {
            install(cluster).await?;
        }
        let reconcilers: Vec<Arc<Replica>> = (1..=options.reconcilers)
            .map(|n| Arc::new(Replica::new(cluster, format!("reconciler-{n}"), replica::AGENT_PORT)))
            .collect();
        let webhooks: Vec<Arc<Replica>> = (1..=options.webhooks)
            .map(|n| Arc::new(Replica::new(cluster, format!("webhook-{n}"), WEBHOOK_PORT)))
            .collect();
        let agents =
            Doorway::open(SocketAddr::from((cluster.free_address(), replica::AGENT_PORT)), &reconcilers).await?;
        let reviews = Doorway::open(SocketAddr::from((cluster.free_address(), WEBHOOK_PORT)), &webhooks).await?;
        let mut flags = options.reconciler_flags;
        let mut doorways = Vec::new();
        let operator_address = agents.address();
        doorways.push(agents);
        if options.probes_apart {
            // The same host, because the certificate names it.
            let address = SocketAddr::new(reviews.address().ip(), PROBE_PORT);
            doorways.push(Doorway::open(address, &webhooks).await?);
            flags.push(format!("--webhook-probe-url=https://{address}/probe"));
        }
        for replica in &reconcilers {
            // Each has a token of its own, so that the audit log tells them apart.
            let operator = cluster.service_account(object::OPERATOR_NAMESPACE, object::OPERATOR).await?;
            let launch = Launch::new(replica.name(), &reconciler)
                .arg(format!("--agent-bind-address={}", replica.address()))
                .arg(format!("--webhook-url=https://{}", reviews.address()))
                .args(&flags);
            replica.launch(common(launch, &options.log_level, cluster, replica, operator.kubeconfig()))?;
        }
        let account = cluster.service_account(object::OPERATOR_NAMESPACE, object::WEBHOOK).await?;
        for replica in &webhooks {
            let launch = Launch::new(replica.name(), &webhook)
                .arg(format!("--webhook-bind-address={}", replica.address()))
                .arg(format!("--shutdown-delay={}", options.shutdown_delay))
                .args(&options.webhook_flags);
            replica.launch(common(launch, &options.log_level, cluster, replica, account.kubeconfig()))?;
        }
        for replica in reconcilers.iter().chain(&webhooks) {
            replica.wait_ready(READY_LIMIT).await?;
        }
        let extenders =
            extender::Extenders::start(cluster, options.extenders, &options.log_level, &options.extender_flags).await?;
        let options = RunnerOptions { operator: operator_address, games: options.games };
        let runner = Runner::start(cluster, options).await?;
        Ok(Self { cluster: cluster.clone(), runner, reconcilers, webhooks, extenders, reviews, _doorways: doorways })
    }

    /// The cluster that it is on.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What runs the pods.
    pub fn runner(&self) -> &Runner {
        &self.runner
    }

    /// All reconcilers.
    pub fn reconcilers(&self) -> &[Arc<Replica>] {
        &self.reconcilers
    }

    /// The way from the API server to the webhooks.
    pub fn reviews(&self) -> &Doorway {
        &self.reviews
    }

    /// One of the reconcilers, the first at 0.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn reconciler(&self, n: usize) -> Result<&Replica> {
        self.reconcilers.get(n).map(Arc::as_ref).with_context(|| format!("there is no reconciler {n}"))
    }

    /// One of the webhooks, the first at 0.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn webhook(&self, n: usize) -> Result<&Replica> {
        self.webhooks.get(n).map(Arc::as_ref).with_context(|| format!("there is no webhook {n}"))
    }
}

/// What both kinds of process have in common.
fn common(
    launch: Launch,
    log_level: &str,
    cluster: &Cluster,
    replica: &Replica,
    kubeconfig: &std::path::Path,
) -> Launch {
    let at = |port: i32| SocketAddr::new(replica.address().ip(), u16::try_from(port).unwrap_or_default());
    launch
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--operator-namespace={}", object::OPERATOR_NAMESPACE))
        .arg(format!("--metrics-bind-address={}", at(port::METRICS)))
        .arg(format!("--health-probe-bind-address={}", at(port::HEALTH)))
        .arg(format!("--log-level={log_level}"))
        .arg("--shutdown-grace=1s")
        .log(cluster.log_dir().join(format!("{}.log", replica.name())))
}
