//! Pods placed through the extender, by the chart's own scheduler.

use crate::world::{LIMIT, REST_AIM, World, tell};
use anyhow::{Context as _, Result, bail, ensure};
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
    installed::{NAMESPACE, OPERATOR_NAMESPACE, usage},
};
use std::collections::BTreeSet;

/// Each call of a scheduler that the extender answered.
const CALLS: &str = "spawnery_extender_calls_total";
/// The chart's scheduler reads its configuration, and beside it whom it trusts.
const CONFIG_KEY: &str = "config.yaml";
const OTHER_CA_KEY: &str = "other.crt";
/// The one part that is not ours: Kubernetes' own program.
const SCHEDULER: &str = "scheduler";

/// People are on one node, and the group would rather have its lobbies on different ones: with the extender the next goes to
/// where the people are.
pub(crate) async fn a_server_is_placed_beside_people(world: &World<'_>) -> Result<()> {
    world.ground.follow("Place servers by people").await?;
    world.ground.all_ready().await?;
    let node = node_of_people(world).await?;
    let before = world.ground.counted("extender", CALLS).await?;
    let pod = one_more(world).await?;
    let spec = pod.spec.context("a pod without spec")?;
    ensure!(spec.scheduler_name.as_deref() == Some(object::SCHEDULER_NAME), "{:?}", spec.scheduler_name);
    let calls = world.ground.counted("extender", CALLS).await? - before;
    ensure!(calls >= 1, "the extender was not asked");
    let placed = spec.node_name.context("a pod without node")?;
    ensure!(placed == node, "people are on {node}, and the next server is on {placed}");
    tell(&format!("one pod placed with {calls} calls of the extender, on {placed}, where people are"));
    for part in usage(world.cluster).await? {
        tell(&format!("at rest: {part}"));
        ensure!(part.part == SCHEDULER || part.most() <= REST_AIM, "at rest: {part}");
    }
    Ok(())
}

/// The control: the same cluster, the same group, nobody who knows of people.
pub(crate) async fn without_the_extender_it_is_placed_elsewhere(world: &World<'_>) -> Result<()> {
    let node = node_of_people(world).await?;
    scale_extender(world, 0).await?;
    let placed = one_more(world).await?.spec.and_then(|spec| spec.node_name);
    ensure!(placed.is_some_and(|placed| placed != node), "the control places it beside the people, on {node}");
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
    let node = node_of_people(world).await?;
    let before = world.ground.counted("extender", CALLS).await?;
    let placed = one_more(world).await?.spec.and_then(|spec| spec.node_name);
    ensure!(placed.is_some_and(|placed| placed != node), "placed beside the people, on {node}");
    let calls = world.ground.counted("extender", CALLS).await? - before;
    ensure!(calls == 0, "{calls} calls of the extender by a scheduler that must not trust it");
    let logs = world.cluster.kubectl(["logs", &scheduler, "-n", OPERATOR_NAMESPACE]).await?.stdout()?;
    ensure!(logs.contains("x509: certificate signed by unknown authority"), "{logs}");
    Ok(())
}

/// The one node that has people, by what they themselves say.
async fn node_of_people(world: &World<'_>) -> Result<String> {
    let mut nodes = BTreeSet::new();
    for server in world.crowd.by_server().keys() {
        nodes.insert(world.node_of(server).await?);
    }
    let mut nodes = nodes.into_iter();
    match (nodes.next(), nodes.next()) {
        (Some(node), None) => Ok(node),
        (first, second) => bail!("people are on {first:?} and {second:?}"),
    }
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
