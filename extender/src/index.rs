//! Nodes with what is on them, kept as the watches tell it: a call looks up a name and finds sums.
//!
//! ```text
//! nodes ───► departing, budget ┐
//! pods ────► where, what for ──┼─► Entry per node ──► Board: a Place for core::placement
//! Servers ─► people, slots ────┘
//! ```
//! A change recounts the one node that it touches from what is on it, so sums cannot drift from what was told.

mod board;

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use spawnery_api::names::{annotation, label};
use spawnery_api::view::{NodeView, PodView, Role, ServerView};
use spawnery_core::placement::{Newcomer, Place};

use board::Board;
pub(crate) use board::{Seen, Spot};

/// `NAMESPACE/NAME`.
pub(crate) type Key = Arc<str>;

fn key(namespace: &str, name: &str) -> Key {
    format!("{namespace}/{name}").into()
}

/// A pod that a scheduler asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// What it is for.
    pub(crate) newcomer: Newcomer,
    /// Its group.
    pub(crate) group: Key,
}

impl Asked {
    /// What a pod of ours asks for; `None` for anybody else's.
    pub(crate) fn of(pod: &PodView) -> Option<Self> {
        let newcomer = match pod.role()? {
            Role::Server => Newcomer::Server { slots: declared_slots(pod).unwrap_or_default() },
            Role::Proxy => Newcomer::Proxy,
        };
        Some(Self { newcomer, group: key(pod.namespace(), pod.group().unwrap_or_default()) })
    }
}

/// Players that a pod was made for, from what it was made from.
fn declared_slots(pod: &PodView) -> Option<u32> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Inputs {
        max_players: Option<u32>,
    }
    serde_json::from_str::<Inputs>(pod.annotation(annotation::POD_INPUTS)?).ok()?.max_players
}

/// A pod on a node.
#[derive(Debug, Clone)]
struct Lodger {
    role: Role,
    group: Key,
    /// Neither ending nor sealed: it will have people on it tomorrow.
    stays: bool,
    /// By its label: somebody is on it, or nobody can say.
    occupied: bool,
    declared: Option<u32>,
}

impl Lodger {
    fn of(pod: &PodView) -> Option<Self> {
        Some(Self {
            role: pod.role()?,
            group: key(pod.namespace(), pod.group().unwrap_or_default()),
            stays: !pod.is_terminating() && !pod.is_sealed(),
            occupied: pod.is_occupied(),
            declared: declared_slots(pod),
        })
    }
}

/// What a Server's status says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct People {
    players: u32,
    slots: u32,
}

/// What a node says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    departing: bool,
    budget: Option<u32>,
}

#[derive(Debug, Default)]
struct Entry {
    /// None for a node that only pods have named so far.
    facts: Option<Facts>,
    lodgers: HashMap<Key, Lodger>,
    /// Groups that the board counts here.
    proxies: HashMap<Key, u32>,
}

/// Everything; behind a lock, with no I/O inside.
#[derive(Debug, Default)]
pub(crate) struct Index {
    default_budget: Option<u32>,
    drain_taints: Vec<String>,
    board: Board,
    nodes: HashMap<String, Entry>,
    homes: HashMap<Key, String>,
    people: HashMap<Key, People>,
}

impl Index {
    /// Nothing yet. `default_budget` is for nodes that declare none.
    pub(crate) fn new(drain_taints: Vec<String>, default_budget: Option<u32>) -> Self {
        Self { default_budget, drain_taints, ..Self::default() }
    }

    /// The nodes as the asking pod would find them.
    pub(crate) fn seen_by(&self, asked: &Asked) -> Seen<'_> {
        self.board.seen_by(asked)
    }

    /// A node is there, or has changed.
    pub(crate) fn node_applied(&mut self, node: &NodeView) {
        let facts = Facts { departing: node.is_departing(&self.drain_taints), budget: self.budget(node) };
        let entry = self.nodes.entry(node.name().to_owned()).or_default();
        entry.facts = Some(facts);
        self.recount(node.name());
    }

    /// A node is gone. Its pods may still be told of.
    pub(crate) fn node_gone(&mut self, node: &NodeView) {
        if let Some(entry) = self.nodes.get_mut(node.name()) {
            entry.facts = None;
            self.recount(node.name());
        }
    }

    /// What the node's label says; a label that is no number does not count, and is warned about.
    fn budget(&self, node: &NodeView) -> Option<u32> {
        let Some(text) = node.metadata.labels.as_ref().and_then(|labels| labels.get(label::PLAYER_BUDGET)) else {
            return self.default_budget;
        };
        if let Ok(budget) = text.parse() {
            return Some(budget);
        }
        tracing::warn!(
            name = node.name(),
            value = text,
            label = label::PLAYER_BUDGET,
            "not a number of player slots; the node has the default budget"
        );
        self.default_budget
    }

    /// A pod is there, or has changed.
    pub(crate) fn pod_applied(&mut self, pod: &PodView) {
        let key = key(pod.namespace(), pod.name());
        let lodger = Lodger::of(pod).filter(|_| !pod.is_terminal());
        match (lodger, pod.spec.node_name.as_deref().filter(|node| !node.is_empty())) {
            (Some(lodger), Some(node)) => {
                if self.homes.get(&key).is_some_and(|home| home != node) {
                    self.leave(&key);
                }
                self.homes.insert(key.clone(), node.to_owned());
                self.nodes.entry(node.to_owned()).or_default().lodgers.insert(key, lodger);
                self.recount(node);
            }
            _ => self.leave(&key),
        }
    }

    /// A pod is gone.
    pub(crate) fn pod_gone(&mut self, pod: &PodView) {
        self.leave(&key(pod.namespace(), pod.name()));
    }

    /// A Server's status says how many are on its pod, which has its name.
    pub(crate) fn server_applied(&mut self, server: &ServerView) {
        let count = |number: i32| u32::try_from(number).unwrap_or_default();
        let people = People { players: count(server.status.players), slots: count(server.status.slots) };
        let key = server_key(server);
        if self.people.insert(key.clone(), people) != Some(people) {
            self.recount_home(&key);
        }
    }

    /// A Server is gone.
    pub(crate) fn server_gone(&mut self, server: &ServerView) {
        let key = server_key(server);
        if self.people.remove(&key).is_some() {
            self.recount_home(&key);
        }
    }

    fn recount_home(&mut self, key: &Key) {
        if let Some(home) = self.homes.get(key).cloned() {
            self.recount(&home);
        }
    }

    fn leave(&mut self, key: &Key) {
        let Some(home) = self.homes.remove(key) else { return };
        if let Some(entry) = self.nodes.get_mut(&home) {
            entry.lodgers.remove(key);
            self.recount(&home);
        }
    }

    /// Something about the node has changed.
    fn recount(&mut self, node: &str) {
        let Some(entry) = self.nodes.get_mut(node) else { return };
        let (place, proxies) = entry.count(&self.people);
        for group in entry.proxies.keys().filter(|group| !proxies.contains_key(*group)) {
            self.board.count_proxies(group, node, 0);
        }
        for (group, count) in &proxies {
            self.board.count_proxies(group, node, *count);
        }
        entry.proxies = proxies;
        match entry.facts {
            Some(_) => self.board.show(node, place),
            None => self.board.hide(node),
        }
        // Names of nodes that come and go must not pile up.
        if entry.facts.is_none() && entry.lodgers.is_empty() {
            self.nodes.remove(node);
        }
    }
}

fn server_key(server: &ServerView) -> Key {
    let meta = &server.metadata;
    key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

impl Entry {
    /// What all newcomers find there alike, and by group its proxies that stay.
    fn count(&self, people: &HashMap<Key, People>) -> (Place, HashMap<Key, u32>) {
        let (departing, budget) = self.facts.map_or((false, None), |facts| (facts.departing, facts.budget));
        let mut place = Place { departing, budget, ..Place::default() };
        let mut proxies = HashMap::new();
        for (key, lodger) in &self.lodgers {
            match lodger.role {
                Role::Server => {
                    let seen = people.get(key).copied().unwrap_or_default();
                    // Unknown is occupied.
                    let on_it = seen.players.max(u32::from(lodger.occupied));
                    let slots = lodger.declared.unwrap_or(seen.slots).max(on_it);
                    place.slots = place.slots.saturating_add(slots);
                    if lodger.stays {
                        place.people = place.people.saturating_add(on_it);
                        place.servers = place.servers.saturating_add(1);
                    }
                }
                Role::Proxy if lodger.stays => {
                    place.proxies = place.proxies.saturating_add(1);
                    *proxies.entry(Arc::clone(&lodger.group)).or_default() += 1;
                }
                Role::Proxy => {}
            }
        }
        (place, proxies)
    }
}

#[cfg(test)]
mod tests;
