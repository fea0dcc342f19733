//! ServerGroups: how many servers there are, and of which kind.
//!
//! ```text
//! Servers, pods, agents' counts, nodes ─► look ─► Observed ─► plan ─► Plan ─► apply: budget, config, status, servers
//! ```
//!
//! How many is the core's sizing rule; what was asked for and does not show yet is remembered in [`Expectations`].

mod apply;
mod look;
mod objects;
mod observed;
mod plan;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use spawnery_api::names::event;
use spawnery_api::v1alpha1::ServerGroup;
use spawnery_core::expectations::Expectations;
use spawnery_runtime::controller::{self, Era, Settings};
use spawnery_runtime::events::Recorder;
use spawnery_runtime::keys::KeyStream;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::failure::Failure;
use crate::latest::Latest;
use crate::objects::Refusals;
use crate::overlay::Overlays;
use crate::pass;

/// Groups that are remembered at most; beyond it all are forgotten, which costs writes.
const BOUND: usize = 10_000;

/// Namespace and name of a group.
type Key = (String, String);

/// What all looks share.
struct Shared {
    ctx: Arc<Context>,
    recorder: Recorder,
    groups: Latest<ServerGroup>,
    overlays: Overlays,
    expectations: Mutex<Expectations<Key>>,
    memories: Mutex<HashMap<String, Memory>>,
}

/// What this process remembers of a group, beside what the API server keeps.
#[derive(Debug, Clone, Default)]
struct Memory {
    /// When its status was last written.
    written: Option<Timestamp>,
    /// Which of the objects around its servers the API server refused.
    refused: Refusals,
}

impl Era for Shared {
    fn era(&self) -> u64 {
        self.ctx.era()
    }
}

impl Shared {
    fn memory(&self, uid: &str) -> Memory {
        self.memories.lock().get(uid).cloned().unwrap_or_default()
    }

    fn remember(&self, uid: &str, change: impl FnOnce(&mut Memory)) {
        let mut memories = self.memories.lock();
        if memories.len() >= BOUND && !memories.contains_key(uid) {
            memories.clear();
        }
        change(memories.entry(uid.to_owned()).or_default());
    }

    fn forget(&self, uid: &str) {
        self.memories.lock().remove(uid);
    }
}

/// Runs the controller until `stop`.
///
/// # Errors
/// When it ends by itself.
pub async fn run(
    ctx: Arc<Context>,
    keys: KeyStream<ObjectRef<ServerGroup>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let recorder = ctx.events.recorder(event::reporter::SERVER_GROUP);
    let (feed, wake, observer) =
        (ctx.feeds.server_groups.clone(), ctx.wake.server_groups.clone(), ctx.metrics.observer());
    let shared = Arc::new(Shared {
        ctx,
        recorder,
        groups: Latest::default(),
        overlays: Overlays::default(),
        expectations: Mutex::default(),
        memories: Mutex::default(),
    });
    controller::run(Settings::named("servergroup"), feed, (wake, keys), shared, reconcile, observer, stop).await
}

async fn reconcile(seen: Arc<ServerGroup>, shared: Arc<Shared>) -> Result<Action, Failure> {
    let step = async || {
        let group = shared.groups.of(Arc::clone(&seen));
        let scene = look::look(&shared, group).await?;
        let plan = plan::plan(&scene.observed());
        apply::apply(&shared, &scene, &plan).await
    };
    pass::settle(step, || shared.groups.forget(&seen.uid().unwrap_or_default())).await
}
