//! Before a new leader acts: its store of pods shows what the API server has by now.
//!
//! A complete first list says nothing about today: the watch of a standby may be dead for more than a minute before it is
//! listed anew. A proxy pod that is missing would not hold the doors in the directory that the last leader gave it, and a pod
//! whose seal is missing would be opened again. Once we hold the lease nobody else seals pods or tells proxies, so one look at
//! the API server is enough.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::ListParams;
use spawnery_api::names::label;
use spawnery_api::view::PodView;
use spawnery_runtime::client::{CallError, LIST, deadline};

use crate::context::Context;

/// How long it is waited for what one look has shown, before the next: a pod may have gone meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks at our store.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until the store of pods shows every pod as the API server has it now, or as it became since. That takes a list, and
/// where the watch is dead as long as it takes for somebody to notice, 75 s.
pub async fn pods(ctx: &Context) {
    let began = ctx.now();
    loop {
        match live(ctx).await {
            Ok(live) => {
                let missing = wait_shown(ctx, &live).await;
                if missing == 0 {
                    break;
                }
                tracing::warn!(pods = missing, "our view of pods is behind the API server's, waiting for it");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "could not compare our view of pods with the API server's, trying again");
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }
    let elapsed_ms = ctx.now().saturating_duration_since(began).as_millis();
    tracing::debug!(elapsed_ms, "our view of pods is the API server's");
}

async fn live(ctx: &Context) -> Result<Vec<ObjectMeta>, CallError> {
    let client = ctx.clients.api.clone();
    let api: Api<PodView> = match &ctx.config.only_namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let managed = ListParams::default().labels(&format!("{}={}", label::MANAGED_BY, label::MANAGED_BY_VALUE));
    let pods = deadline(LIST, api.list_metadata(&managed)).await?;
    Ok(pods.items.into_iter().map(|pod| pod.metadata).collect())
}

/// How many of these pods our store does not show yet.
async fn wait_shown(ctx: &Context, live: &[ObjectMeta]) -> usize {
    let until = ctx.now() + PATIENCE;
    loop {
        let behind = |live: &&ObjectMeta| {
            let (namespace, name) = (live.namespace.as_deref(), live.name.as_deref());
            let held = ctx.feeds.pods.get(namespace.unwrap_or_default(), name.unwrap_or_default());
            !held.is_some_and(|held| shows(&held.metadata, live))
        };
        let missing = live.iter().filter(behind).count();
        if missing == 0 || ctx.now() >= until {
            return missing;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether what we hold of a pod is at least as new as what the API server said. Versions of one object are numbers that grow
/// (Kubernetes promises it since 1.35); of any that are not, only the same will do.
fn shows(held: &ObjectMeta, live: &ObjectMeta) -> bool {
    let number = |meta: &ObjectMeta| meta.resource_version.as_deref().and_then(|version| version.parse::<u64>().ok());
    let reached = match (number(held), number(live)) {
        (Some(held), Some(live)) => held >= live,
        _ => held.resource_version == live.resource_version,
    };
    held.uid == live.uid && reached
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn meta(uid: &str, version: &str) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()), ..ObjectMeta::default() }
    }

    #[rstest]
    #[case::the_same(meta("a", "7"), true)]
    #[case::newer(meta("a", "10"), true)]
    #[case::older(meta("a", "6"), false)]
    #[case::the_pod_of_that_name_before_it(meta("b", "10"), false)]
    #[case::no_number(meta("a", "x"), false)]
    fn shows_at_least(#[case] held: ObjectMeta, #[case] want: bool) {
        assert_eq!(shows(&held, &meta("a", "7")), want);
    }

    #[test]
    fn versions_that_are_no_numbers_have_to_be_the_same() {
        assert!(shows(&meta("a", "x"), &meta("a", "x")));
        assert!(!shows(&meta("a", "y"), &meta("a", "x")));
    }
}
