//! What calls look up.
//!
//! A call asks about thousands of nodes, milliseconds after other work has taken the processor's caches: nearly all of its
//! time goes into waiting for memory. So a node is one short entry here, its name inside, next to its neighbours'; what it
//! is counted from is kept elsewhere.

use std::collections::HashMap;

use indexmap::IndexMap;
use smallvec::SmallVec;
use spawnery_core::placement::{Newcomer, Place};

use super::{Asked, Key};

/// A node's name. Those that clouds give fit in; a longer one is somewhere else in memory.
type Name = SmallVec<[u8; 56]>;
type Table<V> = IndexMap<Name, V, foldhash::fast::RandomState>;

/// The nodes that the API server shows.
#[derive(Debug, Default)]
pub(super) struct Board {
    places: Table<Place>,
    /// By group, its proxies that stay, by node.
    proxies: HashMap<Key, Table<u32>>,
}

impl Board {
    /// What all newcomers find there alike.
    pub(super) fn show(&mut self, node: &str, place: Place) {
        match self.places.get_mut(node.as_bytes()) {
            Some(known) => *known = place,
            None => drop(self.places.insert(node.as_bytes().into(), place)),
        }
    }

    /// The API server does not show the node.
    pub(super) fn hide(&mut self, node: &str) {
        self.places.swap_remove(node.as_bytes());
    }

    /// So many proxies of a group stay on a node.
    pub(super) fn count_proxies(&mut self, group: &Key, node: &str, count: u32) {
        if count > 0 {
            self.proxies.entry(group.clone()).or_default().insert(node.as_bytes().into(), count);
        } else if let Some(nodes) = self.proxies.get_mut(group) {
            nodes.swap_remove(node.as_bytes());
            // Names of groups that come and go must not pile up.
            if nodes.is_empty() {
                self.proxies.remove(group);
            }
        }
    }

    /// The nodes as the asking pod would find them.
    pub(super) fn seen_by(&self, asked: &Asked) -> Seen<'_> {
        let siblings = match asked.newcomer {
            Newcomer::Server { .. } => None,
            Newcomer::Proxy => self.proxies.get(&asked.group),
        };
        Seen { places: &self.places, siblings }
    }
}

/// Where a node is on the board, as long as that is borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot(usize);

/// The nodes as one pod would find them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    places: &'a Table<Place>,
    /// Proxies of its own group.
    siblings: Option<&'a Table<u32>>,
}

impl Seen<'_> {
    /// `None` when there is no such node, as far as we know.
    pub(crate) fn find(&self, node: &str) -> Option<Spot> {
        self.places.get_index_of(node.as_bytes()).map(Spot)
    }

    /// What is there.
    pub(crate) fn at(&self, Spot(n): Spot) -> Option<Place> {
        let (name, place) = self.places.get_index(n)?;
        let siblings = self.siblings.and_then(|nodes| nodes.get(name)).copied().unwrap_or_default();
        Some(Place { siblings, ..*place })
    }

    /// Both.
    pub(crate) fn place(&self, node: &str) -> Option<Place> {
        self.find(node).and_then(|spot| self.at(spot))
    }
}
