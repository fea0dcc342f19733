//! What a ProxyGroup's status says, and when it is worth a write.

use std::time::Duration;

use jiff::Timestamp;
use spawnery_api::conditions::{self, Desired, Outcome};
use spawnery_api::names::annotation;
use spawnery_api::names::condition::{self, reason};
use spawnery_api::names::event::{self, action};
use spawnery_api::v1alpha1::ProxyGroupStatus;
use spawnery_core::door::DoorView;

use super::observed::{Observed, Sight};
use super::plan::Told;
use crate::network::plan::NotUsable;
use crate::render;

/// A proxy that takes people in for so long after it was told not to is worth telling.
pub(super) const DIVERGED_AFTER: Duration = Duration::from_mins(1);

/// How far apart writes are that carry only counts.
const COUNTS_APART: Duration = Duration::from_secs(1);

/// The status after this pass, and what its changes are worth telling.
pub(super) fn next(seen: &Observed) -> (ProxyGroupStatus, Vec<Told>) {
    let mut status = seen.group.status.clone().unwrap_or_default();
    let mut events = Vec::new();
    let pods = || seen.pods.iter().filter(|sight| !sight.pod.is_terminating());
    let ready = pods().filter(|sight| sight.pod.is_ready()).count();
    status.ready_replicas = i32::try_from(ready).unwrap_or(i32::MAX);
    let players: u32 = pods().map(|sight| sight.view.last_players).fold(0, u32::saturating_add);
    status.connected_players = i32::try_from(players).unwrap_or(i32::MAX);
    let service = seen.service.as_deref();
    status.address = render::address(&seen.group.spec.expose, service, pods().map(|sight| sight.pod.as_ref()));
    status.observed_generation = seen.group.metadata.generation.unwrap_or_default();
    for desired in desired(seen) {
        flank(&mut status, desired.generation(seen.group.metadata.generation), seen.now, &mut events);
    }
    let degraded = conditions::is_true(&status.conditions, condition::DEGRADED);
    let whole = status.ready_replicas > 0 && status.ready_replicas >= seen.group.spec.replicas;
    let phase = match (degraded, whole) {
        (true, _) => "Degraded",
        (false, true) => "Ready",
        (false, false) => "Pending",
    };
    phase.clone_into(&mut status.phase);
    (status, events)
}

fn desired(seen: &Observed) -> [Desired; 7] {
    [accepted(seen), node_draining(seen), degraded(seen), diverged(seen), enforced(seen), budgets(seen), contents(seen)]
}

fn accepted(seen: &Observed) -> Desired {
    let network = &seen.group.spec.network_ref.name;
    match seen.network {
        Ok(()) => Desired::new(condition::ACCEPTED, true, reason::ACCEPTED),
        Err(problem @ NotUsable::NotFound) => Desired::new(condition::ACCEPTED, false, problem.reason()).message(
            format!("there is no Network {network} in this namespace: create it, or the group makes no proxies"),
        ),
        Err(problem @ NotUsable::NotAccepted) => Desired::new(condition::ACCEPTED, false, problem.reason())
            .message(format!("Network {network} is not accepted: see its own conditions")),
    }
}

fn node_draining(seen: &Observed) -> Desired {
    let mut nodes: Vec<_> = seen
        .pods
        .iter()
        .filter(|sight| sight.departing() && !sight.pod.is_terminating())
        .filter_map(|sight| sight.pod.spec.node_name.as_deref())
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() {
        return Desired::new(condition::NODE_DRAINING, false, reason::NO_NODES_DRAINING);
    }
    Desired::new(condition::NODE_DRAINING, true, reason::NODE_DRAINING)
        .message(format!("proxies leave these nodes: {}", nodes.join(", ")))
}

fn degraded(seen: &Observed) -> Desired {
    let generation = seen.group.metadata.generation.unwrap_or_default();
    if let Some((of, message)) = &seen.memory.rejected
        && *of == generation
    {
        return Desired::new(condition::DEGRADED, true, reason::PROXY_POD_REJECTED).message(message.clone());
    }
    if let Some(message) = seen.memory.refused.message() {
        return Desired::new(condition::DEGRADED, true, reason::OBJECT_REJECTED).message(message);
    }
    let blocked = seen.pods.iter().filter(|sight| sight.alive()).find_map(unschedulable);
    if let Some(message) = blocked {
        return Desired::new(condition::DEGRADED, true, reason::PROXY_POD_UNSCHEDULABLE).message(message);
    }
    Desired::new(condition::DEGRADED, false, reason::PROXY_PODS_ADMITTED)
}

fn unschedulable(sight: &Sight) -> Option<String> {
    let scheduled = sight.pod.status.conditions.scheduled.as_ref().filter(|condition| !condition.holds)?;
    let why = scheduled.message.as_deref().or(scheduled.reason.as_deref()).unwrap_or("no reason given");
    Some(format!("proxy \"{}\" finds no node: {why}", sight.pod.name()))
}

fn diverged(seen: &Observed) -> Desired {
    let mut names: Vec<_> = seen
        .pods
        .iter()
        .filter(|sight| sight.alive() && sight.diverged_for >= DIVERGED_AFTER)
        .map(|sight| sight.pod.name())
        .collect();
    names.sort_unstable();
    if names.is_empty() {
        return Desired::new(condition::READINESS_DIVERGED, false, reason::READINESS_AGREES);
    }
    Desired::new(condition::READINESS_DIVERGED, true, reason::READINESS_DIVERGED).message(format!(
        "told more than {} s ago to take nobody in, and somebody may still get in, so no deadline of a drain runs there: {}. \
         Their agents do not hear us, or the kubelet does not hear them: mend that, or let the pod go whoever is on it \
         with the annotation {}=true",
        DIVERGED_AFTER.as_secs(),
        names.join(", "),
        annotation::OVERRIDE
    ))
}

/// Only a door that is being closed can fail to keep people out.
fn enforced(seen: &Observed) -> Desired {
    let mut names: Vec<_> = seen
        .pods
        .iter()
        .filter(|sight| sight.alive() && sight.view.door != DoorView::Open && !sight.view.enforced)
        .map(|sight| sight.pod.name())
        .collect();
    names.sort_unstable();
    if names.is_empty() {
        return Desired::new(condition::DOOR_NOT_ENFORCED, false, reason::DOORS_ENFORCED);
    }
    Desired::new(condition::DOOR_NOT_ENFORCED, true, reason::AGENT_CANNOT_CLOSE).message(format!(
        "players reach these proxies by their node's port, and their agents cannot refuse newcomers: {}",
        names.join(", ")
    ))
}

/// An edit of the group is announced by the webhook; a changed overlay or default of the Network passes nobody.
fn contents(seen: &Observed) -> Desired {
    let outdated =
        seen.pods.iter().filter(|sight| sight.alive() && sight.outdated(seen.desired_hash.as_deref())).count();
    if outdated == 0 {
        return Desired::new(condition::CONFIG_CHANGED, false, reason::CONFIG_CURRENT);
    }
    Desired::new(condition::CONFIG_CHANGED, true, reason::CONFIG_CHANGED).message(format!(
        "{outdated} proxies were made from what the group, its overlay or its Network's defaults said before, and are \
         replaced one after the other"
    ))
}

fn budgets(seen: &Observed) -> Desired {
    if seen.foreign_budgets.is_empty() {
        return Desired::new(condition::BUDGET_CONFLICT, false, reason::NO_OVERLAP);
    }
    let names = seen.foreign_budgets.join(", ");
    Desired::new(condition::BUDGET_CONFLICT, true, reason::OVERLAPPING_BUDGET)
        .message(format!("another PodDisruptionBudget selects the group's pods, so no drain can end: {names}"))
}

fn flank(status: &mut ProxyGroupStatus, desired: Desired, now: Timestamp, events: &mut Vec<Told>) {
    let current = conditions::get(&status.conditions, desired.kind);
    let first = current.is_none();
    if current.is_some_and(|current| same_but_for_a_name(current, &desired)) {
        return;
    }
    let rejected = desired.reason == reason::OBJECT_REJECTED;
    let (kind, holds, note) = (desired.kind, desired.status == conditions::Status::True, desired.message.clone());
    if conditions::set(&mut status.conditions, desired, second(now)) != Outcome::Flipped || (first && !holds) {
        return;
    }
    let (set, cleared) = match kind {
        condition::DEGRADED if rejected => (reason::OBJECT_REJECTED, event::PROXY_PODS_ADMITTED),
        condition::DEGRADED => (event::PROXY_POD_BLOCKED, event::PROXY_PODS_ADMITTED),
        condition::READINESS_DIVERGED => (event::READINESS_DIVERGED, event::READINESS_AGREES),
        condition::CONFIG_CHANGED => (reason::CONFIG_CHANGED, reason::CONFIG_CURRENT),
        condition::BUDGET_CONFLICT => (reason::OVERLAPPING_BUDGET, reason::NO_OVERLAP),
        _ => return,
    };
    let (reason, note) = if holds { (set, note) } else { (cleared, "proxies are as they should be again".to_owned()) };
    events.push(Told { warning: holds, reason, action: action::SYNC_STATUS, note });
}

/// Each try to make a pod names another pod, in quotes: that alone is no news.
fn same_but_for_a_name(current: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition, desired: &Desired) -> bool {
    let nameless = |message: &str| match message.splitn(3, '"').collect::<Vec<_>>().as_slice() {
        [before, _, after] => format!("{before}\"\"{after}"),
        _ => message.to_owned(),
    };
    current.status == desired.status.as_str()
        && current.reason == desired.reason
        && current.observed_generation == desired.observed_generation
        && nameless(&current.message) == nameless(&desired.message)
}

/// Kubernetes keeps whole seconds; anything finer would differ from what is read back.
pub(super) fn second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// When to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Never,
    Now,
    After(Duration),
}

/// Counts alone wait for others of their kind; everything else is written at once.
pub(super) fn when(
    current: Option<&ProxyGroupStatus>,
    next: &ProxyGroupStatus,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Write {
    let nothing = ProxyGroupStatus::default();
    let current = current.unwrap_or(&nothing);
    if current == next {
        return Write::Never;
    }
    let counts_alone = ProxyGroupStatus { connected_players: next.connected_players, ..current.clone() } == *next;
    let age = last.map(|last| Duration::try_from(now.duration_since(last)).unwrap_or_default());
    match age {
        Some(age) if counts_alone && age < COUNTS_APART => Write::After(COUNTS_APART.saturating_sub(age)),
        Some(_) | None => Write::Now,
    }
}

#[cfg(test)]
mod tests;
