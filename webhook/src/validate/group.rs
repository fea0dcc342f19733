//! What the rules for the two kinds of groups have in common: pods that are made from a spec and a Network.

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::{Resource, ResourceExt};
use spawnery_api::inputs;
use spawnery_api::v1alpha1::NetworkSpec;
use spawnery_api::view::Role;
use spawnery_core::admission::{Finding, Reference, deletion, memory_limit, references, replacement};
use spawnery_core::pod_hash::PodHash;

use crate::stores::Stores;

/// A group of pods.
pub(super) trait Group: Resource<DynamicType = ()> {
    /// As users write it.
    const KIND: &'static str;
    /// Of its pods.
    const ROLE: Role;

    /// The Network that it names.
    fn network(&self) -> &str;

    /// The resources that its own spec gives each pod.
    fn resources(&self) -> Option<&ResourceRequirements>;

    /// Hash of what its pods are made from; `None` where no pod could be.
    fn hash(&self, network: Option<&NetworkSpec>) -> Option<PodHash>;

    /// Players by its status.
    fn people(&self) -> u64;
}

/// What an apply of `new` over `old` means for any group, where it refers to `named`.
pub(super) fn applied<G: Group>(
    new: &G,
    old: Option<&G>,
    named: Vec<Reference>,
    stores: &Stores,
    namespace: &str,
) -> Vec<Finding> {
    let network = |group: &G| stores.network(namespace, group.network()).map(|network| network.spec);
    let inherited = network(new);
    let limits = inputs::effective_resources(new.resources(), inherited.as_ref()).and_then(|it| it.limits.as_ref());
    let limited = limits.is_some_and(|limits| limits.contains_key("memory"));
    let replaced = old.and_then(|old| replaced(old, new, network(old).as_ref(), inherited.as_ref(), stores, namespace));
    references(new.network(), named).into_iter().chain(memory_limit(limited)).chain(replaced).collect()
}

/// Whether the edit from `old` to `new` (of the group, or of its Network) replaces the group's pods.
pub(super) fn replaced<G: Group>(
    old: &G,
    new: &G,
    old_network: Option<&NetworkSpec>,
    new_network: Option<&NetworkSpec>,
    stores: &Stores,
    namespace: &str,
) -> Option<Finding> {
    let (before, after) = (old.hash(old_network)?, new.hash(new_network)?);
    let impact = stores.impact(namespace, G::ROLE, &new.name_any(), old.people());
    replacement(G::KIND, &new.name_any(), &before, &after, impact)
}

/// What a delete means.
pub(super) fn deleted<G: Group>(group: &G, stores: &Stores, namespace: &str) -> Vec<Finding> {
    let impact = stores.impact(namespace, G::ROLE, &group.name_any(), group.people());
    deletion(G::KIND, &group.name_any(), impact).into_iter().collect()
}
