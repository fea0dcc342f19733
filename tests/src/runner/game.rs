//! The game in a pod.

use super::{Games, PodFacts, Role, World};
use crate::{
    Process,
    game::{
        GAME_PORT,
        local_api::{LocalApi, Serials},
        proxy::{MiniProxy, ProxyConfig},
        server::{MiniServer, ServerConfig},
    },
};
use anyhow::Result;
use std::{net::SocketAddr, path::Path, sync::atomic::Ordering, time::Duration};

/// A Minecraft server that was asked to end says goodbye to its players within this.
const FAREWELL: Duration = Duration::from_secs(2);

/// A game that runs.
#[derive(Debug)]
pub enum Game {
    /// A server of the mini game.
    MiniServer(MiniServer),
    /// A proxy of the mini game.
    MiniProxy(MiniProxy),
    /// A real Minecraft server or proxy.
    Minecraft(Process),
}

impl Game {
    /// Starts the game of a pod. A pod that was there before may still hold the address: then this fails, and a second
    /// try may not.
    pub(super) async fn start(
        world: &World,
        facts: &PodFacts,
        slots: u32,
        serials: &Serials,
        directory: &Path,
    ) -> Result<Self> {
        let address = facts.at(u16::try_from(GAME_PORT).unwrap_or_default());
        let agent = LocalApi::new(facts.at(crate::game::local_api::PORT));
        match (&world.options.games, facts.role) {
            (Games::Mini, Role::Server) => {
                let config = ServerConfig {
                    name: facts.name.clone(),
                    address,
                    slots,
                    agent: Some(agent),
                    serials: serials.clone(),
                };
                let server = if world.silent.load(Ordering::Relaxed) {
                    MiniServer::start_silent(config).await
                } else {
                    MiniServer::start(config).await
                };
                server.map(Self::MiniServer)
            }
            (Games::Mini, Role::Proxy) => {
                let config = ProxyConfig {
                    name: facts.name.clone(),
                    address,
                    slots,
                    fallback_groups: facts.fallback_groups(),
                    agent,
                    serials: serials.clone(),
                };
                MiniProxy::start(config).await.map(Self::MiniProxy)
            }
            (Games::Minecraft(installation), role) => {
                let log = world.logs.join(format!("game-{}-{}.log", facts.namespace, facts.name));
                let launch = match role {
                    Role::Server => installation.server(&facts.name, address, slots),
                    Role::Proxy => {
                        installation.proxy(&facts.name, address, slots, agent.address(), &facts.fallback_groups())
                    }
                };
                launch.directory(directory).log(log).start().map(Self::Minecraft)
            }
        }
    }

    /// Ends the game: the mini game at once, Minecraft with a farewell to its players.
    pub(super) async fn end(&self) {
        match self {
            Self::MiniServer(server) => server.crash(),
            Self::MiniProxy(proxy) => proxy.crash(),
            Self::Minecraft(process) => {
                // A process that cannot be stopped has ended.
                let _ = process.stop(FAREWELL).await;
            }
        }
    }

    /// Ends the game as a crash does.
    pub fn crash(&self) {
        match self {
            Self::MiniServer(server) => server.crash(),
            Self::MiniProxy(proxy) => proxy.crash(),
            Self::Minecraft(process) => {
                // A process that cannot be killed has ended.
                let _ = process.kill();
            }
        }
    }

    /// The mini proxy that this is, if it is one.
    pub fn mini_proxy(&self) -> Option<&MiniProxy> {
        match self {
            Self::MiniProxy(proxy) => Some(proxy),
            Self::MiniServer(_) | Self::Minecraft(_) => None,
        }
    }

    /// The mini server that this is, if it is one.
    pub fn mini_server(&self) -> Option<&MiniServer> {
        match self {
            Self::MiniServer(server) => Some(server),
            Self::MiniProxy(_) | Self::Minecraft(_) => None,
        }
    }
}

/// How the agent of a pod counts, as its flag has it.
pub(super) fn count_source(games: &Games, address: SocketAddr) -> String {
    match games {
        Games::Mini => "local".to_owned(),
        Games::Minecraft(_) => format!("slp:{address}"),
    }
}
