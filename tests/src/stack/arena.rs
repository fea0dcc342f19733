//! A stack with a namespace: what most tests of the product start from.

use super::{Crowd, Replica, SmallNetwork, Stack, StackOptions, ensure_guarded};
use crate::{Cluster, ClusterConfig, Process, eventually::eventually, namespace::Namespace, runner::Role};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{EvictParams, ListParams, PostParams},
};
use spawnery_api::{names::label, v1alpha1::Server};
use std::{fs, future::Future, sync::Arc, time::Duration};
use tokio::{net::TcpStream, time::timeout};

/// What should happen within a second; beside a build it takes longer.
const LIMIT: Duration = Duration::from_secs(30);
/// What kubectl says when it was refused in the way that makes it come back (429), and after how long it does.
const WILL_RETRY: &str = "(will retry after 5s): ";
/// Nodes for servers.
const GAME_NODES: [&str; 2] = ["games-1", "games-2"];
/// Node for proxies.
const EDGE_NODE: &str = "edge";

/// What the API server said to an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evicted {
    /// The pod is being removed.
    Yes,
    /// There is no such pod.
    Gone,
    /// Too many requests: come back later.
    Later(String),
    /// Any other refusal.
    No(u16, String),
}

/// A stack on a cluster of its own, with lobbies on two nodes and proxies on a third, and a namespace for one test.
pub struct Arena {
    stack: Arc<Stack>,
    namespace: String,
    client: kube::Client,
}

impl Arena {
    /// Runs a test in an arena of its own; tells what there was when it fails.
    ///
    /// # Errors
    /// What the test returned, or that the arena could not be made.
    pub async fn run<F, Fut>(name: &str, options: StackOptions, test: F) -> Result<()>
    where
        F: FnOnce(Arc<Self>) -> Fut,
        Fut: Future<Output = Result<()>>,
    {
        let nodes = GAME_NODES.iter().chain([&EDGE_NODE]).map(|name| (*name).to_owned()).collect();
        let cluster = Cluster::start(ClusterConfig { nodes, ..ClusterConfig::default() }).await?;
        let inside = cluster.clone();
        cluster
            .with_namespace(name, |namespace| async move {
                let stack = Stack::start(&inside, options).await?;
                let client = inside.client().await?;
                let arena = Self { stack: Arc::new(stack), namespace: namespace.name().to_owned(), client };
                // A whole test is a large future; on the heap it does not enlarge every future around it.
                Box::pin(test(Arc::new(arena))).await
            })
            .await
    }

    /// Runs a part of a test in another namespace of the same stack, such as a control that would take as long again.
    ///
    /// # Errors
    /// What the part returned, or that there could be no such namespace.
    pub async fn beside<F, Fut>(&self, name: &str, part: F) -> Result<()>
    where
        F: FnOnce(Self) -> Fut,
        Fut: Future<Output = Result<()>>,
    {
        let (stack, client) = (Arc::clone(&self.stack), self.client.clone());
        let run = |namespace: Namespace| {
            let namespace = namespace.name().to_owned();
            Box::pin(part(Self { stack, namespace, client }))
        };
        self.stack.cluster().with_namespace(name, run).await
    }

    /// The stack.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The test's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A network whose lobbies and proxies are on nodes apart, so that a drain meets lobbies only.
    pub fn network(&self) -> SmallNetwork {
        SmallNetwork {
            proxy_node: Some(EDGE_NODE.to_owned()),
            lobby_nodes: GAME_NODES.map(str::to_owned).to_vec(),
            ..SmallNetwork::default()
        }
    }

    /// Starts a network and waits until players can join and the webhook is asked about its pods.
    pub async fn start(&self, network: &SmallNetwork) -> Result<()> {
        network.start(&self.stack, &self.namespace).await?;
        eventually(LIMIT, "the webhook to stand before the floor", || ensure_guarded(&self.client, &self.namespace))
            .await
    }

    /// Pods of the namespace.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Servers of the namespace.
    pub fn servers(&self) -> Api<Server> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Names of the servers that take newcomers, sorted.
    pub async fn registered(&self) -> Result<Vec<String>> {
        let servers = self.servers().list(&ListParams::default()).await?;
        let registered = |server: &&Server| server.status.as_ref().is_some_and(|status| status.registered);
        let mut names: Vec<String> = servers.iter().filter(registered).map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    /// Asks for an eviction of a pod.
    pub async fn evict(&self, pod: &str) -> Result<Evicted> {
        self.ask_eviction(pod, false).await
    }

    /// Asks whether an eviction of a pod would go through, without asking for it.
    pub async fn evict_dry(&self, pod: &str) -> Result<Evicted> {
        self.ask_eviction(pod, true).await
    }

    async fn ask_eviction(&self, pod: &str, dry_run: bool) -> Result<Evicted> {
        let post_options = PostParams { dry_run, ..PostParams::default() };
        let params = EvictParams { post_options, ..EvictParams::default() };
        match timeout(LIMIT, self.pods().evict(pod, &params)).await.context("no answer")? {
            Ok(_) => Ok(Evicted::Yes),
            Err(kube::Error::Api(status)) => Ok(match status.code {
                404 => Evicted::Gone,
                429 => Evicted::Later(status.message.clone()),
                code => Evicted::No(code, status.message.clone()),
            }),
            Err(error) => Err(error).context("could not ask for the eviction"),
        }
    }

    /// The node of a pod.
    pub async fn node_of(&self, pod: &str) -> Result<String> {
        let pod = self.pods().get(pod).await?;
        pod.spec.and_then(|spec| spec.node_name).context("the pod is on no node")
    }

    /// The pod's UID, for finding out whether it is still the same.
    pub async fn uid(&self, pod: &str) -> Result<String> {
        self.pods().get(pod).await?.uid().context("a pod without a UID")
    }

    /// Whether the pod carries the label that says that people are on it.
    pub async fn is_occupied(&self, pod: &str) -> Result<bool> {
        Ok(self.pods().get(pod).await?.labels().get(label::OCCUPIED).is_some_and(|value| value == label::TRUE))
    }

    /// Waits until the label says that people are on the pod, or that nobody is.
    pub async fn wait_occupied(&self, pod: &str, want: bool) -> Result<()> {
        eventually(LIMIT, "the occupied label", || async {
            let occupied = self.is_occupied(pod).await?;
            ensure!(occupied == want, "occupied: {occupied}");
            Ok(())
        })
        .await
    }

    /// Players on one lobby, known to the operator; returns them with the lobby and its node.
    pub async fn players(&self, count: usize) -> Result<(Crowd, String, String)> {
        let mut crowd = Crowd::new();
        crowd.join(self.stack.runner(), &self.namespace, count).await?;
        let server = crowd.fullest()?;
        self.wait_occupied(&server, true).await?;
        let node = self.node_of(&server).await?;
        Ok((crowd, server, node))
    }

    /// The node of the first lobby.
    pub fn lobby_node(&self) -> Result<String> {
        let lobbies = self.stack.runner().pods_in(&self.namespace, Role::Server);
        Ok(lobbies.first().context("no lobby runs")?.facts().node.clone())
    }

    /// Crashes a node: what runs there ends without a word, and so does the node itself.
    ///
    /// # Errors
    /// When there is no such node.
    pub async fn crash(&self, node: &str) -> Result<()> {
        self.stack.runner().crash(node);
        self.stack.cluster().lose_node(node).await
    }

    /// Starts `kubectl drain`; it goes on beside the test.
    pub fn drain(&self, node: &str) -> Result<Process> {
        let args = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=300s"];
        self.stack.cluster().kubectl_spawn(&format!("drain-{node}"), args)
    }

    /// The reconciler that leads: the only one that takes agents.
    ///
    /// # Errors
    /// When none does.
    pub async fn leader(&self) -> Result<&Replica> {
        for replica in self.stack.reconcilers().iter().filter(|replica| !replica.is_frozen()) {
            if matches!(timeout(Duration::from_secs(1), TcpStream::connect(replica.address())).await, Ok(Ok(_))) {
                return Ok(replica);
            }
        }
        anyhow::bail!("no reconciler leads")
    }
}

/// The messages of all refusals after which a drain comes back.
pub fn refusals(drain: &Process) -> Vec<String> {
    let text = drain.log_path().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    text.lines().filter_map(|line| line.split_once(WILL_RETRY)).map(|(_, message)| message.to_owned()).collect()
}

/// Waits until a drain was refused at least so often, and returns the messages.
///
/// # Errors
/// When it was not.
pub async fn wait_refusals(drain: &Process, count: usize) -> Result<Vec<String>> {
    eventually(LIMIT, "refusals", || async {
        let refusals = refusals(drain);
        ensure!(refusals.len() >= count, "{} refusals\n{}", refusals.len(), drain.tail(5));
        Ok(refusals)
    })
    .await
}
