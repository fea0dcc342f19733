//! A proxy of the mini game: routes players by its agent's directory and moves them between servers.

mod follow;
mod session;
pub mod table;

use super::{
    gate::Gate,
    local_api::{LocalApi, Serials},
};
use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use table::Table;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// What a proxy is made from.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Its name, for messages.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Most players that it takes.
    pub slots: u32,
    /// Where newcomers go: the first group that has a server.
    pub fallback_groups: Vec<String>,
    /// The agent that it follows.
    pub agent: LocalApi,
    /// Serial numbers of its reports.
    pub serials: Serials,
}

/// A running proxy. Dropping it is a crash: all connections end at once.
#[derive(Debug)]
pub struct MiniProxy {
    inner: Arc<Inner>,
    stop: CancellationToken,
}

/// Where a test can hold a proxy up, or make it lie.
#[derive(Debug, Default)]
pub struct Faults {
    /// Shut: the proxy neither takes directories nor reports, and goes on routing by what it has.
    pub control: Gate,
    /// Shut: a player whose server was chosen waits before the first packet goes there.
    pub dialing: Gate,
    /// Confirms each directory before it routes by it. This takes the close out of the protocol: a control for tests that
    /// must be able to lose somebody.
    pub lies: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    config: ProxyConfig,
    table: Mutex<Table>,
    faults: Faults,
    /// Marked as changed whenever who is where changes; holds the directory to be confirmed with the next report.
    report: watch::Sender<Option<u64>>,
    /// Marked as changed at each swap of the directory and its drains.
    swapped: watch::Sender<()>,
    serial: AtomicU64,
}

impl MiniProxy {
    /// Starts a proxy that listens when this returns. It knows no server until its agent names some.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn start(config: ProxyConfig) -> Result<Self> {
        let listener = TcpListener::bind(config.address).await;
        let listener = listener.with_context(|| format!("{} cannot listen at {}", config.name, config.address))?;
        let inner = Arc::new(Inner {
            table: Mutex::new(Table::new(config.slots, config.fallback_groups.clone())),
            config,
            faults: Faults::default(),
            report: watch::Sender::new(None),
            swapped: watch::Sender::new(()),
            serial: AtomicU64::new(0),
        });
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(follow::follow(Arc::clone(&inner))));
        tokio::spawn(stop.clone().run_until_cancelled_owned(follow::report(Arc::clone(&inner))));
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(Arc::clone(&inner), listener, stop.clone())));
        Ok(Self { inner, stop })
    }

    /// Ends all connections at once, as when a process is killed.
    pub fn crash(&self) {
        self.stop.cancel();
    }

    /// Where it can be held up.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// How many players it has, those on the way included.
    pub fn players(&self) -> usize {
        self.inner.table.lock().players()
    }

    /// The servers that it sends newcomers to.
    pub fn servers(&self) -> Vec<String> {
        self.inner.table.lock().servers()
    }
}

impl Drop for MiniProxy {
    fn drop(&mut self) {
        self.crash();
    }
}

impl Inner {
    /// Decides something about who is where, and lets the agent know.
    fn decide<T>(&self, decision: impl FnOnce(&mut Table) -> T) -> T {
        let decided = decision(&mut self.table.lock());
        self.report.send_modify(|_| ());
        decided
    }
}

async fn accept(proxy: Arc<Inner>, listener: TcpListener, stop: CancellationToken) {
    let tracker = TaskTracker::new();
    loop {
        // An accept that fails (too many open files) is like a player that did not get through.
        if let Ok((stream, _)) = listener.accept().await {
            let id = proxy.serial.fetch_add(1, Ordering::Relaxed);
            let session = session::run(Arc::clone(&proxy), id, stream);
            tracker.spawn(stop.clone().run_until_cancelled_owned(session));
        }
    }
}
