//! May this pod be evicted now?
//!
//! ```text
//! request (name, UID, dry run, who) ─┐
//! pod as the watch cache shows it ───┼─► judge ─► Verdict: allow because …, or deny because … (+ record? + hold how long?)
//! how fresh that cache is ───────────┘
//! ```
//! The verdict depends on the **seal** alone: whoever is on a pod, whatever a deadline or an override says, is the leader's
//! business, who seals the pod when it may go. So a lagging cache can only refuse too long, never allow too early: a seal
//! is final, and a label that has not arrived yet reads as "not sealed".
//!
//! One record of a request wakes the leader ([`request::EvictionRequest`]); refusals repeat every few seconds while a drain
//! runs, so a record is written at once and then at most once a minute a pod.

pub mod request;

use std::time::Duration;

/// Longest time an answer is held back for a seal that is about to come.
pub const HOLD: Duration = Duration::from_millis(1_500);
/// A held answer goes out this long before the caller gives up on the webhook.
pub const HOLD_MARGIN: Duration = Duration::from_millis(500);
/// A request that is repeated is recorded on its pod no more often than this.
pub const RECORD_EVERY: Duration = Duration::from_mins(1);
/// A cache that has seen neither an event nor a bookmark for this long proves nothing by not knowing a pod.
pub const FRESH_FOR: Duration = Duration::from_secs(90);

/// What the watch cache shows of the pod that the request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// The pod carries our `managed-by` label.
    pub managed: bool,
    /// `metadata.uid`.
    pub uid: String,
    /// `status.phase` is `Succeeded` or `Failed`: nothing runs there any more.
    pub terminal: bool,
    /// The pod has a deletion timestamp: an eviction changes nothing.
    pub terminating: bool,
    /// The leader has sealed the pod: nobody is on it and nobody can get in, finally.
    pub sealed: bool,
    /// The pod is labelled occupied.
    pub occupied: bool,
    /// Age of the request that the pod's annotation shows; `None` without one (or with one that cannot be read).
    pub recorded: Option<Duration>,
}

/// What the eviction request says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// `deleteOptions.preconditions.uid`.
    pub uid: Option<String>,
    /// A dry run, by query (`request.dryRun`) or in the body (`deleteOptions.dryRun`): `kubectl drain` sets only the second.
    pub dry_run: bool,
    /// The request comes from the descheduler (annotation `requested-by`), which reads a phrase in our answer.
    pub descheduler: bool,
    /// How long ago this replica queued a record for the pod; `None` if it has not, has forgotten, or has seen the record
    /// cleared since: the next request is a new one.
    pub queued: Option<Duration>,
    /// Time until the caller gives up on the webhook.
    pub patience: Duration,
}

/// What the cache can vouch for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheFacts {
    /// Every watch that this decision reads has listed, and had an event or a bookmark within [`FRESH_FOR`].
    pub fresh: bool,
    /// The namespace holds a Network, or the cache cannot tell.
    pub managed_namespace: bool,
}

/// The answer to an eviction request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Spawnery does not stand in the way.
    Allow(Allow),
    /// Refused with 429, "try again later".
    Deny(Denial),
}

/// Why an eviction is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Allow {
    /// The pod is not one of ours.
    NotOurs,
    /// No such pod: the API server answers that better than we do.
    Unknown,
    /// Nothing runs in the pod any more.
    Terminal,
    /// The pod is already on its way out.
    Terminating,
    /// The request names a pod of another UID, which is gone: the API server answers with a conflict.
    OtherPod,
    /// The leader has released the pod.
    Sealed,
    /// Dry run of an empty pod: a real request closes the door first and then succeeds.
    DryRunEmpty,
}

/// Why an eviction is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// People are on the pod.
    Occupied,
    /// Nobody is on the pod, but somebody could still get in: its door is being closed.
    Open,
    /// The cache is too old to say whether the pod is ours.
    Unsure,
}

/// A refusal and what goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    /// Why.
    pub why: Why,
    /// Write the request on the pod, so that the leader acts on it.
    pub record: bool,
    /// Wait so long for the seal before this answer goes out; `None` answers at once.
    pub hold: Option<Duration>,
    /// Add the phrase by which the descheduler knows that its request is being worked on.
    pub descheduler: bool,
}

/// Judges one request. `pod` is `None` when the cache does not know the pod.
pub fn judge(pod: Option<&PodFacts>, request: &RequestFacts, cache: CacheFacts) -> Verdict {
    let Some(pod) = pod else {
        return if cache.fresh || !cache.managed_namespace {
            Verdict::Allow(Allow::Unknown)
        } else {
            Verdict::Deny(Denial { why: Why::Unsure, record: false, hold: None, descheduler: false })
        };
    };
    if let Some(allow) = passes(pod, request) {
        return Verdict::Allow(allow);
    }
    let why = if pod.occupied { Why::Occupied } else { Why::Open };
    if request.dry_run {
        return match why {
            Why::Open => Verdict::Allow(Allow::DryRunEmpty),
            Why::Occupied | Why::Unsure => Verdict::Deny(Denial { why, record: false, hold: None, descheduler: false }),
        };
    }
    let hold = match why {
        Why::Open => Some(request.patience.saturating_sub(HOLD_MARGIN).min(HOLD)).filter(|hold| !hold.is_zero()),
        Why::Occupied | Why::Unsure => None,
    };
    Verdict::Deny(Denial {
        why,
        record: record_due(pod.recorded, request.queued),
        hold,
        descheduler: request.descheduler,
    })
}

fn passes(pod: &PodFacts, request: &RequestFacts) -> Option<Allow> {
    if !pod.managed {
        Some(Allow::NotOurs)
    } else if request.uid.as_ref().is_some_and(|uid| *uid != pod.uid) {
        Some(Allow::OtherPod)
    } else if pod.terminal {
        Some(Allow::Terminal)
    } else if pod.terminating {
        Some(Allow::Terminating)
    } else if pod.sealed {
        Some(Allow::Sealed)
    } else {
        None
    }
}

/// Whether a request is written on its pod now. `recorded` is the age of what the pod shows, `queued` how long ago this
/// replica last queued a record. Another replica's record counts like our own.
fn record_due(recorded: Option<Duration>, queued: Option<Duration>) -> bool {
    [recorded, queued].into_iter().flatten().all(|age| age >= RECORD_EVERY)
}

/// `details.causes[].reason` of every refusal: what tooling keys on.
pub const CAUSE: &str = "SpawneryOccupancy";
/// Text of that cause.
pub const CAUSE_MESSAGE: &str =
    "Spawnery releases a pod for eviction when nobody is on it and nobody can join any more";
/// The descheduler takes a 429 whose message holds this phrase as "accepted, working on it".
pub const DESCHEDULER_PHRASE: &str = "Eviction triggered evacuation";

impl Denial {
    /// What the requester reads. Stable: without names, numbers or times, because Cluster API groups pods by the exact
    /// text and `kubectl drain` repeats it every 5 s.
    pub fn message(&self) -> String {
        let message = self.why.message();
        if self.descheduler { format!("{message} ({DESCHEDULER_PHRASE})") } else { message.to_owned() }
    }
}

impl Why {
    /// What the requester reads.
    pub fn message(self) -> &'static str {
        match self {
            Self::Occupied => {
                "people are on this pod: it takes no newcomers from now on, players leave or are moved as its group's \
                 drain policy says, and it is released for eviction as soon as it is empty"
            }
            Self::Open => {
                "this pod is empty but still takes newcomers: its door is being closed, and it is released for eviction \
                 as soon as that is confirmed"
            }
            Self::Unsure => "Spawnery cannot tell yet whether people are on this pod, so it stays until that is known",
        }
    }

    /// Short name for metrics, logs and audit annotations.
    pub fn label(self) -> &'static str {
        match self {
            Self::Occupied => "occupied",
            Self::Open => "open",
            Self::Unsure => "unsure",
        }
    }
}

impl Allow {
    /// Short name for metrics, logs and audit annotations.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotOurs => "not-ours",
            Self::Unknown => "unknown",
            Self::Terminal => "terminal",
            Self::Terminating => "terminating",
            Self::OtherPod => "other-pod",
            Self::Sealed => "sealed",
            Self::DryRunEmpty => "dry-run-empty",
        }
    }

    /// What the requester is told although the eviction passes.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Self::DryRunEmpty => {
                Some("this pod is empty; a real eviction closes its door first, which may take a second attempt")
            }
            Self::NotOurs | Self::Unknown | Self::Terminal | Self::Terminating | Self::OtherPod | Self::Sealed => None,
        }
    }
}

impl Verdict {
    /// Short name for metrics, logs and audit annotations.
    pub fn label(self) -> &'static str {
        match self {
            Self::Allow(allow) => allow.label(),
            Self::Deny(denial) => denial.why.label(),
        }
    }
}

#[cfg(test)]
mod tests;
