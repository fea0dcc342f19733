//! The directory of one namespace: which servers proxies may route to, with a revision that grows with every change.
//!
//! Beside the listings it keeps the latest changes in order, so that each session only remembers the revision it has
//! been sent: the whole change of a large group costs a session nothing, and one that falls behind gets the full list.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::ledger::PodUid;

/// Revision of a directory. Grows within the time of one leader; 0 = nothing has happened yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

/// A server as proxies see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Name of the server.
    pub name: String,
    /// `host:port`.
    pub address: String,
    /// Group of the server.
    pub group: String,
    /// UID of its pod.
    pub uid: PodUid,
}

/// What a session that was sent `sent` must be sent next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    Register(Revision, Listing),
    Unregister(Revision, String),
    /// It has fallen behind what is remembered.
    Everything,
}

#[derive(Debug, Clone)]
struct Logged {
    name: String,
    superseded: bool,
}

/// The directory of one namespace.
#[derive(Debug, Clone)]
pub struct Directory {
    revision: Revision,
    listings: BTreeMap<String, Listing>,
    /// The latest changes; the last is `revision`.
    log: VecDeque<Logged>,
    /// The latest change of each name in the log.
    latest: HashMap<String, Revision>,
    remembered: usize,
}

impl Directory {
    /// Changes a session may be behind before it is sent the full list: twice the largest group that L-82 names.
    pub(super) const REMEMBERED: usize = 1024;

    pub(super) fn new(remembered: usize) -> Self {
        Self {
            revision: Revision(1),
            listings: BTreeMap::new(),
            log: VecDeque::new(),
            latest: HashMap::new(),
            remembered,
        }
    }

    /// The current revision.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// All listings, sorted by name.
    pub fn listings(&self) -> impl Iterator<Item = &Listing> {
        self.listings.values()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Listing> {
        self.listings.get(name)
    }

    /// Lists a server; `None` when exactly this is listed already.
    pub(super) fn put(&mut self, listing: Listing) -> Option<Revision> {
        if self.listings.get(&listing.name) == Some(&listing) {
            return None;
        }
        let name = listing.name.clone();
        self.listings.insert(name.clone(), listing);
        Some(self.note(name))
    }

    /// Takes a pod's listing out; `None` when it is not listed.
    pub(super) fn remove(&mut self, name: &str, uid: &PodUid) -> Option<Revision> {
        if self.listings.get(name).is_none_or(|listing| listing.uid != *uid) {
            return None;
        }
        self.listings.remove(name);
        Some(self.note(name.to_owned()))
    }

    /// The next change for a session that was sent everything up to `sent`. A change that a later one of the same name
    /// overtakes is left out.
    pub(super) fn after(&self, sent: Revision) -> Next {
        let behind = self.revision.0.saturating_sub(sent.0);
        if behind == 0 {
            return Next::Nothing;
        }
        let Some(from) = usize::try_from(behind).ok().and_then(|behind| self.log.len().checked_sub(behind)) else {
            return Next::Everything;
        };
        let pending = self.log.iter().enumerate().skip(from);
        for (index, logged) in pending {
            if logged.superseded {
                continue;
            }
            let ahead = self.log.len().saturating_sub(index).saturating_sub(1);
            let revision = Revision(self.revision.0.saturating_sub(ahead as u64));
            return match self.listings.get(&logged.name) {
                Some(listing) => Next::Register(revision, listing.clone()),
                None => Next::Unregister(revision, logged.name.clone()),
            };
        }
        Next::Nothing
    }

    fn note(&mut self, name: String) -> Revision {
        self.revision = Revision(self.revision.0.saturating_add(1));
        if let Some(before) = self.latest.insert(name.clone(), self.revision) {
            let ahead = self.revision.0.saturating_sub(before.0);
            let index = usize::try_from(ahead).ok().and_then(|ahead| self.log.len().checked_sub(ahead));
            if let Some(logged) = index.and_then(|index| self.log.get_mut(index)) {
                logged.superseded = true;
            }
        }
        self.log.push_back(Logged { name, superseded: false });
        while self.log.len() > self.remembered {
            if let Some(oldest) = self.log.pop_front()
                && !oldest.superseded
            {
                self.latest.remove(&oldest.name);
            }
        }
        self.revision
    }
}
