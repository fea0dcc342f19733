//! One watch for each kind, and which change wakes which controller.
//!
//! ```text
//! watch ─► store (read by all) ─► keys: what reads the changed object looks again
//! ```
//!
//! Which object names which others is in [`map`], as pure functions; which differences matter is in [`differs`].

pub mod differs;
pub mod map;
mod wire;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use spawnery_api::v1alpha1::{Network, ProxyGroup, Server, ServerGroup};
use spawnery_api::view::{NodeView, PodView};
use spawnery_runtime::feed::Feed;
use spawnery_runtime::keys::{KeySender, KeyStream, keys};

pub use wire::{Task, start};

/// The stores; cheap to clone.
#[derive(Debug, Clone)]
pub struct Feeds {
    /// Managed pods of every network, orphans included.
    pub pods: Feed<PodView>,
    /// All nodes.
    pub nodes: Feed<NodeView>,
    /// All Servers.
    pub servers: Feed<Server>,
    /// All `ServerGroups`.
    pub server_groups: Feed<ServerGroup>,
    /// All `ProxyGroups`.
    pub proxy_groups: Feed<ProxyGroup>,
    /// All Networks.
    pub networks: Feed<Network>,
    /// All budgets, foreign ones too: two that select one pod make its evictions fail.
    pub budgets: Feed<PodDisruptionBudget>,
    /// Our own `ConfigMaps`, with their contents.
    pub config_maps: Feed<ConfigMap>,
    /// Metadata of every `ConfigMap`: the resource version tells that an overlay has changed.
    pub config_map_metas: Feed<PartialObjectMeta<ConfigMap>>,
    /// Services of proxies.
    pub services: Feed<Service>,
    /// Accounts of game pods.
    pub service_accounts: Feed<PartialObjectMeta<ServiceAccount>>,
    /// Policies of networks.
    pub network_policies: Feed<NetworkPolicy>,
    /// Metadata of our own registration: its generation tells that somebody has changed what the API server calls.
    pub validating: Feed<PartialObjectMeta<ValidatingWebhookConfiguration>>,
    /// Likewise, of the one that stamps pods.
    pub mutating: Feed<PartialObjectMeta<MutatingWebhookConfiguration>>,
}

/// What the hub has to be told again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HubKey {
    /// A pod appeared, changed or went; by UID, because a name can come back as another pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// A `ProxyGroup` changed: its pods have to be told again.
    ProxyGroup {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The pushing ends of the controllers' queues; cheap to clone.
#[derive(Debug, Clone)]
pub struct Wakes {
    /// Networks to look at.
    pub networks: KeySender<ObjectRef<Network>>,
    /// `ServerGroups` to look at.
    pub server_groups: KeySender<ObjectRef<ServerGroup>>,
    /// Servers to look at.
    pub servers: KeySender<ObjectRef<Server>>,
    /// `ProxyGroups` to look at.
    pub proxy_groups: KeySender<ObjectRef<ProxyGroup>>,
    /// What to tell the hub.
    pub hub: KeySender<HubKey>,
    /// Which namespaces the webhook covers, or its registration, may have changed.
    pub webhook: KeySender<()>,
}

/// The pulling ends.
#[derive(Debug)]
pub struct Queues {
    /// Of the Network controller.
    pub networks: KeyStream<ObjectRef<Network>>,
    /// Of the `ServerGroup` controller.
    pub server_groups: KeyStream<ObjectRef<ServerGroup>>,
    /// Of the Server controller.
    pub servers: KeyStream<ObjectRef<Server>>,
    /// Of the `ProxyGroup` controller.
    pub proxy_groups: KeyStream<ObjectRef<ProxyGroup>>,
    /// Of the task that tells the hub.
    pub hub: KeyStream<HubKey>,
    /// Of the task that writes the webhook configurations.
    pub webhook: KeyStream<()>,
}

/// New queues.
pub fn queues() -> (Wakes, Queues) {
    let (networks, network_keys) = keys();
    let (server_groups, server_group_keys) = keys();
    let (servers, server_keys) = keys();
    let (proxy_groups, proxy_group_keys) = keys();
    let (hub, hub_keys) = keys();
    let (webhook, webhook_keys) = keys();
    let wakes = Wakes { networks, server_groups, servers, proxy_groups, hub, webhook };
    let queues = Queues {
        networks: network_keys,
        server_groups: server_group_keys,
        servers: server_keys,
        proxy_groups: proxy_group_keys,
        hub: hub_keys,
        webhook: webhook_keys,
    };
    (wakes, queues)
}

impl Wakes {
    /// Every group looks again, because something that all of them read has changed.
    pub fn all_groups(&self, feeds: &Feeds) {
        self.server_groups.send_all(feeds.server_groups.all().iter().map(|group| ObjectRef::from_obj(group.as_ref())));
        self.proxy_groups.send_all(feeds.proxy_groups.all().iter().map(|group| ObjectRef::from_obj(group.as_ref())));
    }

    /// Every group of a namespace looks again.
    pub fn groups_within(&self, feeds: &Feeds, namespace: &str) {
        let servers = feeds.server_groups.within(namespace, |_| true);
        self.server_groups.send_all(servers.iter().map(|group| ObjectRef::from_obj(group.as_ref())));
        let proxies = feeds.proxy_groups.within(namespace, |_| true);
        self.proxy_groups.send_all(proxies.iter().map(|group| ObjectRef::from_obj(group.as_ref())));
    }
}

impl Feeds {
    /// Names of the feeds whose first list is not complete.
    pub fn missing(&self) -> Vec<&'static str> {
        self.health().into_iter().filter(|(_, synced)| !synced).map(|(name, _)| name).collect()
    }

    fn health(&self) -> [(&'static str, bool); 14] {
        [
            (self.pods.name(), self.pods.synced()),
            (self.nodes.name(), self.nodes.synced()),
            (self.servers.name(), self.servers.synced()),
            (self.server_groups.name(), self.server_groups.synced()),
            (self.proxy_groups.name(), self.proxy_groups.synced()),
            (self.networks.name(), self.networks.synced()),
            (self.budgets.name(), self.budgets.synced()),
            (self.config_maps.name(), self.config_maps.synced()),
            (self.config_map_metas.name(), self.config_map_metas.synced()),
            (self.services.name(), self.services.synced()),
            (self.service_accounts.name(), self.service_accounts.synced()),
            (self.network_policies.name(), self.network_policies.synced()),
            (self.validating.name(), self.validating.synced()),
            (self.mutating.name(), self.mutating.synced()),
        ]
    }

    /// Waits until every first list is complete.
    pub async fn wait_synced(&self) {
        tokio::join!(
            self.pods.wait_synced(),
            self.nodes.wait_synced(),
            self.servers.wait_synced(),
            self.server_groups.wait_synced(),
            self.proxy_groups.wait_synced(),
            self.networks.wait_synced(),
            self.budgets.wait_synced(),
            self.config_maps.wait_synced(),
            self.config_map_metas.wait_synced(),
            self.services.wait_synced(),
            self.service_accounts.wait_synced(),
            self.network_policies.wait_synced(),
            self.validating.wait_synced(),
            self.mutating.wait_synced(),
        );
    }

    /// Whether what runs in `pod` should leave its node. A pod that is not placed, or whose node nobody can see, may stay.
    pub fn departing(&self, pod: &PodView, drain_taints: &[String]) -> bool {
        let node = pod.spec.node_name.as_deref().and_then(|name| self.nodes.get_cluster(name));
        node.is_some_and(|node| node.is_departing(drain_taints))
    }

    /// Whether a node is gone, or Kubernetes does not hear from it. One without a name is no node.
    pub fn down(&self, node: &str) -> bool {
        !node.is_empty() && self.nodes.get_cluster(node).is_none_or(|node| node.is_down())
    }
}
