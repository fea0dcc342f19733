//! What a proxy routes by, and who is where: every decision falls here, under one lock.
//!
//! Swapping the directory and routing a player never overlap, and a player counts as `connecting` to a server before the
//! first packet goes there. So an occupancy taken after a swap names everybody who was routed by the directory before.

use crate::game::local_api::{Directory, Occupancy, OnServer};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// A player, within one proxy.
pub type PlayerId = u64;

/// A server to connect a player to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub server: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Why a player cannot be routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoute {
    /// The proxy was told to take no newcomers.
    #[error("this proxy takes nobody now")]
    NotAccepting,
    /// No more players fit on the proxy.
    #[error("this proxy is full")]
    Full,
    /// No fallback group has a server that was not tried yet.
    #[error("no server can take you now")]
    NoServer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    address: SocketAddr,
    group: String,
}

/// Where a player is and where to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Place {
    on: Option<String>,
    to: Option<String>,
}

/// The routing table with its players.
#[derive(Debug)]
pub struct Table {
    slots: u32,
    fallback_groups: Vec<String>,
    servers: BTreeMap<String, Entry>,
    drains: BTreeMap<String, Vec<String>>,
    accepting: bool,
    players: BTreeMap<PlayerId, Place>,
}

impl Table {
    /// Knows no server yet.
    pub fn new(slots: u32, fallback_groups: Vec<String>) -> Self {
        let (servers, drains, players) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { slots, fallback_groups, servers, drains, accepting: true, players }
    }

    /// Routes by this directory from now on. A server whose address cannot be read is left out.
    pub fn adopt(&mut self, directory: &Directory) {
        let entries = directory.servers.iter().filter_map(|listed| {
            let address = listed.address.parse().ok()?;
            Some((listed.name.clone(), Entry { address, group: listed.group.clone() }))
        });
        self.servers = entries.collect();
        self.drains =
            directory.drains.iter().map(|drain| (drain.from_server.clone(), drain.to_groups.clone())).collect();
        self.accepting = directory.accepting;
    }

    /// Lets a player in and chooses its server.
    pub fn join(&mut self, player: PlayerId) -> Result<Target, NoRoute> {
        if !self.accepting {
            return Err(NoRoute::NotAccepting);
        }
        if self.players.len() >= usize::try_from(self.slots).unwrap_or(usize::MAX) {
            return Err(NoRoute::Full);
        }
        let target = self.choose(&self.fallback_groups, &BTreeSet::new()).ok_or(NoRoute::NoServer)?;
        self.players.insert(player, Place { on: None, to: Some(target.server.clone()) });
        Ok(target)
    }

    /// Chooses another server for a player whose own is gone or did not take it; `tried` are left out.
    pub fn rescue(&mut self, player: PlayerId, tried: &BTreeSet<String>) -> Result<Target, NoRoute> {
        let target = self.choose(&self.fallback_groups, tried);
        let place = self.players.entry(player).or_default();
        *place = Place { on: None, to: target.as_ref().map(|target| target.server.clone()) };
        target.ok_or(NoRoute::NoServer)
    }

    /// Chooses where to move a player whose server is to become empty; none when it can stay, or nothing would take it.
    pub fn move_off(&mut self, player: PlayerId) -> Option<Target> {
        let place = self.players.get(&player)?;
        let (Some(on), None) = (&place.on, &place.to) else { return None };
        let groups = self.drains.get(on)?;
        let target = self.choose(groups, &BTreeSet::from([on.clone()]))?;
        self.players.entry(player).or_default().to = Some(target.server.clone());
        Some(target)
    }

    /// Whether a player's server is to become empty.
    pub fn is_to_move(&self, player: PlayerId) -> bool {
        let on = self.players.get(&player).and_then(|place| place.on.as_ref());
        on.is_some_and(|on| self.drains.contains_key(on))
    }

    /// The player is on the server that was chosen for it.
    pub fn arrived(&mut self, player: PlayerId) {
        if let Some(place) = self.players.get_mut(&player)
            && let Some(to) = place.to.take()
        {
            place.on = Some(to);
        }
    }

    /// The server that was chosen did not take the player, which stays where it is.
    pub fn not_arrived(&mut self, player: PlayerId) {
        if let Some(place) = self.players.get_mut(&player) {
            place.to = None;
        }
    }

    /// The player is gone from the proxy.
    pub fn left(&mut self, player: PlayerId) {
        self.players.remove(&player);
    }

    /// Everybody, as the agent wants to know it.
    pub fn occupancy(&self, serial: u64) -> Occupancy {
        let mut servers: BTreeMap<String, OnServer> = BTreeMap::new();
        for place in self.players.values() {
            if let Some(on) = &place.on {
                servers.entry(on.clone()).or_default().players += 1;
            }
            if let Some(to) = &place.to {
                servers.entry(to.clone()).or_default().connecting += 1;
            }
        }
        Occupancy { players: u32::try_from(self.players.len()).unwrap_or(u32::MAX), slots: self.slots, servers, serial }
    }

    /// How many players the proxy has.
    pub fn players(&self) -> usize {
        self.players.len()
    }

    /// The names that newcomers may be sent to.
    pub fn servers(&self) -> Vec<String> {
        self.servers.keys().cloned().collect()
    }

    /// The first group that has a candidate wins; in it the server with the fewest players of this proxy, by name when
    /// equal.
    fn choose(&self, groups: &[String], without: &BTreeSet<String>) -> Option<Target> {
        let load = |name: &str| {
            let here = |place: &&Place| place.on.as_deref() == Some(name) || place.to.as_deref() == Some(name);
            self.players.values().filter(here).count()
        };
        groups.iter().find_map(|group| {
            let candidates =
                self.servers.iter().filter(|(name, entry)| entry.group == *group && !without.contains(*name));
            let (name, entry) = candidates.min_by_key(|(name, _)| (load(name), *name))?;
            Some(Target { server: name.clone(), address: entry.address })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::game::local_api::{Drain, Listed};

    fn listed(name: &str, group: &str) -> Listed {
        Listed { name: name.into(), address: "127.0.0.1:25565".into(), group: group.into() }
    }

    fn directory(servers: Vec<Listed>) -> Directory {
        Directory { seq: 1, servers, drains: Vec::new(), accepting: true }
    }

    fn table(servers: &[(&str, &str)]) -> Table {
        let mut table = Table::new(3, vec!["lobby".into(), "spare".into()]);
        table.adopt(&directory(servers.iter().map(|(name, group)| listed(name, group)).collect()));
        table
    }

    fn on(occupancy: &Occupancy, server: &str) -> (u32, u32) {
        occupancy.servers.get(server).map_or((0, 0), |on| (on.players, on.connecting))
    }

    #[test]
    fn fills_the_emptiest_server_of_the_first_group() {
        let mut table = table(&[("lobby-b", "lobby"), ("lobby-a", "lobby"), ("spare-a", "spare"), ("other", "games")]);
        let chosen: Vec<String> = (1..=3).map(|player| table.join(player).unwrap().server).collect();
        assert_eq!(chosen, ["lobby-a", "lobby-b", "lobby-a"]);
        assert_eq!(table.join(4), Err(NoRoute::Full));
    }

    #[test]
    fn goes_to_the_next_group_when_the_first_has_none() {
        assert_eq!(table(&[("spare-a", "spare")]).join(1).unwrap().server, "spare-a");
        assert_eq!(table(&[("other", "games")]).join(1), Err(NoRoute::NoServer));
    }

    #[test]
    fn counts_a_player_from_the_moment_of_the_choice() {
        let mut table = table(&[("lobby-a", "lobby")]);
        table.join(1).unwrap();
        table.adopt(&directory(Vec::new()));
        assert_eq!(on(&table.occupancy(1), "lobby-a"), (0, 1), "the swap must not lose who is on the way");
        table.arrived(1);
        assert_eq!(on(&table.occupancy(2), "lobby-a"), (1, 0));
        table.left(1);
        assert_eq!(table.occupancy(3).servers, BTreeMap::new());
    }

    #[test]
    fn moves_players_off_and_keeps_them_when_nothing_takes_them() {
        let mut table = table(&[("lobby-a", "lobby")]);
        table.join(1).unwrap();
        assert_eq!(table.move_off(1), None, "still on the way");
        table.arrived(1);
        let drain = Drain { from_server: "lobby-a".into(), to_groups: vec!["lobby".into()] };
        table.adopt(&Directory { drains: vec![drain.clone()], ..directory(Vec::new()) });
        assert!(table.is_to_move(1));
        assert_eq!(table.move_off(1), None, "nowhere to go");
        table.adopt(&Directory { drains: vec![drain], ..directory(vec![listed("lobby-b", "lobby")]) });
        assert_eq!(table.move_off(1).unwrap().server, "lobby-b");
        let both = table.occupancy(1);
        assert_eq!((on(&both, "lobby-a"), on(&both, "lobby-b")), ((1, 0), (0, 1)), "on both until it has arrived");
        table.not_arrived(1);
        assert_eq!(on(&table.occupancy(2), "lobby-b"), (0, 0));
        assert!(table.move_off(1).is_some());
        table.arrived(1);
        assert_eq!(on(&table.occupancy(3), "lobby-b"), (1, 0));
        assert!(!table.is_to_move(1));
    }

    #[test]
    fn a_closed_proxy_rescues_its_own_and_refuses_newcomers() {
        let mut table = table(&[("lobby-a", "lobby"), ("lobby-b", "lobby")]);
        table.join(1).unwrap();
        table.arrived(1);
        table.adopt(&Directory { accepting: false, ..directory(vec![listed("lobby-b", "lobby")]) });
        assert_eq!(table.join(2), Err(NoRoute::NotAccepting));
        assert_eq!(table.rescue(1, &BTreeSet::from(["lobby-a".into()])).unwrap().server, "lobby-b");
        assert_eq!(table.rescue(1, &BTreeSet::from(["lobby-b".into()])), Err(NoRoute::NoServer));
    }
}
