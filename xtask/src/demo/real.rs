//! The stage on real nodes: images, helm, Services, real Minecraft.

use super::{
    screen::Screen,
    stage::{Entrance, LOBBY, NAMESPACE, Stage},
};
use anyhow::Result;
use serde_json::json;
use spawnery_tests::{
    installed::{DOOR_PORT, Ground, Images, Lobbies, PROXY_NODE},
    kubernetes,
    minecraft::{Bots, Installation},
    nodes::{self, RealCluster, RealOptions},
    target,
};
use std::{net::SocketAddr, time::Duration};

/// Players play a little, are refused once more, and go: the whole takes less than a minute.
const MOVE_AFTER_SECONDS: u32 = 8;

/// Builds what is missing, where there is a network to build with.
pub(super) async fn prepare(keep: bool, screen: &Screen) -> Result<(RealOptions, Installation)> {
    screen.step(format!(
        "Building Kubernetes {} and what nodes run, from source (minutes, the first time only)",
        kubernetes::VERSION
    ));
    screen.waits_for("go build");
    kubernetes::binaries().await?;
    nodes::binaries().await?;
    screen.step("Installing the Minecraft parts (half a minute, the first time only)");
    screen.waits_for("npm ci");
    let installation = Installation::ensure().await?;
    screen.step("Building our image and the games', without a container engine");
    screen.waits_for("cargo");
    let images = Images::build(&target::profile_name()?).await?.into_archives();
    screen.step("Starting a private cluster with two real nodes");
    screen.waits_for("the control plane, containerd and kubelet");
    let options = RealOptions { images, ..RealOptions::default() };
    // It may stay for a person to look at.
    let limit = if keep { Duration::MAX } else { options.limit };
    Ok((RealOptions { limit, ..options }, installation))
}

/// Installs Spawnery as its users do, and applies the network.
pub(super) async fn set(real: &RealCluster, installation: &Installation, screen: &Screen) -> Result<Stage> {
    let cluster = real.cluster();
    let ground = Ground::prepare(cluster, Lobbies::OnePerNode)?;
    screen.step("$ helm install spawnery charts/spawnery --namespace spawnery-system --create-namespace --wait");
    let log = cluster.log_dir().join("bots.log");
    let (_, bots) = tokio::try_join!(ground.follow("Install"), Bots::start(installation, &log))?;
    screen.step("$ kubectl apply: a lobby on each node and a proxy, each image with our agent");
    let drain = json!({ "spec": { "drain": { "moveAfterSeconds": MOVE_AFTER_SECONDS, "timeoutSeconds": 60 } } });
    cluster.kubectl(["create", "namespace", NAMESPACE]).await?.stdout()?;
    ground.apply("examples/network.yaml", NAMESPACE).await?;
    let patch = ["patch", "servergroup", LOBBY, "-n", NAMESPACE, "--type=merge", "--patch", &drain.to_string()];
    cluster.kubectl(patch).await?.stdout()?;
    Ok(Stage {
        bots: Some(bots),
        entrance: Entrance::NodePort(SocketAddr::from((real.node(PROXY_NODE)?.address(), DOOR_PORT))),
        cluster: cluster.clone(),
        proxies: 1,
        move_after_seconds: MOVE_AFTER_SECONDS,
    })
}
