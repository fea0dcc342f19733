//! Real Minecraft parts under our adapters: what the demo with `--minecraft` builds on.

use anyhow::{Context as _, Result, ensure};
use spawnery_tests::{
    Process, eventually,
    game::{local_api::Listed, player::PlayerState, scripted::ScriptedAgent},
    minecraft::{Bots, Installation},
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};
use tokio::net::TcpListener;

/// Node reads 170 MB of packages for each process, on a machine that may be busy.
const START_LIMIT: Duration = Duration::from_mins(2);
const LIMIT: Duration = Duration::from_secs(30);
const GROUP: &str = "lobby";

async fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?)
}

/// A server that has come up.
async fn server(installation: &Installation, name: &str, directory: &Path) -> Result<(Process, Listed)> {
    let address = free_address().await?;
    let own = directory.join(name);
    std::fs::create_dir_all(&own)?;
    let log = directory.join(format!("{name}.log"));
    let process = installation.server(name, address, 20).directory(own).log(log).start()?;
    process.wait_for_log("ready", START_LIMIT).await?;
    Ok((process, Listed { name: name.to_owned(), address: address.to_string(), group: GROUP.to_owned() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn bots_join_are_moved_rescued_and_leave() -> Result<()> {
    let installation = Installation::ensure().await?;
    let directory = tempfile::tempdir()?;
    let agent = ScriptedAgent::start().await?;
    let (a, listed_a) = server(&installation, "a", directory.path()).await?;
    let (b, listed_b) = server(&installation, "b", directory.path()).await?;
    let address = free_address().await?;
    let proxy = installation.proxy("proxy", address, 20, agent.address(), &[GROUP.to_owned()]);
    let proxy = proxy.directory(directory.path()).log(directory.path().join("proxy.log")).start()?;
    proxy.wait_for_log("ready", START_LIMIT).await?;
    let bots = Bots::start(&installation, &directory.path().join("bots.log")).await?;

    agent.confirmed(agent.list(vec![listed_a.clone()], &[], GROUP), LIMIT).await?;
    let players = [bots.join(address, "alex"), bots.join(address, "steve")];
    for player in &players {
        ensure!(player.wait_on(START_LIMIT).await? == "a");
    }
    eventually(LIMIT, "the proxy to count both", || async {
        let on_a = agent.occupancy().servers.get("a").copied().context("nobody is on a")?;
        ensure!(on_a.players == 2 && on_a.connecting == 0, "{on_a:?}");
        Ok(())
    })
    .await?;

    // A drain: both are moved and stay connected.
    agent.list(vec![listed_b.clone()], &["a"], GROUP);
    for player in &players {
        player.wait_for(LIMIT, "on b", |state| state.is_on("b")).await?;
    }
    // A server that ends under them: the proxy finds another.
    agent.confirmed(agent.list(vec![listed_a, listed_b], &[], GROUP), LIMIT).await?;
    b.stop(LIMIT).await?;
    for player in &players {
        player.wait_for(LIMIT, "on a", |state| state.is_on("a")).await?;
    }
    for player in &players {
        player.leave();
        player.wait_for(LIMIT, "gone", |state| *state == PlayerState::Left).await?;
    }
    eventually(LIMIT, "an empty proxy", || async {
        ensure!(agent.occupancy().servers.is_empty());
        Ok(())
    })
    .await?;
    a.stop(LIMIT).await.map(drop)
}
