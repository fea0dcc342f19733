//! Removes pods that have lost their parent, a Server or a `ProxyGroup`.
//!
//! Finalizers keep this from happening; it takes a forced removal, or somebody who forges our labels. Even then nobody is
//! thrown out: a pod with people on it stays, and says so, until they have left. That a parent is gone is believed of the API
//! server alone: a cache leaves out what we cannot read, such as an object of another version of ours, and may lag behind.
//! Servers are not swept: each names its group as its owner, so Kubernetes collects those of a group that is gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use spawnery_api::names::{label, manager};
use spawnery_api::v1alpha1::{ProxyGroup, Server};
use spawnery_api::view::{PodView, Role};
use spawnery_core::door::{ServerWant, WantDoor};
use spawnery_core::ledger::PodUid;
use spawnery_core::occupancy::SealReason;
use spawnery_runtime::client::CallError;

use crate::context::Context;
use crate::finalizers::Ours;
use crate::seal;

/// How soon an orphan whose door is being closed is looked at again.
const SOON: Duration = Duration::from_secs(2);

/// What is known of the object that a pod's labels name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    /// Our cache shows it, or the API server does.
    There,
    /// Our cache does not show it.
    NotSeen,
    /// The API server says that it does not exist, or the labels name none.
    Gone,
}

/// What is to be done about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It has a parent, is on its way out already, or is none of our business.
    Keep,
    /// The API server has to be asked for its parent.
    Ask,
    /// Its door has to be closed first.
    Close,
}

/// Decides about one pod.
fn fate(pod: &PodView, parent: Parent) -> Fate {
    if pod.role().is_none() || pod.is_terminating() {
        return Fate::Keep;
    }
    match parent {
        Parent::There => Fate::Keep,
        Parent::NotSeen => Fate::Ask,
        Parent::Gone => Fate::Close,
    }
}

/// Sweeps for ever, now and at each interval.
///
/// # Errors
/// None; the type is that of supervised tasks.
pub async fn run(ctx: Arc<Context>) -> anyhow::Result<()> {
    loop {
        let waiting = sweep(&ctx).await;
        ctx.metrics.orphans_waiting.set(waiting);
        tokio::time::sleep(if waiting > 0 { SOON.min(ctx.config.orphan_interval) } else { ctx.config.orphan_interval })
            .await;
    }
}

/// How many pods wait until their door is closed and nobody is on them.
async fn sweep(ctx: &Context) -> i64 {
    let mut asked: HashMap<(Role, String, String), Parent> = HashMap::new();
    let mut waiting = 0;
    for pod in ctx.feeds.pods.all() {
        let mut fate = fate_by_cache(ctx, &pod);
        if let (Fate::Ask, Some((role, name))) = (fate, parent_of(&pod)) {
            let key = (role, pod.namespace().to_owned(), name.to_owned());
            let parent = match asked.get(&key) {
                Some(parent) => *parent,
                None => *asked.entry(key).or_insert(ask(ctx, role, pod.namespace(), name).await),
            };
            fate = self::fate(&pod, parent);
        }
        if fate == Fate::Close {
            waiting += i64::from(!close_and_remove(ctx, &pod).await);
        }
    }
    waiting
}

/// The role of a pod of ours, and the name of its parent.
fn parent_of(pod: &PodView) -> Option<(Role, &str)> {
    let role = pod.role()?;
    let name = match role {
        Role::Server => pod.label(label::SERVER),
        Role::Proxy => pod.group(),
    };
    Some((role, name?))
}

fn fate_by_cache(ctx: &Context, pod: &PodView) -> Fate {
    let seen = match parent_of(pod) {
        Some((Role::Server, name)) => ctx.feeds.servers.get(pod.namespace(), name).is_some(),
        Some((Role::Proxy, name)) => ctx.feeds.proxy_groups.get(pod.namespace(), name).is_some(),
        None => return fate(pod, Parent::Gone),
    };
    fate(pod, if seen { Parent::There } else { Parent::NotSeen })
}

/// Asks the API server. Without an answer the parent still counts as not seen, and nothing happens to its pods.
async fn ask(ctx: &Context, role: Role, namespace: &str, name: &str) -> Parent {
    let exists = match role {
        Role::Server => exists::<Server>(ctx, namespace, name).await,
        Role::Proxy => exists::<ProxyGroup>(ctx, namespace, name).await,
    };
    match exists {
        Ok(true) => Parent::There,
        Ok(false) => Parent::Gone,
        Err(error) => {
            warn("look for the parent of", role.as_str(), name, &error);
            Parent::NotSeen
        }
    }
}

/// Only its metadata, which can be read of any version; by a list, because that is a right that we have.
async fn exists<K: Ours>(ctx: &Context, namespace: &str, name: &str) -> Result<bool, CallError> {
    let api: Api<K> = Api::namespaced(ctx.clients.api.clone(), namespace);
    let this = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(!ctx.read(api.list_metadata(&this)).await?.items.is_empty())
}

/// `false` when it has to be looked at again soon.
async fn close_and_remove(ctx: &Context, pod: &PodView) -> bool {
    let uid = PodUid::from(pod.uid());
    let api: Api<Pod> = Api::namespaced(ctx.clients.api.clone(), pod.namespace());
    if !pod.is_sealed() && !pod.is_terminal() {
        close(ctx, pod, &uid);
        if !ctx.hub.claim_seal(&uid, never_used(ctx, pod, &uid)) {
            tracing::debug!(
                namespace = pod.namespace(),
                name = pod.name(),
                uid = pod.uid(),
                "an orphan with people on it stays"
            );
            return false;
        }
        let patch = Patch::Merge(seal::seal_patch(SealReason::Empty, pod.uid()));
        let params = PatchParams { field_manager: Some(manager::SEAL.to_owned()), ..PatchParams::default() };
        match ctx.write(api.patch_status(pod.name(), &params, &patch)).await {
            Ok(_) => ctx.hub.mark_sealed(&uid),
            Err(error) => {
                if !error.retryable() {
                    ctx.hub.abandon_seal(&uid);
                }
                warn("seal", "Pod", pod.name(), &error);
                return false;
            }
        }
    }
    remove(ctx, &api, pod).await
}

/// Nobody ever got in: no agent has spoken for it, nobody counts anybody on it, and no player was ever sent there.
fn never_used(ctx: &Context, pod: &PodView, uid: &PodUid) -> bool {
    let connected = match pod.role() {
        Some(Role::Proxy) => ctx.hub.proxy(uid, ctx.now()).ever_connected || pod.is_ready(),
        Some(Role::Server) | None => ctx.hub.server(uid, ctx.now()).ever_connected,
    };
    !connected && !pod.is_occupied()
}

fn close(ctx: &Context, pod: &PodView, uid: &PodUid) {
    match pod.role() {
        Some(Role::Server) => ctx.hub.want(ServerWant {
            uid: uid.clone(),
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            group: pod.group().unwrap_or_default().to_owned(),
            address: String::new(),
            // Nobody can say; the label is what the last leader thought.
            was_routable: pod.is_occupied(),
            door: WantDoor::Closed,
        }),
        Some(Role::Proxy) => ctx.hub.set_ready(uid, false),
        None => {}
    }
}

/// Deletes exactly the pod that was looked at. `false` when that failed.
async fn remove(ctx: &Context, api: &Api<Pod>, pod: &PodView) -> bool {
    let (name, uid) = (pod.name(), pod.uid());
    let exactly = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
    match ctx.write(api.delete(name, &params)).await {
        Ok(_) => {
            ctx.metrics.orphans.inc();
            tracing::info!(namespace = pod.namespace(), name, uid, "removed an orphan");
            true
        }
        Err(error) if error.is_not_found() || error.is_conflict() => true,
        Err(error) => {
            warn("remove", "Pod", name, &error);
            false
        }
    }
}

fn warn(what: &str, kind: &str, name: &str, error: &CallError) {
    tracing::warn!(what, kind, name, error = error as &dyn std::error::Error, "could not clear an orphan away");
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn pod(role: &str, more: &Value) -> PodView {
        let mut metadata = json!({"name": "p", "namespace": "ns", "uid": "u", "labels": {
            "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": role}});
        for (key, value) in more.as_object().into_iter().flatten() {
            metadata[key.as_str()] = value.clone();
        }
        serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
    }

    #[rstest]
    #[case::server_without_parent(pod("server", &json!({})), Parent::Gone, Fate::Close)]
    #[case::proxy_without_parent(pod("proxy", &json!({})), Parent::Gone, Fate::Close)]
    #[case::a_parent_that_our_cache_does_not_show(pod("proxy", &json!({})), Parent::NotSeen, Fate::Ask)]
    #[case::with_parent(pod("server", &json!({})), Parent::There, Fate::Keep)]
    #[case::going_already(pod("server", &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})), Parent::Gone, Fate::Keep)]
    #[case::role_of_the_future(pod("other", &json!({})), Parent::Gone, Fate::Keep)]
    #[case::not_ours(pod("server", &json!({"labels": {}})), Parent::Gone, Fate::Keep)]
    fn judges(#[case] pod: PodView, #[case] parent: Parent, #[case] want: Fate) {
        assert_eq!(fate(&pod, parent), want);
    }
}
