//! What our parts take at rest, by what their kubelets say.

use super::OPERATOR_NAMESPACE;
use crate::{Cluster, eventually::eventually};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde::Deserialize;
use spawnery_api::names::label;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

/// A kubelet looks at its containers every 10 to 15 s.
const LOOKED_LIMIT: Duration = Duration::from_mins(1);

/// What the pods of a part take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// The part: `reconciler`, `webhook`, `extender`, `scheduler`.
    pub part: String,
    /// Each of its pods, the largest first.
    pub pods: Vec<Memory>,
}

/// What a pod takes, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Anonymous memory: what cannot be read again from the program's file.
    #[serde(default)]
    pub rss_bytes: u64,
    /// With the pages of files in use: what `kubectl top` shows.
    #[serde(default)]
    pub working_set_bytes: u64,
}

impl Resident {
    /// The most that a pod of the part has for itself.
    pub fn most(&self) -> u64 {
        self.pods.first().map_or(0, |memory| memory.rss_bytes)
    }
}

impl fmt::Display for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = |of: fn(&Memory) -> u64| self.pods.iter().map(|pod| megabytes(of(pod))).collect::<Vec<_>>();
        let (rss, working) = (sizes(|pod| pod.rss_bytes), sizes(|pod| pod.working_set_bytes));
        write!(f, "{} {} MB, with pages of files {} MB", self.part, rss.join(" and "), working.join(" and "))
    }
}

fn megabytes(bytes: u64) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// The kubelet's summary, as far as it is read here.
#[derive(Debug, Deserialize)]
struct Summary {
    pods: Vec<PodStats>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodRef,
    #[serde(default)]
    containers: Vec<ContainerStats>,
}

#[derive(Debug, Deserialize)]
struct PodRef {
    uid: String,
}

#[derive(Debug, Deserialize)]
struct ContainerStats {
    memory: Option<Memory>,
}

impl PodStats {
    /// `None` until the kubelet has looked.
    fn memory(&self) -> Option<Memory> {
        let each = self.containers.iter().filter_map(|container| container.memory);
        let sum = each.fold(Memory::default(), |sum, memory| Memory {
            rss_bytes: sum.rss_bytes.saturating_add(memory.rss_bytes),
            working_set_bytes: sum.working_set_bytes.saturating_add(memory.working_set_bytes),
        });
        (sum.rss_bytes > 0).then_some(sum)
    }
}

/// All our pods that run, by part; waits until their kubelets have looked at each of them.
///
/// # Errors
/// When a kubelet does not say.
pub async fn usage(cluster: &Cluster) -> Result<Vec<Resident>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, OPERATOR_NAMESPACE);
    eventually(LOOKED_LIMIT, "kubelets to have looked at all our pods", || async {
        let pods = pods.list(&ListParams::default().labels(label::PART)).await?.items;
        let nodes = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()).collect();
        let memory = looked_at(cluster, nodes).await?;
        let mut parts: BTreeMap<String, Vec<Memory>> = BTreeMap::new();
        for pod in &pods {
            let taken = pod.uid().and_then(|uid| memory.get(&uid).copied());
            let taken = taken.with_context(|| format!("nothing is known of {}", pod.name_any()))?;
            parts.entry(pod.labels().get(label::PART).cloned().unwrap_or_default()).or_default().push(taken);
        }
        let residents = parts.into_iter().map(|(part, mut pods)| {
            pods.sort_unstable_by(|a, b| b.cmp(a));
            Resident { part, pods }
        });
        Ok(residents.collect())
    })
    .await
}

/// What the pods of these nodes take, by UID.
async fn looked_at(cluster: &Cluster, nodes: BTreeSet<&str>) -> Result<BTreeMap<String, Memory>> {
    let mut found = BTreeMap::new();
    for node in nodes {
        let path = format!("/api/v1/nodes/{node}/proxy/stats/summary");
        let text = cluster.kubectl(["get", "--raw", &path]).await?.stdout()?;
        let summary: Summary = serde_json::from_str(&text).context("the kubelet's summary cannot be read")?;
        found.extend(summary.pods.into_iter().filter_map(|pod| pod.memory().map(|memory| (pod.pod_ref.uid, memory))));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_in_one_line() {
        let memory = |rss_bytes, working_set_bytes| Memory { rss_bytes, working_set_bytes };
        let part = Resident {
            part: "webhook".to_owned(),
            pods: vec![memory(6_040_000, 9_000_000), memory(4_990_000, 8_100_000)],
        };
        assert_eq!(part.to_string(), "webhook 6.1 and 5.0 MB, with pages of files 9.0 and 8.1 MB");
        assert_eq!(part.most(), 6_040_000);
    }

    #[test]
    fn a_pod_that_nobody_has_looked_at_takes_nothing_that_is_known() {
        let stats = |text| serde_json::from_str::<PodStats>(text).unwrap().memory();
        assert_eq!(stats(r#"{"podRef":{"uid":"u"}}"#), None);
        assert_eq!(stats(r#"{"podRef":{"uid":"u"},"containers":[{"memory":{"usageBytes":1}}]}"#), None);
        let two = r#"{"podRef":{"uid":"u"},"containers":[{"memory":{"rssBytes":1}},{"memory":{"rssBytes":2,"workingSetBytes":3}}]}"#;
        assert_eq!(stats(two), Some(Memory { rss_bytes: 3, working_set_bytes: 3 }));
    }
}
