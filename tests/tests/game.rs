//! The mini game against an agent that a test scripts: what tests of the product build on must itself be sure.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use anyhow::ensure;
use spawnery_tests::{
    eventually,
    game::{
        local_api::{Listed, OnServer, Serials},
        player::{Player, PlayerState},
        proxy::{MiniProxy, ProxyConfig},
        scripted::ScriptedAgent,
        server::{MiniServer, ServerConfig},
        wire::Arrival,
    },
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::Ordering,
    time::Duration,
};
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(10);
const GROUP: &str = "lobby";

/// A server with its agent.
struct Server {
    name: String,
    address: SocketAddr,
    game: MiniServer,
    agent: ScriptedAgent,
}

async fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap()
}

async fn server(name: &str) -> Server {
    let (address, agent) = (free_address().await, ScriptedAgent::start().await.unwrap());
    let config = ServerConfig {
        name: name.to_owned(),
        address,
        slots: 10,
        agent: Some(agent.api()),
        serials: Serials::default(),
    };
    Server { name: name.to_owned(), address, game: MiniServer::start(config).await.unwrap(), agent }
}

struct World {
    agent: ScriptedAgent,
    proxy: MiniProxy,
    address: SocketAddr,
    a: Server,
    b: Server,
}

impl World {
    async fn start() -> Self {
        let (agent, address) = (ScriptedAgent::start().await.unwrap(), free_address().await);
        let config = ProxyConfig {
            name: "proxy".to_owned(),
            address,
            slots: 100,
            fallback_groups: vec!["lobby".to_owned()],
            agent: agent.api(),
            serials: Serials::default(),
        };
        let proxy = MiniProxy::start(config).await.unwrap();
        Self { agent, proxy, address, a: server("a").await, b: server("b").await }
    }

    fn list(&self, servers: &[&Server], drains: &[&str]) -> u64 {
        let listed = |server: &&Server| Listed {
            name: server.name.clone(),
            address: server.address.to_string(),
            group: GROUP.to_owned(),
        };
        self.agent.list(servers.iter().map(listed).collect(), drains, GROUP)
    }

    /// Lists servers, and waits until the proxy routes by that.
    async fn lists(&self, servers: &[&Server], drains: &[&str]) {
        self.agent.confirmed(self.list(servers, drains), LIMIT).await.unwrap();
    }

    async fn has(&self, server: &str, players: u32, connecting: u32) {
        let want = OnServer { players, connecting };
        eventually(LIMIT, "the occupancy", || async {
            let had = self.agent.occupancy().servers.get(server).copied().unwrap_or_default();
            ensure!(had == want, "{had:?}");
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn a_is_empty(&self) {
        eventually(LIMIT, "an empty server", || async {
            ensure!(self.a.game.players() == 0);
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn player_on(&self, name: &str, server: &str) -> Player {
        let player = Player::join(self.address, name);
        assert_eq!(player.wait_on(LIMIT).await.unwrap(), server);
        player
    }
}

#[tokio::test]
async fn a_player_joins_is_counted_and_leaves() {
    let world = World::start().await;
    world.lists(&[&world.a], &[]).await;
    let player = world.player_on("alex", "a").await;
    world.has("a", 1, 0).await;
    eventually(LIMIT, "the server's own count", || async {
        ensure!(world.a.agent.count() == Some(1));
        Ok(())
    })
    .await
    .unwrap();
    player.leave();
    world.has("a", 0, 0).await;
    world.a_is_empty().await;
    assert_eq!(player.state(), PlayerState::Left);
    assert!(!player.was_harmed());
}

#[tokio::test]
async fn nobody_is_taken_without_a_server() {
    let world = World::start().await;
    let player = Player::join(world.address, "alex");
    let refused = player.wait_for(LIMIT, "refused", |state| matches!(state, PlayerState::Refused { .. })).await;
    assert!(refused.is_ok(), "{refused:?}");
}

#[tokio::test]
async fn a_drain_moves_players_without_their_noticing() {
    let world = World::start().await;
    world.lists(&[&world.a], &[]).await;
    let player = world.player_on("alex", "a").await;
    world.list(&[&world.b], &["a"]);
    player.wait_for(LIMIT, "on b", |state| state.is_on("b")).await.unwrap();
    assert_eq!(player.visits().last().unwrap().how, Arrival::Moved);
    world.a_is_empty().await;
    assert!(!player.was_harmed());
}

#[tokio::test]
async fn a_drain_that_has_nowhere_to_go_takes_nobody_and_goes_on_later() {
    let world = World::start().await;
    world.lists(&[&world.a], &[]).await;
    let player = world.player_on("alex", "a").await;
    world.lists(&[], &["a"]).await;
    assert!(player.state().is_on("a"));
    world.list(&[&world.b], &["a"]);
    player.wait_for(LIMIT, "on b", |state| state.is_on("b")).await.unwrap();
}

#[tokio::test]
async fn a_crash_is_seen_by_the_player_as_a_rescue() {
    let world = World::start().await;
    world.lists(&[&world.a], &[]).await;
    let player = world.player_on("alex", "a").await;
    world.lists(&[&world.b], &[]).await;
    world.a.game.crash();
    player.wait_for(LIMIT, "on b", |state| state.is_on("b")).await.unwrap();
    assert_eq!(player.visits().last().unwrap().how, Arrival::Rescued);
    assert!(player.was_harmed());
}

#[tokio::test]
async fn a_crash_with_no_other_server_loses_the_player() {
    let world = World::start().await;
    world.lists(&[&world.a], &[]).await;
    let player = world.player_on("alex", "a").await;
    world.a.game.crash();
    let lost = player.wait_for(LIMIT, "lost", |state| matches!(state, PlayerState::Lost { .. })).await;
    assert!(lost.is_ok(), "{lost:?}");
    assert!(player.was_harmed());
}

#[tokio::test]
async fn a_confirmation_names_who_was_routed_before_the_swap() {
    let world = World::start().await;
    world.lists(&[&world.a], &[]).await;
    world.proxy.faults().dialing.shut();
    let player = Player::join(world.address, "alex");
    world.has("a", 0, 1).await;
    let had = world.agent.confirmed(world.list(&[&world.b], &[]), LIMIT).await.unwrap();
    assert_eq!(had.servers.get("a"), Some(&OnServer { players: 0, connecting: 1 }));
    world.proxy.faults().dialing.open();
    assert_eq!(player.wait_on(LIMIT).await.unwrap(), "a");
}

#[tokio::test]
async fn a_frozen_proxy_confirms_nothing_and_routes_by_what_it_had() {
    let world = World::start().await;
    world.lists(&[&world.a], &[]).await;
    world.proxy.faults().control.shut();
    let next = world.list(&[&world.b], &[]);
    world.player_on("alex", "a").await;
    assert!(world.agent.applied().is_none_or(|(seq, _)| seq < next));
    world.proxy.faults().control.open();
    world.agent.confirmed(next, LIMIT).await.unwrap();
    world.player_on("steve", "b").await;
}

#[tokio::test]
async fn a_lying_proxy_confirms_and_routes_by_what_it_had() {
    let world = World::start().await;
    world.lists(&[&world.a], &[]).await;
    world.proxy.faults().lies.store(true, Ordering::Relaxed);
    world.lists(&[&world.b], &[]).await;
    world.player_on("alex", "a").await;
}
