//! What our parts take at rest, by what their kubelets say.

use crate::Cluster;
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::fmt;

use super::OPERATOR_NAMESPACE;

/// One pod of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The pod's name.
    pub pod: String,
    /// Anonymous memory that is in use, in bytes.
    pub resident_bytes: u64,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.resident_bytes / 100_000;
        write!(f, "{} {}.{} MB", self.pod, tenths / 10, tenths % 10)
    }
}

/// The kubelet's summary, as far as it is read here.
#[derive(Debug, Deserialize)]
struct Summary {
    pods: Vec<Pod>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    pod_ref: PodRef,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Debug, Deserialize)]
struct PodRef {
    name: String,
    namespace: String,
}

#[derive(Debug, Deserialize)]
struct Container {
    memory: Option<Memory>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    rss_bytes: Option<u64>,
}

/// All our pods on these nodes.
///
/// # Errors
/// When a kubelet does not say.
pub async fn usage(cluster: &Cluster, nodes: &[&str]) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for node in nodes {
        let path = format!("/api/v1/nodes/{node}/proxy/stats/summary");
        let text = cluster.kubectl(["get", "--raw", &path]).await?.stdout()?;
        let summary: Summary = serde_json::from_str(&text).context("the kubelet's summary cannot be read")?;
        for pod in summary.pods.into_iter().filter(|pod| pod.pod_ref.namespace == OPERATOR_NAMESPACE) {
            let memory = pod.containers.iter().filter_map(|container| container.memory.as_ref()?.rss_bytes);
            parts.push(Part { resident_bytes: memory.sum(), pod: pod.pod_ref.name });
        }
    }
    parts.sort_by(|a, b| a.pod.cmp(&b.pod));
    Ok(parts)
}
