//! What pods say to schedulers.
//!
//! Nothing here is an input of the pod's hash: who places a pod is no concern of those who play on it, and a pod that runs
//! is placed. So another scheduler is for new pods alone, and rolls none.

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use spawnery_api::names::resource;

/// By whom, and after asking whom, pods are placed. By default the cluster's default scheduler does, and asks nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// `schedulerName` of pods; `None` leaves it to the API server.
    pub scheduler: Option<String>,
    /// Whether pods ask for the resource by which a scheduler knows to ask our extender about them.
    pub resource: bool,
}

impl Placement {
    /// The pod, with this said.
    #[must_use]
    pub fn of(&self, mut pod: Pod) -> Pod {
        let Some(spec) = pod.spec.as_mut() else { return pod };
        if self.scheduler.is_some() {
            spec.scheduler_name.clone_from(&self.scheduler);
        }
        if let Some(game) = spec.containers.first_mut().filter(|_| self.resource) {
            mark(game.resources.get_or_insert_default());
        }
        pod
    }
}

/// Of an extended resource, what is asked for must be the limit, and a whole number.
fn mark(resources: &mut ResourceRequirements) {
    for amounts in [&mut resources.requests, &mut resources.limits] {
        amounts.get_or_insert_default().insert(resource::PLACEMENT.to_owned(), Quantity("1".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "lobby-a" },
            "spec": { "containers": [{ "name": "minecraft", "resources": { "limits": { "memory": "1Gi" } } }] },
        }))
        .unwrap()
    }

    fn spec(placement: &Placement) -> Value {
        serde_json::to_value(placement.of(pod()).spec).unwrap()
    }

    #[test]
    fn by_default_nothing_is_said() {
        assert_eq!(Placement::default().of(pod()), pod());
    }

    #[test]
    fn a_scheduler_is_named() {
        let spec = spec(&Placement { scheduler: Some("spawnery".to_owned()), resource: false });
        assert_eq!(spec["schedulerName"], "spawnery");
        assert_eq!(spec["containers"][0]["resources"], json!({ "limits": { "memory": "1Gi" } }));
    }

    #[test]
    fn the_game_is_marked_and_keeps_what_it_asks_for() {
        let spec = spec(&Placement { scheduler: None, resource: true });
        assert!(spec.get("schedulerName").is_none());
        let want = json!({
            "limits": { "memory": "1Gi", "spawnery.cloud/placement": "1" },
            "requests": { "spawnery.cloud/placement": "1" },
        });
        assert_eq!(spec["containers"][0]["resources"], want);
    }
}
