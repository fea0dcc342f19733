//! One pod that is run: its agent, its game, and what a test may do to them.

use super::{
    PodFacts, Role, World,
    credentials::{Credentials, slots},
    ending,
    game::{Game, count_source},
    readiness::{self, StatusLock},
};
use crate::{
    Launch, Process,
    game::{
        GAME_PORT,
        local_api::{self, LocalApi, Serials},
    },
};
use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use spawnery_api::names::{env, port};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// After a start that failed: a pod that was there before may still hold the address.
const RETRY: Duration = Duration::from_millis(100);
/// How soon a container that has ended is started again. A kubelet waits longer each time.
const RESTART: Duration = Duration::from_millis(500);

/// A pod that is run.
pub struct RunningPod {
    world: Arc<World>,
    facts: PodFacts,
    serials: Serials,
    inside: Arc<Mutex<Inside>>,
    status: StatusLock,
    /// Its end is ours, not kwok's.
    graceful: bool,
    ending: AtomicBool,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct Inside {
    agent: Option<Process>,
    game: Option<Arc<Game>>,
}

impl RunningPod {
    pub(super) fn new(world: Arc<World>, facts: PodFacts, stop: CancellationToken) -> Self {
        let graceful = world.graceful.load(Ordering::Relaxed);
        Self {
            world,
            facts,
            serials: Serials::default(),
            inside: Arc::default(),
            status: StatusLock::default(),
            graceful,
            ending: AtomicBool::new(false),
            stop,
        }
    }

    /// What its object says.
    pub fn facts(&self) -> &PodFacts {
        &self.facts
    }

    /// Where players connect.
    pub fn game_address(&self) -> SocketAddr {
        self.facts.at(u16::try_from(GAME_PORT).unwrap_or_default())
    }

    /// Its agent's local API.
    pub fn local_api(&self) -> LocalApi {
        LocalApi::new(self.facts.at(local_api::PORT))
    }

    /// The game, once it has started.
    pub fn game(&self) -> Option<Arc<Game>> {
        self.inside.lock().game.clone()
    }

    /// Does something to the agent's process.
    ///
    /// # Errors
    /// When there is no agent now, or it cannot be done.
    pub fn with_agent<T>(&self, act: impl FnOnce(&Process) -> Result<T>) -> Result<T> {
        let inside = self.inside.lock();
        act(inside.agent.as_ref().with_context(|| format!("{} has no agent now", self.facts.name))?)
    }

    /// Stops the agent in its tracks; its connections stay open.
    pub fn freeze_agent(&self) -> Result<()> {
        self.with_agent(Process::freeze)
    }

    /// Lets the agent go on.
    pub fn thaw_agent(&self) -> Result<()> {
        self.with_agent(Process::thaw)
    }

    /// Kills the agent and leaves it dead; the game goes on.
    pub fn kill_agent(&self) -> Result<()> {
        let agent = self.inside.lock().agent.take();
        agent.with_context(|| format!("{} has no agent now", self.facts.name)).map(drop)
    }

    /// Starts the agent, anew if one is running.
    pub fn start_agent(&self) -> Result<()> {
        // Two agents cannot listen at the same address: the old one goes first.
        let mut inside = self.inside.lock();
        inside.agent = None;
        inside.agent = Some(self.agent_launch().start()?);
        Ok(())
    }

    /// Ends the game as a crash does, and starts it anew as a kubelet does: the pod's status counts a restart.
    pub async fn restart_game(&self) -> Result<()> {
        let old = self.inside.lock().game.take();
        if let Some(game) = old {
            game.crash();
        }
        sleep(RESTART).await;
        self.start_game().await;
        readiness::count_restart(&self.world, &self.facts, &self.status).await
    }

    /// Kills the container, agent and game at once, and starts both anew, as a kubelet does: the pod's status says that it
    /// ended, then that it runs again and how often it was restarted.
    ///
    /// # Errors
    /// When the API server does not take the status, or the agent cannot be started.
    pub async fn restart(&self) -> Result<()> {
        let Inside { agent, game } = std::mem::take(&mut *self.inside.lock());
        if let Some(agent) = &agent {
            agent.kill()?;
        }
        if let Some(game) = &game {
            game.crash();
        }
        // Waits until it is gone, which must not hold up anything else.
        let gone = tokio::task::spawn_blocking(move || drop(agent));
        let said = readiness::say_ended(&self.world, &self.facts, &self.status);
        let (gone, said, ()) = tokio::join!(gone, said, sleep(RESTART));
        gone.context("the agent's end was not waited for")?;
        said?;
        self.start_agent()?;
        self.start_game().await;
        readiness::count_restart(&self.world, &self.facts, &self.status).await
    }

    /// Whether it ends as a kubelet ends it.
    pub(super) fn keeps_grace(&self) -> bool {
        self.graceful
    }

    /// Ends it as a kubelet does, once.
    pub(super) fn terminate(self: Arc<Self>, grace_seconds: Option<i64>) {
        if self.ending.swap(true, Ordering::Relaxed) {
            return;
        }
        let grace = Duration::from_secs(grace_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0));
        tokio::spawn(async move {
            let waited = self.stop.run_until_cancelled(ending::pre_stop(&self.facts, grace)).await;
            self.kill();
            // Without a runner there is no cluster soon.
            while waited.is_some() {
                match ending::remove(&self.world, &self.facts).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(pod = self.facts.name, error = %format!("{error:#}"), "not removed"),
                }
                sleep(RETRY).await;
            }
        });
    }

    /// Ends the game and the agent, and leaves them so.
    pub(super) fn kill(&self) {
        self.stop.cancel();
        let inside = Arc::clone(&self.inside);
        tokio::spawn(async move {
            let Inside { agent, game } = std::mem::take(&mut *inside.lock());
            if let Some(game) = game {
                game.end().await;
            }
            // Waits until it is gone, which must not hold up anything else.
            let _ = tokio::task::spawn_blocking(move || drop(agent)).await;
        });
    }

    /// Starts everything, and keeps it going in the background.
    pub(super) fn run(self: &Arc<Self>) {
        let pod = Arc::clone(self);
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(async move { pod.live().await }));
    }

    async fn live(&self) {
        let credentials = self.credentials();
        {
            // The semaphore is never closed.
            let _start = self.world.starts.acquire().await;
            while let Err(error) = self.start(&credentials).await {
                tracing::warn!(pod = self.facts.name, error = %format!("{error:#}"), "could not start; trying again");
                sleep(RETRY).await;
            }
        }
        tokio::join!(
            credentials.keep_fresh(&self.world, &self.facts),
            readiness::keep(&self.world, &self.facts, &self.status)
        );
    }

    async fn start(&self, credentials: &Credentials) -> Result<()> {
        let directory = self.directory();
        std::fs::create_dir_all(&directory).with_context(|| format!("could not make {}", directory.display()))?;
        if self.graceful {
            ending::claim(&self.world, &self.facts).await?;
        }
        credentials.fetch(&self.world, &self.facts).await;
        self.start_agent()?;
        self.start_game().await;
        Ok(())
    }

    async fn start_game(&self) {
        let slots = slots(&self.world, &self.facts).await;
        loop {
            match Game::start(&self.world, &self.facts, slots, &self.serials, &self.directory()).await {
                Ok(game) => {
                    self.inside.lock().game = Some(Arc::new(game));
                    return;
                }
                Err(error) => {
                    tracing::debug!(pod = self.facts.name, error = %format!("{error:#}"), "could not start the game");
                    sleep(RETRY).await;
                }
            }
        }
    }

    fn directory(&self) -> PathBuf {
        self.world.directory.join(format!("{}-{}-{}", self.facts.namespace, self.facts.name, self.facts.uid))
    }

    fn credentials(&self) -> Credentials {
        Credentials::in_directory(&self.directory())
    }

    fn agent_launch(&self) -> Launch {
        let (facts, credentials) = (&self.facts, self.credentials());
        let log = self.world.logs.join(format!("agent-{}-{}.log", facts.namespace, facts.name));
        let mut launch = Launch::new(format!("the agent of {}", facts.name), &self.world.agent)
            .env_clear()
            .arg("--operator-endpoint")
            .arg(facts.env.get(env::OPERATOR_ENDPOINT).map(String::as_str).unwrap_or_default())
            .arg("--dial-address")
            .arg(self.world.options.operator.to_string())
            .arg("--token-file")
            .arg(&credentials.token)
            .arg("--ca-file")
            .arg(&credentials.ca)
            .arg("--local-listen")
            .arg(facts.at(local_api::PORT).to_string())
            .arg("--hook-listen")
            .arg(facts.at(u16::try_from(port::PRE_STOP).unwrap_or_default()).to_string())
            .log(log);
        for (key, value) in &facts.env {
            launch = launch.env(key, value);
        }
        match facts.role {
            Role::Server => {
                launch.arg("--count-source").arg(count_source(&self.world.options.games, self.game_address()))
            }
            Role::Proxy => launch
                .args(["--count-source", "local", "--adapter", "external", "--ready-listen"])
                .arg(facts.at(u16::try_from(port::READY).unwrap_or_default()).to_string()),
        }
    }
}
