//! What to do for a Server now.
//!
//! ```text
//! Observed ─► guarded? ─► pod of its name ─► life: phase, causes, clock, door, seal ─► Plan
//! ```

use std::time::Duration;

use jiff::Timestamp;
use spawnery_api::conditions::{self, Desired, Outcome};
use spawnery_api::names::condition::{self, reason};
use spawnery_api::names::event::{self, action};
use spawnery_api::v1alpha1::ServerStatus;
use spawnery_core::door::WantDoor;
use spawnery_core::loss::Lost;
use spawnery_core::occupancy::{Marks, SealReason};

use super::life;
use super::observed::{Memory, Observed, PodSight};

/// How long a pod that we made may take to show in our cache before we try again.
const POD_SHOWS_WITHIN: Duration = Duration::from_secs(30);

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// For the finalizer. Anything but `Keep` is all that is done in this pass.
    pub(crate) finalizer: Finalizer,
    /// For the pod.
    pub(crate) pod: PodStep,
    /// For the door; `None` without a pod.
    pub(crate) door: Option<WantDoor>,
    /// Proxies move players off it.
    pub(crate) moving: bool,
    /// Marks to write on the pod.
    pub(crate) marks: Option<Marks>,
    /// The eviction request on the pod is void.
    pub(crate) clear_request: bool,
    /// The pod is to be sealed.
    pub(crate) seal: Option<SealReason>,
    /// The Server object is to be deleted, to be replaced by its group.
    pub(crate) delete_server: bool,
    /// Players whom the server loses now; counted once the status is written.
    pub(crate) lost: Option<Lost>,
    /// The status as it is to be.
    pub(crate) status: ServerStatus,
    /// What to tell people.
    pub(crate) events: Vec<Told>,
    /// What to remember.
    pub(crate) memory: Memory,
    /// When to look again, if nothing else happens.
    pub(crate) wake: Option<Timestamp>,
}

/// For the finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finalizer {
    /// As it is.
    Keep,
    /// Is put on before anything else happens.
    Add,
    /// Is taken off: nothing is left to do.
    Release,
}

/// For the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodStep {
    /// As it is.
    Keep,
    /// Is made.
    Create,
    /// Is deleted.
    Delete,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// Somebody should look at it.
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) action: &'static str,
    pub(crate) note: String,
}

impl Told {
    pub(crate) fn normal(reason: &str, action: &'static str, note: impl Into<String>) -> Self {
        Self { warning: false, reason: reason.to_owned(), action, note: note.into() }
    }

    pub(crate) fn warning(reason: &str, action: &'static str, note: impl Into<String>) -> Self {
        Self { warning: true, ..Self::normal(reason, action, note) }
    }
}

impl Plan {
    fn keep(seen: &Observed<'_>) -> Self {
        let status = seen.server.status.clone().unwrap_or_default();
        Self {
            finalizer: Finalizer::Keep,
            pod: PodStep::Keep,
            door: None,
            moving: false,
            marks: None,
            clear_request: false,
            seal: None,
            delete_server: false,
            lost: None,
            status,
            events: Vec::new(),
            memory: Memory { since: seen.memory.since.or(Some(seen.now)), ..seen.memory.clone() },
            wake: None,
        }
    }

    /// Sets a condition of the Server; says what that changed.
    pub(crate) fn set(&mut self, seen: &Observed<'_>, desired: Desired) -> Outcome {
        conditions::set(
            &mut self.status.conditions,
            desired.generation(seen.server.metadata.generation),
            stamp(seen.now),
        )
    }

    /// Looks again at `at` at the latest.
    pub(crate) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// Decides what to do for a Server.
pub(crate) fn plan(seen: &Observed<'_>) -> Plan {
    let mut plan = Plan::keep(seen);
    if !seen.guarded() {
        // Without the finalizer a deleted Server would go before its players; one that is going already has nobody to
        // protect it, and its pod follows by its owner reference.
        if !seen.deleting() {
            plan.finalizer = Finalizer::Add;
        }
        return plan;
    }
    match attach(seen, &mut plan) {
        Attached::Yes => life::live(seen, &mut plan),
        Attached::No if seen.deleting() => plan.finalizer = Finalizer::Release,
        Attached::No => {}
    }
    plan
}

enum Attached {
    Yes,
    No,
}

/// Ties the Server to its pod, and makes one where there is none.
fn attach(seen: &Observed<'_>, plan: &mut Plan) -> Attached {
    let name = seen.server.metadata.name.clone().unwrap_or_default();
    let missing = if seen.group.is_none() {
        let group = &seen.server.spec.group_ref.name;
        Some((reason::GROUP_NOT_FOUND, format!("there is no ServerGroup {group}")))
    } else if !seen.network {
        Some((reason::NETWORK_NOT_FOUND, "the Network of its group does not exist".to_owned()))
    } else {
        None
    };
    if plan.status.pod_name.is_empty() {
        match &seen.pod {
            PodSight::Here(_) => {
                if plan.memory.pod_made.is_none() {
                    plan.events.push(Told::normal(
                        event::POD_ADOPTED,
                        action::ADOPT_POD,
                        format!("took over pod {name}"),
                    ));
                }
                plan.status.pod_name = name;
                plan.status.started_at = Some(stamp(seen.now).into());
            }
            PodSight::Going(_) | PodSight::Foreign { going: true } => {
                let message = format!("pod {name} of another server is still being deleted");
                refuse(seen, plan, reason::POD_NAME_TERMINATING, message);
                return Attached::No;
            }
            PodSight::Foreign { going: false } => {
                let message = format!("pod {name} belongs to somebody else");
                if refuse(seen, plan, reason::POD_NAME_CONFLICT, message.clone()).changed() {
                    plan.events.push(Told::warning(event::POD_NAME_CONFLICT, action::ADOPT_POD, message));
                }
                return Attached::No;
            }
            // It had one, which went before that was written.
            PodSight::Absent if plan.memory.declared.is_some() => plan.status.pod_name = name,
            PodSight::Absent => {
                let under_way =
                    plan.memory.pod_made.is_some_and(|made| seen.now.duration_since(made) < signed(POD_SHOWS_WITHIN));
                if let Some((reason, message)) = missing {
                    refuse(seen, plan, reason, message);
                } else if !seen.deleting() && !under_way {
                    accept(seen, plan);
                    plan.pod = PodStep::Create;
                }
                return Attached::No;
            }
        }
    }
    if let Some((reason, message)) = missing {
        refuse(seen, plan, reason, message);
    } else {
        accept(seen, plan);
    }
    Attached::Yes
}

fn accept(seen: &Observed<'_>, plan: &mut Plan) {
    plan.set(seen, Desired::new(condition::ACCEPTED, true, reason::ACCEPTED));
}

fn refuse(seen: &Observed<'_>, plan: &mut Plan, reason: &str, message: String) -> Outcome {
    plan.set(seen, Desired::new(condition::ACCEPTED, false, reason).message(message))
}

/// A moment as the API server keeps it: whole seconds.
pub(crate) fn stamp(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

pub(crate) fn signed(duration: Duration) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(duration).unwrap_or(jiff::SignedDuration::MAX)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
