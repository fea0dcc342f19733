//! What a pass over a ProxyGroup does.

use std::time::Duration;

use jiff::Timestamp;
use spawnery_api::names::event::{self, action};
use spawnery_api::v1alpha1::{ExposeType, ProxyGroupStatus};
use spawnery_core::drain::REQUEST_TTL;
use spawnery_core::occupancy::{self, Facts, Marks, SealReason};
use spawnery_core::rollout::{Cause, PATIENCE, Step, decide};

use super::observed::{Observed, Sight, draining_since};
use super::status;
use crate::seal;

/// A pod, exactly: never another one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodId {
    pub(super) name: String,
    pub(super) uid: String,
}

impl PodId {
    fn of(sight: &Sight) -> Self {
        Self { name: sight.pod.name().to_owned(), uid: sight.pod.uid().to_owned() }
    }
}

/// What a door is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Door {
    pub(super) pod: PodId,
    pub(super) open: bool,
    /// What the annotation that says since when it closes has to become; none when it is right.
    pub(super) since: Option<Since>,
}

/// The annotation that says since when a door closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Since {
    Written(Timestamp),
    Removed,
}

/// Something to tell people once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) note: String,
}

/// What is to become of our finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finalizer {
    Keep,
    Add,
    Release,
}

/// Everything that a pass does, in the order in which it is done.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) finalizer: Finalizer,
    pub(super) marks: Vec<(PodId, Marks)>,
    pub(super) doors: Vec<Door>,
    /// Requests that are void: nobody repeated them, or their drain was called off.
    pub(super) expired: Vec<PodId>,
    pub(super) seals: Vec<(PodId, SealReason)>,
    pub(super) removals: Vec<PodId>,
    pub(super) create: u32,
    pub(super) status: ProxyGroupStatus,
    pub(super) events: Vec<Told>,
    /// When to look again though nothing changes.
    pub(super) wake: Option<Duration>,
}

/// Plans a pass.
pub(super) fn plan(seen: &Observed) -> Plan {
    let deleting = seen.deleting();
    let alive: Vec<&Sight> = seen.pods.iter().filter(|sight| sight.alive()).collect();
    let proxies: Vec<_> = alive.iter().map(|sight| sight.proxy(seen)).collect();
    let wanted = seen.wanted();
    let decision = decide(&proxies, wanted);
    let (status, events) = status::next(seen);
    let mut plan = Plan {
        finalizer: match (deleting, seen.guarded(), seen.pods.is_empty()) {
            (false, false, _) => Finalizer::Add,
            (true, true, true) => Finalizer::Release,
            (true | false, true, _) | (true, false, _) => Finalizer::Keep,
        },
        marks: seen.pods.iter().filter_map(|sight| marks(sight, seen)).collect(),
        doors: Vec::new(),
        expired: alive.iter().filter(|sight| sight.request_void(seen)).map(|sight| PodId::of(sight)).collect(),
        seals: Vec::new(),
        removals: Vec::new(),
        // Without a Network there is nothing to make a pod from; what is there is looked after all the same.
        create: if seen.network.is_ok() && seen.desired_hash.is_some() { decision.create } else { 0 },
        status,
        events,
        wake: None,
    };
    for (sight, proxy) in alive.iter().zip(&proxies) {
        let closed = decision.closed.contains(&proxy.name);
        let since = match (closed, draining_since(&sight.pod)) {
            (true, None) => Some(Since::Written(seen.now)),
            (false, _) if sight.marked() => Some(Since::Removed),
            (true, Some(_)) | (false, _) => None,
        };
        if closed && since.is_some() && proxy.cause == Some(Cause::NodeDeparting) {
            plan.events.push(draining(sight));
        }
        let door = Door { pod: PodId::of(sight), open: !closed, since };
        plan.doors.push(door);
        if closed {
            leave(&mut plan, sight, seen);
        } else if proxy.cause.is_some() {
            wake_in(&mut plan, PATIENCE.saturating_sub(proxy.caused_for));
        }
        if proxy.cause == Some(Cause::EvictionRequested) {
            // Nobody may repeat it, and then nothing else wakes us.
            wake_in(&mut plan, REQUEST_TTL);
        }
        if let Some(left) = wanted.room_after().and_then(|patience| sight.patience_left(patience))
            && proxies.iter().any(|proxy| proxy.outdated)
        {
            wake_in(&mut plan, left);
        }
        let carried = seal::carried(&sight.pod);
        if let Some(renewal) = occupancy::renew_in(&facts(sight, seen), &carried) {
            wake_in(&mut plan, renewal);
        }
    }
    // Whoever deleted these asked nobody; their players may stay for as long as the pre-stop hook holds them up.
    for sight in seen.pods.iter().filter(|sight| sight.going()) {
        plan.doors.push(Door { pod: PodId::of(sight), open: false, since: None });
        leave(&mut plan, sight, seen);
    }
    // Nobody is on a pod whose containers have ended for good, and nothing brings it back.
    plan.removals.extend(seen.pods.iter().filter(|sight| dead(sight)).map(PodId::of));
    plan
}

fn dead(sight: &Sight) -> bool {
    sight.pod.is_terminal() && !sight.pod.is_terminating()
}

fn leave(plan: &mut Plan, sight: &Sight, seen: &Observed) {
    match sight.leaving(seen).step() {
        Step::Wait(None) => {}
        Step::Wait(Some(wait)) => wake_in(plan, wait),
        Step::Remove => plan.removals.push(PodId::of(sight)),
        Step::Seal(reason) => {
            if reason == SealReason::Deadline {
                let players = sight.view.last_players;
                let allowed = match sight.pod.metadata.deletion_grace_period_seconds {
                    Some(grace) => format!("somebody deleted its pod with a grace of {grace} seconds"),
                    None => format!("they had {} seconds to leave", seen.group.spec.drain.timeout_seconds),
                };
                let note = format!(
                    "proxy {} goes with {players} players on it, as last reported: {allowed}",
                    sight.pod.name()
                );
                let (reason, action) = (event::PROXY_DRAIN_TIMEOUT, action::DRAIN_PROXY);
                plan.events.push(Told { warning: true, reason, action, note });
            }
            plan.seals.push((PodId::of(sight), reason));
        }
    }
}

fn draining(sight: &Sight) -> Told {
    let departing = sight.pod.spec.node_name.as_deref().unwrap_or_default();
    let note = format!("proxy {} takes no new players: node {departing} is being drained", sight.pod.name());
    Told { warning: false, reason: event::NODE_DRAINING, action: action::DRAIN_PROXY, note }
}

fn marks(sight: &Sight, seen: &Observed) -> Option<(PodId, Marks)> {
    if sight.pod.is_terminating() {
        return None;
    }
    let marks = occupancy::marks(&facts(sight, seen), &seal::carried(&sight.pod))?;
    Some((PodId::of(sight), marks))
}

/// Nobody is on a pod whose containers have ended for good, whatever its agent last said, and nobody on one to which no
/// Service ever led.
fn facts(sight: &Sight, seen: &Observed) -> Facts {
    let by_service_alone = seen.group.spec.expose.kind != ExposeType::HostPort;
    let nobody_yet = by_service_alone && !sight.view.ever_connected && sight.never_ready();
    let occupied = sight.view.occupied && !sight.pod.is_terminal() && !nobody_yet;
    Facts { occupied, started: sight.pod.status.start_time, now: seen.now }
}

fn wake_in(plan: &mut Plan, wait: Duration) {
    // A clock that is a little fast must not find us a moment too early and for nothing.
    let wait = wait.max(Duration::from_millis(10));
    plan.wake = Some(plan.wake.map_or(wait, |wake| wake.min(wait)));
}

#[cfg(test)]
mod tests;
