//! The kubelet's stand-in for game pods on kwok nodes: gives each a real agent and a game.
//!
//! ```text
//!  pods of ours, Running ──watch──► Runner ──► RunningPod ── spawnery-agent   a process, with the pod's environment,
//!        ▲                                        │                           a token bound to the pod and the CA
//!        └──── Ready, by the pod's own probe ─────┤
//!                                                 └── a game                  mini server or proxy, or real Minecraft
//! ```
//!
//! A pod that is deleted loses both at once: kwok takes a pod off the API the moment it is deleted, so whoever was on it
//! is lost, which is just what tests want to see. After [`Runner::keep_graces`] the pre-stop hook is waited for first.

mod credentials;
mod ending;
mod facts;
mod game;
mod pod;
mod readiness;

pub use facts::{PodFacts, Role};
pub use game::Game;
pub use pod::RunningPod;

use crate::{Cluster, minecraft::Installation, target::binary};
use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use parking_lot::Mutex;
use spawnery_api::names::label;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Pods that are started at the same time. More only make each other slow.
const STARTS: usize = 8;

/// Which games the pods play.
#[derive(Debug, Clone, Default)]
pub enum Games {
    /// The mini game: cheap, exact, with places for faults.
    #[default]
    Mini,
    /// Real Minecraft servers and proxies, counted by server list ping.
    Minecraft(Installation),
}

/// What a runner needs to know.
#[derive(Debug, Clone)]
pub struct RunnerOptions {
    /// Where agents dial the operator. What they check is the certificate for the name in their pod's environment.
    pub operator: SocketAddr,
    /// Which games the pods play.
    pub games: Games,
}

/// Everything that all pods share.
pub(crate) struct World {
    pub(crate) client: kube::Client,
    pub(crate) options: RunnerOptions,
    pub(crate) agent: PathBuf,
    /// Where each pod has its files.
    pub(crate) directory: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) starts: Semaphore,
    /// Servers of the mini game that start now tell their agents nothing.
    pub(crate) silent: Arc<AtomicBool>,
    /// Pods that start now keep their grace.
    pub(crate) graceful: Arc<AtomicBool>,
}

type Pods = Mutex<BTreeMap<String, Arc<RunningPod>>>;

/// Runs all managed pods of a cluster until it is dropped.
pub struct Runner {
    pods: Arc<Pods>,
    silent: Arc<AtomicBool>,
    graceful: Arc<AtomicBool>,
    _stop: DropGuard,
}

impl Runner {
    /// Starts to run pods, those that are there already included.
    ///
    /// # Errors
    /// When the agent cannot be built.
    pub async fn start(cluster: &Cluster, options: RunnerOptions) -> Result<Self> {
        let directory = cluster.directory().join("pods");
        std::fs::create_dir_all(&directory).with_context(|| format!("could not make {}", directory.display()))?;
        let (silent, graceful) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let world = Arc::new(World {
            client: cluster.client().await?,
            options,
            agent: binary("spawnery-agent").await?,
            directory,
            logs: cluster.log_dir(),
            starts: Semaphore::new(STARTS),
            silent: Arc::clone(&silent),
            graceful: Arc::clone(&graceful),
        });
        let (pods, stop) = (Arc::new(Pods::default()), CancellationToken::new());
        tokio::spawn(stop.clone().run_until_cancelled_owned(follow(world, Arc::clone(&pods), stop.clone())));
        Ok(Self { pods, silent, graceful, _stop: stop.drop_guard() })
    }

    /// Servers of the mini game that start from now on tell their agents nothing until their gate is opened, or do so again
    /// from their start.
    pub fn silence_new_servers(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
    }

    /// Pods that start from now on end as a kubelet ends them: their pre-stop hook is waited for as long as their grace.
    pub fn keep_graces(&self) {
        self.graceful.store(true, Ordering::Relaxed);
    }

    /// Ends everything that runs on a node, as its crash does. Their objects stay as they are: nobody is left to write them.
    pub fn crash(&self, node: &str) {
        self.pods().iter().filter(|pod| pod.facts().node == node).for_each(|pod| pod.kill());
    }

    /// All pods that are run now, sorted by namespace and name.
    pub fn pods(&self) -> Vec<Arc<RunningPod>> {
        let mut pods: Vec<Arc<RunningPod>> = self.pods.lock().values().cloned().collect();
        pods.sort_by(|a, b| (&a.facts().namespace, &a.facts().name).cmp(&(&b.facts().namespace, &b.facts().name)));
        pods
    }

    /// The pods of a namespace that have this role.
    pub fn pods_in(&self, namespace: &str, role: Role) -> Vec<Arc<RunningPod>> {
        self.pods().into_iter().filter(|pod| pod.facts().namespace == namespace && pod.facts().role == role).collect()
    }

    /// The pod of this name, if it is run.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Arc<RunningPod>> {
        self.pods().into_iter().find(|pod| pod.facts().namespace == namespace && pod.facts().name == name)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        for pod in std::mem::take(&mut *self.pods.lock()).into_values() {
            pod.kill();
        }
    }
}

async fn follow(world: Arc<World>, pods: Arc<Pods>, stop: CancellationToken) {
    let api: Api<Pod> = Api::all(world.client.clone());
    let ours = format!("{}={}", label::MANAGED_BY, label::MANAGED_BY_VALUE);
    let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default().labels(&ours)).default_backoff());
    let mut listed = BTreeSet::new();
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => listed.clear(),
            Ok(Some(Event::InitApply(pod))) => {
                listed.extend(pod.metadata.uid.clone());
                see(&world, &pods, &pod, &stop);
            }
            Ok(Some(Event::InitDone)) => {
                let known: Vec<String> = pods.lock().keys().cloned().collect();
                known.iter().filter(|uid| !listed.contains(*uid)).for_each(|uid| end(&pods, uid));
            }
            Ok(Some(Event::Apply(pod))) => see(&world, &pods, &pod, &stop),
            Ok(Some(Event::Delete(pod))) => end(&pods, pod.metadata.uid.as_deref().unwrap_or_default()),
            Ok(None) => return,
            // The watcher retries by itself, slower and slower; the API server may be stopped by the test.
            Err(error) => tracing::debug!(%error, "the watch of pods broke"),
        }
    }
}

/// Starts or ends a pod as its object says.
fn see(world: &Arc<World>, pods: &Pods, pod: &Pod, stop: &CancellationToken) {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        let running = pods.lock().get(&uid).cloned();
        return match running.filter(|running| running.keeps_grace()) {
            Some(running) => running.terminate(pod.metadata.deletion_grace_period_seconds),
            None => end(pods, &uid),
        };
    }
    let Some(facts) = PodFacts::of(pod) else { return };
    let mut pods = pods.lock();
    if pods.contains_key(&uid) {
        return;
    }
    let running = Arc::new(RunningPod::new(Arc::clone(world), facts, stop.child_token()));
    running.run();
    pods.insert(uid, running);
}

fn end(pods: &Pods, uid: &str) {
    let ended = pods.lock().remove(uid);
    if let Some(pod) = ended {
        pod.kill();
    }
}
