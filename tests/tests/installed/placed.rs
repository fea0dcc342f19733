//! Pods placed through the extender, by the chart's own scheduler.

use crate::world::{LIMIT, World, tell};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use spawnery_api::{
    names::{label, object},
    v1alpha1::ServerGroup,
};
use spawnery_tests::{
    cluster::authority::Authority,
    eventually,
    installed::{NAMESPACE, OPERATOR_NAMESPACE},
};
use std::collections::BTreeSet;

/// Each call of a scheduler that the extender answered.
const CALLS: &str = "spawnery_extender_calls_total";
/// The chart's scheduler reads its configuration, and beside it whom it trusts.
const CONFIG_KEY: &str = "config.yaml";
const OTHER_CA_KEY: &str = "other.crt";

pub(crate) async fn pods_are_placed_through_the_extender(world: &World<'_>) -> Result<()> {
    world.ground.follow("Place servers by people").await?;
    world.ground.all_ready().await?;
    let before = world.ground.counted("extender", CALLS).await?;
    let pod = one_more(world).await?;
    let spec = pod.spec.context("a pod without spec")?;
    ensure!(spec.scheduler_name.as_deref() == Some(object::SCHEDULER_NAME), "{:?}", spec.scheduler_name);
    let calls = world.ground.counted("extender", CALLS).await? - before;
    ensure!(calls >= 1, "the extender was not asked");
    tell(&format!("one pod placed with {calls} calls of the extender, on {}", spec.node_name.unwrap_or_default()));
    Ok(())
}

pub(crate) async fn without_the_extender_pods_are_placed(world: &World<'_>) -> Result<()> {
    scale_extender(world, 0).await?;
    one_more(world).await?;
    scale_extender(world, 2).await?;
    world.ground.all_ready().await.map(drop)
}

/// The scheduler trusts another CA: it does not ask whoever cannot show a certificate of that, and places without.
pub(crate) async fn a_stranger_is_not_asked(world: &World<'_>) -> Result<()> {
    let configs: Api<ConfigMap> = Api::namespaced(world.client.clone(), OPERATOR_NAMESPACE);
    let config = configs.get(object::SCHEDULER).await?.data.and_then(|mut data| data.remove(CONFIG_KEY));
    let config = config.context("the scheduler has no configuration")?;
    let ours = "/etc/kubernetes/extender/ca.crt";
    ensure!(config.contains(ours), "{config}");
    let config = config.replace(ours, &format!("/etc/kubernetes/scheduler/{OTHER_CA_KEY}"));
    let data = json!({ CONFIG_KEY: config, OTHER_CA_KEY: Authority::create()?.pem() });
    configs.patch(object::SCHEDULER, &PatchParams::default(), &Patch::Merge(json!({ "data": data }))).await?;
    // It reads that once.
    let scheduler = format!("deployment/{}", object::SCHEDULER);
    for args in [["rollout", "restart"], ["rollout", "status"]] {
        let args = args.into_iter().chain([scheduler.as_str(), "-n", OPERATOR_NAMESPACE]);
        world.cluster.kubectl(args).await?.stdout()?;
    }
    let before = world.ground.counted("extender", CALLS).await?;
    one_more(world).await?;
    let calls = world.ground.counted("extender", CALLS).await? - before;
    ensure!(calls == 0, "{calls} calls of the extender by a scheduler that must not trust it");
    let logs = world.cluster.kubectl(["logs", &scheduler, "-n", OPERATOR_NAMESPACE]).await?.stdout()?;
    ensure!(logs.contains("x509: certificate signed by unknown authority"), "{logs}");
    Ok(())
}

async fn scale_extender(world: &World<'_>, replicas: usize) -> Result<()> {
    let args = ["scale", "deployment", object::EXTENDER, "-n", OPERATOR_NAMESPACE, &format!("--replicas={replicas}")];
    world.cluster.kubectl(args).await?.stdout()?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), OPERATOR_NAMESPACE);
    let selector = format!("{}=extender", label::PART);
    eventually(LIMIT, "the extender's replicas", || async {
        let pods = pods.list(&ListParams::default().labels(&selector)).await?.items;
        ensure!(pods.len() == replicas, "{} pods", pods.len());
        Ok(())
    })
    .await
}

/// Asks for one more lobby, and returns its pod once it is on a node.
async fn one_more(world: &World<'_>) -> Result<Pod> {
    let pods = world.pods();
    let lobbies = ListParams::default().labels(&format!("{}={}", label::ROLE, label::ROLE_SERVER));
    let known: BTreeSet<String> = pods.list(&lobbies).await?.iter().filter_map(ResourceExt::uid).collect();
    let groups: Api<ServerGroup> = Api::namespaced(world.client.clone(), NAMESPACE);
    let now = groups.get("lobby").await?.spec.scaling.context("no scaling")?.min_replicas;
    let scaling = json!({ "minReplicas": now + 1, "maxReplicas": now + 1 });
    groups.patch("lobby", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "scaling": scaling } }))).await?;
    eventually(LIMIT, "one more lobby on a node", || async {
        let found =
            pods.list(&lobbies).await?.into_iter().find(|pod| !pod.uid().is_some_and(|uid| known.contains(&uid)));
        let pod = found.context("no new pod")?;
        ensure!(pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()), "{:?}", pod.status);
        Ok(pod)
    })
    .await
}
