//! Which differences between two states of an object matter to whom. What is not named here wakes only the object's own
//! controller, so that status writes do not wake everything that reads a spec.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use spawnery_api::conditions;
use spawnery_api::names::{condition, label};
use spawnery_api::v1alpha1::Network;
use spawnery_api::view::{NodeView, PodView};

/// The spec was edited, or the object's deletion was asked for.
pub fn spec<K: Resource>(old: &K, new: &K) -> bool {
    let facts = |object: &K| (object.meta().generation, object.meta().deletion_timestamp.is_some());
    facts(old) != facts(new)
}

/// What groups read of their Network.
pub fn network(old: &Network, new: &Network) -> bool {
    let facts = |network: &Network| {
        let status = network.status.as_ref();
        let accepted = status.is_some_and(|status| conditions::is_true(&status.conditions, condition::ACCEPTED));
        (accepted, status.map(|status| status.forwarding_secret_hash.clone()).unwrap_or_default())
    };
    spec(old, new) || facts(old) != facts(new)
}

/// What a Network counts of pods.
pub fn counted(old: &PodView, new: &PodView) -> bool {
    let facts =
        |pod: &PodView| (pod.is_terminating(), pod.is_terminal(), pod.label(label::FORWARDING_HASH).map(str::to_owned));
    facts(old) != facts(new)
}

/// A node began or ceased to depart.
pub fn departing(drain_taints: &[String], old: &NodeView, new: &NodeView) -> bool {
    old.is_departing(drain_taints) != new.is_departing(drain_taints)
}

/// A node began or ceased to depart, or to be down.
pub fn node(drain_taints: &[String], old: &NodeView, new: &NodeView) -> bool {
    departing(drain_taints, old, new) || old.is_down() != new.is_down()
}

/// A budget's selector or numbers; its status follows every pod and concerns nobody here.
pub fn budget(old: &PodDisruptionBudget, new: &PodDisruptionBudget) -> bool {
    spec(old, new)
}

/// The contents of an object whose metadata alone is watched.
pub fn version<K: Resource>(old: &K, new: &K) -> bool {
    old.meta().resource_version != new.meta().resource_version
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn a_network(generation: i64, accepted: &str, hash: &str, players: i32) -> Network {
        let time = "2026-01-01T00:00:00Z";
        serde_json::from_value(json!({
            "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Network",
            "metadata": {"name": "n", "generation": generation},
            "spec": {"forwardingSecretRef": {"name": "s"}},
            "status": {"onlinePlayers": players, "forwardingSecretHash": hash, "conditions": [
                {"type": "Accepted", "status": accepted, "reason": "R", "message": "", "lastTransitionTime": time}]}
        }))
        .expect("a network")
    }

    #[rstest]
    #[case::players(a_network(1, "True", "", 7), false)]
    #[case::edited(a_network(2, "True", "", 0), true)]
    #[case::no_longer_accepted(a_network(1, "False", "", 0), true)]
    #[case::secret_known(a_network(1, "True", "0123456789abcdef", 0), true)]
    fn groups_look_again_at_a_network(#[case] new: Network, #[case] want: bool) {
        assert_eq!(network(&a_network(1, "True", "", 0), &new), want);
    }

    fn a_node(spec: &Value) -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec})).expect("a node")
    }

    #[rstest]
    #[case::cordoned(json!({"unschedulable": true}), true)]
    #[case::another_taint(json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}), false)]
    #[case::drain_taint(json!({"taints": [{"key": "going", "effect": "NoExecute"}]}), true)]
    fn pods_look_again_at_a_node(#[case] spec: Value, #[case] want: bool) {
        assert_eq!(departing(&["going".to_owned()], &a_node(&json!({})), &a_node(&spec)), want);
    }

    #[rstest]
    #[case::drain_taint(json!({"taints": [{"key": "going", "effect": "NoExecute"}]}), true)]
    #[case::unreachable(json!({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}), true)]
    #[case::another_taint(json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}), false)]
    fn servers_look_again_at_a_node(#[case] spec: Value, #[case] want: bool) {
        assert_eq!(node(&["going".to_owned()], &a_node(&json!({})), &a_node(&spec)), want);
    }
}
