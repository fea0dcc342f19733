//! Why a server's door closes, when its players are moved, and when waiting for them is over.
//!
//! A door closes for a cause. Some causes pass (an eviction that nobody asks for any more, a node that takes pods again)
//! and the door opens again unless the pod is sealed by then, or the server retires; the others are final. The clock of the
//! deadline runs only while players could be moved: while the proxies can hear us and there is somewhere to go.

use crate::occupancy::SealReason;
use crate::stop;
use jiff::Timestamp;
use std::time::Duration;

/// How long an eviction request keeps a door closed without being repeated.
pub const REQUEST_TTL: Duration = Duration::from_mins(10);
/// A request that reaches us so long after its node takes pods again may still be that drain's: it is on its way through
/// another process, whose clock is another. One that was meant otherwise is repeated.
const ON_ITS_WAY: Duration = Duration::from_secs(30);

/// Whether a request is of a drain of the pod's node that was called off at `uncordoned`, for servers and proxies alike.
pub(crate) fn called_off_with(uncordoned: Timestamp, requested: Timestamp) -> bool {
    requested.duration_since(uncordoned) <= signed(ON_ITS_WAY)
}

/// What the group says about draining (`spec.drain`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How long players may finish before they are moved.
    pub move_after: Duration,
    /// How long moving them may take.
    pub timeout: Duration,
    /// What happens then to those who are left.
    pub on_deadline: OnDeadline,
}

/// What happens to players who are left when the deadline passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDeadline {
    /// They are disconnected.
    #[default]
    Disconnect,
    /// The drain goes on until they leave.
    Hold,
}

/// Why a door closes, the most binding first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Somebody deletes the server.
    DeletionRequested,
    /// Somebody deleted its pod past us.
    PodTerminating,
    /// Its phase moves its players away: it retired for too long, or it failed with players on it.
    Draining,
    /// Its node is being emptied.
    NodeDraining,
    /// Somebody asks to evict its pod.
    EvictionRequested,
    /// It is being replaced, and its players may stay as long as they like: as long as nobody wants the pod gone.
    Retiring,
}

impl Cause {
    /// As it stands in conditions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeletionRequested => "DeletionRequested",
            Self::PodTerminating => "PodTerminating",
            Self::Draining => "Draining",
            Self::NodeDraining => "NodeDraining",
            Self::EvictionRequested => "EvictionRequested",
            Self::Retiring => "Retiring",
        }
    }

    /// Reads what a condition says.
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::DeletionRequested,
            Self::PodTerminating,
            Self::Draining,
            Self::NodeDraining,
            Self::EvictionRequested,
            Self::Retiring,
        ]
        .into_iter()
        .find(|cause| cause.as_str() == text)
    }

    /// The cause behind what an earlier leader's condition says. One that says only what the drain waits for hides it, and
    /// counts as the one that may have been called off since: a door that opens too early closes again at the next request,
    /// and players who are disconnected stay so.
    pub fn behind(text: &str) -> Option<Self> {
        Self::parse(text).or_else(|| (text == Held::NoFallbackAvailable.as_str()).then_some(Self::NodeDraining))
    }

    /// Whether the door opens again when the cause passes.
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::NodeDraining | Self::EvictionRequested)
    }

    /// Whether players are moved away, as against left alone.
    pub const fn moves(self) -> bool {
        !matches!(self, Self::Retiring)
    }
}

/// What speaks for closing the door, as seen now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Causes {
    /// The Server has a deletion timestamp.
    pub deleted: bool,
    /// Its pod has a deletion timestamp.
    pub pod_terminating: bool,
    /// The phase machine moves its players.
    pub draining: bool,
    /// It is retiring.
    pub retiring: bool,
    /// Its node is being emptied.
    pub node_departing: bool,
    /// When this process saw its node take pods again after it had been emptied.
    pub called_off_at: Option<Timestamp>,
    /// When somebody last asked to evict the pod.
    pub eviction_requested: Option<Timestamp>,
    /// The cause so far: [`Decision::remembered`], or what an earlier leader's condition says.
    pub previous: Option<Cause>,
}

impl Causes {
    /// The most binding cause that holds at `now`.
    pub fn strongest(&self, now: Timestamp) -> Option<Cause> {
        if self.deleted {
            Some(Cause::DeletionRequested)
        } else if self.pod_terminating {
            Some(Cause::PodTerminating)
        } else if self.draining {
            Some(Cause::Draining)
        } else if self.node_departing {
            Some(Cause::NodeDraining)
        } else if self.eviction_requested.is_some() && !self.withdrawn(now) {
            Some(Cause::EvictionRequested)
        } else if self.retiring {
            Some(Cause::Retiring)
        } else {
            None
        }
    }

    /// Whether the recorded eviction request is void: nobody repeated it for [`REQUEST_TTL`], or the node that was being
    /// emptied takes pods again.
    pub fn withdrawn(&self, now: Timestamp) -> bool {
        let expired = |requested| now.duration_since(requested) >= signed(REQUEST_TTL);
        self.called_off() || self.eviction_requested.is_some_and(expired)
    }

    /// Whether the recorded eviction request is of a drain whose node takes pods again.
    fn called_off(&self) -> bool {
        let Some(requested) = self.eviction_requested.filter(|_| !self.node_departing) else { return false };
        self.previous == Some(Cause::NodeDraining)
            || self.called_off_at.is_some_and(|at| called_off_with(at, requested))
    }
}

/// The clock of one drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    /// When players were told to move, put off by every time that the clock stood still (`status.drainStartedAt`).
    pub started: Option<Timestamp>,
    /// Since when it stands still; kept in memory alone.
    pub held_since: Option<Timestamp>,
}

impl Clock {
    /// The clock of a drain that an earlier leader started: nobody knows how much of the time since then the agents could
    /// hear it, so none of it is charged.
    pub const fn taken_over(started: Option<Timestamp>) -> Self {
        Self { started, held_since: started }
    }

    /// The clock to go on with: the one that this process decided on, whether or not the API server took it, or else the
    /// one that is written (`status.drainStartedAt`), taken over. A write that fails must not charge players the time that
    /// the clock stood still.
    pub fn resumed(decided: Option<Self>, written: Option<Timestamp>) -> Self {
        decided.unwrap_or_else(|| Self::taken_over(written))
    }
}

/// Why the clock stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// No server is ready to take the players.
    NoFallbackAvailable,
    /// A proxy that may have players on the server cannot hear us.
    ProxiesUnreachable,
    /// The deadline has passed and the group says to wait all the same.
    ByPolicy,
}

impl Held {
    /// As it stands in conditions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoFallbackAvailable => "NoFallbackAvailable",
            Self::ProxiesUnreachable => "ProxiesUnreachable",
            Self::ByPolicy => "HeldByPolicy",
        }
    }
}

/// How far the deadline is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// No players are being moved.
    None,
    /// It passes at `at` if nothing holds it.
    Running {
        /// When.
        at: Timestamp,
    },
    /// Its clock stands still.
    Held(Held),
    /// It has passed: whoever is left is disconnected.
    Passed,
}

/// Everything that a drain depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inputs {
    /// Why the door closes.
    pub causes: Causes,
    /// Since when it closes for a cause; `None` if it did not until now.
    pub closing_since: Option<Timestamp>,
    /// The clock so far.
    pub clock: Clock,
    /// When the kubelet ends the pod whoever is on it (its deletion timestamp); `None` while nobody deletes it.
    pub killed_at: Option<Timestamp>,
    /// Every proxy that may have players on this server hears us.
    pub audible: bool,
    /// A server of a group that players may be moved to is ready.
    pub fallback_ready: bool,
    /// Now.
    pub now: Timestamp,
}

/// What a drain does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Why the door closes; `None` if it may be open.
    pub cause: Option<Cause>,
    /// The cause to go by next time: until a request that was called off is off the pod, what called it off.
    pub remembered: Option<Cause>,
    /// The eviction request on the pod is void and to be removed.
    pub clear_request: bool,
    /// Players are told to move.
    pub moving: bool,
    /// The clock from now on.
    pub clock: Clock,
    /// How far the deadline is.
    pub deadline: Deadline,
    /// When to look again, if nothing else happens.
    pub wake: Option<Timestamp>,
}

/// Decides what a drain does now.
pub fn decide(inputs: &Inputs, policy: &Policy) -> Decision {
    let cause = inputs.causes.strongest(inputs.now);
    let expires = inputs.causes.eviction_requested.map(|at| after(at, REQUEST_TTL));
    let idle = Decision {
        cause,
        remembered: if inputs.causes.called_off() { inputs.causes.previous } else { cause },
        clear_request: inputs.causes.withdrawn(inputs.now),
        moving: false,
        clock: Clock::default(),
        deadline: Deadline::None,
        wake: expires.filter(|at| *at > inputs.now),
    };
    let Some(cause) = cause.filter(|cause| cause.moves()) else {
        return idle;
    };
    let move_at = after(inputs.closing_since.unwrap_or(inputs.now), policy.move_after);
    // Nobody may finish first on a pod whose grace is running.
    if inputs.clock.started.is_none() && inputs.killed_at.is_none() && inputs.now < move_at {
        return Decision { wake: earliest(idle.wake, Some(move_at)), ..idle };
    }
    let (clock, deadline) = run(inputs, policy, cause);
    let stop = inputs.killed_at.map(stop::stop_at);
    let deadline = match (deadline, stop) {
        // Nothing holds the kubelet's clock.
        (_, Some(stop)) if inputs.now >= stop => Deadline::Passed,
        (Deadline::Running { at }, Some(stop)) => Deadline::Running { at: at.min(stop) },
        (deadline, _) => deadline,
    };
    let at = if let Deadline::Running { at } = deadline { Some(at) } else { stop.filter(|at| *at > inputs.now) };
    Decision { moving: true, clock, deadline, wake: earliest(idle.wake, at), ..idle }
}

fn run(inputs: &Inputs, policy: &Policy, cause: Cause) -> (Clock, Deadline) {
    let now = inputs.now;
    let started = inputs.clock.started.unwrap_or(now);
    let held = if !inputs.audible {
        Some(Held::ProxiesUnreachable)
    } else if !inputs.fallback_ready && cause != Cause::DeletionRequested {
        Some(Held::NoFallbackAvailable)
    } else {
        None
    };
    if let Some(held) = held {
        let clock = Clock { started: Some(started), held_since: Some(inputs.clock.held_since.unwrap_or(now)) };
        return (clock, Deadline::Held(held));
    }
    let stood_still = inputs.clock.held_since.map(|since| now.duration_since(since)).unwrap_or_default();
    let started = started.saturating_add(stood_still).unwrap_or(Timestamp::MAX);
    let clock = Clock { started: Some(started), held_since: None };
    let at = after(started, policy.timeout);
    let deadline = match policy.on_deadline {
        _ if now < at => Deadline::Running { at },
        OnDeadline::Disconnect => Deadline::Passed,
        OnDeadline::Hold => Deadline::Held(Held::ByPolicy),
    };
    (clock, deadline)
}

/// What is known of who is behind the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    /// Somebody is, or may be, or may still get in.
    Somebody,
    /// Nobody: the door is closed, confirmed and empty.
    Nobody,
    /// Nobody, and a seal was begun whose answer was lost: it may be written, so there is no way back.
    NobodyForGood,
}

/// Whether the pod may be sealed now, and with which reason; `overridden` is an administrator's word on the pod. A seal that
/// was begun is written again although its cause may have passed: its door never opens again.
pub fn seal(decision: &Decision, inside: Inside, overridden: bool) -> Option<SealReason> {
    if inside == Inside::NobodyForGood {
        return Some(SealReason::Empty);
    }
    decision.cause?;
    if inside == Inside::Nobody {
        Some(SealReason::Empty)
    } else if overridden {
        Some(SealReason::Override)
    } else if decision.deadline == Deadline::Passed {
        Some(SealReason::Deadline)
    } else {
        None
    }
}

fn after(moment: Timestamp, duration: Duration) -> Timestamp {
    moment.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    [a, b].into_iter().flatten().min()
}

fn signed(duration: Duration) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(duration).unwrap_or(jiff::SignedDuration::MAX)
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
