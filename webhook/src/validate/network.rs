//! Rules for Networks.

use spawnery_api::v1alpha1::Network;
use spawnery_core::admission::{Finding, deletion};

use super::{Judged, group, people};
use crate::stores::{Stores, impact};

impl Judged for Network {
    fn same(&self, old: &Self) -> bool {
        self.spec == old.spec
    }

    fn alone(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Groups inherit from their Network, so an edit of it can replace the pods of many.
    fn applied(&self, old: Option<&Self>, stores: &Stores, namespace: &str) -> Vec<Finding> {
        let Some(old) = old else { return Vec::new() };
        let (before, after) = (Some(&old.spec), Some(&self.spec));
        let ours = |name: &str| self.metadata.name.as_deref() == Some(name);
        let servers = stores.server_groups(namespace);
        let servers = servers.iter().filter(|group| ours(&group.spec.network_ref.name));
        let proxies = stores.proxy_groups(namespace);
        let proxies = proxies.iter().filter(|group| ours(&group.spec.network_ref.name));
        servers
            .filter_map(|group| group::replaced(group, group, before, after, stores, namespace))
            .chain(proxies.filter_map(|group| group::replaced(group, group, before, after, stores, namespace)))
            .collect()
    }

    fn deleted(&self, stores: &Stores, namespace: &str) -> Vec<Finding> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let pods = stores.running(namespace, |pod| pod.network() == Some(name));
        let online = people(self.status.as_ref().map_or(0, |status| status.online_players));
        deletion("Network", name, impact(&pods, online)).into_iter().collect()
    }
}
