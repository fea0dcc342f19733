//! Budgets (PodDisruptionBudget): the floor under a dead webhook.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use spawnery_api::names::{label, object};
use spawnery_api::v1alpha1::{ProxyGroup, ServerGroup};
use spawnery_api::view::{PodView, Role};
use spawnery_core::floor::{GroupLabels, Width, budget};

use super::parts;

/// Budget of a group's servers.
pub fn server_budget(group: &ServerGroup, width: Width) -> PodDisruptionBudget {
    let name = group.name_any();
    let metadata = parts::owned_by(group, object::server_pdb(&name));
    let identity = [
        (label::MANAGED_BY, label::MANAGED_BY_VALUE),
        (label::GROUP, name.as_str()),
        (label::ROLE, Role::Server.as_str()),
    ];
    object(metadata, &identity, width)
}

/// Budget of a group's proxies.
pub fn proxy_budget(group: &ProxyGroup, width: Width) -> PodDisruptionBudget {
    let name = group.name_any();
    let metadata = parts::owned_by(group, object::proxy_pdb(&name));
    let identity = [
        (label::MANAGED_BY, label::MANAGED_BY_VALUE),
        (label::NETWORK, group.spec.network_ref.name.as_str()),
        (label::GROUP, name.as_str()),
        (label::ROLE, Role::Proxy.as_str()),
    ];
    object(metadata, &identity, width)
}

/// Whether the budget that is there needs no write.
pub fn same_budget(found: &PodDisruptionBudget, desired: &PodDisruptionBudget) -> bool {
    let rule = |budget: &PodDisruptionBudget| {
        budget.spec.as_ref().map(|spec| {
            (
                spec.min_available.clone(),
                spec.max_unavailable.clone(),
                spec.selector.clone(),
                spec.unhealthy_pod_eviction_policy.clone(),
            )
        })
    };
    rule(found) == rule(desired) && found.metadata.owner_references == desired.metadata.owner_references
}

/// Whether a budget selects a pod. An absent selector selects nothing, an empty one everything.
pub fn selects(budget: &PodDisruptionBudget, pod: &PodView) -> bool {
    let Some(selector) = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else { return false };
    matches(selector, pod.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
}

fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|rule| {
            let value = labels.get(&rule.key);
            let listed = value.is_some_and(|value| rule.values.iter().flatten().any(|listed| listed == value));
            match rule.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

fn object(metadata: ObjectMeta, identity: &[(&str, &str)], width: Width) -> PodDisruptionBudget {
    let labels = GroupLabels { identity, occupied: label::OCCUPIED, sealed: label::SEALED };
    let budget = budget(&labels, width);
    let absent = budget.must_not_exist.into_iter().map(|key| LabelSelectorRequirement {
        key,
        operator: "DoesNotExist".to_owned(),
        values: None,
    });
    PodDisruptionBudget {
        metadata,
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(budget.min_available)),
            max_unavailable: None,
            selector: Some(LabelSelector {
                match_labels: Some(BTreeMap::from_iter(budget.match_labels)),
                match_expressions: Some(absent.collect()),
            }),
            unhealthy_pod_eviction_policy: Some(budget.unhealthy_pod_eviction_policy.to_owned()),
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::render::testing;

    fn selector(budget: &PodDisruptionBudget) -> Value {
        serde_json::to_value(budget.spec.as_ref().unwrap().selector.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn with_a_webhook_it_covers_occupied_pods_that_are_not_sealed() {
        let budget = server_budget(&testing::server_group(), Width::Occupied);
        assert_eq!(budget.name_any(), "lobby-server-pdb");
        assert_eq!(
            selector(&budget),
            json!({
                "matchLabels": {
                    "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/group": "lobby",
                    "spawnery.cloud/role": "server", "spawnery.cloud/occupied": "true"
                },
                "matchExpressions": [{"key": "spawnery.cloud/sealed", "operator": "DoesNotExist"}],
            })
        );
        let spec = budget.spec.unwrap();
        assert_eq!(spec.min_available, Some(IntOrString::Int(1_000_000)));
        assert_eq!(spec.unhealthy_pod_eviction_policy.as_deref(), Some("IfHealthyBudget"));
    }

    #[test]
    fn without_one_it_covers_every_pod_that_is_not_sealed() {
        let narrow = proxy_budget(&testing::proxy_group(), Width::Occupied);
        let wide = proxy_budget(&testing::proxy_group(), Width::Unsealed);
        assert_eq!(selector(&wide)["matchLabels"].get("spawnery.cloud/occupied"), None);
        assert_eq!(selector(&wide)["matchLabels"]["spawnery.cloud/network"], "production");
        assert!(!same_budget(&wide, &narrow), "a change of width is a reason to write");
        assert!(!same_budget(&narrow, &wide), "and so is the way back");
    }

    #[test]
    fn a_percentage_of_somebody_else_is_put_right() {
        let desired = server_budget(&testing::server_group(), Width::Occupied);
        let mut found = desired.clone();
        assert!(same_budget(&found, &desired));
        found.spec.as_mut().unwrap().min_available = Some(IntOrString::String("50%".to_owned()));
        assert!(!same_budget(&found, &desired));
    }

    #[rstest]
    #[case::absent(json!({}), false)]
    #[case::empty(json!({"selector": {}}), true)]
    #[case::our_label(json!({"selector": {"matchLabels": {"a": "1"}}}), true)]
    #[case::another_value(json!({"selector": {"matchLabels": {"a": "2"}}}), false)]
    #[case::is_in(json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}}), true)]
    #[case::is_not_in(json!({"selector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}}), false)]
    #[case::not_in_without_the_label(json!({"selector": {"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}}), true)]
    #[case::exists(json!({"selector": {"matchExpressions": [{"key": "b", "operator": "Exists"}]}}), false)]
    #[case::does_not_exist(json!({"selector": {"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}}), true)]
    #[case::both(json!({"selector": {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}), false)]
    fn a_budget_selects(#[case] spec: Value, #[case] want: bool) {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let pod: PodView = serde_json::from_value(json!({"metadata": {"labels": {"a": "1"}}})).unwrap();
        assert_eq!(selects(&budget, &pod), want);
    }
}
