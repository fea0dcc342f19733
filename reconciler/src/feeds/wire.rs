//! Starts the watches and connects each to the queues of its readers.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client, Resource};
use spawnery_api::names::{label, object};
use spawnery_api::v1alpha1::{Network, ProxyGroup, Server, ServerGroup};
use spawnery_api::view::{NodeView, PodView};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::feed::Feed;

use super::{Feeds, HubKey, Wakes, differs, map};
use crate::args::Config;

/// A watch that somebody has to run: its name, and what to await.
pub type Task = (&'static str, BoxFuture<'static, anyhow::Result<()>>);

/// Builds the feeds and the tasks that fill them.
pub fn start(client: &Client, config: &Config, wakes: &Wakes, clock: Clock) -> (Feeds, Vec<Task>) {
    let wiring = Wiring { client: client.clone(), only: config.only_namespace.clone(), wakes: wakes.clone(), clock };
    let mut tasks = Vec::new();
    let pods = wiring.pods(&mut tasks);
    let servers = wiring.servers(&mut tasks);
    let proxy_groups = wiring.proxy_groups(&mut tasks);
    let server_groups = wiring.server_groups(&servers, &mut tasks);
    let feeds = Feeds {
        nodes: wiring.nodes(&pods, &Arc::from(config.drain_taints.clone()), &mut tasks),
        networks: wiring.networks(&servers, &server_groups, &proxy_groups, &mut tasks),
        budgets: wiring.budgets(&server_groups, &proxy_groups, &mut tasks),
        config_maps: wiring.config_maps(&mut tasks),
        config_map_metas: wiring.overlays(&server_groups, &proxy_groups, &mut tasks),
        services: wiring.services(&mut tasks),
        service_accounts: wiring.service_accounts(&mut tasks),
        network_policies: wiring.network_policies(&mut tasks),
        validating: wiring.registration("validating registration", &mut tasks),
        mutating: wiring.registration("mutating registration", &mut tasks),
        pods,
        servers,
        server_groups,
        proxy_groups,
    };
    (feeds, tasks)
}

fn managed() -> String {
    format!("{}={}", label::MANAGED_BY, label::MANAGED_BY_VALUE)
}

fn own<K: Resource<DynamicType = ()>>(object: &K) -> [ObjectRef<K>; 1] {
    [ObjectRef::from_obj(object)]
}

fn keys_of<K: Resource<DynamicType = ()>>(objects: &[Arc<K>]) -> Vec<ObjectRef<K>> {
    objects.iter().map(|object| ObjectRef::from_obj(object.as_ref())).collect()
}

fn namespace_of<K: Resource>(object: &K) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

struct Wiring {
    client: Client,
    only: Option<String>,
    wakes: Wakes,
    clock: Clock,
}

impl Wiring {
    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        match &self.only {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn pods(&self, tasks: &mut Vec<Task>) -> Feed<PodView> {
        let wakes = &self.wakes;
        let (feed, task) = Feed::builder("pods", self.api::<PodView>())
            .labels(managed())
            .wake(&wakes.hub, |pod| [map::hub_key_of_pod(pod)])
            .wake(&wakes.servers, map::server_of_pod)
            .wake(&wakes.proxy_groups, map::proxy_group_of_pod)
            .wake_where(&wakes.server_groups, differs::counted, map::server_group_of_pod)
            .wake_where(&wakes.networks, differs::counted, map::network_of_pod)
            .wake_where(&wakes.webhook, |_, _| false, |_| [()])
            .build(self.clock);
        tasks.push(("feed pods", Box::pin(task.run())));
        feed
    }

    fn nodes(&self, pods: &Feed<PodView>, taints: &Arc<[String]>, tasks: &mut Vec<Task>) -> Feed<NodeView> {
        let wakes = &self.wakes;
        let on = move |pods: &Feed<PodView>, node: &NodeView| {
            let mut found = pods.all();
            found.retain(|pod| pod.spec.node_name.as_deref() == Some(node.name()));
            found
        };
        let differ = |taints: &Arc<[String]>| {
            let taints = Arc::clone(taints);
            move |old: &NodeView, new: &NodeView| differs::departing(&taints, old, new)
        };
        let moves_or_falls = {
            let taints = Arc::clone(taints);
            move |old: &NodeView, new: &NodeView| differs::node(&taints, old, new)
        };
        let all = [pods.clone(), pods.clone(), pods.clone()];
        let [for_servers, for_groups, for_proxies] = all;
        let (feed, task) = Feed::builder("nodes", Api::<NodeView>::all(self.client.clone()))
            .wake_where(&wakes.servers, moves_or_falls, move |node| {
                on(&for_servers, node).iter().filter_map(|pod| map::server_of_pod(pod)).collect::<Vec<_>>()
            })
            .wake_where(&wakes.server_groups, differ(taints), move |node| {
                on(&for_groups, node).iter().filter_map(|pod| map::server_group_of_pod(pod)).collect::<Vec<_>>()
            })
            .wake_where(&wakes.proxy_groups, differ(taints), move |node| {
                on(&for_proxies, node).iter().filter_map(|pod| map::proxy_group_of_pod(pod)).collect::<Vec<_>>()
            })
            .build(self.clock);
        tasks.push(("feed nodes", Box::pin(task.run())));
        feed
    }

    fn servers(&self, tasks: &mut Vec<Task>) -> Feed<Server> {
        let (feed, task) = Feed::guarded("servers", self.api::<DeserializeGuard<Server>>())
            .wake(&self.wakes.servers, own)
            .wake(&self.wakes.server_groups, |server| [map::group_of_server(server)])
            .build(self.clock);
        tasks.push(("feed servers", Box::pin(task.run())));
        feed
    }

    fn server_groups(&self, servers: &Feed<Server>, tasks: &mut Vec<Task>) -> Feed<ServerGroup> {
        let members = servers.clone();
        let (feed, task) = Feed::guarded("servergroups", self.api::<DeserializeGuard<ServerGroup>>())
            .wake(&self.wakes.server_groups, own)
            .wake(&self.wakes.networks, |group| [map::network_of_server_group(group)])
            .wake_where(&self.wakes.servers, differs::spec, move |group| {
                let name = group.metadata.name.as_deref().unwrap_or_default();
                keys_of(&members.within(namespace_of(group), |server| server.spec.group_ref.name == name))
            })
            .build(self.clock);
        tasks.push(("feed servergroups", Box::pin(task.run())));
        feed
    }

    fn proxy_groups(&self, tasks: &mut Vec<Task>) -> Feed<ProxyGroup> {
        let (feed, task) = Feed::guarded("proxygroups", self.api::<DeserializeGuard<ProxyGroup>>())
            .wake(&self.wakes.proxy_groups, own)
            .wake_where(&self.wakes.networks, differs::spec, |group| [map::network_of_proxy_group(group)])
            .wake_where(&self.wakes.hub, differs::spec, |group| [map::hub_key_of_proxy_group(group)] as [HubKey; 1])
            .build(self.clock);
        tasks.push(("feed proxygroups", Box::pin(task.run())));
        feed
    }

    fn networks(
        &self,
        servers: &Feed<Server>,
        server_groups: &Feed<ServerGroup>,
        proxy_groups: &Feed<ProxyGroup>,
        tasks: &mut Vec<Task>,
    ) -> Feed<Network> {
        let wakes = &self.wakes;
        let (servers, server_groups, proxy_groups) = (servers.clone(), server_groups.clone(), proxy_groups.clone());
        let (all_networks, mine) = (self.wakes.networks.clone(), Arc::new(std::sync::OnceLock::<Feed<Network>>::new()));
        let siblings = Arc::clone(&mine);
        let (feed, task) = Feed::guarded("networks", self.api::<DeserializeGuard<Network>>())
            .wake(&wakes.networks, own)
            // The oldest of a namespace counts, so each looks again when one comes or goes.
            .wake_where(&all_networks, differs::spec, move |network| {
                siblings.get().map(|feed| keys_of(&feed.within(namespace_of(network), |_| true))).unwrap_or_default()
            })
            .wake_where(&wakes.servers, differs::network, move |network| {
                keys_of(&servers.within(namespace_of(network), |_| true))
            })
            .wake_where(&wakes.server_groups, differs::network, move |network| {
                keys_of(&server_groups.within(namespace_of(network), |_| true))
            })
            .wake_where(&wakes.proxy_groups, differs::network, move |network| {
                keys_of(&proxy_groups.within(namespace_of(network), |_| true))
            })
            .wake_where(&wakes.webhook, |_, _| false, |_| [()])
            .build(self.clock);
        let _ = mine.set(feed.clone());
        tasks.push(("feed networks", Box::pin(task.run())));
        feed
    }

    fn budgets(
        &self,
        server_groups: &Feed<ServerGroup>,
        proxy_groups: &Feed<ProxyGroup>,
        tasks: &mut Vec<Task>,
    ) -> Feed<PodDisruptionBudget> {
        let (server_groups, proxy_groups) = (server_groups.clone(), proxy_groups.clone());
        let (feed, task) = Feed::builder("budgets", self.api::<PodDisruptionBudget>())
            .slim(|budget: &mut PodDisruptionBudget| {
                budget.status = None;
                budget.metadata.annotations = None;
            })
            .wake_where(&self.wakes.server_groups, differs::budget, move |budget| {
                keys_of(&server_groups.within(namespace_of(budget), |_| true))
            })
            .wake_where(&self.wakes.proxy_groups, differs::budget, move |budget| {
                keys_of(&proxy_groups.within(namespace_of(budget), |_| true))
            })
            .build(self.clock);
        tasks.push(("feed budgets", Box::pin(task.run())));
        feed
    }

    fn config_maps(&self, tasks: &mut Vec<Task>) -> Feed<ConfigMap> {
        let (feed, task) = Feed::builder("configmaps", self.api::<ConfigMap>())
            .labels(managed())
            .wake(&self.wakes.server_groups, |map| map::owner::<ServerGroup>(&map.metadata))
            .wake(&self.wakes.proxy_groups, |map| map::owner::<ProxyGroup>(&map.metadata))
            .build(self.clock);
        tasks.push(("feed configmaps", Box::pin(task.run())));
        feed
    }

    /// Metadata of every `ConfigMap`; groups that lay one over their settings look again when it changes.
    fn overlays(
        &self,
        server_groups: &Feed<ServerGroup>,
        proxy_groups: &Feed<ProxyGroup>,
        tasks: &mut Vec<Task>,
    ) -> Feed<PartialObjectMeta<ConfigMap>> {
        let (server_groups, proxy_groups) = (server_groups.clone(), proxy_groups.clone());
        let (feed, task) = Feed::builder("overlays", self.api::<PartialObjectMeta<ConfigMap>>())
            .slim(|map: &mut PartialObjectMeta<ConfigMap>| {
                map.metadata.annotations = None;
                map.metadata.labels = None;
            })
            .wake_where(&self.wakes.server_groups, differs::version, move |map| {
                let name = map.metadata.name.as_deref();
                let overlaid = |group: &ServerGroup| {
                    group.spec.config_overlay.as_ref().map(|overlay| overlay.name.as_str()) == name
                };
                keys_of(&server_groups.within(namespace_of(map), overlaid))
            })
            .wake_where(&self.wakes.proxy_groups, differs::version, move |map| {
                let name = map.metadata.name.as_deref();
                let overlaid = |group: &ProxyGroup| {
                    group.spec.config_overlay.as_ref().map(|overlay| overlay.name.as_str()) == name
                };
                keys_of(&proxy_groups.within(namespace_of(map), overlaid))
            })
            .build(self.clock);
        tasks.push(("feed overlays", Box::pin(task.run())));
        feed
    }

    fn services(&self, tasks: &mut Vec<Task>) -> Feed<Service> {
        let (feed, task) = Feed::builder("services", self.api::<Service>())
            .labels(managed())
            .wake(&self.wakes.proxy_groups, |service| map::owner::<ProxyGroup>(&service.metadata))
            .build(self.clock);
        tasks.push(("feed services", Box::pin(task.run())));
        feed
    }

    fn service_accounts(&self, tasks: &mut Vec<Task>) -> Feed<PartialObjectMeta<ServiceAccount>> {
        let (feed, task) = Feed::builder("serviceaccounts", self.api::<PartialObjectMeta<ServiceAccount>>())
            .labels(managed())
            .build(self.clock);
        tasks.push(("feed serviceaccounts", Box::pin(task.run())));
        feed
    }

    fn network_policies(&self, tasks: &mut Vec<Task>) -> Feed<NetworkPolicy> {
        let (feed, task) = Feed::builder("networkpolicies", self.api::<NetworkPolicy>())
            .labels(managed())
            .wake(&self.wakes.networks, |policy| map::owner::<Network>(&policy.metadata))
            .build(self.clock);
        tasks.push(("feed networkpolicies", Box::pin(task.run())));
        feed
    }

    /// Metadata of one kind of our own registration; it is put right when somebody changes or deletes it.
    fn registration<K>(&self, name: &'static str, tasks: &mut Vec<Task>) -> Feed<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let (feed, task) = Feed::builder(name, Api::<PartialObjectMeta<K>>::all(self.client.clone()))
            .named(object::WEBHOOK_CONFIGURATION)
            .wake_where(&self.wakes.webhook, differs::spec, |_| [()])
            .build(self.clock);
        tasks.push((name, Box::pin(task.run())));
        feed
    }
}
