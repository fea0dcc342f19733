//! The life of a Server that has, or had, a pod: its phase, what its status mirrors, and when it goes.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spawnery_api::conditions::{self, Desired};
use spawnery_api::names::condition;
use spawnery_api::names::event::{self, action};
use spawnery_core::door::{DoorView, ServerView};
use spawnery_core::drain::{self, Cause, Clock, Deadline, Held};
use spawnery_core::occupancy::{self, SealReason};
use spawnery_core::phase::{self, Decision, FLAP_RESET, Losses, Phase, PodEffect, Reason, STREAM_GRACE};
use spawnery_core::rollout::Departure;

use super::observed::Observed;
use super::plan::{Finalizer, Plan, PodStep, Told, signed, stamp};
use super::{closing, loss};

/// How long a sealed pod is left to whoever asked for its eviction before we remove it ourselves.
pub(crate) const UNUSED_SEAL: Duration = Duration::from_secs(10);

/// A drain whose clock stands still looks this often whether it may go on; nothing is written for that.
const HELD_LOOKS: Duration = Duration::from_secs(2);

/// The longest way through the phases on unchanged facts has fewer steps.
const STEPS: usize = 8;

/// Plans the next step of a Server's life.
pub(crate) fn live(seen: &Observed<'_>, plan: &mut Plan) {
    let before = Phase::parse(&plan.status.phase);
    let clock = resume(seen, plan);
    let phase = step(seen, plan);
    let drain = closing::drain(seen, plan, phase, clock);
    closing::close(seen, plan, phase, &drain);
    mirror(seen, plan, phase);
    loss::account(seen, plan, before, phase);
    mark(seen, plan);
    leave(seen, plan, phase, &drain);
    wake(seen, plan, phase);
    plan.memory.cause = drain.remembered;
    let started = plan.status.drain_started_at.as_ref().map(|started| started.0);
    plan.memory.clock = Some(Clock { started, ..drain.clock });
    if let Some(at) = drain.wake {
        plan.wake_at(at);
    }
    if let Deadline::Held(Held::ProxiesUnreachable | Held::NoFallbackAvailable) = drain.deadline {
        plan.wake_at(after(seen.now, HELD_LOOKS));
    }
}

/// Takes up what this process last decided and may not have been able to write, and what it sees going on.
fn resume(seen: &Observed<'_>, plan: &mut Plan) -> Clock {
    let clock = Clock::resumed(seen.memory.clock, plan.status.drain_started_at.as_ref().map(|started| started.0));
    plan.status.drain_started_at = clock.started.map(Time);
    let silent = seen.view.as_ref().is_some_and(ServerView::silent);
    plan.memory.departure = Some(Departure::after(seen.memory.departure, seen.node_departing, seen.now));
    plan.memory.silent_since = if silent { seen.memory.silent_since.or(Some(seen.now)) } else { None };
    clock
}

/// Takes steps of the phase machine until it rests.
fn step(seen: &Observed<'_>, plan: &mut Plan) -> Phase {
    let mut phase = Phase::parse(&plan.status.phase);
    for _ in 0..STEPS {
        let decision = phase::decide(&inputs(seen, plan, phase));
        let moved = phase != Some(decision.phase);
        enter(seen, plan, phase, decision);
        phase = Some(decision.phase);
        if !moved {
            break;
        }
    }
    phase.unwrap_or(Phase::Pending)
}

fn inputs(seen: &Observed<'_>, plan: &Plan, phase: Option<Phase>) -> phase::Inputs {
    let status = &plan.status;
    let here = seen.pod.here();
    let sealed = seen.pod.ours().and_then(|pod| pod.sealed);
    let view = seen.view.as_ref();
    let since = |moment: &Option<Time>| moment.as_ref().map(|moment| seen.now.duration_since(moment.0));
    let rules = seen.rules();
    phase::Inputs {
        phase,
        deletion_requested: seen.deleting(),
        retire: seen.server.spec.retire,
        pod_exists: here.is_some(),
        pod_terminating: seen.pod.going().is_some(),
        pod_lost: here.or_else(|| seen.pod.going()).is_none(),
        pod_terminal: here.is_some_and(|pod| pod.terminal),
        pod_running: here.is_some_and(|pod| pod.running),
        pod_ready: here.is_some_and(|pod| pod.ready),
        agent_connected: view.is_some_and(|view| view.connected),
        agent_ready: view.is_some_and(|view| view.connected && view.ready),
        stream_down: view.map_or(Duration::MAX, |view| view.stream_down_for),
        occupied: holds(sealed, phase, view.is_none_or(|view| view.occupied)),
        was_registered: status.was_registered,
        readiness_losses: u32::try_from(status.readiness_losses).unwrap_or(0),
        startup_deadline_reached: starting_since(seen, plan)
            .is_some_and(|began| seen.now.duration_since(began) > signed(seen.startup_deadline)),
        drain_deadline_reached: matches!(sealed, Some(SealReason::Deadline | SealReason::Override)),
        max_stale_reached: rules
            .max_stale
            .is_some_and(|max| since(&status.retiring_since).is_some_and(|d| d >= signed(max))),
        // Counted by this process alone: what came before nobody of us could hear.
        silence_deadline_reached: plan
            .memory
            .silent_since
            .is_some_and(|since| seen.now.duration_since(since) > signed(seen.startup_deadline)),
        retention_elapsed: since(&status.failed_at).is_some_and(|d| d >= signed(rules.retention)),
        ready_for: since(&status.ready_since).and_then(|d| Duration::try_from(d).ok()).unwrap_or_default(),
    }
}

/// Since when the startup deadline runs. Time before this process looked is charged to nobody, because nobody could have
/// heard the agent; nor is any while an agent that was once heard by an earlier leader may still be on its way back.
fn starting_since(seen: &Observed<'_>, plan: &Plan) -> Option<Timestamp> {
    if plan.status.was_registered && seen.view.as_ref().is_some_and(ServerView::expected_back) {
        return None;
    }
    let began = plan.status.started_at.as_ref()?.0;
    Some(plan.memory.since.map_or(began, |since| since.max(began)))
}

/// Whether the phase machine has to wait for people: until the pod is sealed it always does, so that every removal goes
/// through the seal. A pod that was sealed for its deadline may still have people on it, which is what its removal is
/// then reported as; a retiring server knows no deadline, so there any seal lets it go.
fn holds(sealed: Option<SealReason>, phase: Option<Phase>, occupied: bool) -> bool {
    match sealed {
        None => true,
        Some(SealReason::Empty) => false,
        Some(SealReason::Deadline | SealReason::Override) => occupied && phase != Some(Phase::Retiring),
    }
}

/// Writes down what a decision of the phase machine means.
fn enter(seen: &Observed<'_>, plan: &mut Plan, from: Option<Phase>, decision: Decision) {
    let now = || Some(Time(stamp(seen.now)));
    let status = &mut plan.status;
    decision.phase.as_str().clone_into(&mut status.phase);
    match decision.effects.losses {
        Losses::Keep => {}
        Losses::Count => status.readiness_losses = status.readiness_losses.saturating_add(1),
        Losses::Reset => status.readiness_losses = 0,
    }
    if decision.effects.start_drain && status.drain_started_at.is_none() && decision.phase == Phase::Failed {
        status.drain_started_at = now();
    }
    if decision.effects.pod == PodEffect::Delete && seen.pod.here().is_some() {
        plan.pod = PodStep::Delete;
    }
    if from != Some(decision.phase) {
        if decision.phase != Phase::Ready {
            status.ready_since = None;
        }
        match decision.phase {
            Phase::Starting => status.started_at = now(),
            Phase::Ready => status.ready_since = now(),
            Phase::Failed if status.failed_at.is_none() => status.failed_at = now(),
            Phase::Retiring if status.retiring_since.is_none() => status.retiring_since = now(),
            _ => {}
        }
        tell(plan, seen, decision);
    }
    let ready = Desired::new(condition::READY, decision.phase == Phase::Ready, decision.reason.as_str());
    plan.set(seen, ready);
}

fn tell(plan: &mut Plan, seen: &Observed<'_>, decision: Decision) {
    // A new Server starts out as pending; that is no news.
    if decision.phase == Phase::Pending && seen.server.status.as_ref().is_none_or(|status| status.phase.is_empty()) {
        return;
    }
    // That a pod began to run is told by the kubelet, on the pod.
    if decision.reason == Reason::PodRunning {
        return;
    }
    let reason = decision.reason.as_str();
    if decision.effects.losses == Losses::Count {
        let note = format!("lost its readiness, time {} in a row", plan.status.readiness_losses);
        plan.events.push(Told::warning(event::READINESS_LOST, action::SYNC_STATUS, note));
    }
    let note = format!("is {} now", decision.phase.as_str());
    plan.events.push(Told::normal(reason, action::SYNC_STATUS, note));
}

/// Mirrors what the agents say into the status.
fn mirror(seen: &Observed<'_>, plan: &mut Plan, phase: Phase) {
    let Some(view) = &seen.view else { return };
    let status = &mut plan.status;
    let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    // An agent that is back and has not counted yet says nothing about players, and before anybody could get in there is
    // nothing to say.
    let reported = loss::reported(seen).filter(|_| status.was_registered);
    if let Some(players) = reported
        && (status.players, status.slots) != (count(players), count(view.slots))
    {
        (status.players, status.slots) = (count(players), count(view.slots));
        status.players_updated_at = Some(Time(stamp(seen.now)));
    }
    let sealed = seen.pod.ours().is_some_and(|pod| pod.sealed.is_some());
    // A door that players never reached is nobody's business, unless somebody waits for it.
    let untold = !status.was_registered
        && matches!(phase, Phase::Pending | Phase::Starting)
        && (view.door == DoorView::Empty || !conditions::is_true(&status.conditions, condition::DRAINING));
    status.door = if status.registered {
        Some(DoorView::Open.to_string())
    } else if sealed {
        Some(DoorView::Sealed.to_string())
    } else if untold {
        None
    } else {
        Some(view.door.told(view.players))
    };
}

/// Decides about the marks on the pod.
fn mark(seen: &Observed<'_>, plan: &mut Plan) {
    let (Some(pod), Some(view)) = (seen.pod.here(), &seen.view) else { return };
    let facts = occupancy::Facts { occupied: view.occupied && !pod.terminal, started: pod.started, now: seen.now };
    plan.marks = occupancy::marks(&facts, &pod.carried);
    if let Some(renew) = occupancy::renew_in(&facts, &pod.carried) {
        plan.wake_at(after(seen.now, renew));
    }
}

/// Decides whether the Server itself goes.
fn leave(seen: &Observed<'_>, plan: &mut Plan, phase: Phase, drain: &drain::Decision) {
    let sealed = seen.pod.here().is_some_and(|pod| pod.sealed.is_some());
    plan.memory.sealed_at = if sealed { seen.memory.sealed_at.or(Some(seen.now)) } else { None };
    if phase == Phase::Terminating {
        if seen.pod.here().is_none() && plan.seal.is_none() && !people_on_a_going_pod(seen, plan) {
            if seen.deleting() {
                // With the finalizer the Server goes, and with it what would say that its players are counted.
                if plan.lost.is_some() {
                    return;
                }
                plan.finalizer = Finalizer::Release;
            } else {
                plan.delete_server = true;
            }
        }
        return;
    }
    // Sealed for a cause that might have passed, and whoever asked for it did not come: a sealed pod takes nobody for the
    // rest of its life, so it is replaced.
    let Some(sealed_at) = plan.memory.sealed_at else { return };
    if !seen.deleting() && drain.cause.is_none_or(Cause::may_pass) {
        let removal = after(sealed_at, UNUSED_SEAL);
        if seen.now >= removal {
            plan.delete_server = true;
        } else {
            plan.wake_at(removal);
        }
    }
}

/// Somebody deleted the pod of an occupied server past us: while it shuts down, its players are moved.
fn people_on_a_going_pod(seen: &Observed<'_>, plan: &Plan) -> bool {
    let unsealed = seen.pod.going().is_some_and(|pod| pod.sealed.is_none());
    unsealed && plan.status.was_registered && seen.view.as_ref().is_some_and(|view| view.occupied)
}

/// Looks again when a deadline of the phase machine comes up.
fn wake(seen: &Observed<'_>, plan: &mut Plan, phase: Phase) {
    let status = &plan.status;
    let from = |moment: &Option<Time>, duration: Duration| moment.as_ref().map(|moment| after(moment.0, duration));
    let rules = seen.rules();
    let at = match phase {
        Phase::Pending | Phase::Starting => {
            starting_since(seen, plan).map(|began| more_than(began, seen.startup_deadline))
        }
        Phase::Ready if status.readiness_losses > 0 => from(&status.ready_since, FLAP_RESET),
        Phase::Retiring => {
            let too_old = rules.max_stale.and_then(|max_stale| from(&status.retiring_since, max_stale));
            let silent = plan.memory.silent_since.map(|since| more_than(since, seen.startup_deadline));
            [too_old, silent].into_iter().flatten().min()
        }
        Phase::Failed => from(&status.failed_at, rules.retention),
        Phase::Ready | Phase::Draining | Phase::Terminating => None,
    };
    if let Some(at) = at.filter(|at| *at > seen.now) {
        plan.wake_at(at);
    }
    if phase == Phase::Ready
        && let Some(view) = seen.view.as_ref().filter(|view| !view.connected)
    {
        let left = STREAM_GRACE.saturating_sub(view.stream_down_for);
        plan.wake_at(after(seen.now, left.max(Duration::from_millis(1))));
    }
}

/// The first moment at which more than `duration` has gone by.
fn more_than(moment: Timestamp, duration: Duration) -> Timestamp {
    after(moment, duration.saturating_add(Duration::from_millis(1)))
}

fn after(moment: Timestamp, duration: Duration) -> Timestamp {
    moment.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
