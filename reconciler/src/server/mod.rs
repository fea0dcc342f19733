//! Servers: one Server object stands for one pod, from its creation to its removal.
//!
//! ```text
//! watch events, agents' reports, timers ─► look ─► Observed ─► plan ─► Plan ─► apply: hub, marks, seal, status, pod
//! ```
//!
//! What is decided is pure ([`plan`], [`life`] over the core's phase machine and drain rules); the rest reads and writes.

mod apply;
mod closing;
mod create;
mod life;
mod look;
mod loss;
mod observed;
mod plan;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use spawnery_api::names::event;
use spawnery_api::v1alpha1::Server;
use spawnery_api::view::PodView;
use spawnery_runtime::controller::{self, Era, Settings};
use spawnery_runtime::events::Recorder;
use spawnery_runtime::keys::KeyStream;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::failure::Failure;
use crate::latest::Latest;
use crate::overlay::Overlays;
use crate::pass;
use observed::Memory;

/// Memories kept at most; beyond it they are forgotten, which costs deadlines that start over.
const BOUND: usize = 50_000;

/// What all looks share.
struct Shared {
    ctx: Arc<Context>,
    recorder: Recorder,
    servers: Latest<Server>,
    pods: Latest<PodView>,
    overlays: Overlays,
    memories: Mutex<HashMap<String, Memory>>,
}

impl Era for Shared {}

impl Shared {
    fn memory(&self, uid: &str) -> Memory {
        self.memories.lock().get(uid).cloned().unwrap_or_default()
    }

    fn remember(&self, uid: &str, memory: Memory) {
        let mut memories = self.memories.lock();
        if memories.len() >= BOUND && !memories.contains_key(uid) {
            memories.clear();
        }
        memories.insert(uid.to_owned(), memory);
    }

    fn forget(&self, uid: &str) {
        self.memories.lock().remove(uid);
    }
}

/// Runs the controller until `stop`.
///
/// # Errors
/// When it ends by itself.
pub async fn run(ctx: Arc<Context>, keys: KeyStream<ObjectRef<Server>>, stop: CancellationToken) -> anyhow::Result<()> {
    let recorder = ctx.events.recorder(event::reporter::SERVER);
    let (feed, wake, observer) = (ctx.feeds.servers.clone(), ctx.wake.servers.clone(), ctx.metrics.observer());
    let shared = Arc::new(Shared {
        ctx,
        recorder,
        servers: Latest::default(),
        pods: Latest::default(),
        overlays: Overlays::default(),
        memories: Mutex::default(),
    });
    controller::run(Settings::named("server"), feed, (wake, keys), shared, reconcile, observer, stop).await
}

async fn reconcile(seen: Arc<Server>, shared: Arc<Shared>) -> Result<Action, Failure> {
    let step = async || {
        let server = shared.servers.of(Arc::clone(&seen));
        let scene = look::look(&shared, server).await?;
        let plan = plan::plan(&scene.observed());
        Box::pin(apply::apply(&shared, &scene, plan)).await
    };
    pass::settle(step, || shared.servers.forget(&seen.uid().unwrap_or_default())).await
}
