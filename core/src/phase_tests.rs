//! Every transition of the phase machine as a named case, and what holds for all of them.

use super::*;
use proptest::prelude::*;
use rstest::rstest;

const NONE: Effects =
    Effects { pod: PodEffect::Keep, registration: Registration::Keep, losses: Losses::Keep, start_drain: false };
const DELETE: Effects = Effects { pod: PodEffect::Delete, ..NONE };
const DRAIN: Effects = Effects { start_drain: true, ..NONE };
const REGISTER: Effects = Effects { registration: Registration::Register, ..NONE };
const OUT: Effects = Effects { registration: Registration::Deregister, ..NONE };
const OUT_AND_DELETE: Effects = Effects { pod: PodEffect::Delete, ..OUT };
const OUT_AND_DRAIN: Effects = Effects { start_drain: true, ..OUT };
const LOSS: Effects = Effects { losses: Losses::Count, ..OUT };
const FORGIVEN: Effects = Effects { losses: Losses::Reset, ..NONE };

/// A server in `phase` with a healthy pod, a connected ready agent and nobody on it.
fn healthy(phase: Phase) -> Inputs {
    Inputs {
        phase: Some(phase),
        deletion_requested: false,
        retire: false,
        pod_exists: true,
        pod_terminating: false,
        pod_lost: false,
        pod_terminal: false,
        pod_running: true,
        pod_ready: true,
        agent_connected: true,
        agent_ready: true,
        stream_down: Duration::ZERO,
        occupied: false,
        was_registered: !matches!(phase, Phase::Pending | Phase::Starting),
        readiness_losses: 0,
        startup_deadline_reached: false,
        drain_deadline_reached: false,
        max_stale_reached: false,
        silence_deadline_reached: false,
        retention_elapsed: false,
        ready_for: Duration::ZERO,
    }
}

fn with(phase: Phase, change: impl FnOnce(&mut Inputs)) -> Inputs {
    let mut inputs = healthy(phase);
    change(&mut inputs);
    inputs
}

fn pending(change: impl FnOnce(&mut Inputs)) -> Inputs {
    with(Phase::Pending, change)
}
fn starting(change: impl FnOnce(&mut Inputs)) -> Inputs {
    with(Phase::Starting, change)
}
fn ready(change: impl FnOnce(&mut Inputs)) -> Inputs {
    with(Phase::Ready, change)
}
fn retiring(change: impl FnOnce(&mut Inputs)) -> Inputs {
    with(Phase::Retiring, change)
}
fn draining(change: impl FnOnce(&mut Inputs)) -> Inputs {
    with(Phase::Draining, change)
}
fn failed(change: impl FnOnce(&mut Inputs)) -> Inputs {
    with(Phase::Failed, change)
}
fn lost(i: &mut Inputs) {
    (i.pod_exists, i.pod_lost, i.pod_running, i.pod_ready) = (false, true, false, false);
}
fn terminating(inputs: &mut Inputs) {
    inputs.pod_exists = false;
    inputs.pod_terminating = true;
}
fn down(i: &mut Inputs, for_: Duration) {
    (i.agent_connected, i.agent_ready, i.stream_down) = (false, false, for_);
}
const ALMOST: Duration = Duration::from_millis(14_999);

#[rstest]
#[case::unknown_phase_starts_over(Inputs { phase: None, ..healthy(Phase::Ready) }, Phase::Pending, Reason::UnknownPhase, NONE)]
#[case::terminating_stays(healthy(Phase::Terminating), Phase::Terminating, Reason::Terminating, DELETE)]
#[case::terminating_absorbs_everything(with(Phase::Terminating, |i| { i.deletion_requested = true; i.occupied = true; }), Phase::Terminating, Reason::Terminating, DELETE)]
// Failed.
#[case::failed_is_kept(failed(|_| ()), Phase::Failed, Reason::PodTerminal, NONE)]
#[case::failed_is_kept_with_players(failed(|i| i.occupied = true), Phase::Failed, Reason::PodTerminal, NONE)]
#[case::failed_deleted_when_empty(failed(|i| i.deletion_requested = true), Phase::Terminating, Reason::DeletionRequested, DELETE)]
#[case::failed_goes_after_retention(failed(|i| i.retention_elapsed = true), Phase::Terminating, Reason::RetentionElapsed, DELETE)]
#[case::failed_deletion_wins_the_reason(failed(|i| { i.deletion_requested = true; i.retention_elapsed = true; }), Phase::Terminating, Reason::DeletionRequested, DELETE)]
#[case::failed_deleted_with_players_drains(failed(|i| { i.deletion_requested = true; i.occupied = true; }), Phase::Failed, Reason::DrainingBeforeCleanup, DRAIN)]
#[case::failed_retention_with_players_drains(failed(|i| { i.retention_elapsed = true; i.occupied = true; }), Phase::Failed, Reason::DrainingBeforeCleanup, DRAIN)]
#[case::failed_never_registered_has_nobody(failed(|i| { i.deletion_requested = true; i.occupied = true; i.was_registered = false; }), Phase::Terminating, Reason::DeletionRequested, DELETE)]
#[case::failed_pod_lost_has_nobody(failed(|i| { i.deletion_requested = true; i.occupied = true; lost(i); }), Phase::Terminating, Reason::DeletionRequested, DELETE)]
#[case::failed_pod_terminal_has_nobody(failed(|i| { i.retention_elapsed = true; i.occupied = true; i.pod_terminal = true; }), Phase::Terminating, Reason::RetentionElapsed, DELETE)]
#[case::failed_drain_deadline(failed(|i| { i.deletion_requested = true; i.occupied = true; i.drain_deadline_reached = true; }), Phase::Terminating, Reason::DeletionRequested, DELETE)]
// Draining.
#[case::draining_waits_for_players(draining(|i| { i.deletion_requested = true; i.occupied = true; }), Phase::Draining, Reason::DeletionRequested, NONE)]
#[case::draining_done(draining(|i| i.deletion_requested = true), Phase::Terminating, Reason::Drained, DELETE)]
#[case::draining_deadline(draining(|i| { i.occupied = true; i.drain_deadline_reached = true; }), Phase::Terminating, Reason::DrainTimeout, DELETE)]
#[case::draining_pod_lost(draining(|i| { i.occupied = true; lost(i); }), Phase::Terminating, Reason::PodLost, DELETE)]
#[case::draining_pod_terminal(draining(|i| { i.occupied = true; i.pod_terminal = true; }), Phase::Terminating, Reason::PodTerminal, DELETE)]
#[case::draining_lost_beats_terminal(draining(|i| { lost(i); i.pod_terminal = true; }), Phase::Terminating, Reason::PodLost, DELETE)]
#[case::draining_while_its_pod_terminates(draining(|i| { terminating(i); i.occupied = true; }), Phase::Draining, Reason::PodTerminating, NONE)]
#[case::draining_for_a_deletion_whose_pod_terminates(draining(|i| { terminating(i); i.deletion_requested = true; i.occupied = true; }), Phase::Draining, Reason::DeletionRequested, NONE)]
#[case::draining_done_while_its_pod_terminates(draining(terminating), Phase::Terminating, Reason::Drained, DELETE)]
#[case::draining_never_returns(draining(|i| { i.occupied = true; i.deletion_requested = false; }), Phase::Draining, Reason::DeletionRequested, NONE)]
// Retiring.
#[case::retiring_leaves_players_alone(retiring(|i| i.occupied = true), Phase::Retiring, Reason::Retiring, NONE)]
#[case::retiring_done(retiring(|_| ()), Phase::Terminating, Reason::Drained, DELETE)]
#[case::retiring_pod_lost(retiring(|i| { i.occupied = true; lost(i); }), Phase::Terminating, Reason::PodLost, DELETE)]
#[case::retiring_pod_terminal(retiring(|i| { i.occupied = true; i.pod_terminal = true; }), Phase::Terminating, Reason::PodTerminal, DELETE)]
#[case::retiring_deleted_drains(retiring(|i| { i.occupied = true; i.deletion_requested = true; }), Phase::Draining, Reason::DeletionRequested, DRAIN)]
#[case::retiring_and_its_pod_terminates(retiring(|i| { i.occupied = true; terminating(i); }), Phase::Draining, Reason::PodTerminating, DRAIN)]
#[case::retiring_deletion_beats_the_pod_s(retiring(|i| { i.occupied = true; i.deletion_requested = true; terminating(i); }), Phase::Draining, Reason::DeletionRequested, DRAIN)]
#[case::retiring_too_long_drains(retiring(|i| { i.occupied = true; i.max_stale_reached = true; }), Phase::Draining, Reason::MaxStaleElapsed, DRAIN)]
#[case::retiring_and_silent_for_too_long_drains(retiring(|i| { i.occupied = true; i.silence_deadline_reached = true; }), Phase::Draining, Reason::AgentSilent, DRAIN)]
#[case::retiring_max_stale_beats_silence(retiring(|i| { i.occupied = true; i.max_stale_reached = true; i.silence_deadline_reached = true; }), Phase::Draining, Reason::MaxStaleElapsed, DRAIN)]
#[case::ready_has_no_silence_deadline(ready(|i| { i.occupied = true; i.silence_deadline_reached = true; }), Phase::Ready, Reason::ReadyGatePassed, NONE)]
#[case::retiring_knows_no_drain_deadline(retiring(|i| { i.occupied = true; i.drain_deadline_reached = true; }), Phase::Retiring, Reason::Retiring, NONE)]
#[case::retiring_deletion_beats_max_stale(retiring(|i| { i.occupied = true; i.deletion_requested = true; i.max_stale_reached = true; }), Phase::Draining, Reason::DeletionRequested, DRAIN)]
// Pending.
#[case::pending_waits_for_the_pod_to_run(pending(|i| i.pod_running = false), Phase::Pending, Reason::PodPending, NONE)]
#[case::pending_without_a_pod(pending(|i| { i.pod_exists = false; i.pod_running = false; }), Phase::Pending, Reason::PodPending, NONE)]
#[case::pending_pod_runs(pending(|_| ()), Phase::Starting, Reason::PodRunning, NONE)]
#[case::pending_pod_lost(pending(lost), Phase::Terminating, Reason::PodLost, DELETE)]
#[case::pending_deleted(pending(|i| i.deletion_requested = true), Phase::Terminating, Reason::DeletionRequested, DELETE)]
#[case::pending_deleted_after_being_registered(pending(|i| { i.deletion_requested = true; i.was_registered = true; }), Phase::Draining, Reason::DeletionRequested, DRAIN)]
#[case::pending_pod_terminal(pending(|i| i.pod_terminal = true), Phase::Failed, Reason::PodTerminal, NONE)]
#[case::pending_startup_deadline(pending(|i| { i.pod_running = false; i.startup_deadline_reached = true; }), Phase::Failed, Reason::StartupTimeout, NONE)]
#[case::pending_flapping(pending(|i| i.readiness_losses = 3), Phase::Failed, Reason::Flapping, NONE)]
#[case::pending_ignores_retire(pending(|i| { i.retire = true; i.pod_running = false; }), Phase::Pending, Reason::PodPending, NONE)]
// Starting.
#[case::starting_passes_the_gate(starting(|_| ()), Phase::Ready, Reason::ReadyGatePassed, REGISTER)]
#[case::starting_pod_not_ready(starting(|i| i.pod_ready = false), Phase::Starting, Reason::PodPending, NONE)]
#[case::starting_agent_not_ready(starting(|i| i.agent_ready = false), Phase::Starting, Reason::PodPending, NONE)]
#[case::starting_pod_not_running(starting(|i| i.pod_running = false), Phase::Starting, Reason::PodPending, NONE)]
#[case::starting_stream_down_too_long(starting(|i| i.stream_down = STREAM_GRACE), Phase::Starting, Reason::PodPending, NONE)]
#[case::starting_stream_down_within_grace(starting(|i| i.stream_down = ALMOST), Phase::Ready, Reason::ReadyGatePassed, REGISTER)]
#[case::starting_pod_lost(starting(lost), Phase::Terminating, Reason::PodLost, DELETE)]
#[case::starting_deleted_unregistered(starting(|i| i.deletion_requested = true), Phase::Terminating, Reason::DeletionRequested, DELETE)]
#[case::starting_deleted_after_being_registered(starting(|i| { i.deletion_requested = true; i.was_registered = true; }), Phase::Draining, Reason::DeletionRequested, DRAIN)]
#[case::starting_pod_terminal_drains_nobody(starting(|i| { i.pod_terminal = true; i.was_registered = true; }), Phase::Failed, Reason::PodTerminal, NONE)]
#[case::starting_flapping(starting(|i| { i.readiness_losses = 3; i.was_registered = true; }), Phase::Failed, Reason::Flapping, DRAIN)]
#[case::starting_two_losses_are_allowed(starting(|i| { i.readiness_losses = 2; i.was_registered = true; }), Phase::Ready, Reason::ReadyGatePassed, REGISTER)]
#[case::starting_startup_deadline(starting(|i| { i.agent_ready = false; i.startup_deadline_reached = true; }), Phase::Failed, Reason::StartupTimeout, NONE)]
#[case::starting_startup_deadline_after_being_registered(starting(|i| { i.agent_ready = false; i.startup_deadline_reached = true; i.was_registered = true; }), Phase::Failed, Reason::StartupTimeout, DRAIN)]
#[case::starting_deadline_beats_a_late_gate(starting(|i| i.startup_deadline_reached = true), Phase::Failed, Reason::StartupTimeout, NONE)]
#[case::starting_terminal_beats_flapping(starting(|i| { i.pod_terminal = true; i.readiness_losses = 3; i.was_registered = true; }), Phase::Failed, Reason::PodTerminal, NONE)]
#[case::starting_deletion_beats_terminal(starting(|i| { i.pod_terminal = true; i.deletion_requested = true; i.was_registered = true; }), Phase::Draining, Reason::DeletionRequested, DRAIN)]
// Ready.
#[case::ready_stays(ready(|_| ()), Phase::Ready, Reason::ReadyGatePassed, NONE)]
#[case::ready_stays_with_players(ready(|i| i.occupied = true), Phase::Ready, Reason::ReadyGatePassed, NONE)]
#[case::ready_pod_lost(ready(lost), Phase::Terminating, Reason::PodLost, OUT_AND_DELETE)]
#[case::ready_deleted(ready(|i| i.deletion_requested = true), Phase::Draining, Reason::DeletionRequested, OUT_AND_DRAIN)]
#[case::ready_and_its_pod_terminates(ready(terminating), Phase::Draining, Reason::PodTerminating, OUT_AND_DRAIN)]
#[case::ready_deletion_beats_the_pod_s(ready(|i| { terminating(i); i.deletion_requested = true; }), Phase::Draining, Reason::DeletionRequested, OUT_AND_DRAIN)]
#[case::starting_again_and_its_pod_terminates(starting(|i| { terminating(i); i.was_registered = true; }), Phase::Draining, Reason::PodTerminating, DRAIN)]
#[case::starting_and_its_pod_terminates(starting(terminating), Phase::Terminating, Reason::PodLost, DELETE)]
#[case::ready_pod_terminal(ready(|i| i.pod_terminal = true), Phase::Failed, Reason::PodTerminal, OUT)]
#[case::ready_flapping(ready(|i| i.readiness_losses = 3), Phase::Failed, Reason::Flapping, OUT_AND_DRAIN)]
#[case::ready_has_no_startup_deadline(ready(|i| i.startup_deadline_reached = true), Phase::Ready, Reason::ReadyGatePassed, NONE)]
#[case::ready_loses_the_pod_probe(ready(|i| i.pod_ready = false), Phase::Starting, Reason::ReadinessLost, LOSS)]
#[case::ready_agent_says_not_ready(ready(|i| i.agent_ready = false), Phase::Starting, Reason::ReadinessLost, LOSS)]
#[case::ready_stream_down_within_grace(ready(|i| down(i, ALMOST)), Phase::Ready, Reason::ReadyGatePassed, NONE)]
#[case::ready_stream_down_too_long(ready(|i| down(i, STREAM_GRACE)), Phase::Starting, Reason::ReadinessLost, LOSS)]
#[case::ready_retires(ready(|i| { i.retire = true; i.occupied = true; }), Phase::Retiring, Reason::Retiring, OUT)]
#[case::ready_loss_beats_retire(ready(|i| { i.retire = true; i.pod_ready = false; }), Phase::Starting, Reason::ReadinessLost, LOSS)]
#[case::ready_long_enough_forgives(ready(|i| { i.readiness_losses = 2; i.ready_for = FLAP_RESET; }), Phase::Ready, Reason::ReadyGatePassed, FORGIVEN)]
#[case::ready_not_long_enough_keeps_losses(ready(|i| { i.readiness_losses = 2; i.ready_for = FLAP_RESET.saturating_sub(Duration::from_millis(1)); }), Phase::Ready, Reason::ReadyGatePassed, NONE)]
#[case::ready_nothing_to_forgive(ready(|i| i.ready_for = FLAP_RESET), Phase::Ready, Reason::ReadyGatePassed, NONE)]
fn steps(#[case] inputs: Inputs, #[case] phase: Phase, #[case] reason: Reason, #[case] effects: Effects) {
    assert_eq!(decide(&inputs), Decision { phase, reason, effects });
}

#[rstest]
fn phases_read_back(
    #[values(
        Phase::Pending,
        Phase::Starting,
        Phase::Ready,
        Phase::Retiring,
        Phase::Draining,
        Phase::Terminating,
        Phase::Failed
    )]
    phase: Phase,
) {
    assert_eq!(Phase::parse(phase.as_str()), Some(phase));
}

#[test]
fn a_server_without_status_is_pending_and_a_foreign_phase_is_none() {
    assert_eq!(Phase::parse(""), Some(Phase::Pending));
    assert_eq!(Phase::parse("Sleeping"), None);
}

prop_compose! {
    fn any_inputs()(
        phase in prop_oneof![
            Just(None), Just(Some(Phase::Pending)), Just(Some(Phase::Starting)), Just(Some(Phase::Ready)),
            Just(Some(Phase::Retiring)), Just(Some(Phase::Draining)), Just(Some(Phase::Terminating)), Just(Some(Phase::Failed)),
        ],
        facts in any::<[bool; 17]>(),
        down in 0_u64..40,
        losses in 0_u32..5,
        ready_for in 0_u64..1200,
    ) -> Inputs {
        let [deletion_requested, retire, pod_exists, pod_terminating, pod_lost, pod_terminal, pod_running, pod_ready, agent_connected,
             agent_ready, occupied, was_registered, startup_deadline_reached, drain_deadline_reached, max_stale_reached,
             silence_deadline_reached, retention_elapsed] = facts;
        Inputs {
            phase, deletion_requested, retire, pod_exists, pod_terminating, pod_lost, pod_terminal, pod_running, pod_ready, agent_connected,
            agent_ready, stream_down: Duration::from_secs(down), occupied, was_registered, readiness_losses: losses,
            startup_deadline_reached, drain_deadline_reached, max_stale_reached, silence_deadline_reached, retention_elapsed,
            ready_for: Duration::from_secs(ready_for),
        }
    }
}

proptest! {
    /// Promise 1: a server that proxies ever routed to and that somebody is on loses its pod only when the pod is gone or
    /// dead anyway, or its owner's deadline passed.
    #[test]
    fn nobody_loses_a_living_server_before_the_deadline(inputs in any_inputs()) {
        let decision = decide(&inputs);
        let was_ready = matches!(inputs.phase, Some(Phase::Ready | Phase::Retiring | Phase::Draining));
        let somebody = inputs.occupied && (inputs.was_registered || was_ready);
        if somebody && decision.effects.pod == PodEffect::Delete && inputs.phase != Some(Phase::Terminating) {
            prop_assert!(inputs.pod_lost || inputs.pod_terminal || inputs.drain_deadline_reached);
        }
    }

    /// The way out is one way: nothing that is leaving becomes ready again.
    #[test]
    fn leaving_is_final(inputs in any_inputs()) {
        if inputs.phase.is_some_and(Phase::leaving) {
            prop_assert!(decide(&inputs).phase.leaving());
        }
    }

    /// Whoever stops being ready is taken out of the directories in the same step.
    #[test]
    fn leaving_ready_deregisters(inputs in any_inputs()) {
        let decision = decide(&inputs);
        let out = decision.effects.registration == Registration::Deregister;
        prop_assert_eq!(out, inputs.phase == Some(Phase::Ready) && decision.phase != Phase::Ready);
    }

    /// Same facts, next step: the machine comes to rest (the longest way is unknown, pending, starting, ready, retiring,
    /// draining, terminating).
    #[test]
    fn comes_to_rest(mut inputs in any_inputs()) {
        for _ in 0..6 {
            inputs.phase = Some(decide(&inputs).phase);
        }
        prop_assert_eq!(Some(decide(&inputs).phase), inputs.phase);
    }
}
