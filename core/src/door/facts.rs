//! What controllers say about pods and doors, and what they are told.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::ledger::{PodUid, Role};

/// What a controller wants of a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantDoor {
    /// Proxies may route newcomers here.
    Open,
    /// Nobody new may get in.
    Closed,
}

/// What the Server controller wants of a server pod. Declarative: saying it again changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerWant {
    /// UID of the pod.
    pub uid: PodUid,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the Server and of its pod.
    pub name: String,
    /// Group of the Server.
    pub group: String,
    /// `host:port` at which proxies reach it; empty while it has none (its door then stays closed).
    pub address: String,
    /// Whether the Server's status says that it was ever registered.
    pub was_routable: bool,
    /// Whether newcomers may get in.
    pub door: WantDoor,
}

/// What the API server says about a proxy pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyFacts {
    /// UID of the pod.
    pub uid: PodUid,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Its ProxyGroup.
    pub group: String,
    /// Groups to which the ProxyGroup moves players, in order.
    pub fallback_groups: Vec<String>,
    /// Phase Failed or Succeeded: no process is left.
    pub terminal: bool,
    /// Whether any container of the pod has ever run.
    pub started: bool,
    /// When the running container began; when none runs, when the last one ended. A process that was told something
    /// before this moment is gone.
    pub container_since: Option<Timestamp>,
    /// Whether Kubernetes may send newcomers here (the pod, or its entry in the EndpointSlice, is ready).
    pub routable: bool,
    /// Whether players reach it by a port of its node, past any Service.
    pub host_port: bool,
}

/// Where a door stands, for controllers and people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DoorView {
    /// Newcomers may get in.
    Open,
    /// Taken out of the directory; these may still let somebody in.
    Closing {
        /// Names of the pods whose confirmation is missing.
        waiting_for: Vec<String>,
    },
    /// Nobody new gets in; somebody is still inside, or these have not said yet that nobody is.
    Closed {
        /// Names of the pods whose count is missing, or that everybody has to leave first.
        waiting_for: Vec<String>,
    },
    /// Closed, and known to be empty since: may be sealed.
    Empty,
    /// A seal is being written; no way back.
    Sealing,
    /// Sealed; no way back.
    Sealed,
}

impl DoorView {
    /// Whether newcomers may get in.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether the pod may be sealed because it is empty.
    pub fn may_seal(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Whether the seal is known to be written.
    pub fn is_sealed(&self) -> bool {
        matches!(self, Self::Sealed)
    }

    /// What a person is told of the door of a server with so many players (`None` = unknown): whose counts a closed one
    /// asks for matters to nobody while people are known to be on it.
    pub fn told(&self, players: Option<u32>) -> String {
        match (self, players) {
            (Self::Closed { .. }, Some(1..)) => "Closed: waits for its players".to_owned(),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for DoorView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (state, waiting_for) = match self {
            Self::Open => ("Open", None),
            Self::Closing { waiting_for } => ("Closing", Some(waiting_for)),
            Self::Closed { waiting_for } => ("Closed", Some(waiting_for)),
            Self::Empty => ("Empty", None),
            Self::Sealing => ("Sealing", None),
            Self::Sealed => ("Sealed", None),
        };
        f.write_str(state)?;
        match waiting_for.map(Vec::as_slice) {
            None | Some([]) => Ok(()),
            Some([first]) => write!(f, ": waits for {first}"),
            Some([first, others @ ..]) => write!(f, ": waits for {first} and {} more", others.len()),
        }
    }
}

/// What is known of a server pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerView {
    /// Whether its agent's stream is up and it has said Hello.
    pub connected: bool,
    /// Whether its agent says that the game is ready.
    pub ready: bool,
    /// Players on it and on the way to it; `None` = unknown.
    pub players: Option<u32>,
    /// The last known count, however old.
    pub last_players: u32,
    /// Most players it takes, by the last report.
    pub slots: u32,
    /// Whether its agent's last report is missing or too old to be believed.
    pub stale: bool,
    /// Age of its agent's last report; zero without one.
    pub silent_for: Duration,
    /// Whether its agent has ever reached this leader.
    pub ever_connected: bool,
    /// How long its agent could have been heard and was not.
    pub stream_down_for: Duration,
    /// How long it is known to be empty.
    pub empty_for: Option<Duration>,
    /// Whether somebody is, or may be, on it.
    pub occupied: bool,
    /// Proxies that may have it in their directory and cannot hear us.
    pub deaf: BTreeSet<String>,
    /// Whether closing its door keeps newcomers out.
    pub enforced: bool,
    /// Where its door stands.
    pub door: DoorView,
}

impl ServerView {
    /// Whether its agent, which an earlier leader may have heard, may still be on its way to this one.
    pub fn expected_back(&self) -> bool {
        !self.ever_connected && self.stream_down_for.is_zero()
    }

    /// Whether nobody can count its players and its game does not say that it is up. A game that is up and cannot be
    /// counted is not waited for in vain: whoever plays there does play.
    pub fn silent(&self) -> bool {
        self.stale && !(self.connected && self.ready) && !self.expected_back()
    }
}

/// What is known of a proxy pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyView {
    /// Whether its agent's stream is up and it has said Hello.
    pub connected: bool,
    /// Players on it; `None` = unknown.
    pub players: Option<u32>,
    /// The last known count, however old.
    pub last_players: u32,
    /// Most players it takes, by the last report.
    pub slots: u32,
    /// Whether its agent's last report is missing or too old to be believed.
    pub stale: bool,
    /// Whether its agent has ever reached this leader.
    pub ever_connected: bool,
    /// How long its agent could have been heard and was not.
    pub stream_down_for: Duration,
    /// How long it is known to be empty.
    pub empty_for: Option<Duration>,
    /// Whether somebody is, or may be, on it.
    pub occupied: bool,
    /// Whether closing its door keeps newcomers out.
    pub enforced: bool,
    /// How long nobody new could get in without a break, its door open or not; zero while somebody may.
    pub shut_for: Duration,
    /// Where its door stands.
    pub door: DoorView,
}

/// What changed on a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChangeKind {
    /// Its agent's stream went up or down.
    Connected,
    /// Its agent's word on the game's readiness.
    Ready,
    /// Its count or slots.
    Count,
    /// Whether it is occupied.
    Occupied,
    /// Its door.
    Door,
}

/// A reason to look at a pod again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Change {
    /// UID of the pod.
    pub uid: PodUid,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Group of the pod.
    pub group: String,
    /// What the pod does.
    pub role: Role,
    /// What changed.
    pub kind: ChangeKind,
}

#[cfg(test)]
mod tests {
    use super::DoorView;
    use rstest::rstest;

    #[rstest]
    #[case::people_on_it(Some(3), "Closed: waits for its players")]
    #[case::nobody_on_it(Some(0), "Closed: waits for a")]
    #[case::unknown(None, "Closed: waits for a")]
    fn a_closed_door_waits_for(#[case] players: Option<u32>, #[case] told: &str) {
        assert_eq!(DoorView::Closed { waiting_for: vec!["a".to_owned()] }.told(players), told);
        assert_eq!(DoorView::Open.told(players), "Open");
    }
}
