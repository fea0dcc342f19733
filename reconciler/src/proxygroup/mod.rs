//! ProxyGroups: as many proxies as wanted, the Service that leads to them, and doors that close before one goes.
//!
//! ```text
//! watch events, agents' reports, timers ─► look ─► Observed ─► plan ─► Plan ─► apply: hub, marks, objects, pods, status
//! ```
//!
//! Which proxies leave, and how one goes, is decided in [`spawnery_core::rollout`]; [`plan`] adds what Kubernetes is to
//! see of it. The rest reads and writes.

mod apply;
mod create;
mod look;
mod memory;
mod objects;
mod observed;
mod plan;
mod status;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use spawnery_api::names::event;
use spawnery_api::v1alpha1::ProxyGroup;
use spawnery_api::view::PodView;
use spawnery_core::expectations::Expectations;
use spawnery_runtime::controller::{self, Era, Settings};
use spawnery_runtime::events::Recorder;
use spawnery_runtime::keys::KeyStream;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::failure::Failure;
use crate::latest::Latest;
use crate::overlay::Overlays;
use crate::pass;
use memory::Memories;

/// What all looks share.
struct Shared {
    ctx: Arc<Context>,
    recorder: Recorder,
    groups: Latest<ProxyGroup>,
    pods: Latest<PodView>,
    overlays: Overlays,
    memories: Memories,
    expectations: Mutex<Expectations<String>>,
}

impl Era for Shared {
    fn era(&self) -> u64 {
        self.ctx.era()
    }
}

/// Runs the controller until `stop`.
///
/// # Errors
/// When it ends by itself.
pub async fn run(
    ctx: Arc<Context>,
    keys: KeyStream<ObjectRef<ProxyGroup>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let recorder = ctx.events.recorder(event::reporter::PROXY_GROUP);
    let (feed, wake, observer) =
        (ctx.feeds.proxy_groups.clone(), ctx.wake.proxy_groups.clone(), ctx.metrics.observer());
    let shared = Arc::new(Shared {
        ctx,
        recorder,
        groups: Latest::default(),
        pods: Latest::default(),
        overlays: Overlays::default(),
        memories: Memories::default(),
        expectations: Mutex::default(),
    });
    controller::run(Settings::named("proxygroup"), feed, (wake, keys), shared, reconcile, observer, stop).await
}

async fn reconcile(seen: Arc<ProxyGroup>, shared: Arc<Shared>) -> Result<Action, Failure> {
    let step = async || {
        let group = shared.groups.of(Arc::clone(&seen));
        let scene = look::look(&shared, group).await?;
        let plan = plan::plan(&scene.observed);
        apply::apply(&shared, &scene, plan).await
    };
    pass::settle(step, || shared.groups.forget(&seen.uid().unwrap_or_default())).await
}
