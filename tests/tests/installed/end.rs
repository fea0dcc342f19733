//! Without us: stopped, and uninstalled.

use crate::{
    first,
    world::{LIMIT, World, tell},
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Pod,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::ListParams};
use serde_json::json;
use spawnery_api::names::{label, object};
use spawnery_tests::{
    eventually,
    installed::{NAMESPACE, OPERATOR_NAMESPACE, Reviews},
};
use std::time::{Duration, Instant};

/// A request that a webhook of ours held up would take its timeout, 2 to 3 s.
const PROMPT: Duration = Duration::from_secs(2);

pub(crate) async fn with_our_processes_stopped_others_work_as_ever(world: &World<'_>) -> Result<()> {
    let server = world.the_lobby().await?;
    scale(world, 0).await?;
    let reviews = Reviews::begin(&world.client, NAMESPACE, &server, "lobby");
    for namespace in ["others", NAMESPACE] {
        others_come_and_go(world, namespace).await?;
    }
    nodes_come_and_go(world).await?;
    // The control of the upgrade: the same calls, with nobody there to answer them.
    let tally = reviews.tally();
    ensure!(tally.answered == 0 && tally.failures > 10, "{tally:?}");
    drop(reviews);
    // The floor holds, and players notice nothing.
    let refused = world
        .cluster
        .kubectl([
            "create",
            "-f",
            &eviction(world, &server)?,
            "--raw",
            &format!("/api/v1/namespaces/{NAMESPACE}/pods/{server}/eviction"),
        ])
        .await?;
    ensure!(!refused.ok() && refused.all().contains("disruption budget"), "{}", refused.all());
    world.crowd.ensure_unharmed()?;
    where_a_webhook_must_answer_others_are_held_up(world).await?;
    scale(world, 2).await?;
    world.ground.all_ready().await?;
    Ok(())
}

fn eviction(world: &World<'_>, pod: &str) -> Result<String> {
    let path = world.cluster.directory().join("eviction.json");
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod } });
    std::fs::write(&path, eviction.to_string())?;
    Ok(path.display().to_string())
}

async fn scale(world: &World<'_>, replicas: usize) -> Result<()> {
    let args = ["scale", "deployment", "--all", "-n", OPERATOR_NAMESPACE, &format!("--replicas={replicas}")];
    world.cluster.kubectl(args).await?.stdout()?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), OPERATOR_NAMESPACE);
    eventually(LIMIT, "all pods of ours", || async {
        let pods = pods.list(&ListParams::default().labels(label::PART)).await?.items;
        ensure!((replicas == 0) == pods.is_empty(), "{} pods of ours", pods.len());
        Ok(())
    })
    .await
}

/// A workload of somebody else: made, evicted, scaled and removed, none of it held up.
async fn others_come_and_go(world: &World<'_>, namespace: &str) -> Result<()> {
    let own = namespace != NAMESPACE;
    let workload = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "foreign", "namespace": namespace },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "foreign" } },
            "template": {
                "metadata": { "labels": { "app": "foreign" } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "pause", "image": "local.test/pause:1", "imagePullPolicy": "Never" }],
                },
            },
        },
    });
    if own {
        world.cluster.kubectl(["create", "namespace", namespace]).await?.stdout()?;
    }
    world.cluster.apply(&workload.to_string()).await?;
    let rollout = ["rollout", "status", "deployment/foreign", "-n", namespace, "--timeout=60s"];
    world.cluster.kubectl(rollout).await?.stdout()?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), namespace);
    for pod in pods.list(&ListParams::default().labels("app=foreign")).await? {
        let name = pod.metadata.name.unwrap_or_default();
        let begin = Instant::now();
        pods.evict(&name, &kube::api::EvictParams::default()).await?;
        let took = begin.elapsed();
        tell(&format!("all of ours stopped: an eviction in {namespace} took {:.3} s", took.as_secs_f64()));
        ensure!(took < PROMPT, "the eviction of {name} took {took:?}");
    }
    world.cluster.kubectl(rollout).await?.stdout()?;
    let target = if own { vec!["namespace", namespace] } else { vec!["deployment", "foreign", "-n", namespace] };
    let delete = ["delete", "--timeout=60s"].into_iter().chain(target);
    world.cluster.kubectl(delete).await?.stdout().map(drop)
}

/// The control: were evictions to fail without our answer, those of others would.
async fn where_a_webhook_must_answer_others_are_held_up(world: &World<'_>) -> Result<()> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let webhooks = configurations.get(object::WEBHOOK_CONFIGURATION).await?.webhooks.unwrap_or_default();
    let place = webhooks.iter().position(|webhook| webhook.name == "evictions.spawnery.cloud");
    let policy = format!("/webhooks/{}/failurePolicy", place.context("evictions are not ours to judge")?);
    let must_answer = json!([{ "op": "replace", "path": policy, "value": "Fail" }]).to_string();
    // The leader that comes back writes its own.
    let name = object::WEBHOOK_CONFIGURATION;
    let args = ["patch", "validatingwebhookconfiguration", name, "--type=json", "--patch", &must_answer];
    world.cluster.kubectl(args).await?.stdout()?;
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "foreign", "namespace": NAMESPACE },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "pause", "image": "local.test/pause:1", "imagePullPolicy": "Never" }],
        },
    });
    world.cluster.apply(&pod.to_string()).await?;
    let post_options = kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() };
    let params = kube::api::EvictParams { post_options, ..kube::api::EvictParams::default() };
    let pods = world.pods();
    eventually(LIMIT, "an eviction that fails for want of our answer", || async {
        let error = pods.evict("foreign", &params).await.err().context("it was allowed")?;
        ensure!(error.to_string().contains("failed calling webhook"), "{error}");
        Ok(())
    })
    .await?;
    world.cluster.kubectl(["delete", "pod", "foreign", "-n", NAMESPACE, "--timeout=60s"]).await?.stdout().map(drop)
}

async fn nodes_come_and_go(world: &World<'_>) -> Result<()> {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-c" } });
    world.cluster.apply(&node.to_string()).await?;
    for args in [["cordon", "node-c"], ["uncordon", "node-c"]] {
        world.cluster.kubectl(args).await?.stdout()?;
    }
    world.cluster.kubectl(["delete", "node", "node-c", "--timeout=30s"]).await?.stdout().map(drop)
}

pub(crate) async fn an_uninstall_leaves_a_working_cluster(world: &World<'_>) -> Result<()> {
    let definitions = async || -> Result<usize> {
        let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
        let all = definitions.list(&ListParams::default()).await?;
        Ok(all.iter().filter(|definition| definition.spec.group == spawnery_api::names::GROUP).count())
    };
    world.ground.follow("Uninstall").await?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    eventually(LIMIT, "no webhook configuration", || async {
        ensure!(validating.get_opt(object::WEBHOOK_CONFIGURATION).await?.is_none(), "validating is there");
        ensure!(mutating.get_opt(object::WEBHOOK_CONFIGURATION).await?.is_none(), "mutating is there");
        Ok(())
    })
    .await?;
    ensure!(definitions().await? == 4, "the definitions are gone, and with them what users applied");
    first::without_us_the_first_object_passes(world).await?;
    // Games play on, and others work.
    world.crowd.ensure_unharmed()?;
    others_come_and_go(world, "after").await?;
    // Pods wait for their players, with us or without.
    for player in world.crowd.players() {
        player.leave();
    }
    let begin = Instant::now();
    world.ground.follow("Remove what is left").await?;
    tell(&format!("everything removed in {:.1} s", begin.elapsed().as_secs_f64()));
    ensure!(definitions().await? == 0, "definitions are left");
    let kinds = "clusterroles,clusterrolebindings,priorityclasses,flowschemas,namespaces";
    let left = world.cluster.kubectl(["get", kinds, "-o", "name"]).await?.stdout()?;
    let ours: Vec<&str> = left.lines().filter(|line| line.contains("spawnery") || line.contains(NAMESPACE)).collect();
    ensure!(ours.is_empty(), "left behind: {ours:?}");
    Ok(())
}
