//! Why a Server's door closes, what that waits for, and when its pod may be sealed.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spawnery_api::conditions::{self, Desired, Status};
use spawnery_api::names::condition::{self, reason};
use spawnery_api::names::event::{self, action};
use spawnery_core::door::{DoorView, ServerView, WantDoor};
use spawnery_core::drain::{self, Cause, Causes, Clock, Deadline, Held, Inside};
use spawnery_core::phase::Phase;
use spawnery_core::rollout::Departure;

use super::observed::Observed;
use super::plan::{Plan, Told, stamp};

/// Decides why the door closes, whether players are moved, and how far the deadline is.
pub(super) fn drain(seen: &Observed<'_>, plan: &mut Plan, phase: Phase, clock: Clock) -> drain::Decision {
    let draining = conditions::get(&plan.status.conditions, condition::DRAINING)
        .filter(|draining| draining.status == Status::True.as_str());
    let previous = match seen.memory.clock {
        Some(_) => seen.memory.cause,
        None => draining.and_then(|draining| Cause::behind(&draining.reason)),
    };
    let started = plan.status.drain_started_at.as_ref().map(|started| started.0);
    let pod = seen.pod.ours();
    let inputs = drain::Inputs {
        causes: Causes {
            deleted: seen.deleting(),
            pod_terminating: seen.pod.going().is_some(),
            draining: match phase {
                Phase::Draining | Phase::Terminating => true,
                Phase::Failed => started.is_some(),
                Phase::Pending | Phase::Starting | Phase::Ready | Phase::Retiring => false,
            },
            retiring: phase == Phase::Retiring,
            node_departing: seen.node_departing,
            called_off_at: plan.memory.departure.and_then(Departure::called_off),
            eviction_requested: pod.and_then(|pod| pod.eviction_requested),
            previous,
        },
        closing_since: draining.map(|draining| draining.last_transition_time.0),
        clock: Clock { started, ..clock },
        killed_at: seen.pod.going().and_then(|pod| pod.killed_at),
        audible: seen.view.as_ref().is_none_or(|view| view.deaf.is_empty()),
        // Nobody needs a place where nobody is.
        fallback_ready: seen.fallback_ready || seen.view.as_ref().is_some_and(|view| !view.occupied),
        now: seen.now,
    };
    let decision = drain::decide(&inputs, &seen.rules().drain);
    if decision.clock.started != started {
        // Rounded up, since the API server keeps whole seconds: a deadline may come late, not early.
        plan.status.drain_started_at = decision.clock.started.map(|started| Time(whole_second_after(started)));
    }
    plan.clear_request = decision.clear_request && seen.pod.here().is_some_and(|pod| pod.sealed.is_none());
    report(seen, plan, &decision);
    decision
}

fn whole_second_after(moment: Timestamp) -> Timestamp {
    let floor = stamp(moment);
    if floor == moment { moment } else { floor.saturating_add(Duration::from_secs(1)).unwrap_or(floor) }
}

/// Tells people why the door closes and what it waits for.
fn report(seen: &Observed<'_>, plan: &mut Plan, decision: &drain::Decision) {
    let Some(cause) = decision.cause else {
        // A pod that is sealed, or may be, goes whatever became of the cause.
        if !shut_for_good(seen) && conditions::is_true(&plan.status.conditions, condition::DRAINING) {
            plan.set(seen, Desired::new(condition::DRAINING, false, reason::NOT_DRAINING));
            plan.events.push(Told::normal(event::DOOR_REOPENED, action::DRAIN_SERVER, "takes newcomers again"));
        }
        return;
    };
    let was_closing = conditions::is_true(&plan.status.conditions, condition::DRAINING);
    let stranded = decision.deadline == Deadline::Held(Held::NoFallbackAvailable);
    let was_stranded = conditions::get(&plan.status.conditions, condition::DRAINING)
        .is_some_and(|draining| draining.reason == reason::NO_FALLBACK_AVAILABLE);
    let message = match decision.deadline {
        Deadline::None if cause.moves() => "takes nobody new; its players may finish first".to_owned(),
        Deadline::None => "takes nobody new; its players may stay".to_owned(),
        Deadline::Running { at } => format!("players are moved; whoever is left at {at:.0} is disconnected"),
        Deadline::Held(Held::NoFallbackAvailable) => {
            "no server of a fallback group is ready to take the players, so the drain waits".to_owned()
        }
        Deadline::Held(Held::ProxiesUnreachable) => {
            let deaf = seen.view.iter().flat_map(|view| &view.deaf).map(String::as_str).collect::<Vec<_>>().join(", ");
            format!("proxies that cannot be told to move players, so the drain waits: {deaf}")
        }
        Deadline::Held(Held::ByPolicy) => "the deadline has passed; the group waits for the last player".to_owned(),
        Deadline::Passed => "the deadline has passed; whoever is left is disconnected".to_owned(),
    };
    let reason = if stranded { reason::NO_FALLBACK_AVAILABLE } else { cause.as_str() };
    plan.set(seen, Desired::new(condition::DRAINING, true, reason).message(message));
    if !was_closing && cause.may_pass() {
        let note = format!("takes nobody new: {}", cause.as_str());
        plan.events.push(Told::normal(event::DOOR_CLOSING, action::DRAIN_SERVER, note));
    }
    if stranded && !was_stranded {
        let note = "no server of a fallback group is ready to take its players";
        plan.events.push(Told::warning(event::NO_FALLBACK_AVAILABLE, action::DRAIN_SERVER, note));
    }
}

/// Decides about the door and the seal.
pub(super) fn close(seen: &Observed<'_>, plan: &mut Plan, phase: Phase, drain: &drain::Decision) {
    let Some(pod) = seen.pod.ours() else {
        plan.status.registered = false;
        return;
    };
    let here = seen.pod.here().is_some();
    let open = here && phase == Phase::Ready && drain.cause.is_none() && !shut_for_good(seen) && pod.address.is_some();
    plan.door = Some(if open { WantDoor::Open } else { WantDoor::Closed });
    plan.status.registered = open;
    plan.status.was_registered |= open;
    if let Some(address) = &pod.address {
        plan.status.address.clone_from(address);
    }
    let occupied = seen.view.as_ref().is_some_and(|view| view.occupied);
    plan.moving = drain.moving && plan.status.was_registered && occupied && !pod.terminal;
    // A pod that somebody deleted waits for its seal in its pre-stop hook, also where its Server has nothing to wait for.
    let held_up = seen.pod.going().is_some() || (here && phase != Phase::Terminating);
    if held_up && pod.sealed.is_none() {
        plan.seal = drain::seal(drain, inside(seen, pod.terminal), pod.overridden);
    }
    enforce(seen, plan, open);
}

/// Who is behind the door. A pod whose game is dead cannot report that nobody is on it.
fn inside(seen: &Observed<'_>, terminal: bool) -> Inside {
    match &seen.view {
        Some(view) if view.door == DoorView::Sealing && !view.occupied => Inside::NobodyForGood,
        Some(view) if view.door.may_seal() => Inside::Nobody,
        _ if terminal => Inside::Nobody,
        _ => Inside::Somebody,
    }
}

/// Whether the door never opens again: its seal is written, or was begun and may be.
fn shut_for_good(seen: &Observed<'_>) -> bool {
    let begun = |view: &ServerView| matches!(view.door, DoorView::Sealing | DoorView::Sealed);
    seen.pod.ours().is_some_and(|pod| pod.sealed.is_some()) || seen.view.as_ref().is_some_and(begun)
}

/// Says so when closing the door of an open server would keep nobody out.
fn enforce(seen: &Observed<'_>, plan: &mut Plan, open: bool) {
    let Some(view) = seen.view.as_ref().filter(|view| open && view.ever_connected) else { return };
    if !view.enforced {
        let message = "there is no proxy that would stop sending players here, and its agent cannot refuse them";
        let desired = Desired::new(condition::DOOR_NOT_ENFORCED, true, reason::AGENT_CANNOT_CLOSE).message(message);
        plan.set(seen, desired);
    } else if conditions::is_true(&plan.status.conditions, condition::DOOR_NOT_ENFORCED) {
        plan.set(seen, Desired::new(condition::DOOR_NOT_ENFORCED, false, reason::DOORS_ENFORCED));
    }
}
