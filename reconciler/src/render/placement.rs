//! What pods say to schedulers.
//!
//! Nothing here is an input of the pod's hash: who places a pod is no concern of those who play on it, and a pod that runs
//! is placed. So another scheduler is for new pods alone, and rolls none.

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use spawnery_api::names::{object, resource};
use spawnery_core::ledger::Role;
use spawnery_core::neighbours::{self, Newcomer};

use super::neighbours::{affinity, sized};

/// By whom, and after asking whom, pods are placed. By default the cluster's default scheduler does, and asks nobody: then
/// pods say themselves which neighbours they prefer.
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
    pub fn of(&self, role: Role, mut pod: Pod) -> Pod {
        let preferred = affinity(&pod, neighbours::prefer(self.newcomer(role, &pod)));
        let Some(spec) = pod.spec.as_mut() else { return pod };
        if preferred.is_some() {
            spec.affinity = preferred;
        }
        if self.scheduler.is_some() {
            spec.scheduler_name.clone_from(&self.scheduler);
        }
        if let Some(game) = spec.containers.first_mut().filter(|_| self.resource) {
            mark(game.resources.get_or_insert_default());
        }
        pod
    }

    fn newcomer(&self, role: Role, pod: &Pod) -> Newcomer {
        let spec = pod.spec.as_ref();
        let game = spec.and_then(|spec| spec.containers.first());
        Newcomer {
            role,
            own_affinity: spec.is_some_and(|spec| spec.affinity.is_some()),
            // Of a scheduler with any other name we do not know whom it asks.
            extender: self.resource || self.scheduler.as_deref() == Some(object::SCHEDULER_NAME),
            sized: sized(game.and_then(|game| game.resources.as_ref())),
        }
    }
}

/// Of an extended resource, what is asked for must be the limit, and a whole number.
fn mark(resources: &mut ResourceRequirements) {
    for amounts in [&mut resources.requests, &mut resources.limits] {
        amounts.get_or_insert_default().insert(resource::PLACEMENT.to_owned(), Quantity("1".to_owned()));
    }
}

#[cfg(test)]
mod tests;
