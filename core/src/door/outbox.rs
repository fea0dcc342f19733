//! What one session still has to be sent. There is no queue: an outbox remembers how far its peer is, and the next
//! message follows from the difference to what holds now. It is bounded by construction and coalesces by itself.

use std::time::Instant;

use super::directory::{Listing, Revision};
use crate::ledger::Generation;

/// A message to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    /// The whole directory, sorted by name.
    FullSync {
        /// Revision to which it brings the proxy.
        revision: Revision,
        /// The directory.
        servers: Vec<Listing>,
    },
    /// One server more, or with another address.
    Register {
        /// Revision to which it brings the proxy.
        revision: Revision,
        /// The server.
        server: Listing,
    },
    /// One server less.
    Unregister {
        /// Revision to which it brings the proxy.
        revision: Revision,
        /// The server's name.
        name: String,
    },
    /// Move everybody off a server; with no groups: stop moving them.
    Drain {
        /// The server's name.
        from_server: String,
        /// Where to, in order.
        to_groups: Vec<String>,
    },
    /// Whether the proxy may take new players.
    SetReady(bool),
    /// Whether the pod itself may take newcomers.
    Door {
        /// Whether it may.
        open: bool,
        /// Grows with every change.
        revision: u64,
    },
    /// Count now and answer with the nonce.
    ReportNow {
        /// Grows over all requests.
        nonce: u64,
    },
    /// The pod is sealed: it need not be held up any longer.
    Release,
}

/// How far the peer of one session is.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    pub(super) generation: Generation,
    /// Directory revision sent on this stream; `None` before the first full list.
    pub(super) directory: Option<Revision>,
    /// Send the full list again, and with it all drains and the readiness.
    pub(super) resync: bool,
    /// Drains up to this number are sent.
    pub(super) drains: u64,
    pub(super) ready: Option<bool>,
    /// Highest request sent on this stream.
    pub(super) nonce: u64,
    /// Revision of the pod's own door sent on this stream.
    pub(super) door: u64,
    /// It was told on this stream that its pod is sealed.
    pub(super) released: bool,
}

impl Outbox {
    pub(super) fn new(generation: Generation) -> Self {
        Self { generation, directory: None, resync: false, drains: 0, ready: None, nonce: 0, door: 0, released: false }
    }
}

/// What we and one pod's agent have to say to each other, over all its sessions.
#[derive(Debug, Clone, Default)]
pub(super) struct Talk {
    pub(super) outbox: Option<Outbox>,
    /// Highest request for a count.
    pub(super) ask: u64,
    /// Highest request that was answered.
    pub(super) answered: u64,
    pub(super) own_door: OwnDoor,
    /// Whether the proxy may take new players, once a controller has said so.
    pub(super) ready: Option<bool>,
}

/// The pod's own refusal of newcomers.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnDoor {
    pub(super) closed: bool,
    /// 0 = nothing was ever said about it: it is open.
    pub(super) revision: u64,
    /// What the current session's agent has confirmed.
    pub(super) confirmed: Option<u64>,
    /// Since when the agent's process has refused newcomers, as it confirmed.
    pub(super) refusing_since: Option<Instant>,
}

impl OwnDoor {
    /// Wants it open or closed; `true` when that is news.
    pub(super) fn want(&mut self, closed: bool) -> bool {
        let news = self.closed != closed;
        if news {
            self.closed = closed;
            self.revision = self.revision.saturating_add(1);
            self.confirmed = None;
            self.refusing_since = None;
        }
        news
    }

    /// Another session begins. Its agent is the same process when the session before is still up; else it may be a new
    /// one, whose door is open until it was told.
    pub(super) fn new_session(&mut self, renewed: bool) {
        self.confirmed = None;
        if !renewed {
            self.refusing_since = None;
        }
    }

    /// The current session's agent has confirmed what is wanted.
    pub(super) fn confirm(&mut self, now: Instant) {
        self.confirmed = Some(self.revision);
        if self.closed {
            self.refusing_since.get_or_insert(now);
        }
    }

    pub(super) fn confirmed_closed(&self) -> bool {
        self.closed && self.confirmed == Some(self.revision)
    }
}
