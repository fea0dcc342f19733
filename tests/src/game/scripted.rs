//! An agent that a test scripts: for testing games without an operator.

use super::local_api::{Directory, Drain, Listed, LocalApi, Occupancy};
use crate::eventually::eventually;
use anyhow::{Context as _, Result};
use axum::{
    Json, Router,
    extract::{Query, State},
    http::StatusCode,
    routing::{get, post, put},
};
use parking_lot::Mutex;
use serde::Deserialize;
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

/// An agent whose directory the test sets, and that remembers what it was told. It ends when dropped.
#[derive(Debug)]
pub struct ScriptedAgent {
    inner: Arc<Inner>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Inner {
    directory: watch::Sender<Directory>,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    occupancy: Occupancy,
    applied: Option<(u64, Occupancy)>,
    count: Option<u32>,
}

#[derive(Deserialize)]
struct After {
    after: u64,
}

#[derive(Deserialize)]
struct Applied {
    seq: u64,
    occupancy: Occupancy,
}

#[derive(Deserialize)]
struct Count {
    players: u32,
}

impl ScriptedAgent {
    /// Starts an agent that lists no server.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port is free")?;
        let address = listener.local_addr().context("a listener without an address")?;
        let first = Directory { seq: 1, servers: Vec::new(), drains: Vec::new(), accepting: true };
        let inner = Arc::new(Inner { directory: watch::Sender::new(first), told: Mutex::default() });
        let router = Router::new()
            .route("/v1/directory", get(directory))
            .route("/v1/applied", post(applied))
            .route("/v1/occupancy", put(occupancy))
            .route("/v1/count", put(count))
            .route("/v1/ready", put(|| async { StatusCode::NO_CONTENT }))
            .with_state(Arc::clone(&inner));
        let task = tokio::spawn(async move {
            // Serving on loopback does not fail; if it did, the game under test would say so.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { inner, address, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For the game.
    pub fn api(&self) -> LocalApi {
        LocalApi::new(self.address)
    }

    /// Lists these servers from now on, and drains those named to `group`; returns the directory's number.
    pub fn list(&self, servers: Vec<Listed>, drains: &[&str], group: &str) -> u64 {
        let drain = |from: &&str| Drain { from_server: (*from).to_owned(), to_groups: vec![group.to_owned()] };
        let mut seq = 0;
        self.inner.directory.send_modify(|directory| {
            directory.seq += 1;
            directory.servers = servers;
            directory.drains = drains.iter().map(drain).collect();
            seq = directory.seq;
        });
        seq
    }

    /// Waits for the confirmation of a directory, and returns what the proxy had at that moment.
    ///
    /// # Errors
    /// When it has not come after `limit`.
    pub async fn confirmed(&self, seq: u64, limit: Duration) -> Result<Occupancy> {
        eventually(limit, "the confirmation", || async {
            let applied = self.applied().filter(|(of, _)| *of >= seq);
            applied.map(|(_, had)| had).with_context(|| format!("{:?} was confirmed last", self.applied()))
        })
        .await
    }

    /// The last confirmation, with what the proxy had at that moment.
    pub fn applied(&self) -> Option<(u64, Occupancy)> {
        self.inner.told.lock().applied.clone()
    }

    /// What a proxy said last that it has.
    pub fn occupancy(&self) -> Occupancy {
        self.inner.told.lock().occupancy.clone()
    }

    /// What a server said last that it has.
    pub fn count(&self) -> Option<u32> {
        self.inner.told.lock().count
    }
}

impl Drop for ScriptedAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn directory(State(agent): State<Arc<Inner>>, Query(query): Query<After>) -> Result<Json<Directory>, StatusCode> {
    let mut directories = agent.directory.subscribe();
    let newer = directories.wait_for(|directory| directory.seq != query.after).await;
    newer.map(|directory| Json(directory.clone())).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

async fn applied(State(agent): State<Arc<Inner>>, Json(applied): Json<Applied>) -> StatusCode {
    let mut told = agent.told.lock();
    told.occupancy = applied.occupancy.clone();
    told.applied = Some((applied.seq, applied.occupancy));
    StatusCode::NO_CONTENT
}

async fn occupancy(State(agent): State<Arc<Inner>>, Json(occupancy): Json<Occupancy>) -> StatusCode {
    agent.told.lock().occupancy = occupancy;
    StatusCode::NO_CONTENT
}

async fn count(State(agent): State<Arc<Inner>>, Json(count): Json<Count>) -> StatusCode {
    agent.told.lock().count = Some(count.players);
    StatusCode::NO_CONTENT
}
