//! What the webhook knows: watches, and nothing else. No handler asks the API server.

use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use spawnery_api::names::label;
use spawnery_api::v1alpha1::{Network, ProxyGroup, ServerGroup};
use spawnery_api::view::{PodView, Role};
use spawnery_core::admission::{Found, Impact, PodSecurity};
use spawnery_core::eviction::FRESH_FOR;
use spawnery_runtime::clock::Clock;
use spawnery_runtime::feed::{Change, Feed, FeedTask};
use spawnery_runtime::readiness::Readiness;
use spawnery_runtime::shutdown::Supervisor;

/// Label by which a namespace enforces a pod security level.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

/// The kinds that users write may hold objects from before a rule: one that cannot be read must not hide the others.
type Guarded<K> = Feed<DeserializeGuard<K>>;

/// The stores; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Stores {
    /// Pods that carry our label.
    pub(crate) pods: Feed<PodView>,
    networks: Guarded<Network>,
    server_groups: Guarded<ServerGroup>,
    proxy_groups: Guarded<ProxyGroup>,
    namespaces: Option<Feed<PartialObjectMeta<Namespace>>>,
    config_maps: Store<PartialObjectMeta<ConfigMap>>,
}

/// The tasks that fill the stores.
pub(crate) struct Tasks {
    pods: FeedTask<PodView>,
    networks: FeedTask<DeserializeGuard<Network>>,
    server_groups: FeedTask<DeserializeGuard<ServerGroup>>,
    proxy_groups: FeedTask<DeserializeGuard<ProxyGroup>>,
    namespaces: Option<FeedTask<PartialObjectMeta<Namespace>>>,
    config_maps: futures::future::BoxFuture<'static, ()>,
}

impl Stores {
    /// Describes the watches: all namespaces, or `only` one. `changed` is told of each change of a pod.
    pub(crate) fn new(
        client: &Client,
        only: Option<&str>,
        changed: impl Fn(&Change<'_, PodView>) + Send + Sync + 'static,
        clock: Clock,
    ) -> (Self, Tasks) {
        let (pods, pods_task) = Feed::builder("pods", api(client, only))
            .labels(format!("{}={}", label::MANAGED_BY, label::MANAGED_BY_VALUE))
            .tap(changed)
            .build(clock);
        let (networks, networks_task) = Feed::builder("networks", api(client, only)).build(clock);
        let (server_groups, server_groups_task) = Feed::builder("servergroups", api(client, only)).build(clock);
        let (proxy_groups, proxy_groups_task) = Feed::builder("proxygroups", api(client, only)).build(clock);
        // Looking after one namespace, we may have no rights on cluster-wide kinds.
        let namespaces = only.is_none().then(|| Feed::builder("namespaces", Api::all(client.clone())).build(clock));
        let (namespaces, namespaces_task) = namespaces.unzip();
        let (config_maps, config_maps_task) = config_map_names(api(client, only));
        let stores = Self { pods, networks, server_groups, proxy_groups, namespaces, config_maps };
        let tasks = Tasks {
            pods: pods_task,
            networks: networks_task,
            server_groups: server_groups_task,
            proxy_groups: proxy_groups_task,
            namespaces: namespaces_task,
            config_maps: config_maps_task,
        };
        (stores, tasks)
    }

    /// Readiness: what verdicts read must be complete and current. ConfigMaps and namespaces only serve warnings.
    pub(crate) fn watch_readiness(&self, readiness: &Readiness, clock: Clock) {
        let pods = self.pods.clone();
        readiness.check("pods", move || pods.fresh(clock.now(), FRESH_FOR));
        let networks = self.networks.clone();
        readiness.check("networks", move || networks.synced());
        let server_groups = self.server_groups.clone();
        readiness.check("servergroups", move || server_groups.synced());
        let proxy_groups = self.proxy_groups.clone();
        readiness.check("proxygroups", move || proxy_groups.synced());
    }

    /// Whether not knowing a pod proves that it is not ours.
    pub(crate) fn fresh(&self, now: Instant) -> bool {
        self.pods.fresh(now, FRESH_FOR) && self.networks.synced()
    }

    /// Whether the namespace holds a Network, as far as we know.
    pub(crate) fn is_managed(&self, namespace: &str) -> bool {
        !self.networks.synced() || !self.networks.within(namespace, |_| true).is_empty()
    }

    /// A Network, if it is there and readable.
    pub(crate) fn network(&self, namespace: &str, name: &str) -> Option<Network> {
        self.networks.get(namespace, name)?.0.clone().ok()
    }

    /// Readable ServerGroups of a namespace.
    pub(crate) fn server_groups(&self, namespace: &str) -> Vec<ServerGroup> {
        self.server_groups.within(namespace, |_| true).iter().filter_map(|group| group.0.clone().ok()).collect()
    }

    /// Readable ProxyGroups of a namespace.
    pub(crate) fn proxy_groups(&self, namespace: &str) -> Vec<ProxyGroup> {
        self.proxy_groups.within(namespace, |_| true).iter().filter_map(|group| group.0.clone().ok()).collect()
    }

    /// Readable ProxyGroups of all namespaces.
    pub(crate) fn all_proxy_groups(&self) -> Vec<ProxyGroup> {
        self.proxy_groups.all().iter().filter_map(|group| group.0.clone().ok()).collect()
    }

    /// Whether a Network exists.
    pub(crate) fn find_network(&self, namespace: &str, name: &str) -> Found {
        found(self.networks.synced(), self.networks.get(namespace, name).map(|_| Found::Yes { network: None }))
    }

    /// Whether a ServerGroup exists, and in which Network.
    pub(crate) fn find_server_group(&self, namespace: &str, name: &str) -> Found {
        let group = self.server_groups.get(namespace, name);
        let network = |group: &ServerGroup| group.spec.network_ref.name.clone();
        let group = group.map(|group| Found::Yes { network: group.0.as_ref().ok().map(network) });
        found(self.server_groups.synced(), group)
    }

    /// Whether a ConfigMap exists.
    pub(crate) fn find_config_map(&self, namespace: &str, name: &str) -> Found {
        let synced =
            futures::FutureExt::now_or_never(self.config_maps.wait_until_ready()).is_some_and(|ready| ready.is_ok());
        let config_map = self.config_maps.get(&ObjectRef::new(name).within(namespace));
        found(synced, config_map.map(|_| Found::Yes { network: None }))
    }

    /// The pod security level that a namespace enforces, privileged if we may not look.
    pub(crate) fn pod_security(&self, namespace: &str) -> PodSecurity {
        let namespace = self.namespaces.as_ref().and_then(|namespaces| namespaces.get_cluster(namespace));
        let level = namespace.and_then(|namespace| namespace.labels().get(POD_SECURITY).cloned());
        level.map_or(PodSecurity::Privileged, |level| PodSecurity::parse(&level))
    }

    /// Pods of a namespace that are neither ended nor ending and that `keep` accepts.
    pub(crate) fn running(&self, namespace: &str, keep: impl Fn(&PodView) -> bool) -> Vec<Arc<PodView>> {
        self.pods.within(namespace, |pod| !pod.is_terminal() && !pod.is_terminating() && keep(pod))
    }

    /// What runs in a group; `people` comes from its status.
    pub(crate) fn impact(&self, namespace: &str, role: Role, group: &str, people: u64) -> Impact {
        let pods = self.running(namespace, |pod| pod.role() == Some(role) && pod.group() == Some(group));
        impact(&pods, people)
    }
}

/// Counts pods and those labelled occupied.
pub(crate) fn impact(pods: &[Arc<PodView>], people: u64) -> Impact {
    Impact { pods: pods.len(), people, occupied: pods.iter().filter(|pod| pod.is_occupied()).count() }
}

fn found(synced: bool, object: Option<Found>) -> Found {
    object.unwrap_or(if synced { Found::No } else { Found::CannotTell })
}

impl Tasks {
    /// Spawns the tasks; they end with the process.
    pub(crate) fn spawn(self, supervisor: &Supervisor) {
        supervisor.spawn_until_stopped("feed pods", self.pods.run());
        supervisor.spawn_until_stopped("feed networks", self.networks.run());
        supervisor.spawn_until_stopped("feed servergroups", self.server_groups.run());
        supervisor.spawn_until_stopped("feed proxygroups", self.proxy_groups.run());
        if let Some(namespaces) = self.namespaces {
            supervisor.spawn_until_stopped("feed namespaces", namespaces.run());
        }
        let config_maps = self.config_maps;
        supervisor.spawn_until_stopped("feed configmaps", async move {
            config_maps.await;
            Ok(())
        });
    }
}

fn api<K>(client: &Client, only: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    match only {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Names of all ConfigMaps, by a watch of metadata alone: their contents are none of our business, and large.
fn config_map_names(
    api: Api<PartialObjectMeta<ConfigMap>>,
) -> (Store<PartialObjectMeta<ConfigMap>>, futures::future::BoxFuture<'static, ()>) {
    let (store, writer) = reflector::store();
    let config = watcher::Config::default().any_semantic().page_size(500);
    let names = watcher(api, config).default_backoff().modify(|object| {
        object.metadata.managed_fields = None;
        object.metadata.annotations = None;
        object.metadata.labels = None;
    });
    let filled = reflector::reflector(writer, names).inspect_err(|error| {
        tracing::debug!(error = error as &dyn std::error::Error, "could not follow ConfigMaps, trying again");
    });
    (store, Box::pin(filled.for_each(|_| std::future::ready(()))))
}
