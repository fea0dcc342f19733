//! The extender, asked by a real kube-scheduler: where pods go, and what is left of it when it is gone.

#![expect(clippy::indexing_slicing, reason = "helpers of tests are tests; JSON that lacks a key gives null")]

mod asked;
mod by_itself;
mod placed;
mod without;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;
use spawnery_api::names::label;
use spawnery_tests::{
    eventually,
    stack::{Arena, Replica, StackOptions},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What should happen within a second; beside a build it takes longer.
const LIMIT: Duration = Duration::from_secs(30);
/// A taint that says nothing to Kubernetes.
const GOING: &str = "example.test/going";

fn with_extender(flags: &[&str]) -> StackOptions {
    let extender_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    StackOptions { extenders: 1, extender_flags, ..StackOptions::default() }
}

/// Pods of servers and the nodes of those that have one.
async fn lobbies(arena: &Arena) -> Result<BTreeMap<String, Option<String>>> {
    let servers = ListParams::default().labels(&format!("{}={}", label::ROLE, label::ROLE_SERVER));
    let pods = arena.pods().list(&servers).await?;
    Ok(pods.into_iter().map(|pod| (pod.name_any(), pod.spec.and_then(|spec| spec.node_name))).collect())
}

/// The nodes of the pods of servers that are not among `known`, when there are `count` and each has one.
async fn newcomers(arena: &Arena, known: &BTreeSet<String>, count: usize) -> Result<Vec<String>> {
    eventually(LIMIT, &format!("{count} new pods, placed"), || async {
        let pods = lobbies(arena).await?;
        let new: Vec<_> = pods.iter().filter(|(name, _)| !known.contains(*name)).collect();
        let placed: Vec<String> = new.iter().filter_map(|(_, node)| (*node).clone()).collect();
        ensure!(new.len() == count && placed.len() == count, "{new:?}");
        Ok(placed)
    })
    .await
}

async fn names(arena: &Arena) -> Result<BTreeSet<String>> {
    Ok(lobbies(arena).await?.into_keys().collect())
}

/// What the scheduler says of the one pod that it cannot place.
async fn unplaced(arena: &Arena, why: &str) -> Result<String> {
    eventually(LIMIT, &format!("a pod that is not placed because `{why}`"), || async {
        let pods = arena.pods().list(&ListParams::default()).await?;
        let messages: Vec<String> = pods.iter().filter_map(refusal).collect();
        let found = messages.iter().find(|message| message.contains(why));
        found.cloned().with_context(|| format!("the scheduler says {messages:?}"))
    })
    .await
}

/// Why a pod has no node.
fn refusal(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled =
        conditions.iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    scheduled?.message.clone()
}

/// How often the extender was called for this, with this outcome; 0 for what it has never counted.
async fn calls(extender: &Replica, verb: &str, outcome: &str) -> Result<u64> {
    let metrics = extender.metrics().await?;
    let series = format!("spawnery_extender_calls_total{{verb=\"{verb}\",outcome=\"{outcome}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
    value.map_or(Ok(0), |value| value.parse().with_context(|| format!("`{value}` is no count")))
}

/// Applies the network as it is described now, without waiting for it.
async fn apply(arena: &Arena, network: &spawnery_tests::stack::SmallNetwork) -> Result<()> {
    arena.stack().cluster().apply(&network.manifests(arena.namespace())).await
}

/// Takes most of a node's resources, so that a scheduler by itself prefers any other.
async fn fill(arena: &Arena, node: &str) -> Result<()> {
    let requests = json!({ "cpu": "20", "memory": "160Gi" });
    let container = json!({
        "name": "ballast", "image": "example.test/ballast:1", "resources": { "requests": requests },
    });
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": format!("ballast-{node}"), "namespace": arena.namespace() },
        "spec": { "nodeName": node, "containers": [container] },
    });
    arena.stack().cluster().apply(&pod.to_string()).await
}

/// Takes from the scheduler its own spreading of what has a Service.
async fn spread_nothing(arena: &Arena) -> Result<()> {
    let own = json!([{ "name": "PodTopologySpread" }]);
    let profile = json!({ "schedulerName": "default-scheduler", "plugins": { "score": { "disabled": own } } });
    arena.stack().cluster().configure_scheduler(&json!({ "profiles": [profile] })).await
}

/// kubectl, which must succeed.
async fn kubectl(arena: &Arena, args: &[&str]) -> Result<()> {
    arena.stack().cluster().kubectl(args).await?.stdout().map(drop)
}
