//! Rules for ServerGroups.

use k8s_openapi::api::core::v1::ResourceRequirements;
use spawnery_api::inputs;
use spawnery_api::names::volume;
use spawnery_api::v1alpha1::{NetworkSpec, ServerGroup, ServerGroupType};
use spawnery_api::view::Role;
use spawnery_core::admission::{Finding, MountFacts, Reference, Reserved, mounts, shrink};
use spawnery_core::pod_hash::PodHash;

use super::group::{self, Group};
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
        let mut found = group::applied(self, old, all_references(self, stores, namespace), stores, namespace);
        found.extend(old.and_then(|old| shrunk(old, self, stores, namespace)));
        found
    }

    fn deleted(&self, stores: &Stores, namespace: &str) -> Vec<Finding> {
        group::deleted(self, stores, namespace)
    }
}

impl Group for ServerGroup {
    const KIND: &'static str = "ServerGroup";
    const ROLE: Role = Role::Server;

    fn network(&self) -> &str {
        &self.spec.network_ref.name
    }

    fn resources(&self) -> Option<&ResourceRequirements> {
        self.spec.resources.as_ref()
    }

    fn hash(&self, network: Option<&NetworkSpec>) -> Option<PodHash> {
        inputs::server(&self.spec, network, None).ok().map(|inputs| inputs.hash())
    }

    fn people(&self) -> u64 {
        people(self.status.as_ref().map_or(0, |status| status.online_players))
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
