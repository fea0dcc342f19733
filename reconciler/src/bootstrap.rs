//! What a game namespace needs before its first pod: the CA bundle, two ServiceAccounts, and the webhook watching.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use serde_json::json;
use spawnery_api::names::{label, manager, object};
use spawnery_core::floor::Width;
use spawnery_runtime::client::CallError;

use crate::context::Context;

/// Namespaces in which the accounts are known to exist, so that accounts which somebody made by hand (and which the
/// watch on our label does not show) are not asked for again and again.
#[derive(Debug, Default)]
pub struct Accounts(Mutex<HashSet<String>>);

/// Why a namespace is not prepared.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// Certificates come first.
    #[error("there is no CA bundle yet")]
    NoBundle,
    /// The API server.
    #[error("could not write {kind} {namespace}/{name}")]
    Write {
        /// What.
        kind: &'static str,
        /// Where.
        namespace: String,
        /// Which.
        name: &'static str,
        /// What came of it.
        #[source]
        source: CallError,
    },
    /// A pod made now would be evicted without anybody being asked.
    #[error("the eviction webhook does not watch namespace {0} yet")]
    NotWatched(String),
}

impl BootstrapError {
    /// Whether trying again can help without anybody changing anything.
    pub fn retryable(&self) -> bool {
        match self {
            Self::NoBundle | Self::NotWatched(_) => true,
            Self::Write { source, .. } => source.retryable(),
        }
    }

    /// Short constant name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoBundle => "no_bundle",
            Self::NotWatched(_) => "not_watched",
            Self::Write { source, .. } => source.label(),
        }
    }
}

/// Prepares a namespace; call it before the first pod is made there. Costs nothing where all is done.
///
/// # Errors
/// Where something is missing; no pod may be made then, because it would never get a token or a bundle.
pub async fn ensure(ctx: &Context, namespace: &str) -> Result<(), BootstrapError> {
    let bundle = ctx.ca.borrow().clone().ok_or(BootstrapError::NoBundle)?;
    config_map(ctx, namespace, &bundle).await?;
    for name in [object::SERVER_SERVICE_ACCOUNT, object::PROXY_SERVICE_ACCOUNT] {
        account(ctx, namespace, name).await?;
    }
    watched(ctx, namespace)
}

/// While the webhook answers, budgets cover occupied pods only and rely on it; so it must watch where pods are made.
/// While it does not answer, budgets cover every pod, and nothing waits for it.
fn watched(ctx: &Context, namespace: &str) -> Result<(), BootstrapError> {
    match ctx.width() {
        Width::Unsealed => Ok(()),
        Width::Occupied if ctx.watched.borrow().contains(namespace) => Ok(()),
        Width::Occupied => Err(BootstrapError::NotWatched(namespace.to_owned())),
    }
}

async fn config_map(ctx: &Context, namespace: &str, bundle: &str) -> Result<(), BootstrapError> {
    let name = object::CA_CONFIG_MAP;
    let held = ctx.feeds.config_maps.get(namespace, name);
    if held.is_some_and(|held| holds(&held, bundle)) {
        return Ok(());
    }
    let api: Api<ConfigMap> = Api::namespaced(ctx.clients.api.clone(), namespace);
    let desired = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { label::MANAGED_BY: label::MANAGED_BY_VALUE } },
        "data": { object::CA_KEY: bundle },
    });
    // Forced: whoever wrote another bundle there would keep every agent away.
    let params = PatchParams::apply(manager::RECONCILER).force();
    let written = ctx.write(api.patch(name, &params, &Patch::Apply(desired))).await;
    written.map(drop).map_err(|source| BootstrapError::Write {
        kind: "ConfigMap",
        namespace: namespace.to_owned(),
        name,
        source,
    })
}

fn holds(held: &ConfigMap, bundle: &str) -> bool {
    held.data.as_ref().and_then(|data| data.get(object::CA_KEY)).is_some_and(|found| found == bundle)
}

/// Created where missing, never changed: what people add to it (pull secrets) is theirs.
async fn account(ctx: &Context, namespace: &str, name: &'static str) -> Result<(), BootstrapError> {
    let id = format!("{namespace}/{name}");
    if ctx.feeds.service_accounts.get(namespace, name).is_some() || ctx.accounts.0.lock().contains(&id) {
        return Ok(());
    }
    let api: Api<ServiceAccount> = Api::namespaced(ctx.clients.api.clone(), namespace);
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(label::MANAGED_BY.to_owned(), label::MANAGED_BY_VALUE.to_owned())])),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    let params = PostParams { field_manager: Some(manager::RECONCILER.to_owned()), ..PostParams::default() };
    match ctx.write(api.create(&params, &account)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => {
            ctx.accounts.0.lock().insert(id);
            Ok(())
        }
        Err(source) => {
            Err(BootstrapError::Write { kind: "ServiceAccount", namespace: namespace.to_owned(), name, source })
        }
    }
}
