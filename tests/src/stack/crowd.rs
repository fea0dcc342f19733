//! Many players, and what became of them.

use crate::{
    eventually::eventually,
    game::player::{Player, PlayerState},
    minecraft::Bots,
    runner::{Role, Runner},
};
use anyhow::{Context as _, Result, ensure};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// A join takes milliseconds; beside a build it takes longer.
const JOIN_LIMIT: Duration = Duration::from_secs(20);
/// Real Minecraft loads a world first, beside whatever else the machine does.
const BOT_LIMIT: Duration = Duration::from_mins(1);

/// Players that joined through a network's proxies. They are the witnesses: what is said here is what their own sockets
/// saw.
#[derive(Debug, Default)]
pub struct Crowd {
    players: Vec<Player>,
}

impl Crowd {
    /// Nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `count` players join through the proxies of a namespace in turn, and waits until each is on a server.
    ///
    /// # Errors
    /// When there is no proxy, or a player does not get in.
    pub async fn join(&mut self, runner: &Runner, namespace: &str, count: usize) -> Result<()> {
        let doors: Vec<SocketAddr> =
            runner.pods_in(namespace, Role::Proxy).iter().map(|pod| pod.game_address()).collect();
        ensure!(!doors.is_empty(), "there is no proxy in {namespace}");
        let first = self.players.len();
        for (n, door) in (first..first + count).zip(doors.into_iter().cycle()) {
            self.players.push(Player::join(door, format!("player{n}")));
        }
        for player in self.players.iter().skip(first) {
            player.wait_on(JOIN_LIMIT).await?;
        }
        Ok(())
    }

    /// Lets `count` bots join at this door, one after another, and returns when each was on a server. One that is not let
    /// in tries again, as a person would: a proxy hears of a server a moment after the cluster does.
    ///
    /// # Errors
    /// When one does not get in.
    pub async fn join_bots(&mut self, bots: &Bots, door: SocketAddr, count: usize) -> Result<Vec<Instant>> {
        let mut arrivals = Vec::new();
        for n in self.players.len()..self.players.len() + count {
            let player = eventually(BOT_LIMIT, "a bot to be let in", || async {
                let player = bots.join(door, format!("p{n}x{}", rand::random::<u32>()));
                player.wait_on(BOT_LIMIT).await?;
                Ok(player)
            });
            let player = player.await?;
            arrivals.extend(player.visits().last().map(|visit| visit.at));
            self.players.push(player);
        }
        Ok(arrivals)
    }

    /// Takes in a player that joined otherwise.
    pub fn add(&mut self, player: Player) {
        self.players.push(player);
    }

    /// Gives them away, for another crowd.
    pub fn into_players(self) -> Vec<Player> {
        self.players
    }

    /// All of them, also those who left.
    pub fn players(&self) -> &[Player] {
        &self.players
    }

    /// Those who play on this server.
    pub fn on<'a>(&'a self, server: &'a str) -> impl Iterator<Item = &'a Player> {
        self.players.iter().filter(move |player| player.state().is_on(server))
    }

    /// How many play on each server.
    pub fn by_server(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for player in &self.players {
            if let PlayerState::On { server } = player.state() {
                *counts.entry(server).or_default() += 1;
            }
        }
        counts
    }

    /// The server with the most players.
    ///
    /// # Errors
    /// When nobody plays.
    pub fn fullest(&self) -> Result<String> {
        let fullest = self.by_server().into_iter().max_by_key(|(_, players)| *players);
        fullest.map(|(server, _)| server).context("nobody plays")
    }

    /// Lets everybody on this server leave, and waits until each has.
    ///
    /// # Errors
    /// When somebody does not get away.
    pub async fn leave(&self, server: &str) -> Result<()> {
        let leaving: Vec<&Player> = self.on(server).collect();
        for player in &leaving {
            player.leave();
        }
        for player in leaving {
            player.wait_for(JOIN_LIMIT, "gone", |state| *state == PlayerState::Left).await?;
        }
        Ok(())
    }

    /// Those from whom something was taken: their connection, or a server under their feet.
    pub fn harmed(&self) -> Vec<String> {
        let harmed = self.players.iter().filter(|player| player.was_harmed());
        harmed.map(|player| format!("{} is {}, after {:?}", player.name(), player.state(), player.visits())).collect()
    }

    /// Nobody has come to harm.
    ///
    /// # Errors
    /// Names who has, and how.
    pub fn ensure_unharmed(&self) -> Result<()> {
        let harmed = self.harmed();
        ensure!(harmed.is_empty(), "{} of {} players came to harm: {harmed:#?}", harmed.len(), self.players.len());
        Ok(())
    }
}
