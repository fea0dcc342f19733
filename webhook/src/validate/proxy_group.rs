//! Rules for ProxyGroups.

use spawnery_api::inputs;
use spawnery_api::v1alpha1::{ExposeType, NetworkSpec, ProxyGroup};
use spawnery_api::view::Role;
use spawnery_core::admission::{
    Finding, PortUse, Reference, deletion, fallbacks, group_name_problem, memory_limit, ports, references, replacement,
};
use spawnery_core::pod_hash::PodHash;

use super::{Judged, config_map, network, people};
use crate::stores::Stores;

impl Judged for ProxyGroup {
    fn same(&self, old: &Self) -> bool {
        self.spec == old.spec
    }

    fn alone(&self) -> Vec<Finding> {
        fallbacks(&self.spec.routing.fallback_groups)
    }

    fn applied(&self, old: Option<&Self>, stores: &Stores, namespace: &str) -> Vec<Finding> {
        let network_spec = stores.network(namespace, &self.spec.network_ref.name).map(|network| network.spec);
        let mut found = references(&self.spec.network_ref.name, all_references(self, stores, namespace));
        let resources = inputs::effective_resources(self.spec.resources.as_ref(), network_spec.as_ref());
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        found.extend(memory_limit(limits.is_some_and(|limits| limits.contains_key("memory"))));
        let others: Vec<PortUse> = stores
            .all_proxy_groups()
            .iter()
            .map(|group| port_use(group, group.metadata.namespace.as_deref()))
            .collect();
        found.extend(ports(&port_use(self, Some(namespace)), &others, stores.pod_security(namespace)));
        if let Some(old) = old {
            let old_network = stores.network(namespace, &old.spec.network_ref.name).map(|network| network.spec);
            found.extend(replaced(old, self, old_network.as_ref(), network_spec.as_ref(), stores, namespace));
        }
        found
    }

    fn deleted(&self, stores: &Stores, namespace: &str) -> Vec<Finding> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let impact = stores.impact(namespace, Role::Proxy, name, connected(self));
        deletion("ProxyGroup", name, impact).into_iter().collect()
    }
}

/// Fallbacks with a name that no group has are rejected elsewhere; saying that they do not exist would be noise.
fn all_references(group: &ProxyGroup, stores: &Stores, namespace: &str) -> Vec<Reference> {
    let mut all = vec![network(stores, namespace, &group.spec.network_ref.name)];
    if let Some(overlay) = &group.spec.config_overlay {
        all.push(config_map(stores, namespace, "spec.configOverlay.name".to_owned(), &overlay.name));
    }
    let fallbacks = group.spec.routing.fallback_groups.iter().enumerate();
    all.extend(fallbacks.filter(|(_, name)| group_name_problem(name).is_none()).map(|(index, name)| Reference {
        field: format!("spec.routing.fallbackGroups[{index}]"),
        kind: "ServerGroup",
        name: name.clone(),
        found: stores.find_server_group(namespace, name),
    }));
    all
}

fn port_use(group: &ProxyGroup, namespace: Option<&str>) -> PortUse {
    let expose = &group.spec.expose;
    let host_port = expose.host_port.as_ref().filter(|_| expose.kind == ExposeType::HostPort);
    let node_port = expose.node_port.as_ref().filter(|_| expose.kind == ExposeType::NodePort);
    PortUse {
        namespace: namespace.unwrap_or_default().to_owned(),
        name: group.metadata.name.clone().unwrap_or_default(),
        host_port: host_port.map(|expose| expose.port),
        node_port: node_port.map(|expose| expose.port),
    }
}

/// Whether the edit from `old` to `new` (of the group, or of its Network) replaces the group's pods.
pub(super) fn replaced(
    old: &ProxyGroup,
    new: &ProxyGroup,
    old_network: Option<&NetworkSpec>,
    new_network: Option<&NetworkSpec>,
    stores: &Stores,
    namespace: &str,
) -> Option<Finding> {
    let (before, after) = (hash(old, old_network)?, hash(new, new_network)?);
    let name = new.metadata.name.as_deref().unwrap_or_default();
    let impact = stores.impact(namespace, Role::Proxy, name, connected(old));
    replacement("ProxyGroup", name, &before, &after, impact)
}

fn hash(group: &ProxyGroup, network: Option<&NetworkSpec>) -> Option<PodHash> {
    inputs::proxy(&group.spec, network, None).ok().map(|inputs| inputs.hash())
}

fn connected(group: &ProxyGroup) -> u64 {
    people(group.status.as_ref().map_or(0, |status| status.connected_players))
}
