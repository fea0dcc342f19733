//! Rules for ProxyGroups.

use k8s_openapi::api::core::v1::ResourceRequirements;
use spawnery_api::inputs;
use spawnery_api::v1alpha1::{ExposeType, NetworkSpec, ProxyGroup};
use spawnery_api::view::Role;
use spawnery_core::admission::{Finding, PortUse, Reference, fallbacks, group_name_problem, ports};
use spawnery_core::pod_hash::PodHash;

use super::group::{self, Group};
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
        let mut found = group::applied(self, old, all_references(self, stores, namespace), stores, namespace);
        let others: Vec<PortUse> = stores
            .all_proxy_groups()
            .iter()
            .map(|group| port_use(group, group.metadata.namespace.as_deref()))
            .collect();
        found.extend(ports(&port_use(self, Some(namespace)), &others, stores.pod_security(namespace)));
        found
    }

    fn deleted(&self, stores: &Stores, namespace: &str) -> Vec<Finding> {
        group::deleted(self, stores, namespace)
    }
}

impl Group for ProxyGroup {
    const KIND: &'static str = "ProxyGroup";
    const ROLE: Role = Role::Proxy;

    fn network(&self) -> &str {
        &self.spec.network_ref.name
    }

    fn resources(&self) -> Option<&ResourceRequirements> {
        self.spec.resources.as_ref()
    }

    fn hash(&self, network: Option<&NetworkSpec>) -> Option<PodHash> {
        inputs::proxy(&self.spec, network, None).ok().map(|inputs| inputs.hash())
    }

    fn people(&self) -> u64 {
        people(self.status.as_ref().map_or(0, |status| status.connected_players))
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
