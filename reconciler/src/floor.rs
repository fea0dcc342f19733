//! The floor as it lies in the cluster: which of our budgets are narrow, and widening all of them when nobody leads for a
//! while: after a leader's end, and before a new one that is not ready for it yet.
//!
//! Only the leader labels a pod on which people arrive and widens budgets when no webhook answers. What it leaves behind has
//! to hold without it, also when the webhooks end after it and there is no next leader for long. The next leader begins with
//! wide budgets anyway, and narrows them once it has heard the webhook.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use spawnery_api::names::{GROUP, label, manager};
use spawnery_core::floor::{LEADERLESS, Width};

use crate::context::Context;

/// How long the widening may take. Of the 15 s that a pod of ours has, the tasks take up to 5 s before it, and
/// the release of the lease after it.
const LIMIT: Duration = Duration::from_secs(4);

/// Budgets that are being widened at once.
const AT_ONCE: usize = 16;

/// A budget of ours that covers occupied pods only.
pub fn is_narrow(budget: &PodDisruptionBudget) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let labels = selector.and_then(|selector| selector.match_labels.as_ref());
    is_ours(budget) && labels.is_some_and(|labels| labels.contains_key(label::OCCUPIED))
}

/// A budget of one of our groups.
fn is_ours(budget: &PodDisruptionBudget) -> bool {
    let of_our_kinds = |version: &str| version.split_once('/').is_some_and(|(group, _)| group == GROUP);
    budget.owner_references().iter().any(|owner| owner.controller == Some(true) && of_our_kinds(&owner.api_version))
}

/// Makes every budget of ours as wide as it has to be while nobody leads; to be called while nothing else of ours writes
/// budgets, so before a leader begins or after it has ended, and while we hold the lease.
pub async fn widen_all(ctx: &Context) {
    if !ctx.leadership.check(ctx.now()) {
        return;
    }
    let began = ctx.now();
    // Wide ones too: the stores stand still by now, and may show a budget as it was before our last write.
    let budgets: Vec<_> = ctx.feeds.budgets.all().into_iter().filter(|budget| is_ours(budget)).collect();
    let mut wide = 0;
    let in_time = tokio::time::timeout(LIMIT, async {
        let mut writes = futures::stream::iter(&budgets).map(|budget| widen(ctx, budget)).buffer_unordered(AT_ONCE);
        while let Some(written) = writes.next().await {
            wide += usize::from(written);
        }
    });
    let in_time = in_time.await.is_ok();
    let elapsed_ms = ctx.now().saturating_duration_since(began).as_millis();
    if wide == budgets.len() {
        tracing::info!(budgets = wide, elapsed_ms, "every budget covers empty pods as long as nobody acts as leader");
    } else {
        let narrow = budgets.len() - wide;
        tracing::warn!(
            budgets = wide,
            narrow,
            in_time,
            elapsed_ms,
            "there are budgets that cover occupied pods only, and nobody acts as leader"
        );
    }
}

/// Whether the budget is wide now, or gone.
async fn widen(ctx: &Context, budget: &PodDisruptionBudget) -> bool {
    let (namespace, name) = (budget.namespace().unwrap_or_default(), budget.name_any());
    let api: Api<PodDisruptionBudget> = Api::namespaced(ctx.clients.api.clone(), &namespace);
    let params = PatchParams { field_manager: Some(manager::RECONCILER.to_owned()), ..PatchParams::default() };
    match ctx.write(api.patch(&name, &params, &Patch::Merge(covering(budget, LEADERLESS)))).await {
        Ok(_) => true,
        // Another one of that name is of a later leader.
        Err(error) if error.is_not_found() || error.is_conflict() => true,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(namespace, name, error, "could not widen a budget");
            false
        }
    }
}

/// What is written to make a budget as wide as this.
fn covering(budget: &PodDisruptionBudget, width: Width) -> Value {
    let occupied = match width {
        Width::Occupied => Some(label::TRUE),
        Width::Unsealed => None,
    };
    json!({
        "metadata": { "uid": budget.uid() },
        "spec": { "selector": { "matchLabels": { label::OCCUPIED: occupied } } },
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const OURS: &str = "spawnery.cloud/v1alpha1";

    fn budget(version: &str, labels: &Value) -> PodDisruptionBudget {
        let owner = json!({"apiVersion": version, "kind": "ServerGroup", "name": "g", "uid": "u", "controller": true});
        let metadata = json!({"name": "g-server-pdb", "namespace": "ns", "uid": "b", "ownerReferences": [owner]});
        let budget = json!({"metadata": metadata, "spec": {"selector": {"matchLabels": labels}}});
        serde_json::from_value(budget).expect("a budget")
    }

    #[rstest]
    #[case::occupied_pods_only(OURS, json!({"spawnery.cloud/group": "g", "spawnery.cloud/occupied": "true"}), true)]
    #[case::every_pod_of_the_group(OURS, json!({"spawnery.cloud/group": "g"}), false)]
    #[case::of_somebody_else("games.example/v1", json!({"spawnery.cloud/occupied": "true"}), false)]
    fn tells_narrow_budgets_from_wide_ones(#[case] version: &str, #[case] labels: Value, #[case] want: bool) {
        assert_eq!(is_narrow(&budget(version, &labels)), want);
    }

    #[rstest]
    #[case::to_every_pod(Width::Unsealed, json!(null))]
    #[case::to_occupied_pods(Width::Occupied, json!("true"))]
    fn writes_one_label_of_exactly_this_budget(#[case] width: Width, #[case] want: Value) {
        let patch = covering(&budget(OURS, &json!({})), width);
        let selector = json!({"matchLabels": {"spawnery.cloud/occupied": want}});
        assert_eq!(patch, json!({"metadata": {"uid": "b"}, "spec": {"selector": selector}}));
    }
}
