//! Removes what has lost its parent: pods without Server or `ProxyGroup`, Servers without `ServerGroup`.
//!
//! Finalizers keep this from happening; it takes a forced removal, or somebody who forges our labels. Even then nobody is
//! thrown out: a pod with people on it stays, and says so, until they have left.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use spawnery_api::names::{label, manager};
use spawnery_api::v1alpha1::Server;
use spawnery_api::view::{PodView, Role};
use spawnery_core::door::{ServerWant, WantDoor};
use spawnery_core::ledger::PodUid;
use spawnery_core::occupancy::SealReason;
use spawnery_runtime::client::CallError;

use crate::context::Context;
use crate::seal;

/// How soon an orphan whose door is being closed is looked at again.
const SOON: Duration = Duration::from_secs(2);

/// What is to be done about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It has a parent, is on its way out already, or is none of our business.
    Keep,
    /// Its door has to be closed first.
    Close,
}

/// Decides about one pod. `parent` is whether the object that its labels name exists.
fn fate(pod: &PodView, parent: bool) -> Fate {
    let ours = pod.role().is_some();
    if !ours || parent || pod.is_terminating() { Fate::Keep } else { Fate::Close }
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
    for server in ctx.feeds.servers.all() {
        let namespace = server.namespace().unwrap_or_default();
        let parent = ctx.feeds.server_groups.get(&namespace, &server.spec.group_ref.name).is_some();
        if !parent && server.metadata.deletion_timestamp.is_none() {
            let api: Api<Server> = Api::namespaced(ctx.clients.api.clone(), &namespace);
            remove(ctx, &api, "Server", server.name_any(), server.uid().unwrap_or_default()).await;
        }
    }
    let mut waiting = 0;
    for pod in ctx.feeds.pods.all() {
        if fate(&pod, has_parent(ctx, &pod)) == Fate::Close {
            waiting += i64::from(!close_and_remove(ctx, &pod).await);
        }
    }
    waiting
}

fn has_parent(ctx: &Context, pod: &PodView) -> bool {
    match pod.role() {
        Some(Role::Server) => {
            pod.label(label::SERVER).is_some_and(|name| ctx.feeds.servers.get(pod.namespace(), name).is_some())
        }
        Some(Role::Proxy) => {
            pod.group().is_some_and(|name| ctx.feeds.proxy_groups.get(pod.namespace(), name).is_some())
        }
        None => true,
    }
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
    remove(ctx, &api, "Pod", pod.name().to_owned(), pod.uid().to_owned()).await
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

/// Deletes exactly the object that was looked at. `false` when that failed.
async fn remove<K>(ctx: &Context, api: &Api<K>, kind: &'static str, name: String, uid: String) -> bool
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let exactly = Preconditions { uid: Some(uid.clone()), resource_version: None };
    let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::default() };
    match ctx.write(api.delete(&name, &params)).await {
        Ok(_) => {
            ctx.metrics.orphans.inc();
            tracing::info!(kind, name, uid, "removed an orphan");
            true
        }
        Err(error) if error.is_not_found() || error.is_conflict() => true,
        Err(error) => {
            warn("remove", kind, &name, &error);
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
    #[case::server_without_parent(pod("server", &json!({})), false, Fate::Close)]
    #[case::proxy_without_parent(pod("proxy", &json!({})), false, Fate::Close)]
    #[case::with_parent(pod("server", &json!({})), true, Fate::Keep)]
    #[case::going_already(pod("server", &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"})), false, Fate::Keep)]
    #[case::role_of_the_future(pod("other", &json!({})), false, Fate::Keep)]
    #[case::not_ours(pod("server", &json!({"labels": {}})), false, Fate::Keep)]
    fn judges(#[case] pod: PodView, #[case] parent: bool, #[case] want: Fate) {
        assert_eq!(fate(&pod, parent), want);
    }
}
