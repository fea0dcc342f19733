//! Where a pod of ours goes: what the scheduler extender answers.
//!
//! ```text
//!  Newcomer, Place ──► admit ──► may it go there at all          departing nodes, player budgets
//!  Newcomer, Place ──► score ──► how much we would like it to    servers to where people are, proxies apart
//!  UnderWay ─────────► depends ► whether to wait for where the ones before it end up
//! ```
//!
//! Servers are packed by *people*, not by pods: a node on which nobody plays is a node that an autoscaler can have, and one
//! that can be drained at once. Proxies are spread, first those of one group, because a node that dies takes with it
//! everybody who came through its proxies.
//!
//! Nothing is reserved, because a scheduler never says that it changed its mind. But it decides about the next pod before
//! the last one is shown on its node, so that proxies made together would all find the same node free, and servers the
//! same slots. Where that matters, the answer waits until the last one is seen.

use std::cmp::max;

/// What is to be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newcomer {
    /// A pod that holds players.
    Server {
        /// How many it takes; 0 when it does not say.
        slots: u32,
    },
    /// A pod that routes players.
    Proxy,
}

/// A node, as far as a newcomer cares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// What runs there is to leave: it is cordoned, or tainted for a drain.
    pub departing: bool,
    /// Most player slots that its servers may have together; `None` is no limit.
    pub budget: Option<u32>,
    /// Player slots of its servers, of those that are leaving too: their players are there until they have left.
    pub slots: u32,
    /// People on its servers that stay.
    pub people: u32,
    /// Its servers that stay.
    pub servers: u32,
    /// Its proxies of the newcomer's group that stay.
    pub siblings: u32,
    /// All its proxies that stay.
    pub proxies: u32,
}

/// Why a newcomer may not go to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It would have to leave again at once, and hold up a drain until its first players have left.
    Departing,
    /// The slots on the node would exceed its budget.
    OverBudget,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Departing, Self::OverBudget];

    /// Short constant name for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Departing => "departing",
            Self::OverBudget => "over_budget",
        }
    }

    /// For the pod's event, in which the scheduler puts the number of nodes with the same text before it. Nothing that
    /// differs from node to node may be in it.
    pub fn message(self) -> &'static str {
        match self {
            Self::Departing => "node(s) depart and take no new game pods",
            Self::OverBudget => "node(s) have no player slots left in their budget",
        }
    }
}

/// Whether the newcomer may go there.
///
/// A departing node is refused even to pods that tolerate its taints: a toleration says that a pod can run there, and
/// players would be led to a machine that is about to go. Neither refusal can be resolved by preempting somebody: what
/// counts towards a budget has players on it.
///
/// # Errors
/// Why not; what binds longest comes first.
pub fn admit(newcomer: Newcomer, place: &Place) -> Result<(), Refusal> {
    if place.departing {
        return Err(Refusal::Departing);
    }
    match (newcomer, place.budget) {
        (Newcomer::Server { slots }, Some(budget)) if place.slots.saturating_add(slots) > budget => {
            Err(Refusal::OverBudget)
        }
        // A proxy's people play on servers, and are counted there.
        (Newcomer::Server { .. } | Newcomer::Proxy, _) => Ok(()),
    }
}

/// Pods that a scheduler was told about and that are not seen on a node yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// Proxies of the newcomer's group.
    pub siblings: u32,
    /// Player slots of servers, together.
    pub slots: u32,
}

/// Whether the answer about a node may be another one once those under way are seen where they go.
pub fn depends(newcomer: Newcomer, under_way: UnderWay, place: &Place) -> bool {
    match newcomer {
        Newcomer::Proxy => under_way.siblings > 0,
        // That servers under way draw others is no reason to wait: the next people will do that too.
        Newcomer::Server { slots } => {
            let others = Place { slots: place.slots.saturating_add(under_way.slots), ..*place };
            admit(Newcomer::Server { slots }, place) != admit(Newcomer::Server { slots }, &others)
        }
    }
}

/// How much we would like a pod to go to a node: 0 to 10, the range that the scheduler expects of extenders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score(u32);

impl Score {
    /// Highest score; `MaxExtenderPriority` of kube-scheduler's `extender/v1`.
    pub const MAX: u32 = 10;

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The most of everything among the candidates: scores compare them with each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scale {
    people: u32,
    servers: u32,
    siblings: u32,
    proxies: u32,
}

impl Scale {
    /// The scale with one more candidate on it.
    #[must_use]
    pub fn with(self, place: &Place) -> Self {
        Self {
            people: max(self.people, place.people),
            servers: max(self.servers, place.servers),
            siblings: max(self.siblings, place.siblings),
            proxies: max(self.proxies, place.proxies),
        }
    }
}

/// Of a proxy's points, those for being apart from its own group. The others are for being apart from all proxies.
const APART_FROM_SIBLINGS: u32 = 8;
/// A server's points on a node with people on it begin above this, so that one player weighs more than any number of
/// empty servers.
const NOBODY: u32 = 2;

/// The score of a node, compared with the others on the scale.
pub fn score(newcomer: Newcomer, place: &Place, scale: &Scale) -> Score {
    if place.departing {
        return Score(0);
    }
    Score(match newcomer {
        Newcomer::Server { .. } if place.people > 0 => NOBODY + share(place.people, scale.people, Score::MAX - NOBODY),
        // While nobody plays anywhere, people will come to where the servers are.
        Newcomer::Server { .. } if scale.people == 0 => share(place.servers, scale.servers, Score::MAX),
        Newcomer::Server { .. } => share(place.servers, scale.servers, NOBODY - 1),
        Newcomer::Proxy => {
            let rest = Score::MAX - APART_FROM_SIBLINGS;
            Score::MAX
                - share(place.siblings, scale.siblings, APART_FROM_SIBLINGS)
                - share(place.proxies, scale.proxies, rest)
        }
    })
}

/// `part` of `whole` in points from 0 to `top`, rounded up: only nothing scores nothing, only the whole scores all.
fn share(part: u32, whole: u32, top: u32) -> u32 {
    if whole == 0 {
        return 0;
    }
    let points = (u64::from(part) * u64::from(top)).div_ceil(u64::from(whole));
    u32::try_from(points).unwrap_or(top).min(top)
}

#[cfg(test)]
mod tests;
