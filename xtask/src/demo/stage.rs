//! What must be there before the story begins.

use super::screen::Screen;
use anyhow::{Context as _, Result};
use serde_json::json;
use spawnery_api::names::object;
use spawnery_tests::{
    Cluster, ClusterConfig,
    game::player::Player,
    kubernetes,
    minecraft::{Bots, Installation},
    runner::{Games, Role},
    stack::{Stack, StackOptions},
    target::{self, binary},
};
use std::{fs, net::SocketAddr, path::Path};

/// Where the network lives.
pub(crate) const NAMESPACE: &str = "minecraft";
/// The group that players land in.
pub(crate) const LOBBY: &str = "lobby";
/// How long players may finish what they do before they are moved, in seconds.
const MOVE_AFTER_SECONDS: u32 = 20;
const GAME_NODES: [&str; 2] = ["games-1", "games-2"];
const EDGE_NODES: [&str; 2] = ["edge-1", "edge-2"];
/// Label that tells the two kinds of node apart.
const POOL: &str = "pool";

/// Everything that the story plays on.
pub(crate) struct Stage {
    // In the order in which they end.
    pub(super) bots: Option<Bots>,
    pub(super) entrance: Entrance,
    pub(crate) cluster: Cluster,
    /// How many proxies there are to be.
    pub(crate) proxies: usize,
    /// How long players may finish what they do before they are moved, in seconds.
    pub(crate) move_after_seconds: u32,
}

/// Where players come in.
pub(super) enum Entrance {
    /// Through proxies that this process runs in its pods' place.
    Stack(Box<Stack>),
    /// Through a node port.
    NodePort(SocketAddr),
}

/// Builds what is missing, starts a cluster, installs and starts Spawnery, and applies the network.
pub(crate) async fn set(minecraft: bool, screen: &Screen) -> Result<Stage> {
    screen.step("Building our binaries");
    screen.waits_for("cargo");
    for name in ["spawnery-reconciler", "spawnery-webhook", "spawnery-agent"] {
        binary(name).await?;
    }
    screen.step(format!(
        "Building Kubernetes {} and kwok from source (minutes, the first time only)",
        kubernetes::VERSION
    ));
    screen.waits_for("go build");
    kubernetes::binaries().await?;
    let installation = if minecraft {
        screen.step("Installing the Minecraft parts (half a minute, the first time only)");
        screen.waits_for("npm ci");
        Some(Installation::ensure().await?)
    } else {
        None
    };
    screen.step("Starting a private cluster with four nodes");
    screen.waits_for("etcd, API server, controller manager, scheduler and nodes");
    let nodes = GAME_NODES.iter().chain(&EDGE_NODES).map(|name| (*name).to_owned()).collect();
    let cluster = Cluster::start(ClusterConfig { nodes, ..ClusterConfig::default() }).await?;
    for (pool, nodes) in [("games", GAME_NODES), ("edge", EDGE_NODES)] {
        for node in nodes {
            cluster.kubectl(["label", "node", node, &format!("{POOL}={pool}")]).await?.stdout()?;
        }
    }
    screen.step(
        "Installing and starting Spawnery: two reconcilers, two webhooks, each with its own account's rights only",
    );
    screen.waits_for("certificates, caches and the lease");
    let games = installation.clone().map_or(Games::Mini, Games::Minecraft);
    let options = StackOptions { reconcilers: 2, webhooks: 2, games, ..StackOptions::default() };
    let stack = Stack::start(&cluster, options).await?;
    screen.step(format!(
        "kubectl apply: examples/network.yaml, where players of a lobby may finish for {MOVE_AFTER_SECONDS} s"
    ));
    apply_network(&cluster).await?;
    let bots = match &installation {
        Some(installation) => {
            screen.step("Waking the bots");
            screen.waits_for("Node to read its packages");
            Some(Bots::start(installation, &cluster.log_dir().join("bots.log")).await?)
        }
        None => None,
    };
    Ok(Stage {
        bots,
        entrance: Entrance::Stack(Box::new(stack)),
        cluster,
        proxies: EDGE_NODES.len(),
        move_after_seconds: MOVE_AFTER_SECONDS,
    })
}

/// The example as it stands, with what this cluster's administrator adds: servers on one pool of nodes, proxies on
/// another, and time to finish for the lobby's players.
async fn apply_network(cluster: &Cluster) -> Result<()> {
    let directory = cluster.directory().join("network");
    fs::create_dir_all(&directory).with_context(|| format!("could not make {}", directory.display()))?;
    let example = target::workspace().join("examples/network.yaml");
    fs::copy(&example, directory.join("network.yaml"))
        .with_context(|| format!("could not copy {}", example.display()))?;
    let add = |kind: &str, name: &str, path: &str, value: &serde_json::Value| {
        json!({
            "target": { "kind": kind, "name": name },
            "patch": json!([{ "op": "add", "path": path, "value": value }]).to_string(),
        })
    };
    let on = |pool: &str| json!({ "nodeSelector": { POOL: pool } });
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": ["network.yaml"],
        "patches": [
            add("Network", ".*", "/spec/defaults/scheduling", &on("games")),
            add("ProxyGroup", ".*", "/spec/scheduling", &on("edge")),
            add("ServerGroup", LOBBY, "/spec/drain",
                &json!({ "moveAfterSeconds": MOVE_AFTER_SECONDS, "timeoutSeconds": 60 })),
        ],
    });
    write(&directory.join("kustomization.yaml"), &kustomization.to_string())?;
    cluster.kubectl(["create", "namespace", NAMESPACE]).await?.stdout()?;
    cluster.kubectl([Path::new("apply"), Path::new("-k"), &directory]).await?.stdout()?;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("could not write {}", path.display()))
}

impl Stage {
    /// The addresses at which players join.
    pub(crate) fn doors(&self) -> Vec<SocketAddr> {
        match &self.entrance {
            Entrance::Stack(stack) => {
                stack.runner().pods_in(NAMESPACE, Role::Proxy).iter().map(|proxy| proxy.game_address()).collect()
            }
            Entrance::NodePort(address) => vec![*address],
        }
    }

    /// A player sets out to join at a proxy.
    pub(crate) fn join(&self, proxy: SocketAddr, n: usize) -> Player {
        self.player(proxy, format!("player{n}"))
    }

    /// Somebody who only tries the door.
    pub(crate) fn scout(&self, proxy: SocketAddr, n: usize) -> Player {
        self.player(proxy, format!("scout{n}"))
    }

    fn player(&self, proxy: SocketAddr, name: String) -> Player {
        match &self.bots {
            Some(bots) => bots.join(proxy, name),
            None => Player::join(proxy, name),
        }
    }

    /// Everything that may explain why it did not go as promised.
    pub(crate) async fn report(&self) -> String {
        let mut report = String::new();
        for args in [
            vec!["get", "pods,mcnet,mcproxy,mcgroup,mcsrv,pdb", "-n", NAMESPACE, "-o", "wide", "--show-labels"],
            vec!["get", "events", "-n", NAMESPACE, "--sort-by=.metadata.creationTimestamp"],
        ] {
            match self.cluster.kubectl(args).await {
                Ok(output) => report.push_str(&output.all()),
                Err(error) => report.push_str(&error.to_string()),
            }
        }
        report + &self.cluster.log_tails(25)
    }

    /// For `--keep`.
    pub(crate) fn how_to_reach(&self) -> String {
        format!(
            "\nIt all goes on until Ctrl-C. In another terminal:\n\n  export KUBECONFIG={}\n  export PATH={}:$PATH\n  \
             kubectl get mcnet,mcproxy,mcgroup,mcsrv,pods -n {NAMESPACE}\n\nSpawnery runs in {}, its logs are in {}.",
            self.cluster.kubeconfig().display(),
            self.cluster.binaries().directory().display(),
            object::OPERATOR_NAMESPACE,
            self.cluster.log_dir().display(),
        )
    }
}
