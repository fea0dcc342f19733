//! Nodes.

use super::Cluster;
use crate::eventually::eventually;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use std::time::Duration;

/// kwok takes a fraction of a second.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Says that kwok is to leave the node as it is.
const DEAD: &str = "tests.spawnery.cloud/dead";
/// The controller manager's mark of a node of which nobody hears.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

impl Cluster {
    /// Adds a node that is as big as a game server's machine, and returns when it is Ready and schedulable.
    pub async fn add_node(&self, name: &str) -> Result<()> {
        let resources = json!({ "cpu": "32", "memory": "256Gi", "pods": "500" });
        self.add_node_with(name, &resources).await
    }

    /// Adds a node with these allocatable resources, and returns when it is Ready and schedulable.
    pub async fn add_node_with(&self, name: &str, resources: &serde_json::Value) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        let node = serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" } },
            "status": { "allocatable": resources, "capacity": resources },
        }));
        let node: Node = node.context("not a node")?;
        nodes.create(&PostParams::default(), &node).await.with_context(|| format!("could not create node {name}"))?;
        eventually(READY_LIMIT, &format!("node {name} to be Ready"), || async {
            let node = nodes.get(name).await?;
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
            // A new node is tainted until the controller manager has seen it Ready.
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let tainted: Vec<String> = taints.into_iter().map(|taint| taint.key).collect();
            ensure!(ready && tainted.is_empty(), "ready: {ready}, taints: {tainted:?}");
            Ok(())
        })
        .await
    }

    /// Lets a node be heard of no more, and returns when the controller manager has marked it, so that nothing new is placed
    /// there. Its pods are given up only after the 300 s that Kubernetes lets every pod tolerate.
    ///
    /// # Errors
    /// When there is no such node, or nobody marks it.
    pub async fn lose_node(&self, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        let params = PatchParams::default();
        let dead = Patch::Merge(json!({ "metadata": { "annotations": { DEAD: "true" } } }));
        nodes.patch(name, &params, &dead).await.with_context(|| format!("could not annotate {name}"))?;
        let silent = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" });
        let silent = Patch::Strategic(json!({ "status": { "conditions": [silent] } }));
        nodes.patch_status(name, &params, &silent).await.with_context(|| format!("could not silence {name}"))?;
        eventually(READY_LIMIT, &format!("node {name} to be given up"), || async {
            let taints = nodes.get(name).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let closed = taints.iter().any(|taint| taint.key == UNREACHABLE && taint.effect == "NoSchedule");
            ensure!(closed, "taints: {taints:?}");
            Ok(())
        })
        .await
    }
}
