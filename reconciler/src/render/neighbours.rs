//! What a pod says about its neighbours, as an affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity, ResourceRequirements, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use spawnery_api::names::label;
use spawnery_core::neighbours::{Neighbours, PEOPLE_WEIGHT, SERVER_WEIGHT, SIBLING_WEIGHT};

/// Its value is the node's name on every provider's nodes.
const NODE: &str = "kubernetes.io/hostname";
/// What must be requested for a scheduler to know how many servers fit on a node.
const SIZE: [&str; 2] = ["cpu", "memory"];

/// The affinity by which a pod gets these neighbours; none when it says nothing.
///
/// Anti-affinity and no topology spread constraint keeps proxies apart: kube-scheduler's default constraints, which spread
/// what has a Service over nodes and zones, hold only for pods that have no constraint of their own.
pub(super) fn affinity(pod: &Pod, neighbours: Neighbours) -> Option<Affinity> {
    match neighbours {
        Neighbours::Servers => {
            let servers = shared(pod, &[label::MANAGED_BY, label::ROLE]);
            let mut with_people = servers.clone();
            with_people.insert(label::OCCUPIED.to_owned(), label::TRUE.to_owned());
            let preferred = vec![on_one_node(with_people, PEOPLE_WEIGHT), on_one_node(servers, SERVER_WEIGHT)];
            let pod_affinity = PodAffinity {
                preferred_during_scheduling_ignored_during_execution: Some(preferred),
                ..PodAffinity::default()
            };
            Some(Affinity { pod_affinity: Some(pod_affinity), ..Affinity::default() })
        }
        Neighbours::NoSiblings => {
            let siblings = shared(pod, &[label::MANAGED_BY, label::ROLE, label::GROUP, label::POD_HASH]);
            let pod_anti_affinity = PodAntiAffinity {
                preferred_during_scheduling_ignored_during_execution: Some(vec![on_one_node(siblings, SIBLING_WEIGHT)]),
                ..PodAntiAffinity::default()
            };
            Some(Affinity { pod_anti_affinity: Some(pod_anti_affinity), ..Affinity::default() })
        }
        Neighbours::Unsaid(_) => None,
    }
}

/// Whether a scheduler knows how many of such pods a node can bear. A limit stands for the request that is not there.
pub(super) fn sized(resources: Option<&ResourceRequirements>) -> bool {
    let Some(ResourceRequirements { requests, limits, .. }) = resources else { return false };
    SIZE.iter().all(|what| [requests, limits].into_iter().flatten().any(|amounts| amounts.contains_key(*what)))
}

/// What the pod and those that it means have in common.
fn shared(pod: &Pod, keys: &[&str]) -> BTreeMap<String, String> {
    let labels = pod.metadata.labels.iter().flatten();
    labels.filter(|(key, _)| keys.contains(&key.as_str())).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Pods on the same node. Without namespaces the term is about the pod's own, which spares a scheduler the labels of all
/// others.
fn on_one_node(labels: BTreeMap<String, String>, weight: i32) -> WeightedPodAffinityTerm {
    let selector = LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
    WeightedPodAffinityTerm {
        weight,
        pod_affinity_term: PodAffinityTerm {
            label_selector: Some(selector),
            topology_key: NODE.to_owned(),
            ..PodAffinityTerm::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use spawnery_core::neighbours::Unsaid;

    use super::*;

    fn pod(role: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "a", "labels": {
            "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/network": "production",
            "spawnery.cloud/group": "main", "spawnery.cloud/role": role,
            "spawnery.cloud/pod-hash": "0123456789abcdef", "spawnery.cloud/forwarding-hash": "fedcba9876543210",
        }}}))
        .unwrap()
    }

    fn term(weight: i32, labels: &Value) -> Value {
        json!({
            "weight": weight,
            "podAffinityTerm": {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"},
        })
    }

    #[rstest]
    #[case::servers("server", Neighbours::Servers, json!({"podAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            term(100, &json!({
                "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": "server",
                "spawnery.cloud/occupied": "true",
            })),
            term(1, &json!({
                "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": "server",
            })),
        ],
    }}))]
    #[case::no_siblings("proxy", Neighbours::NoSiblings, json!({"podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            term(100, &json!({
                "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": "proxy",
                "spawnery.cloud/group": "main", "spawnery.cloud/pod-hash": "0123456789abcdef",
            })),
        ],
    }}))]
    #[case::nothing("server", Neighbours::Unsaid(Unsaid::Owner), Value::Null)]
    fn is_said_as_an_affinity(#[case] role: &str, #[case] neighbours: Neighbours, #[case] want: Value) {
        assert_eq!(serde_json::to_value(affinity(&pod(role), neighbours)).unwrap(), want);
    }

    #[rstest]
    #[case::nothing(json!({}), false)]
    #[case::memory_alone(json!({"limits": {"memory": "1Gi"}}), false)]
    #[case::processor_alone(json!({"requests": {"cpu": "1"}}), false)]
    #[case::requests(json!({"requests": {"cpu": "1", "memory": "1Gi"}}), true)]
    #[case::limits(json!({"limits": {"cpu": "1", "memory": "1Gi"}}), true)]
    #[case::one_of_each(json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}), true)]
    fn a_size_is_processor_and_memory(#[case] resources: Value, #[case] want: bool) {
        assert_eq!(sized(Some(&serde_json::from_value(resources).unwrap())), want);
        assert!(!sized(None));
    }
}
