//! Rules for ServerGroups.

use spawnery_api::inputs;
use spawnery_api::names::volume;
use spawnery_api::v1alpha1::{NetworkSpec, ServerGroup, ServerGroupType};
use spawnery_api::view::Role;
use spawnery_core::admission::{
    Finding, MountFacts, Reference, Reserved, deletion, memory_limit, mounts, references, replacement, shrink,
};
use spawnery_core::pod_hash::PodHash;

use super::{Judged, config_map, network, people};
use crate::stores::Stores;

const RESERVED: Reserved<'static> = Reserved {
    volumes: &volume::RESERVED,
    trees: &[volume::AGENT_PATH, volume::CONFIG_PATH],
    paths: &[volume::DATA_PATH, volume::TMP_PATH],
};

impl Judged for ServerGroup {
    fn same(&self, old: &Self) -> bool {
        self.spec == old.spec
    }

    fn alone(&self) -> Vec<Finding> {
        let facts: Vec<MountFacts<'_>> =
            self.spec.mounts.iter().map(|mount| MountFacts { name: &mount.name, path: &mount.mount_path }).collect();
        mounts(&facts, &RESERVED)
    }

    fn applied(&self, old: Option<&Self>, stores: &Stores, namespace: &str) -> Vec<Finding> {
        let network_spec = stores.network(namespace, &self.spec.network_ref.name).map(|network| network.spec);
        let mut found = references(&self.spec.network_ref.name, all_references(self, stores, namespace));
        let resources = inputs::effective_resources(self.spec.resources.as_ref(), network_spec.as_ref());
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        found.extend(memory_limit(limits.is_some_and(|limits| limits.contains_key("memory"))));
        if let Some(old) = old {
            found.extend(shrunk(old, self, stores, namespace));
            let old_network = stores.network(namespace, &old.spec.network_ref.name).map(|network| network.spec);
            found.extend(replaced(old, self, old_network.as_ref(), network_spec.as_ref(), stores, namespace));
        }
        found
    }

    fn deleted(&self, stores: &Stores, namespace: &str) -> Vec<Finding> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let impact = stores.impact(namespace, Role::Server, name, online(self));
        deletion("ServerGroup", name, impact).into_iter().collect()
    }
}

fn all_references(group: &ServerGroup, stores: &Stores, namespace: &str) -> Vec<Reference> {
    let mut all = vec![network(stores, namespace, &group.spec.network_ref.name)];
    if let Some(overlay) = &group.spec.config_overlay {
        all.push(config_map(stores, namespace, "spec.configOverlay.name".to_owned(), &overlay.name));
    }
    let required = group.spec.mounts.iter().filter_map(|mount| {
        let source = mount.config_map.as_ref().filter(|source| source.optional != Some(true))?;
        let field = format!("spec.mounts[{}].configMap.name", mount.name);
        Some(config_map(stores, namespace, field, &source.name))
    });
    all.extend(required);
    all
}

fn shrunk(old: &ServerGroup, new: &ServerGroup, stores: &Stores, namespace: &str) -> Option<Finding> {
    if new.spec.kind != ServerGroupType::Persistent || new.spec.replicas >= old.spec.replicas {
        return None;
    }
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let occupied = stores
        .running(namespace, |pod| pod.role() == Some(Role::Server) && pod.group() == Some(name) && pod.is_occupied());
    let ordinals = occupied.iter().filter_map(|pod| pod.name().strip_prefix(name)?.strip_prefix('-')?.parse().ok());
    shrink(new.spec.replicas?, ordinals)
}

/// Whether the edit from `old` to `new` (of the group, or of its Network) replaces the group's pods.
pub(super) fn replaced(
    old: &ServerGroup,
    new: &ServerGroup,
    old_network: Option<&NetworkSpec>,
    new_network: Option<&NetworkSpec>,
    stores: &Stores,
    namespace: &str,
) -> Option<Finding> {
    let (before, after) = (hash(old, old_network)?, hash(new, new_network)?);
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let impact = stores.impact(namespace, Role::Server, name, online(old));
    replacement("ServerGroup", name, &before, &after, impact)
}

fn hash(group: &ServerGroup, network: Option<&NetworkSpec>) -> Option<PodHash> {
    inputs::server(&group.spec, network, None).ok().map(|inputs| inputs.hash())
}

fn online(group: &ServerGroup) -> u64 {
    people(group.status.as_ref().map_or(0, |status| status.online_players))
}
