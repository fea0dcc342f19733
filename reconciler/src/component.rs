//! Which of our pods the agents' Service leads to: the one that carries the label `component: operator`, which is the
//! leader's, and nobody else's.

use std::time::Duration;

use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use spawnery_api::names::{label, manager};
use spawnery_api::view::PodView;
use spawnery_runtime::client::CallError;

use crate::context::Context;

/// How soon after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// Who has to carry which component: the pods that have to give the label up, then the one that takes it.
fn handover<'a>(pods: &'a [PodView], me: &str) -> (Vec<&'a str>, bool) {
    let carries = |pod: &&PodView| pod.label(label::APP_COMPONENT) == Some(label::COMPONENT_OPERATOR);
    let others = pods.iter().filter(carries).map(PodView::name).filter(|name| *name != me).collect();
    let mine = pods.iter().filter(carries).any(|pod| pod.name() == me);
    (others, !mine)
}

/// Takes the label from others and puts it on our pod; does nothing outside of a pod.
pub async fn take(ctx: &Context) {
    let Some(me) = &ctx.config.pod_name else { return };
    while let Err(error) = attempt(ctx, me).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "could not take the leader's label, trying again");
        tokio::time::sleep(RETRY).await;
    }
}

async fn attempt(ctx: &Context, me: &str) -> Result<(), CallError> {
    let api: Api<PodView> = Api::namespaced(ctx.clients.api.clone(), &ctx.config.operator_namespace);
    let ours = ListParams::default().labels(&format!("{}={}", label::APP_NAME, label::APP_NAME_VALUE));
    let pods = ctx.read(api.list(&ours)).await?.items;
    let (others, needed) = handover(&pods, me);
    for other in others {
        match set(ctx, &api, other, label::COMPONENT_STANDBY).await {
            Err(error) if error.is_not_found() => {}
            result => result?,
        }
    }
    if needed {
        set(ctx, &api, me, label::COMPONENT_OPERATOR).await?;
    }
    Ok(())
}

async fn set(ctx: &Context, api: &Api<PodView>, name: &str, component: &str) -> Result<(), CallError> {
    let params = PatchParams { field_manager: Some(manager::LEADER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "metadata": { "labels": { label::APP_COMPONENT: component } } }));
    ctx.write(api.patch(name, &params, &patch)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn pods(components: &[(&str, &str)]) -> Vec<PodView> {
        let pod = |(name, component): &(&str, &str)| {
            let labels = json!({ "app.kubernetes.io/name": "spawnery", "app.kubernetes.io/component": component });
            serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).expect("a pod")
        };
        components.iter().map(pod).collect()
    }

    #[rstest]
    #[case::from_the_last_leader(&[("a", "operator"), ("me", "operator-standby")], &["a"], true)]
    #[case::mine_already(&[("me", "operator")], &[], false)]
    #[case::two_carry_it(&[("a", "operator"), ("me", "operator")], &["a"], false)]
    #[case::webhooks_are_left_alone(&[("w", "webhook"), ("me", "operator-standby")], &[], true)]
    fn exactly_one_pod_carries_it(#[case] components: &[(&str, &str)], #[case] others: &[&str], #[case] needed: bool) {
        let pods = pods(components);
        assert_eq!(handover(&pods, "me"), (others.to_vec(), needed));
    }
}
