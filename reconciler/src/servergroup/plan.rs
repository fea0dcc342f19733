//! What to do for a ServerGroup now.
//!
//! ```text
//! Observed ─► guarded? ─► deleted? ─► failures, backoff ─► size ─► prune ─► degraded? ─► status ─► Plan
//! ```

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spawnery_api::conditions::{self, Desired, Outcome};
use spawnery_api::names::condition::{self, reason};
use spawnery_api::names::event;
use spawnery_api::v1alpha1::ServerGroupStatus;
use spawnery_core::backoff::{self, Backoff, Failures};
use spawnery_core::expectations;
use spawnery_core::member::Member;
use spawnery_core::phase::Phase;
use spawnery_core::prune;
use spawnery_core::sizing::{self, Action, Limit, Policy, Sizing};

use super::observed::{Observed, policy};

/// What conditions say that depend on it.
const UNDECIDED: &str = "not being decided while the group is not accepted";

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// For the finalizer.
    pub(crate) finalizer: Finalizer,
    /// So many servers are made.
    pub(crate) create: u32,
    /// These servers are deleted.
    pub(crate) delete: Vec<Removal>,
    /// This server is told to retire.
    pub(crate) retire: Option<String>,
    /// The status as it is to be.
    pub(crate) status: ServerGroupStatus,
    /// Flanks of conditions.
    pub(crate) events: Vec<Told>,
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
    /// Is taken off: no server is left.
    Release,
}

/// A server to delete, and the reason of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) name: String,
    pub(crate) reason: &'static str,
}

/// An event of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// Somebody should look at it.
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) note: String,
}

/// Decides what to do for a group.
pub(crate) fn plan(seen: &Observed<'_>) -> Plan {
    let mut plan = Plan {
        finalizer: Finalizer::Keep,
        create: 0,
        delete: Vec::new(),
        retire: None,
        status: seen.group.status.clone().unwrap_or_default(),
        events: Vec::new(),
        wake: None,
    };
    if seen.deleting() {
        dissolve(seen, &mut plan);
        total(seen, &mut plan);
        return plan;
    }
    if !seen.guarded() {
        plan.finalizer = Finalizer::Add;
        return plan;
    }
    let accepted = match &seen.usable {
        Ok(()) => Desired::new(condition::ACCEPTED, true, reason::ACCEPTED),
        Err(refusal) => Desired::new(condition::ACCEPTED, false, refusal.reason).message(&refusal.message),
    };
    plan.set(seen, accepted);
    nodes(seen, &mut plan);
    budgets(seen, &mut plan);
    contents(seen, &mut plan);
    let backoff = failures(seen, &mut plan);
    if let Some(policy) = policy(seen.group) {
        size(seen, &mut plan, &policy, backoff);
        prune(seen, &mut plan);
    }
    degraded(seen, &mut plan, backoff);
    total(seen, &mut plan);
    plan
}

impl Plan {
    fn set(&mut self, seen: &Observed<'_>, desired: Desired) -> Outcome {
        conditions::set(
            &mut self.status.conditions,
            desired.generation(seen.group.metadata.generation),
            stamp(seen.now),
        )
    }

    /// Sets a condition and tells of its flanks: a warning when it begins to hold, good news when it ceases to.
    fn flank(&mut self, seen: &Observed<'_>, desired: Desired, reason: &'static str) {
        let held = conditions::is_true(&self.status.conditions, desired.kind);
        let holds = desired.status == conditions::Status::True;
        let note = match desired.message.as_str() {
            "" => format!("{} holds no more", desired.kind),
            message => message.to_owned(),
        };
        self.set(seen, desired);
        if holds != held {
            self.events.push(Told { warning: holds, reason, note });
        }
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// A deleted group takes its servers along, each by its own drain, and goes last.
fn dissolve(seen: &Observed<'_>, plan: &mut Plan) {
    plan.delete = seen
        .members
        .iter()
        .filter(|m| !m.deleting && !seen.reserved.deletes.contains(&m.name))
        .map(|m| Removal { name: m.name.clone(), reason: event::SERVER_REMOVED })
        .collect();
    if seen.members.is_empty() && seen.reserved.creates == 0 && seen.guarded() {
        plan.finalizer = Finalizer::Release;
    }
}

fn nodes(seen: &Observed<'_>, plan: &mut Plan) {
    let desired = if seen.departing_nodes.is_empty() {
        Desired::new(condition::NODE_DRAINING, false, reason::NO_NODES_DRAINING)
    } else {
        let names = join(&seen.departing_nodes);
        let message = format!("servers of the group are on nodes that are being emptied: {names}");
        Desired::new(condition::NODE_DRAINING, true, reason::NODE_DRAINING).message(message)
    };
    plan.set(seen, desired);
}

/// Two budgets that select one pod make the API server refuse its eviction with an error that drains take as final.
fn budgets(seen: &Observed<'_>, plan: &mut Plan) {
    if !seen.foreign_budgets.is_empty() {
        let names = join(&seen.foreign_budgets);
        let message = format!("another PodDisruptionBudget selects the group's pods, so no drain can end: {names}");
        let desired = Desired::new(condition::BUDGET_CONFLICT, true, reason::OVERLAPPING_BUDGET).message(message);
        plan.flank(seen, desired, reason::OVERLAPPING_BUDGET);
    } else if conditions::is_true(&plan.status.conditions, condition::BUDGET_CONFLICT) {
        let desired = Desired::new(condition::BUDGET_CONFLICT, false, reason::NO_OVERLAP);
        plan.flank(seen, desired, reason::NO_OVERLAP);
    }
}

/// An edit of the group is announced by the webhook; a change of what it refers to passes nobody, so it is told here before
/// anything is replaced.
fn contents(seen: &Observed<'_>, plan: &mut Plan) {
    let other = |m: &&Member| !m.current && m.generation == seen.generation() && m.counts() && !m.deleting;
    let stale = seen.members.iter().filter(other).count();
    if stale > 0 {
        let message = format!(
            "{stale} servers were made from other contents of the overlay or other defaults of the Network, and are replaced"
        );
        let desired = Desired::new(condition::CONFIG_CHANGED, true, reason::CONFIG_CHANGED).message(message);
        plan.flank(seen, desired, reason::CONFIG_CHANGED);
    } else if conditions::is_true(&plan.status.conditions, condition::CONFIG_CHANGED) {
        plan.flank(
            seen,
            Desired::new(condition::CONFIG_CHANGED, false, reason::CONFIG_CURRENT),
            reason::CONFIG_CURRENT,
        );
    }
}

/// Counts failed servers and decides whether others may be made.
fn failures(seen: &Observed<'_>, plan: &mut Plan) -> Backoff {
    let status = &mut plan.status;
    let so_far = if status.observed_generation == seen.generation() {
        Failures {
            consecutive: u32::try_from(status.consecutive_failures).unwrap_or(0),
            last: status.last_failure_at.as_ref().map(|time| time.0),
        }
    } else {
        Failures::default()
    };
    status.observed_generation = seen.generation();
    let failures = backoff::count_failures(so_far, &seen.members, seen.generation());
    status.consecutive_failures = signed(failures.consecutive);
    status.last_failure_at = failures.last.map(Time);
    backoff::decide(&failures, seen.now)
}

fn size(seen: &Observed<'_>, plan: &mut Plan, policy: &Policy, backoff: Backoff) {
    let Sizing { action, limited, condemn } = sizing::decide(&seen.members, &seen.reserved, policy);
    plan.delete.extend(condemn.into_iter().map(|name| Removal { name, reason: event::NODE_DRAINING }));
    if seen.usable.is_err() {
        undecided(seen, plan);
        return;
    }
    report_limit(seen, plan, policy, limited);
    report_backoff(seen, plan, backoff);
    if seen.refused.is_some() {
        // No server is made whose players nothing would protect, or that could not start, and none is given up that could
        // not be made again.
        return;
    }
    match action {
        Action::Keep => {}
        Action::Create(n) => match backoff {
            Backoff::Clear => plan.create = n,
            Backoff::Waiting { until } => plan.wake_at(until),
            Backoff::GivenUp => {}
        },
        Action::Delete(names) => {
            plan.delete.extend(names.into_iter().map(|name| Removal { name, reason: event::SERVER_REMOVED }));
        }
        Action::Retire(name) => plan.retire = Some(name),
    }
    // An idle server's time comes up without anything else happening; so does that of a silent one, and of a request which
    // nobody saw.
    let counting = || seen.members.iter().filter(|m| m.counts());
    let due = counting().filter_map(|m| policy.stabilization.checked_sub(m.empty_for?));
    let due = due.chain(counting().filter_map(Member::patience_left));
    if let Some(soonest) = due.filter(|left| !left.is_zero()).min() {
        plan.wake_at(after(seen.now, soonest));
    }
    if seen.reserved != sizing::Reservations::default() {
        plan.wake_at(after(seen.now, expectations::TTL));
    }
}

fn undecided(seen: &Observed<'_>, plan: &mut Plan) {
    plan.set(seen, Desired::new(condition::SCALING_LIMITED, false, reason::WITHIN_LIMITS).message(UNDECIDED));
    plan.set(seen, Desired::new(condition::BACKING_OFF, false, reason::NO_RECENT_FAILURES).message(UNDECIDED));
}

fn report_limit(seen: &Observed<'_>, plan: &mut Plan, policy: &Policy, limited: Option<Limit>) {
    let max = policy.max_replicas;
    let (desired, reason) = match limited {
        None => (Desired::new(condition::SCALING_LIMITED, false, reason::WITHIN_LIMITS), reason::WITHIN_LIMITS),
        Some(Limit::Ceiling { .. }) => {
            let message = format!("scaling.maxReplicas is {max}, which does not leave room for scaling.spareSlots");
            let desired = Desired::new(condition::SCALING_LIMITED, true, reason::MAX_REPLICAS_REACHED).message(message);
            (desired, reason::MAX_REPLICAS_REACHED)
        }
        Some(Limit::ColdStart) => {
            let message = format!(
                "scaling.maxReplicas is {max}, which does not leave room for the first server of the edited group, so the \
                 update waits until a server is empty"
            );
            let desired = Desired::new(condition::SCALING_LIMITED, true, reason::MAX_REPLICAS_REACHED).message(message);
            (desired, reason::MAX_REPLICAS_REACHED)
        }
    };
    plan.flank(seen, desired, reason);
}

fn report_backoff(seen: &Observed<'_>, plan: &mut Plan, backoff: Backoff) {
    let failed = plan.status.consecutive_failures;
    let (desired, reason) = match backoff {
        Backoff::Clear => {
            (Desired::new(condition::BACKING_OFF, false, reason::NO_RECENT_FAILURES), reason::NO_RECENT_FAILURES)
        }
        Backoff::Waiting { until } => {
            let message = format!("no server came up in {failed} attempts in a row; the next is made at {until:.0}");
            let desired = Desired::new(condition::BACKING_OFF, true, reason::CRASH_LOOP_BACKOFF).message(message);
            (desired, reason::CRASH_LOOP_BACKOFF)
        }
        Backoff::GivenUp => {
            let desired = Desired::new(condition::BACKING_OFF, false, reason::CRASH_LOOP_BACKOFF);
            (desired.message(given_up(failed)), reason::CRASH_LOOP_BACKOFF)
        }
    };
    plan.flank(seen, desired, reason);
}

/// What keeps the group from making servers until somebody sets it right. A refused object comes first: it holds up more
/// than servers that do not come up, and an edit, which ends those, does not mend it.
fn degraded(seen: &Observed<'_>, plan: &mut Plan, backoff: Backoff) {
    let fine = Desired::new(condition::DEGRADED, false, reason::NO_RECENT_FAILURES);
    let (desired, reason) = match (seen.refused, &seen.usable, backoff) {
        (Some(message), _, _) => {
            let desired = Desired::new(condition::DEGRADED, true, reason::OBJECT_REJECTED).message(message);
            (desired, reason::OBJECT_REJECTED)
        }
        (None, Err(_), _) => (fine.message(UNDECIDED), reason::NO_RECENT_FAILURES),
        (None, Ok(()), Backoff::GivenUp) => {
            let message = given_up(plan.status.consecutive_failures);
            let desired = Desired::new(condition::DEGRADED, true, reason::CRASH_LOOP_BACKOFF).message(message);
            (desired, reason::CRASH_LOOP_BACKOFF)
        }
        (None, Ok(()), Backoff::Clear | Backoff::Waiting { .. }) => (fine, reason::NO_RECENT_FAILURES),
    };
    plan.flank(seen, desired, reason);
}

fn given_up(failed: i32) -> String {
    format!("no server came up in {failed} attempts in a row; no more are made until the group is edited")
}

fn prune(seen: &Observed<'_>, plan: &mut Plan) {
    let surplus = prune::surplus_failed(&seen.members).into_iter().filter(|m| !seen.reserved.deletes.contains(&m.name));
    plan.delete.extend(surplus.map(|m| Removal { name: m.name.clone(), reason: event::FAILED_SERVER_PRUNED }));
    plan.delete.sort_by(|a, b| a.name.cmp(&b.name));
    plan.delete.dedup_by(|a, b| a.name == b.name);
}

/// Adds up what the servers say.
fn total(seen: &Observed<'_>, plan: &mut Plan) {
    let members = &seen.members;
    let sum = |value: fn(&Member) -> u32| signed(members.iter().map(value).fold(0, u32::saturating_add));
    let status = &mut plan.status;
    status.replicas = i32::try_from(members.len()).unwrap_or(i32::MAX);
    status.ready_replicas = sum(|m| u32::from(m.phase == Phase::Ready));
    status.online_players = sum(|m| if m.stale { 0 } else { m.players });
    status.free_slots = sum(|m| if m.current && m.counts() { m.ready_free() } else { 0 });
    let wanted = seen.group.spec.scaling.map(|scaling| scaling.min_replicas).or(seen.group.spec.replicas).unwrap_or(0);
    let phase = if conditions::is_true(&status.conditions, condition::DEGRADED) {
        "Degraded"
    } else if status.ready_replicas >= wanted && status.ready_replicas > 0 {
        "Ready"
    } else {
        "Pending"
    };
    phase.clone_into(&mut status.phase);
}

/// Whether the statuses differ in nothing but counts, which change all the time.
pub(crate) fn only_counts_differ(current: &ServerGroupStatus, next: &ServerGroupStatus) -> bool {
    let settled = ServerGroupStatus {
        replicas: current.replicas,
        ready_replicas: current.ready_replicas,
        online_players: current.online_players,
        free_slots: current.free_slots,
        ..next.clone()
    };
    *current == settled
}

fn join(names: &std::collections::BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// A moment as the API server keeps it: whole seconds.
fn stamp(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

fn after(moment: Timestamp, duration: std::time::Duration) -> Timestamp {
    moment.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

fn signed(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
