//! Admission: validates groups, stamps pods, refuses evictions of pods with people on them.
//!
//! ```text
//!                     ┌─ /validate         own custom resources: findings of core::admission → rejections and warnings
//! API server ─HTTPS──►├─ /mutate-pods      pods of ours: stamp with the hash of their inputs
//!                     ├─ /evictions/TOKEN  pods/eviction: core::eviction::judge, hold for the seal ──► record on the pod
//! leader's probe ────►└─ /probe            200 while this replica would answer well
//!
//! watches: pods, Networks, groups, namespaces, names of ConfigMaps, own certificate and token
//! ```
//! Every replica serves. A handler reads caches, never the API server; the only write is the record of an eviction request,
//! beside the answer and through a bounded queue.

pub mod args;
mod evict;
mod metrics;
mod mutate;
mod record;
pub mod review;
mod serve;
mod stores;
mod validate;
mod waiters;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use spawnery_api::names::object;
use spawnery_api::view::PodView;
use spawnery_certs::{EvictionTokens, webhook_server_config};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::feed::Change;
use spawnery_runtime::frame::{Frame, Front};
use spawnery_runtime::readiness::Readiness;
use spawnery_runtime::serve::certificate::Owner;
use spawnery_runtime::shutdown::Supervisor;
use tokio::sync::Semaphore;

pub use serve::router;

/// Evictions held at once. A held one costs a few hundred bytes; beyond this, answers go out at once.
const HOLDS: usize = 1024;
/// Requests worked on at once, for each endpoint; beyond this they are refused with 503.
const IN_FLIGHT: usize = 2048;

/// What the handlers work with, built once.
#[derive(Debug)]
pub struct App {
    clock: Clock,
    stores: stores::Stores,
    waiters: Arc<waiters::Waiters>,
    recorder: record::Recorder,
    holds: Semaphore,
    in_flight: serve::InFlight,
    metrics: metrics::Metrics,
    readiness: Readiness,
    operator_user: String,
    tokens: Arc<EvictionTokens>,
}

/// The tasks behind an [`App`].
pub struct Tasks {
    stores: stores::Tasks,
    recorder: record::RecorderTask,
}

impl App {
    /// Builds the handlers' context over a client that does not retry by itself.
    pub fn new(
        client: &kube::Client,
        only_namespace: Option<&str>,
        operator_user: String,
        readiness: Readiness,
        registry: &mut Registry,
        clock: Clock,
    ) -> (Arc<Self>, Tasks) {
        let metrics = metrics::Metrics::new(registry);
        let waiters = Arc::new(waiters::Waiters::default());
        let (recorder, recorder_task) = record::Recorder::new(client.clone(), metrics.clone());
        let changed = told(Arc::clone(&waiters), recorder.clone());
        let (stores, store_tasks) = stores::Stores::new(client, only_namespace, changed, clock);
        stores.watch_readiness(&readiness, clock);
        let app = Self {
            clock,
            stores,
            waiters,
            recorder,
            holds: Semaphore::new(HOLDS),
            in_flight: serve::InFlight::new(IN_FLIGHT),
            metrics,
            readiness,
            operator_user,
            tokens: EvictionTokens::empty(),
        };
        (Arc::new(app), Tasks { stores: store_tasks, recorder: recorder_task })
    }

    /// The tokens by which the API server is told from strangers; to be kept as the Secret says.
    pub fn tokens(&self) -> Arc<EvictionTokens> {
        Arc::clone(&self.tokens)
    }
}

/// A change of a pod wakes the evictions that are held for it; a record that was cleared, or went with its pod, is
/// forgotten.
fn told(
    waiters: Arc<waiters::Waiters>,
    recorder: record::Recorder,
) -> impl Fn(&Change<'_, PodView>) + Send + Sync + 'static {
    move |change| {
        change.states().for_each(|pod| waiters.wake(pod.uid()));
        match change {
            Change::Gone(pod) => recorder.forget(pod.uid()),
            Change::Applied { new, old: Some(old) }
                if old.eviction_requested().is_some() && new.eviction_requested().is_none() =>
            {
                recorder.forget(new.uid());
            }
            Change::Applied { .. } => {}
        }
    }
}

impl Tasks {
    /// Spawns the tasks; they end with the process.
    pub fn spawn(self, supervisor: &Supervisor) {
        self.stores.spawn(supervisor);
        supervisor.spawn_until_stopped("eviction records", self.recorder.run());
    }
}

/// Runs the webhook until it is asked to end.
///
/// # Errors
/// When it cannot start, or a task that must not end has ended.
pub async fn run(args: args::Args) -> anyhow::Result<()> {
    let mut frame = Frame::start(&args.client, args.shutdown).await?;
    let (app, tasks) = App::new(
        &frame.clients.strict,
        args.scope.only(),
        args.operator_user(),
        frame.readiness.clone(),
        &mut frame.registry,
        frame.clock,
    );
    tasks.spawn(&frame.supervisor);
    let front = Front {
        address: args.webhook_bind_address,
        owner: Owner {
            namespace: &args.scope.operator_namespace,
            secret: object::WEBHOOK_TLS_SECRET,
            service: object::WEBHOOK,
        },
        tokens: Some(app.tokens()),
        tls: webhook_server_config,
        certificate_ends: app.metrics.certificate_ends(),
        router: router(app),
        body_bytes: review::MAX_BODY_BYTES,
    };
    frame.serve(&args.admin, front).await
}
