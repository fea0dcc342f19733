//! One process of Spawnery, and what a test may do to it.

use crate::{Cluster, Launch, Process, eventually::eventually};
use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use spawnery_api::names::port;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// The agent channel's port.
pub(super) const AGENT_PORT: u16 = 9443;
/// The webhook's port.
pub const WEBHOOK_PORT: u16 = 8443;

const KILL_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// One reconciler or webhook, at an address of its own.
#[derive(Debug)]
pub struct Replica {
    name: String,
    address: SocketAddr,
    launch: Mutex<Option<Launch>>,
    process: Mutex<Option<Process>>,
    frozen: AtomicBool,
}

impl Replica {
    pub(super) fn new(cluster: &Cluster, name: String, port: u16) -> Self {
        let address = SocketAddr::from((cluster.free_address(), port));
        Self { name, address, launch: Mutex::default(), process: Mutex::default(), frozen: AtomicBool::default() }
    }

    pub(super) fn launch(&self, launch: Launch) -> Result<()> {
        *self.launch.lock() = Some(launch);
        self.start()
    }

    /// Its name, which is also that of its log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it serves: agents or the API server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a test stopped it in its tracks.
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Relaxed)
    }

    /// Does something with its process.
    ///
    /// # Errors
    /// When there is none now.
    pub fn with<T>(&self, act: impl FnOnce(&Process) -> Result<T>) -> Result<T> {
        act(self.process.lock().as_ref().with_context(|| format!("{} does not run", self.name))?)
    }

    /// Stops it in its tracks: connections stay open, nothing answers.
    pub fn freeze(&self) -> Result<()> {
        self.frozen.store(true, Ordering::Relaxed);
        self.with(Process::freeze)
    }

    /// Lets it go on.
    pub fn thaw(&self) -> Result<()> {
        self.frozen.store(false, Ordering::Relaxed);
        self.with(Process::thaw)
    }

    /// Kills it and waits until it is gone.
    pub async fn kill(&self) -> Result<()> {
        let process = self.process.lock().take().with_context(|| format!("{} does not run", self.name))?;
        process.kill()?;
        self.frozen.store(false, Ordering::Relaxed);
        process.wait(KILL_LIMIT).await.map(drop)
    }

    /// Asks it to end and waits until it has.
    pub async fn stop(&self) -> Result<()> {
        let process = self.process.lock().take().with_context(|| format!("{} does not run", self.name))?;
        self.frozen.store(false, Ordering::Relaxed);
        process.stop(KILL_LIMIT).await.map(drop)
    }

    /// Starts it, as it was started the first time.
    pub fn start(&self) -> Result<()> {
        let launch = self.launch.lock().clone().with_context(|| format!("{} was never started", self.name))?;
        *self.process.lock() = Some(launch.start()?);
        Ok(())
    }

    /// Waits until it says that it is ready.
    ///
    /// # Errors
    /// When it is not after `limit`; says what it lacks, by its own words, and how its log ends.
    pub async fn wait_ready(&self, limit: Duration) -> Result<()> {
        let what = format!("{} to be ready", self.name);
        let running = eventually(limit, &what, || async {
            if self.with(|process| Ok(process.is_running()))? {
                self.get("/readyz").await?;
                return Ok(true);
            }
            // No use in waiting on.
            Ok(false)
        });
        let tail = || self.with(|process| Ok(process.tail(20))).unwrap_or_default();
        let running = running.await.with_context(|| format!("its log ends with\n{}", tail()))?;
        ensure!(running, "{} has ended; its log ends with\n{}", self.name, tail());
        Ok(())
    }

    /// What it serves at a path of its health port.
    ///
    /// # Errors
    /// When it does not answer, or with something else than 200.
    pub async fn get(&self, path: &str) -> Result<String> {
        self.fetch(port::HEALTH, path).await
    }

    /// Its metrics, as Prometheus reads them.
    pub async fn metrics(&self) -> Result<String> {
        self.fetch(port::METRICS, "/metrics").await
    }

    async fn fetch(&self, port: i32, path: &str) -> Result<String> {
        let address = SocketAddr::new(self.address.ip(), u16::try_from(port)?);
        let exchange = async {
            let mut stream = TcpStream::connect(address).await?;
            // HTTP/1.0: the answer ends with the connection, and nothing is chunked.
            stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer = timeout(ANSWER_LIMIT, exchange).await.with_context(|| format!("{address}{path} hangs"))??;
        let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("{address}{path} broke off"))?;
        ensure!(head.split(' ').nth(1) == Some("200"), "{address}{path}: {head}\n{body}");
        Ok(body.to_owned())
    }
}
