//! What we read of a Node.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use crate::names::taint;

/// A Node as far as decisions read it.
#[derive(Clone, Debug, Default, PartialEq, Resource, Deserialize)]
#[resource(inherit = "Node")]
pub struct NodeView {
    /// Name, UID, resource version, labels.
    #[serde(deserialize_with = "super::meta::lean")]
    pub metadata: ObjectMeta,
    /// Cordon and taints.
    #[serde(default)]
    pub spec: NodeSpec,
}

/// Part of a Node's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    /// Whether it is cordoned.
    #[serde(default)]
    pub unschedulable: bool,
    /// Its taints.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

/// Part of a taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(default)]
    pub effect: String,
}

impl NodeView {
    /// Name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether it is not ready, or not heard of: the node controller says so by a taint, and takes it off again.
    pub fn is_down(&self) -> bool {
        self.spec.taints.iter().any(|taint| matches!(taint.key.as_str(), taint::NOT_READY | taint::UNREACHABLE))
    }

    /// Whether what runs there should leave: it is cordoned, or carries a taint whose key is in `drain_taints`.
    /// `PreferNoSchedule` asks for nothing and does not count.
    pub fn is_departing(&self, drain_taints: &[String]) -> bool {
        let is_drain = |taint: &Taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && drain_taints.contains(&taint.key)
        };
        self.spec.unschedulable || self.spec.taints.iter().any(is_drain)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::plain(json!({}), false)]
    #[case::cordoned(json!({"unschedulable": true}), true)]
    #[case::no_schedule(json!({"taints": [{"key": "going", "effect": "NoSchedule"}]}), true)]
    #[case::no_execute(json!({"taints": [{"key": "going", "effect": "NoExecute", "value": "v"}]}), true)]
    #[case::prefer_asks_for_nothing(json!({"taints": [{"key": "going", "effect": "PreferNoSchedule"}]}), false)]
    #[case::another_key(json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}), false)]
    fn says_whether_a_node_is_departing(#[case] spec: serde_json::Value, #[case] want: bool) {
        let node: NodeView = serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec})).unwrap();
        assert_eq!(node.is_departing(&["going".to_owned()]), want);
    }

    #[rstest]
    #[case::plain(json!({}), false)]
    #[case::unreachable(json!({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}), true)]
    #[case::not_ready(json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}), true)]
    #[case::full(json!({"taints": [{"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]}), false)]
    #[case::cordoned(json!({"unschedulable": true}), false)]
    fn says_whether_a_node_is_down(#[case] spec: serde_json::Value, #[case] want: bool) {
        let node: NodeView = serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec})).unwrap();
        assert_eq!(node.is_down(), want);
    }
}
