//! From flags to a running process: first what every replica does, then what the leader does.
//!
//! ```text
//! every replica: watches ─► stores, hub (warm)      health, metrics
//! the leader:    label ─► certificates ─► stores as of now ─► hub.lead ─► agent channel, controllers, probe, registration, …
//! the end:       SIGTERM ─► controllers finish ─► budgets widened ─► lease released ─► exit
//! ```

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use spawnery_api::names::object;
use spawnery_core::floor::Width;
use spawnery_runtime::client::{self, Clients};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::events::Events;
use spawnery_runtime::leader::{Election, Leadership, Term};
use spawnery_runtime::readiness::Readiness;
use spawnery_runtime::shutdown::Supervisor;
use spawnery_runtime::{admin, process};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::args::{Args, Command, Config};
use crate::bootstrap::Accounts;
use crate::channel::auth::{KubeAuthenticator, PodIdentity};
use crate::channel::metrics::ChannelMetrics;
use crate::channel::{self, ChannelConfig};
use crate::context::Context;
use crate::feeds::{self, Feeds, Queues, Wakes};
use crate::hub::{Hub, HubConfig};
use crate::metrics::Metrics;
use crate::tls::Certificates;
use crate::{
    catch_up, check, component, floor, hub_feed, network, orphans, probe, proxygroup, registered, server, servergroup,
    webhook_config,
};

/// How long the release of the lease may take.
const RELEASE: Duration = Duration::from_secs(5);

/// Runs the reconciler until it is told to end.
///
/// # Errors
/// When it could not start, a part of it ended, or leadership was lost.
pub async fn run(args: Args) -> anyhow::Result<()> {
    if let Some(Command::Check(check)) = &args.command {
        return check::run(check, &args.scope.operator_namespace).await;
    }
    let config = Config::new(&args, rand::random())?;
    let supervisor = Supervisor::new();
    supervisor.watch_signals(Duration::ZERO)?;
    let replica = Replica::start(&args, config, &supervisor).await?;
    let stopping = supervisor.stopping();
    let led = tokio::select! {
        won = replica.campaign(args.leader_elect) => Some(won),
        () = stopping.cancelled() => None,
    };
    let Some((leadership, term)) = led else {
        return supervisor.join(args.shutdown_grace).await;
    };
    let release = CancellationToken::new();
    let holding = term.map(|term| hold(term, release.clone(), supervisor.clone()));
    let led = replica.lead(&args, leadership, &supervisor).await;
    let ctx = led.unwrap_or_else(|error| {
        supervisor.fail(error);
        None
    });
    let ended = supervisor.join(args.shutdown_grace).await;
    if let Some(ctx) = ctx {
        floor::widen_all(&ctx).await;
    }
    // Only now: while anything of ours might still act, nobody else may lead.
    release.cancel();
    if let Some(holding) = holding {
        let _ = tokio::time::timeout(RELEASE, holding).await;
    }
    ended
}

fn hold(term: Term, release: CancellationToken, supervisor: Supervisor) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(lost) = term.hold(release).await {
            supervisor.fail(anyhow::Error::new(lost));
        }
    })
}

/// What runs whether we lead or not.
struct Replica {
    config: Config,
    clients: Clients,
    clock: Clock,
    feeds: Feeds,
    wakes: Wakes,
    queues: Queues,
    hub: Arc<Hub>,
    events: Events,
    metrics: Metrics,
    channel_metrics: ChannelMetrics,
}

impl Replica {
    async fn start(args: &Args, config: Config, supervisor: &Supervisor) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let clients = client::connect(&args.client).await?;
        let (wakes, mut queues) = feeds::queues();
        let (feeds, tasks) = feeds::start(&clients.api, &config, &wakes, clock);
        for (name, task) in tasks {
            supervisor.spawn_until_stopped(name, task);
        }
        let (events, writer) = Events::start(clients.api.clone(), config.identity.clone(), clock);
        supervisor.spawn_until_stopped("events", writer.run());

        let mut registry = Registry::default();
        process::register(&mut registry, clock);
        let metrics = Metrics::new(&mut registry, events.counts());
        let channel_metrics = ChannelMetrics::new(&mut registry);
        let readiness = Readiness::new();
        let stores = feeds.clone();
        readiness.check("stores", move || stores.missing().is_empty());
        let (api, flag) = (clients.api.clone(), readiness.flag("webhook registration"));
        supervisor.spawn_until_stopped("first registration", async move {
            registered::wait(api, flag).await;
            std::future::pending().await
        });
        admin::serve(&args.admin, readiness, registry, supervisor)?;

        let hub_config = HubConfig {
            report_interval: config.report_interval,
            hard_deadline: config.session_deadline,
            upstream_grace: config.unconfirmed_grace,
            ..HubConfig::default()
        };
        let hub = Hub::new(hub_config, channel_metrics.clone());
        let (_, nothing) = spawnery_runtime::keys::keys();
        let hub_keys = std::mem::replace(&mut queues.hub, nothing);
        supervisor.spawn_until_stopped("hub feed", hub_feed::run(feeds.clone(), Arc::clone(&hub), hub_keys));
        Ok(Self { config, clients, clock, feeds, wakes, queues, hub, events, metrics, channel_metrics })
    }

    /// Waits until this replica leads. The stores come first: a leader with empty stores would be a careless one.
    async fn campaign(&self, elect: bool) -> (Leadership, Option<Term>) {
        self.feeds.wait_synced().await;
        if !elect {
            return (Leadership::alone(self.clock), None);
        }
        let (client, namespace) = (self.clients.strict.clone(), &self.config.operator_namespace);
        let identity = self.config.identity.clone();
        let term = Election::new(client, namespace, object::LEASE, identity, self.clock).win().await;
        (term.leadership(), Some(term))
    }

    /// Starts what only the leader does. `None` when it was told to end before any of that had begun.
    async fn lead(
        self,
        args: &Args,
        leadership: Leadership,
        supervisor: &Supervisor,
    ) -> anyhow::Result<Option<Arc<Context>>> {
        self.metrics.leading.set(1);
        let (width, width_seen) = watch::channel(Width::Unsealed);
        let (ca, ca_seen) = watch::channel(None);
        let (token, token_seen) = watch::channel(None);
        let (watched, watched_seen) = watch::channel(Arc::new(BTreeSet::new()));
        let certificates = Certificates::new(
            self.clients.api.clone(),
            &self.config,
            self.clock,
            leadership.clone(),
            ca,
            token,
            self.metrics.clone(),
        );
        let ctx = Arc::new(Context {
            config: self.config,
            clients: self.clients,
            clock: self.clock,
            feeds: self.feeds,
            wake: self.wakes,
            hub: self.hub,
            leadership,
            events: self.events,
            metrics: self.metrics,
            width: width_seen,
            ca: ca_seen,
            watched: watched_seen,
            accounts: Accounts::default(),
        });
        let stopping = supervisor.stopping();
        tokio::select! {
            () = component::take(&ctx) => {}
            () = stopping.cancelled() => return Ok(None),
        }
        tokio::select! {
            () = certificates.first() => {}
            () = stopping.cancelled() => return Ok(None),
        }
        tokio::select! {
            caught_up = Box::pin(catch_up::stores(&ctx)) => caught_up?,
            () = stopping.cancelled() => return Ok(None),
        }
        begin(&ctx, supervisor);
        serve_agents(&ctx, args, &certificates, self.channel_metrics, supervisor)?;

        supervisor.spawn_until_stopped("certificates", certificates.run());
        supervisor.spawn_until_stopped("webhook probe", probe::run(Arc::clone(&ctx), width));
        let queues = self.queues;
        let registration = webhook_config::run(Arc::clone(&ctx), queues.webhook, token_seen, watched);
        supervisor.spawn_until_stopped("webhook registration", registration);
        supervisor.spawn_until_stopped("orphan sweep", orphans::run(Arc::clone(&ctx)));

        let stop = supervisor.stopping();
        supervisor.spawn("network controller", network::run(Arc::clone(&ctx), queues.networks, stop.clone()));
        supervisor.spawn("server controller", server::run(Arc::clone(&ctx), queues.servers, stop.clone()));
        supervisor
            .spawn("servergroup controller", servergroup::run(Arc::clone(&ctx), queues.server_groups, stop.clone()));
        supervisor.spawn("proxygroup controller", proxygroup::run(Arc::clone(&ctx), queues.proxy_groups, stop));
        Ok(Some(ctx))
    }
}

/// The hub begins to lead: it may send, knows all that the stores know, and tells controllers what changes.
fn begin(ctx: &Arc<Context>, supervisor: &Supervisor) {
    // Before the first thing can change.
    let changes = ctx.hub.changes();
    let (leadership, clock) = (ctx.leadership.clone(), ctx.clock);
    ctx.hub.lead(ctx.leadership.epoch(), move || leadership.check(clock.now()));
    hub_feed::take_over(&ctx.feeds, &ctx.hub);
    ctx.hub.listed();
    supervisor.spawn_until_stopped("hub changes", hub_feed::forward(changes, ctx.wake.clone()));
    let (hub, stopping) = (Arc::clone(&ctx.hub), supervisor.stopping());
    supervisor.spawn("hub", async move {
        hub.run(stopping).await;
        Ok(())
    });
}

fn serve_agents(
    ctx: &Arc<Context>,
    args: &Args,
    certificates: &Certificates,
    metrics: ChannelMetrics,
    supervisor: &Supervisor,
) -> anyhow::Result<()> {
    let address = args.agent_bind_address;
    let listener = TcpListener::bind(address).with_context(|| format!("could not listen on {address} for agents"))?;
    let tls = Arc::new(spawnery_certs::serve::agent_server_config(certificates.serving())?);
    let pods = ctx.feeds.pods.clone();
    let known = move |namespace: &str, name: &str| {
        let pod = pods.get(namespace, name)?;
        identity(&pod)
    };
    let authenticator = Arc::new(KubeAuthenticator::new(ctx.clients.api.clone(), known, metrics.clone()));
    let config = ChannelConfig {
        renew_after: ctx.config.session_renew_after,
        hard_deadline: ctx.config.session_deadline,
        report_interval: ctx.config.report_interval,
        ..ChannelConfig::default()
    };
    let (hub, stop) = (Arc::clone(&ctx.hub), supervisor.stopping());
    supervisor.spawn("agent channel", channel::serve(config, listener, tls, hub, authenticator, metrics, stop));
    Ok(())
}

fn identity(pod: &spawnery_api::view::PodView) -> Option<PodIdentity> {
    use spawnery_api::view::Role;
    use spawnery_core::ledger;
    let role = match pod.role()? {
        Role::Server => ledger::Role::Server,
        Role::Proxy => ledger::Role::Proxy,
    };
    let group = pod.group().unwrap_or_default().to_owned();
    Some(PodIdentity { uid: pod.uid().into(), group, role, managed: pod.is_managed() })
}
