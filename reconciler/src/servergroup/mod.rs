//! ServerGroups: how many servers there are, and of which kind.
//!
//! ```text
//! Servers, pods, agents' counts, nodes ─► look ─► Observed ─► plan ─► Plan ─► apply: budget, config, servers, status
//! ```
//!
//! How many is the core's sizing rule; what was asked for and does not show yet is remembered in [`Expectations`].

mod apply;
mod look;
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
use spawnery_runtime::client::CallError;
use spawnery_runtime::controller::{self, Era, ReconcileError, Settings};
use spawnery_runtime::events::Recorder;
use spawnery_runtime::keys::KeyStream;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::latest::Latest;
use crate::overlay::Overlays;
use crate::pass::SHORTLY;

/// Groups whose last status write is remembered at most; beyond it the memory is emptied, which costs writes.
const BOUND: usize = 10_000;

/// What went wrong with a group.
#[derive(Debug, thiserror::Error)]
#[error("could not {what}")]
struct GroupError {
    /// What was tried.
    what: &'static str,
    /// What came of it.
    #[source]
    source: CallError,
}

impl GroupError {
    fn call(what: &'static str) -> impl FnOnce(CallError) -> Self {
        move |source| Self { what, source }
    }
}

impl ReconcileError for GroupError {
    fn label(&self) -> &'static str {
        self.source.label()
    }

    fn retryable(&self) -> bool {
        self.source.retryable()
    }
}

/// Namespace and name of a group.
type Key = (String, String);

/// What all looks share.
struct Shared {
    ctx: Arc<Context>,
    recorder: Recorder,
    groups: Latest<ServerGroup>,
    overlays: Overlays,
    expectations: Mutex<Expectations<Key>>,
    written: Mutex<HashMap<String, Timestamp>>,
}

impl Era for Shared {
    fn era(&self) -> u64 {
        self.ctx.era()
    }
}

impl Shared {
    fn wrote_status(&self, uid: &str, now: Timestamp) {
        let mut written = self.written.lock();
        if written.len() >= BOUND {
            written.clear();
        }
        written.insert(uid.to_owned(), now);
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
        written: Mutex::default(),
    });
    controller::run(Settings::named("servergroup"), feed, (wake, keys), shared, reconcile, observer, stop).await
}

async fn reconcile(seen: Arc<ServerGroup>, shared: Arc<Shared>) -> Result<Action, GroupError> {
    let group = shared.groups.of(Arc::clone(&seen));
    let scene = look::look(&shared, group).await?;
    let plan = plan::plan(&scene.observed());
    match apply::apply(&shared, &scene, &plan).await {
        Ok(None) => Ok(Action::await_change()),
        Ok(Some(wait)) => Ok(Action::requeue(wait)),
        // Somebody wrote in between: what they wrote is on its way to our cache and wakes us.
        Err(error) if error.source.is_conflict() => {
            shared.groups.forget(&seen.uid().unwrap_or_default());
            Ok(Action::requeue(SHORTLY))
        }
        Err(error) => Err(error),
    }
}
