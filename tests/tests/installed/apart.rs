//! Whether replicas of a part are on different nodes, also where a scheduler would rather put both on one.

use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::json;
use spawnery_tests::installed::{OPERATOR_NAMESPACE, PROXY_NODE};
use std::collections::{BTreeMap, BTreeSet};

const BALLAST: &str = "ballast";

/// A pod that takes much of one node, so that the other one has more room for anything.
pub(crate) struct Ballast<'a>(&'a World<'a>);

impl<'a> Ballast<'a> {
    pub(crate) async fn load(world: &'a World<'a>) -> Result<Self> {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": BALLAST, "namespace": "default" },
            "spec": {
                "nodeName": PROXY_NODE,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "pause", "image": "local.test/pause:1", "imagePullPolicy": "Never",
                    "resources": { "requests": { "cpu": "1", "memory": "2Gi" } },
                }],
            },
        });
        world.cluster.apply(&pod.to_string()).await?;
        Ok(Self(world))
    }

    /// A node that dies leaves of each part a replica that was there all the time.
    pub(crate) async fn pulls_no_replicas_together(self) -> Result<()> {
        let Self(world) = self;
        let pods: Api<Pod> = Api::namespaced(world.client.clone(), OPERATOR_NAMESPACE);
        let mut nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in pods.list(&ListParams::default().labels("app.kubernetes.io/name=spawnery")).await? {
            let part = pod.labels().get("spawnery.cloud/part").context("a pod of no part")?.clone();
            nodes.entry(part).or_default().extend(pod.spec.and_then(|spec| spec.node_name));
        }
        let apart = nodes.contains_key("webhook") && nodes.values().all(|nodes| nodes.len() == 2);
        ensure!(apart, "the replicas of parts are on {nodes:?}");
        world.cluster.kubectl(["delete", "pod", BALLAST, "-n", "default", "--timeout=60s"]).await?.stdout().map(drop)
    }
}
