//! A server of the mini game.

use super::{
    gate::Gate,
    local_api::{LocalApi, Serials},
    wire::{Answer, Arrival, Link, Request},
};
use anyhow::{Context as _, Result};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A count is told again after this long, so that an agent that was restarted learns it.
const REPEAT: Duration = Duration::from_secs(1);
/// After a report that failed.
const RETRY: Duration = Duration::from_millis(100);
/// Whoever connects says who it is, or is a probe.
const JOIN_LIMIT: Duration = Duration::from_secs(5);

/// What a server is made from.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Its name, which it tells each player.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Most players that it takes.
    pub slots: u32,
    /// The agent that it reports to, if any.
    pub agent: Option<LocalApi>,
    /// Serial numbers of those reports.
    pub serials: Serials,
}

/// A running server. Dropping it is a crash: all connections end at once.
#[derive(Debug)]
pub struct MiniServer {
    inner: Arc<Inner>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Inner {
    config: ServerConfig,
    players: watch::Sender<u32>,
    /// Reports pass here; shut, the server goes on and says nothing.
    reports: Gate,
}

impl MiniServer {
    /// Starts a server that listens when this returns.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn start(config: ServerConfig) -> Result<Self> {
        Self::begin(config, Gate::default()).await
    }

    /// Starts a server that tells its agent nothing, not even that it has loaded, until [`MiniServer::reports`] is opened.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn start_silent(config: ServerConfig) -> Result<Self> {
        let reports = Gate::default();
        reports.shut();
        Self::begin(config, reports).await
    }

    async fn begin(config: ServerConfig, reports: Gate) -> Result<Self> {
        let listener = TcpListener::bind(config.address).await;
        let listener = listener.with_context(|| format!("{} cannot listen at {}", config.name, config.address))?;
        let inner = Arc::new(Inner { config, players: watch::Sender::new(0), reports });
        let stop = CancellationToken::new();
        if let Some(agent) = inner.config.agent.clone() {
            let reporter = Arc::clone(&inner);
            tokio::spawn(stop.clone().run_until_cancelled_owned(async move { reporter.report(&agent).await }));
        }
        tokio::spawn(stop.clone().run_until_cancelled_owned(Arc::clone(&inner).accept(listener, stop.clone())));
        Ok(Self { inner, stop })
    }

    /// Ends all connections at once, as when a process is killed.
    pub fn crash(&self) {
        self.stop.cancel();
    }

    /// How many players are on it.
    pub fn players(&self) -> u32 {
        *self.inner.players.borrow()
    }

    /// Stops telling the agent how many players there are, or starts again.
    pub fn reports(&self) -> &Gate {
        &self.inner.reports
    }
}

impl Drop for MiniServer {
    fn drop(&mut self) {
        self.crash();
    }
}

impl Inner {
    async fn accept(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let tracker = TaskTracker::new();
        loop {
            // An accept that fails (too many open files) is like a player that did not get through.
            if let Ok((stream, _)) = listener.accept().await {
                let server = Arc::clone(&self);
                tracker.spawn(stop.clone().run_until_cancelled_owned(async move { server.play(stream).await }));
            }
        }
    }

    /// One player, from its first line to its end; a connection that breaks is a player that went.
    async fn play(&self, stream: TcpStream) -> io::Result<()> {
        let mut link = Link::new(stream);
        let Ok(Some(Request::Join { .. })) = timeout(JOIN_LIMIT, link.next()).await? else {
            return Ok(());
        };
        let Some(_seat) = Seat::take(self) else {
            return link.send(Answer::Refused { why: format!("{} is full", self.config.name) }).await;
        };
        // As in real games, the player is in before the agent knows: what covers that gap is the proxy's `connecting`.
        link.send(Answer::On { server: self.config.name.clone(), how: Arrival::Joined }).await?;
        while let Some(request) = link.next::<Request>().await? {
            if request == Request::Leave {
                return link.send(Answer::Bye).await;
            }
        }
        Ok(())
    }

    async fn report(&self, agent: &LocalApi) {
        let mut players = self.players.subscribe();
        loop {
            self.reports.pass().await;
            let count = *players.borrow_and_update();
            let reported = async {
                agent.put_count(count, self.config.slots, self.config.serials.next()).await?;
                agent.put_ready(true).await
            };
            let pause = match reported.await {
                Ok(()) => REPEAT,
                Err(error) => {
                    tracing::debug!(name = self.config.name, error = %format!("{error:#}"), "could not report");
                    RETRY
                }
            };
            // Whichever is first; both lead to a report.
            let _ = timeout(pause, players.changed()).await;
        }
    }
}

/// A player's place on the server, given back when dropped.
struct Seat<'a>(&'a Inner);

impl<'a> Seat<'a> {
    fn take(server: &'a Inner) -> Option<Self> {
        let free = |players: &mut u32| {
            let free = *players < server.config.slots;
            *players += u32::from(free);
            free
        };
        server.players.send_if_modified(free).then_some(Self(server))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.players.send_modify(|players| *players = players.saturating_sub(1));
    }
}
