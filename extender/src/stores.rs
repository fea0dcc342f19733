//! What the extender knows: three watches, and the index that they keep. No call asks the API server.

use std::sync::Arc;
use std::time::Instant;

use kube::{Api, Client};
use parking_lot::RwLock;
use spawnery_api::names::label;
use spawnery_api::view::{NodeView, PodView, ServerView};
use spawnery_core::eviction::FRESH_FOR;
use spawnery_runtime::clock::Clock;
use spawnery_runtime::feed::{Change, Fed, Feed, FeedTask};
use spawnery_runtime::readiness::Readiness;
use spawnery_runtime::shutdown::Supervisor;

use crate::flights::Flights;
use crate::index::Index;
use crate::patience::Patience;

/// The index, shared: watches write, calls read.
pub(crate) type Shared = Arc<RwLock<Index>>;

/// The watches' readers.
#[derive(Debug)]
pub(crate) struct Stores {
    nodes: Feed<NodeView>,
    pods: Feed<PodView>,
    servers: Feed<ServerView>,
}

/// The tasks that keep them.
#[derive(Debug)]
pub(crate) struct Tasks {
    nodes: FeedTask<NodeView>,
    pods: FeedTask<PodView>,
    servers: FeedTask<ServerView>,
}

impl Stores {
    /// Describes the watches that keep `index`: of pods and Servers in all namespaces, or in `only` one. Pods that are on
    /// a node, or gone, have ended their flight. Whoever waits for a change looks again after each.
    pub(crate) fn new(
        client: &Client,
        only: Option<&str>,
        index: &Shared,
        flights: &Arc<Flights>,
        patience: &Patience,
        clock: Clock,
    ) -> (Self, Tasks) {
        let (nodes, nodes_task) = Feed::builder("nodes", Api::all(client.clone()))
            .tap(keep(index, Index::node_applied, Index::node_gone))
            .tap(tell(patience))
            .build(clock);
        let (pods, pods_task) = Feed::builder("pods", api(client, only))
            .labels(format!("{}={}", label::MANAGED_BY, label::MANAGED_BY_VALUE))
            .tap(keep(index, Index::pod_applied, Index::pod_gone))
            .tap(land(flights))
            .tap(tell(patience))
            .build(clock);
        let (servers, servers_task) = Feed::builder("servers", api(client, only))
            .tap(keep(index, Index::server_applied, Index::server_gone))
            .build(clock);
        (Self { nodes, pods, servers }, Tasks { nodes: nodes_task, pods: pods_task, servers: servers_task })
    }

    /// Whether what we know may be trusted as current.
    pub(crate) fn fresh(&self, now: Instant) -> bool {
        self.nodes.fresh(now, FRESH_FOR) && self.pods.fresh(now, FRESH_FOR) && self.servers.fresh(now, FRESH_FOR)
    }

    /// Readiness: everything that answers are made from must be complete and current.
    pub(crate) fn watch_readiness(&self, readiness: &Readiness, clock: Clock) {
        watched(&self.nodes, readiness, clock);
        watched(&self.pods, readiness, clock);
        watched(&self.servers, readiness, clock);
    }
}

impl Tasks {
    /// Spawns the tasks; they end with the process.
    pub(crate) fn spawn(self, supervisor: &Supervisor) {
        supervisor.spawn_until_stopped("feed nodes", self.nodes.run());
        supervisor.spawn_until_stopped("feed pods", self.pods.run());
        supervisor.spawn_until_stopped("feed servers", self.servers.run());
    }
}

fn watched<K: Fed>(feed: &Feed<K>, readiness: &Readiness, clock: Clock) {
    let feed = feed.clone();
    readiness.check(feed.name(), move || feed.fresh(clock.now(), FRESH_FOR));
}

fn keep<K: Fed>(
    index: &Shared,
    applied: fn(&mut Index, &K),
    gone: fn(&mut Index, &K),
) -> impl Fn(&Change<'_, K>) + Send + Sync + 'static {
    let index = Arc::clone(index);
    move |change| match change {
        Change::Applied { new, .. } => applied(&mut index.write(), new),
        Change::Gone(last) => gone(&mut index.write(), last),
    }
}

fn land(flights: &Arc<Flights>) -> impl Fn(&Change<'_, PodView>) + Send + Sync + 'static {
    let flights = Arc::clone(flights);
    move |change| match change {
        Change::Applied { new, .. } if new.spec.node_name.is_none() => {}
        Change::Applied { new: pod, .. } | Change::Gone(pod) => flights.end(pod.uid()),
    }
}

fn tell<K: Fed>(patience: &Patience) -> impl Fn(&Change<'_, K>) + Send + Sync + 'static {
    let patience = patience.clone();
    move |_| patience.look_again()
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
