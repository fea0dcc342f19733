//! What every act of the story uses.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, ResourceExt, api::ListParams};
use spawnery_api::{names::object, v1alpha1::Server};
use spawnery_tests::{
    Cluster, eventually,
    installed::{DOOR_PORT, Ground, Lobbies, NAMESPACE, PROXY_NODE},
    minecraft::{Bots, Installation},
    nodes::RealCluster,
    stack::Crowd,
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// A lobby needs some seconds of a processor to load; beside a build it takes much longer.
pub(crate) const LIMIT: Duration = Duration::from_mins(4);
/// Each review that the webhook answered.
pub(crate) const DECISIONS: &str = "spawnery_webhook_decisions_total";
/// The aim for each of our own parts at rest, in bytes of memory of its own.
pub(crate) const REST_AIM: u64 = 20_000_000;

/// The cluster, whoever types there, and the players.
pub(crate) struct World<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) client: kube::Client,
    pub(crate) ground: Ground,
    pub(crate) bots: Bots,
    pub(crate) crowd: Crowd,
    /// The proxy, as players find it.
    pub(crate) door: SocketAddr,
}

impl<'a> World<'a> {
    pub(crate) async fn begin(real: &'a RealCluster, minecraft: &Installation, lobbies: Lobbies) -> Result<Self> {
        let cluster = real.cluster();
        Ok(Self {
            cluster,
            client: cluster.client().await?,
            ground: Ground::prepare(cluster, lobbies)?,
            bots: Bots::start(minecraft, &cluster.log_dir().join("bots.log")).await?,
            crowd: Crowd::new(),
            door: SocketAddr::from((real.node(PROXY_NODE)?.address(), DOOR_PORT)),
        })
    }

    pub(crate) fn servers(&self) -> Api<Server> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Waits until exactly one server takes players, and returns its name.
    pub(crate) async fn the_lobby(&self) -> Result<String> {
        let servers = self.servers();
        eventually(LIMIT, "one registered lobby", || async {
            let servers = servers.list(&ListParams::default()).await?;
            let registered: Vec<String> = servers
                .iter()
                .filter(|server| server.status.as_ref().is_some_and(|status| status.registered))
                .map(ResourceExt::name_any)
                .collect();
            ensure!(
                registered.len() == 1 && servers.items.len() == 1,
                "registered of {}: {registered:?}",
                servers.items.len()
            );
            registered.into_iter().next().context("none")
        })
        .await
    }

    /// The node of a pod.
    pub(crate) async fn node_of(&self, pod: &str) -> Result<String> {
        self.pods().get(pod).await?.spec.and_then(|spec| spec.node_name).context("the pod is on no node")
    }

    /// Waits until `kubectl get servers` says that so many play, on all servers together, and returns when it did.
    pub(crate) async fn shown(&self, players: i32) -> Result<Instant> {
        eventually(LIMIT, "kubectl to show the players", || async {
            let table = self.cluster.kubectl(["get", "servers", "-n", NAMESPACE, "--no-headers"]).await?.stdout()?;
            // NAME GROUP PHASE PLAYERS SLOTS REGISTERED AGE
            let shown: Option<i32> =
                table.lines().map(|line| line.split_whitespace().nth(3)?.parse::<i32>().ok()).sum();
            ensure!(shown == Some(players), "it shows\n{table}");
            Ok(Instant::now())
        })
        .await
    }

    /// Lets bots join until so many play, and waits until the cluster knows; returns the lobby that all are on.
    pub(crate) async fn join_until(&mut self, count: usize) -> Result<String> {
        let server = self.the_lobby().await?;
        let missing = count.saturating_sub(self.crowd.on(&server).count());
        self.crowd.join_bots(&self.bots, self.door, missing).await?;
        self.shown(i32::try_from(count)?).await?;
        Ok(server)
    }
}

/// The CA that our agents and the API server know us by, in PEM.
pub(crate) async fn published_ca(world: &World<'_>) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), NAMESPACE);
    let data = maps.get(object::CA_CONFIG_MAP).await?.data;
    data.and_then(|mut data| data.remove(object::CA_KEY)).context("no CA is published")
}

/// What a run came to, for whoever reads its output.
#[expect(clippy::print_stderr, reason = "figures are printed with --nocapture and kept by CI")]
pub(crate) fn tell(line: &str) {
    eprintln!("installed: {line}");
}
