//! Who may talk to a network's servers, and whom they may talk to. Upstream's policy, to the letter.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Resource, ResourceExt};
use spawnery_api::names::{label, object, port};
use spawnery_api::v1alpha1::Network;

/// The policy of a network.
pub(super) fn desired(network: &Network, operator_namespace: &str) -> NetworkPolicy {
    let name = network.name_any();
    let members = |role: &str| {
        selector(&[(label::MANAGED_BY, label::MANAGED_BY_VALUE), (label::NETWORK, name.as_str()), (label::ROLE, role)])
    };
    let proxies = NetworkPolicyPeer { pod_selector: Some(members(label::ROLE_PROXY)), ..Default::default() };
    let dns = NetworkPolicyPeer { namespace_selector: Some(namespace("kube-system")), ..Default::default() };
    let operator = NetworkPolicyPeer {
        namespace_selector: Some(namespace(operator_namespace)),
        pod_selector: Some(selector(&[
            (label::APP_NAME, label::APP_NAME_VALUE),
            (label::APP_COMPONENT, label::COMPONENT_OPERATOR),
        ])),
        ..Default::default()
    };
    let mut policy = NetworkPolicy::default();
    policy.metadata.name = Some(object::backends_policy(&name));
    policy.metadata.namespace = network.namespace();
    policy.metadata.labels =
        Some(map(&[(label::MANAGED_BY, label::MANAGED_BY_VALUE), (label::NETWORK, name.as_str())]));
    policy.metadata.owner_references = network.controller_owner_ref(&()).map(|owner| vec![owner]);
    policy.spec = Some(NetworkPolicySpec {
        pod_selector: Some(members(label::ROLE_SERVER)),
        policy_types: Some(vec!["Ingress".to_owned(), "Egress".to_owned()]),
        ingress: Some(vec![NetworkPolicyIngressRule {
            from: Some(vec![proxies]),
            ports: Some(vec![allowed("TCP", port::MINECRAFT)]),
        }]),
        egress: Some(vec![
            NetworkPolicyEgressRule { to: Some(vec![dns]), ports: Some(vec![allowed("UDP", 53), allowed("TCP", 53)]) },
            NetworkPolicyEgressRule { to: Some(vec![operator]), ports: Some(vec![allowed("TCP", port::AGENT)]) },
        ]),
    });
    policy
}

/// Whether the policy that is there says what it should.
pub(super) fn same(held: &NetworkPolicy, desired: &NetworkPolicy) -> bool {
    held.spec == desired.spec
        && held.metadata.owner_references == desired.metadata.owner_references
        && held.metadata.labels == desired.metadata.labels
}

fn allowed(protocol: &str, number: i32) -> NetworkPolicyPort {
    NetworkPolicyPort { protocol: Some(protocol.to_owned()), port: Some(IntOrString::Int(number)), end_port: None }
}

fn namespace(name: &str) -> LabelSelector {
    selector(&[(label::NAMESPACE_NAME, name)])
}

fn selector(labels: &[(&str, &str)]) -> LabelSelector {
    LabelSelector { match_labels: Some(map(labels)), match_expressions: None }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn says_what_upstreams_says() {
        let network: Network = serde_json::from_value(json!({
            "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Network",
            "metadata": {"name": "main", "namespace": "ns", "uid": "u"}, "spec": {"forwardingSecretRef": {"name": "s"}}
        }))
        .expect("a network");
        let policy = desired(&network, "ops");
        assert_eq!(policy.name_any(), "main-backends");
        assert_eq!(policy.metadata.owner_references.as_ref().map(Vec::len), Some(1));
        let member = |role: &str| json!({"matchLabels": {"spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/network": "main", "spawnery.cloud/role": role}});
        let namespace = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
        let operator =
            json!({"matchLabels": {"app.kubernetes.io/name": "spawnery", "app.kubernetes.io/component": "operator"}});
        let want = json!({
            "podSelector": member("server"),
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": member("proxy")}], "ports": [{"protocol": "TCP", "port": 25565}]}],
            "egress": [
                {"to": [{"namespaceSelector": namespace("kube-system")}], "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
                {"to": [{"namespaceSelector": namespace("ops"), "podSelector": operator}], "ports": [{"protocol": "TCP", "port": 9443}]}
            ]
        });
        assert_eq!(serde_json::to_value(&policy.spec).expect("serialises"), want);
        assert!(same(&policy, &policy));
    }
}
