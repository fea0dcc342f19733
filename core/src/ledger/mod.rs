//! Who is on which pod: what agents said, when, and what may be concluded from it.
//!
//! ```text
//!  own agent of a server ── players, slots ──┐
//!                                            ├─► max(own, Σ proxies) ─► players · occupied · empty since
//!  agents of the proxies ── per server ──────┘
//! ```
//!
//! The ledger is keyed by pod UID, lives in memory and is rebuilt by reconnecting agents. Silence is never taken for
//! emptiness: a pod that was ever routable and whose count is unknown is occupied, and after a take-over nothing is
//! charged to an agent for time in which this leader could not have heard it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod book;
mod entry;
#[cfg(test)]
mod tests;

pub use book::Ledger;
pub use entry::{Count, Entry};

/// UID of a pod: the identity of an agent. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(Arc<str>);

impl PodUid {
    /// The UID as Kubernetes writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for PodUid {
    fn from(uid: &str) -> Self {
        Self(uid.into())
    }
}

impl From<String> for PodUid {
    fn from(uid: String) -> Self {
        Self(uid.into())
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Number of a session within this process: only the current one of a pod is listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// What a pod does for its players.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Holds players.
    Server,
    /// Routes players to servers.
    Proxy,
}

impl Role {
    /// The role as labels and metrics write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Proxy => "proxy",
        }
    }
}

/// What an agent can do beyond upstream's protocol, as it said in its Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Confirms directory revisions.
    pub directory_revisions: bool,
    /// Answers a request to count now.
    pub report_now: bool,
    /// Reports how many players it has on each server (proxies).
    pub server_occupancy: bool,
    /// Can refuse newcomers itself and confirms that it does.
    pub door: bool,
    /// Wants to hear something every few seconds.
    pub keep_alive: bool,
    /// Wants to hear when the pod is sealed: it may hold the pod's end up until then.
    pub release: bool,
}

/// Times by which agents are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How often an agent reports, at least. A count older than twice this is stale.
    pub report_interval: Duration,
    /// When the operator ends a session: the longest an upstream agent may take to notice a dead link.
    pub hard_deadline: Duration,
    /// How long after the hard deadline an agent may take to reconnect (upstream: 30 s backoff and 15 s grace).
    pub reconnect_slack: Duration,
    /// How long after a write a report of an agent that confirms nothing counts as its confirmation.
    pub upstream_grace: Duration,
    /// How long after a proxy left the endpoints the last newcomer may still arrive there.
    pub propagation: Duration,
    /// How far the clocks of nodes may be from ours.
    pub clock_skew: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            report_interval: Duration::from_secs(5),
            hard_deadline: Duration::from_mins(10),
            reconnect_slack: Duration::from_secs(45),
            upstream_grace: Duration::from_secs(10),
            propagation: Duration::from_secs(5),
            clock_skew: Duration::from_secs(30),
        }
    }
}

impl Rules {
    /// Age from which a count is not believed.
    pub fn stale_after(&self) -> Duration {
        self.report_interval.saturating_mul(2)
    }

    /// How long after taking over an agent that has not been heard is charged nothing.
    pub fn takeover_grace(&self) -> Duration {
        self.hard_deadline.saturating_add(self.reconnect_slack)
    }
}

/// A count as it came off the network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Players on the pod.
    pub players: i32,
    /// Most players the pod takes.
    pub slots: i32,
    /// The request that this answers; 0 for a report of the agent's own accord.
    pub nonce: u64,
    /// Proxies: everybody on, or on the way to, each server. Whole each time.
    pub servers: Vec<ServerCount>,
}

/// One proxy's players on one server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerCount {
    /// Name of the server.
    pub server: String,
    /// Players on it.
    pub players: i32,
    /// Players on the way to it.
    pub connecting: i32,
}

/// Why a report was not taken. The session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Of a session that is not the pod's current one.
    #[error("report of a session that is not current")]
    NotCurrent,
    /// A count below zero.
    #[error("report with a negative count")]
    Negative,
    /// More players than slots.
    #[error("report of {players} players in {slots} slots")]
    MoreThanSlots {
        /// Players reported.
        players: u32,
        /// Slots reported.
        slots: u32,
    },
}
