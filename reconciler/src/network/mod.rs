//! Networks: one counts in each namespace; it gets a policy, a prepared namespace, and its secret is watched over.
//!
//! ```text
//! Network, groups, pods, Secret ─► plan ─► NetworkPolicy, status, events; bootstrap of the namespace
//! ```

pub mod plan;
mod policy;
mod secret;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use spawnery_api::names::{event, manager};
use spawnery_api::v1alpha1::{Network, NetworkStatus};
use spawnery_runtime::client::CallError;
use spawnery_runtime::controller::{self, Era, ReconcileError, Settings};
use spawnery_runtime::events::Recorder;
use spawnery_runtime::keys::KeyStream;
use tokio_util::sync::CancellationToken;

use crate::bootstrap::{self, BootstrapError};
use crate::context::Context;
use crate::feeds::Feeds;
use plan::{Flank, NotUsable, Observed};
use secret::Secret;

/// How old a reading of the forwarding secret may be. It is read live and by name alone: a watch would need the right to
/// read every Secret of the namespace.
const SECRET_AGE: Duration = Duration::from_secs(25);
/// How far apart writes are that carry only counts.
const COUNTS_APART: Duration = Duration::from_secs(2);
/// Next look at a Network that is fine.
const AGAIN: Duration = Duration::from_secs(30);

/// Why a Network could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The API server.
    #[error("could not {what}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        #[source]
        source: CallError,
    },
    /// The namespace is not ready for pods.
    #[error("could not prepare the namespace")]
    Bootstrap(#[from] BootstrapError),
}

impl ReconcileError for NetworkError {
    fn label(&self) -> &'static str {
        match self {
            Self::Call { source, .. } => source.label(),
            Self::Bootstrap(error) => error.label(),
        }
    }

    fn retryable(&self) -> bool {
        match self {
            Self::Call { source, .. } => source.retryable(),
            Self::Bootstrap(error) => error.retryable(),
        }
    }
}

/// The Network that a group names, if groups may use it.
///
/// # Errors
/// Why not, in terms of the condition that the group shows.
pub fn usable(feeds: &Feeds, namespace: &str, name: &str) -> Result<Arc<Network>, NotUsable> {
    plan::usable(feeds.networks.get(namespace, name))
}

struct Shared {
    ctx: Arc<Context>,
    recorder: Recorder,
    memory: Mutex<HashMap<String, Memory>>,
}

impl Era for Shared {}

/// What is remembered of one Network between looks, by UID.
#[derive(Clone, Default)]
struct Memory {
    secret: Option<(Instant, Secret)>,
    written: Option<Instant>,
}

/// Runs the controller until `stop`.
///
/// # Errors
/// When it ends by itself.
pub async fn run(
    ctx: Arc<Context>,
    keys: KeyStream<ObjectRef<Network>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let recorder = ctx.events.recorder(event::reporter::NETWORK);
    let (feed, wake, observer) = (ctx.feeds.networks.clone(), ctx.wake.networks.clone(), ctx.metrics.observer());
    let shared = Arc::new(Shared { ctx, recorder, memory: Mutex::new(HashMap::new()) });
    controller::run(Settings::named("network"), feed, (wake, keys), shared, reconcile, observer, stop).await
}

async fn reconcile(network: Arc<Network>, shared: Arc<Shared>) -> Result<Action, NetworkError> {
    let ctx = &shared.ctx;
    let (namespace, uid) = (network.namespace().unwrap_or_default(), network.uid().unwrap_or_default());
    if network.metadata.deletion_timestamp.is_some() {
        shared.memory.lock().remove(&uid);
        return Ok(Action::await_change());
    }
    let siblings = ctx.feeds.networks.within(&namespace, |_| true);
    if plan::owner(&siblings).is_none_or(|owner| owner.uid().as_deref() != Some(&uid)) {
        let status = plan::duplicate(&network, &siblings, ctx.wall());
        write(&shared, &network, status).await?;
        return Ok(Action::requeue(AGAIN));
    }
    policy(ctx, &network, &namespace).await?;
    let secret = read_secret(&shared, &network, &namespace, &uid).await;
    let seen = Observed {
        server_groups: ctx.feeds.server_groups.within(&namespace, |_| true),
        proxy_groups: ctx.feeds.proxy_groups.within(&namespace, |_| true),
        pods: ctx.feeds.pods.within(&namespace, |_| true),
        secret: &secret,
    };
    let (status, flanks) = plan::accepted(&network, &seen, ctx.wall());
    let wait = write(&shared, &network, status).await?;
    announce(&shared, &network, &flanks);
    // Last, so that a namespace which cannot be prepared still shows the Network's state.
    match bootstrap::ensure(ctx, &namespace).await {
        // The registration follows within a second; groups wait by themselves.
        Ok(()) | Err(BootstrapError::NotWatched(_)) => Ok(Action::requeue(wait.unwrap_or(AGAIN))),
        Err(error) => {
            let note = format!("namespace {namespace} is not ready for pods: {error}");
            let (reason, action) = (event::NAMESPACE_NOT_BOOTSTRAPPED, event::action::BOOTSTRAP_NAMESPACE);
            shared.recorder.warning(&network.object_ref(&()), reason, action, note);
            Err(error.into())
        }
    }
}

fn announce(shared: &Shared, network: &Network, flanks: &[Flank]) {
    for flank in flanks {
        let (reason, note) = match flank {
            Flank::SecretRotated { note } => (event::FORWARDING_SECRET_ROTATED, note),
            Flank::SecretNotFound { note } => (event::FORWARDING_SECRET_NOT_FOUND, note),
        };
        shared.recorder.warning(&network.object_ref(&()), reason, event::action::SYNC_STATUS, note.clone());
    }
}

async fn read_secret(shared: &Shared, network: &Network, namespace: &str, uid: &str) -> Secret {
    let ctx = &shared.ctx;
    let name = &network.spec.forwarding_secret_ref.name;
    let held = shared.memory.lock().get(uid).and_then(|memory| memory.secret.clone());
    if let Some((at, secret)) = held
        && secret.is_of(name)
        && ctx.now().saturating_duration_since(at) < SECRET_AGE
    {
        return secret;
    }
    let secret = secret::read(ctx, namespace, name, uid).await;
    shared.memory.lock().entry(uid.to_owned()).or_default().secret = Some((ctx.now(), secret.clone()));
    secret
}

async fn policy(ctx: &Context, network: &Network, namespace: &str) -> Result<(), NetworkError> {
    let desired = policy::desired(network, &ctx.config.operator_namespace);
    let name = desired.name_any();
    if ctx.feeds.network_policies.get(namespace, &name).is_some_and(|held| policy::same(&held, &desired)) {
        return Ok(());
    }
    let api: Api<NetworkPolicy> = Api::namespaced(ctx.clients.api.clone(), namespace);
    let params = PatchParams::apply(manager::RECONCILER).force();
    let written = ctx.write(api.patch(&name, &params, &Patch::Apply(&desired))).await;
    written.map(drop).map_err(|source| NetworkError::Call { what: "apply the NetworkPolicy", source })
}

/// Writes the status where it differs. Where only counts do and the last write was a moment ago, says how long to wait.
async fn write(shared: &Shared, network: &Network, status: NetworkStatus) -> Result<Option<Duration>, NetworkError> {
    let (ctx, uid) = (&shared.ctx, network.uid().unwrap_or_default());
    let current = network.status.clone().unwrap_or_default();
    if current == status && network.status.is_some() {
        return Ok(None);
    }
    let now = ctx.now();
    let since = shared.memory.lock().get(&uid).and_then(|memory| memory.written);
    let since = since.map_or(Duration::MAX, |at| now.saturating_duration_since(at));
    if plan::only_counts_differ(&current, &status) && since < COUNTS_APART {
        return Ok(Some(COUNTS_APART.saturating_sub(since)));
    }
    let api: Api<Network> = Api::namespaced(ctx.clients.api.clone(), &network.namespace().unwrap_or_default());
    let params = PatchParams::apply(manager::STATUS).force();
    let body = json!({
        "apiVersion": Network::api_version(&()), "kind": Network::kind(&()),
        // The UID keeps a Network of the same name made since from getting this one's status.
        "metadata": { "name": network.name_any(), "uid": uid },
        "status": status,
    });
    let written = ctx.write(api.patch_status(&network.name_any(), &params, &Patch::Apply(body))).await;
    written.map_err(|source| NetworkError::Call { what: "write the status", source })?;
    shared.memory.lock().entry(uid).or_default().written = Some(now);
    Ok(None)
}
