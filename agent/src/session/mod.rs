//! What is said on the channel, and what is answered to what: all of it without a socket.
//!
//! [`State`](state::State) takes what comes in (operator's messages, counts, confirmations of the game) and queues what is
//! to be said in an [`Outbox`](outbox::Outbox); [`Deadlines`](deadlines::Deadlines) says when something is due. The driver
//! in `keeper` owns the streams and moves messages between them and this.

pub mod backoff;
pub mod deadlines;
pub mod due;
pub mod outbox;
pub mod state;
pub mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// Whose agent this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// In the pod of a game server.
    Server,
    /// In the pod of a proxy.
    Proxy,
}

/// Which state of the directory or of the door a message speaks of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Grows within an epoch; 0 from an operator that does not number its directory.
    pub revision: u64,
    /// Which leader spoke.
    pub epoch: u64,
}

/// A server to which a proxy may route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// `host:port`.
    pub address: String,
    /// The group it belongs to.
    pub group: String,
}

/// What the operator said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Report at least this often.
    ReportInterval(Duration),
    /// Open the next session after the first, expect the end of this one at the second.
    SessionDeadline {
        /// From the opening of this stream.
        renew_after: Duration,
        /// From the opening of this stream.
        hard_deadline: Duration,
    },
    /// Count again and answer with this nonce.
    ReportNow {
        /// Grows from question to question; an answer to one answers all before it.
        nonce: u64,
    },
    /// Let newcomers in, or no longer.
    Door {
        /// Whether they may come in.
        open: bool,
        /// Which order this is.
        mark: Mark,
    },
    /// The pod is sealed: its end need not be held up.
    Release {
        /// Which leader spoke.
        epoch: u64,
    },
    /// Still here.
    KeepAlive {
        /// Which leader spoke.
        epoch: u64,
    },
    /// The whole directory.
    FullSync {
        /// All of it.
        servers: Vec<Entry>,
        /// Which state it is.
        mark: Mark,
    },
    /// One more server.
    Register {
        /// Which.
        server: Entry,
        /// The state reached with it.
        mark: Mark,
    },
    /// One server less.
    Unregister {
        /// Which.
        name: String,
        /// The state reached with it.
        mark: Mark,
    },
    /// Move everybody off a server; to nowhere means: no longer.
    Drain {
        /// The server to empty.
        from_server: String,
        /// Groups to try, in order; empty ends the drain.
        to_groups: Vec<String>,
        /// Which leader spoke.
        epoch: u64,
    },
    /// Whether the proxy may take new players.
    SetReady {
        /// Whether it may.
        ready: bool,
        /// Which leader spoke.
        epoch: u64,
    },
}

impl Incoming {
    /// The leader that spoke, for messages that name one.
    pub fn epoch(&self) -> Option<u64> {
        match self {
            Self::ReportInterval(_) | Self::SessionDeadline { .. } | Self::ReportNow { .. } => None,
            Self::Door { mark, .. }
            | Self::FullSync { mark, .. }
            | Self::Register { mark, .. }
            | Self::Unregister { mark, .. } => Some(mark.epoch),
            Self::Release { epoch }
            | Self::KeepAlive { epoch }
            | Self::Drain { epoch, .. }
            | Self::SetReady { epoch, .. } => Some(*epoch),
        }
    }

    /// Whether only an operator that also sends keep-alives says this. Upstream's sends neither numbers nor epochs.
    pub fn shows_keep_alive(&self) -> bool {
        match self {
            Self::KeepAlive { .. } | Self::ReportNow { .. } | Self::Door { .. } | Self::Release { .. } => true,
            Self::FullSync { mark, .. } | Self::Register { mark, .. } | Self::Unregister { mark, .. } => {
                *mark != Mark::default()
            }
            Self::Drain { epoch, .. } | Self::SetReady { epoch, .. } => *epoch > 0,
            Self::ReportInterval(_) | Self::SessionDeadline { .. } => false,
        }
    }
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// First on every stream.
    Hello {
        /// Servers: the game has loaded.
        ready: bool,
        /// What this agent can do beyond upstream's protocol.
        capabilities: Vec<String>,
    },
    /// The game has loaded.
    Ready,
    /// How many are on.
    Count {
        /// The numbers.
        tally: Tally,
        /// The question that this answers; 0 for none.
        nonce: u64,
    },
    /// The game routes by this state of the directory.
    DirectoryApplied(Mark),
    /// The game's door stands so.
    DoorApplied {
        /// Whether newcomers are let in.
        open: bool,
        /// The order that was carried out.
        mark: Mark,
    },
}

/// How many players a proxy has on one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnServer {
    /// Whose game traffic goes there.
    pub players: u32,
    /// Who is on the way.
    pub connecting: u32,
}

/// A count that can be reported: slots are never below players.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    players: u32,
    slots: u32,
    servers: BTreeMap<String, OnServer>,
}

impl Tally {
    /// `players` on a pod of `slots`. An operator drops a report with more players than slots, and a dropped report is an
    /// unknown pod; so slots are raised to the players, never the players lowered.
    pub fn new(players: u32, slots: u32) -> Self {
        Self { players, slots: slots.max(players), servers: BTreeMap::new() }
    }

    /// With the proxy's players by server.
    #[must_use]
    pub fn with_servers(self, servers: BTreeMap<String, OnServer>) -> Self {
        Self { servers, ..self }
    }

    /// Players on the pod.
    pub fn players(&self) -> u32 {
        self.players
    }

    /// Most players that the pod takes.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Proxies: players by server.
    pub fn servers(&self) -> &BTreeMap<String, OnServer> {
        &self.servers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::below(3, 20, 20)]
    #[case::full(20, 20, 20)]
    #[case::more_players_than_slots(21, 20, 21)]
    #[case::no_slots_known(5, 0, 5)]
    fn slots_never_below_players(#[case] players: u32, #[case] slots: u32, #[case] want: u32) {
        let tally = Tally::new(players, slots);
        assert_eq!((tally.players(), tally.slots()), (players, want));
    }
}
