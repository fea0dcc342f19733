//! What the cluster and the players say at one moment.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt as _, api::ListParams};
use spawnery_api::{names::label, v1alpha1::Server};
use spawnery_tests::{game::player::PlayerState, stack::Crowd};
use std::{collections::BTreeMap, time::Duration};

/// An API server that does not answer is news too.
const LIMIT: Duration = Duration::from_secs(5);

/// Everything that the table shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) pods: Vec<PodRow>,
    pub(crate) people: People,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub(crate) name: String,
    pub(crate) cordoned: bool,
}

/// One pod of a server or a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodRow {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) is_server: bool,
    pub(crate) ready: bool,
    pub(crate) occupied: bool,
    pub(crate) sealed: bool,
    /// Of servers only.
    pub(crate) phase: String,
    pub(crate) door: String,
    pub(crate) registered: bool,
    /// Players on it by what its agent reports; none for proxies.
    pub(crate) reported: Option<i32>,
    pub(crate) slots: i32,
    /// Players on it by what their own sockets say.
    pub(crate) witnessed: usize,
}

/// The players, by what their own sockets say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct People {
    pub(crate) joining: usize,
    pub(crate) playing: usize,
    pub(crate) left: usize,
    pub(crate) refused: usize,
    pub(crate) lost: usize,
}

/// Looks at a namespace.
#[derive(Clone)]
pub(crate) struct Viewer {
    nodes: Api<Node>,
    pods: Api<Pod>,
    servers: Api<Server>,
}

impl Viewer {
    pub(crate) fn new(client: &kube::Client, namespace: &str) -> Self {
        Self {
            nodes: Api::all(client.clone()),
            pods: Api::namespaced(client.clone(), namespace),
            servers: Api::namespaced(client.clone(), namespace),
        }
    }

    /// Looks now.
    pub(crate) async fn look(&self, crowd: &Crowd) -> Result<View> {
        let all = ListParams::default();
        let lists = async { tokio::try_join!(self.nodes.list(&all), self.pods.list(&all), self.servers.list(&all)) };
        let (nodes, pods, servers) = tokio::time::timeout(LIMIT, lists).await.context("the API server is silent")??;
        let servers: BTreeMap<String, Server> = servers.into_iter().map(|server| (server.name_any(), server)).collect();
        let witnessed = crowd.by_server();
        let mut view = View { people: People::of(crowd), ..View::default() };
        view.nodes = nodes.iter().map(NodeRow::of).collect();
        view.pods = pods.iter().map(|pod| PodRow::of(pod, &servers, &witnessed)).collect();
        view.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        view.pods.sort_by(|a, b| (a.is_server, &a.name).cmp(&(b.is_server, &b.name)));
        Ok(view)
    }
}

impl View {
    /// The pod of this name.
    pub(crate) fn pod(&self, name: &str) -> Option<&PodRow> {
        self.pods.iter().find(|pod| pod.name == name)
    }
}

impl NodeRow {
    fn of(node: &Node) -> Self {
        let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
        Self { name: node.name_any(), cordoned }
    }
}

impl PodRow {
    fn of(pod: &Pod, servers: &BTreeMap<String, Server>, witnessed: &BTreeMap<String, usize>) -> Self {
        let name = pod.name_any();
        let labels = pod.labels();
        let is = |key: &str| labels.get(key).is_some_and(|value| value == label::TRUE);
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let status = servers.get(&name).and_then(|server| server.status.clone()).unwrap_or_default();
        let is_server = labels.get(label::ROLE).is_some_and(|role| role == label::ROLE_SERVER);
        Self {
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            is_server,
            ready,
            occupied: is(label::OCCUPIED),
            sealed: is(label::SEALED),
            phase: status.phase,
            door: status.door.unwrap_or_default(),
            registered: status.registered,
            reported: is_server.then_some(status.players),
            slots: status.slots,
            witnessed: witnessed.get(&name).copied().unwrap_or_default(),
            name,
        }
    }

    /// What a person wants to know about it, in a few words.
    pub(crate) fn state(&self) -> String {
        if self.sealed {
            return "sealed".to_owned();
        }
        let ready = if self.ready { "Ready" } else { "starting" };
        let phase = if self.phase.is_empty() { ready.to_owned() } else { self.phase.clone() };
        if self.occupied { format!("{phase}, occupied") } else { phase }
    }
}

impl People {
    fn of(crowd: &Crowd) -> Self {
        let mut people = Self::default();
        for player in crowd.players() {
            match player.state() {
                PlayerState::Joining => people.joining += 1,
                PlayerState::On { .. } => people.playing += 1,
                PlayerState::Left => people.left += 1,
                PlayerState::Refused { .. } => people.refused += 1,
                PlayerState::Lost { .. } => people.lost += 1,
            }
        }
        people
    }
}
