//! Causes, the clock and the deadline as tables.

use super::*;
use crate::member::testing::{T0, at};
use proptest::prelude::*;
use rstest::rstest;

const POLICY: Policy =
    Policy { move_after: Duration::ZERO, timeout: Duration::from_mins(1), on_deadline: OnDeadline::Disconnect };
const PATIENT: Policy = Policy { move_after: Duration::from_secs(30), ..POLICY };
const HOLD: Policy = Policy { on_deadline: OnDeadline::Hold, ..POLICY };

fn causes(change: impl FnOnce(&mut Causes)) -> Causes {
    let mut causes = Causes::default();
    change(&mut causes);
    causes
}
fn requested(seconds: i64) -> Causes {
    causes(|c| c.eviction_requested = Some(at(seconds)))
}
fn deleted() -> Causes {
    causes(|c| c.deleted = true)
}
fn terminating() -> Causes {
    causes(|c| c.pod_terminating = true)
}
fn called_off(uncordoned: i64, requested: i64) -> Causes {
    causes(|c| {
        c.called_off_at = Some(at(uncordoned));
        c.eviction_requested = Some(at(requested));
    })
}
fn node() -> Causes {
    causes(|c| c.node_departing = true)
}

#[rstest]
#[case::nothing(Causes::default(), None, false)]
#[case::deleted(deleted(), Some(Cause::DeletionRequested), false)]
#[case::pod_terminating(terminating(), Some(Cause::PodTerminating), false)]
#[case::draining(causes(|c| c.draining = true), Some(Cause::Draining), false)]
#[case::retiring(causes(|c| c.retiring = true), Some(Cause::Retiring), false)]
#[case::node(node(), Some(Cause::NodeDraining), false)]
#[case::request(requested(0), Some(Cause::EvictionRequested), false)]
#[case::request_about_to_expire(requested(-599), Some(Cause::EvictionRequested), false)]
#[case::request_nobody_repeats(requested(-600), None, true)]
#[case::expired_request_on_a_departing_node(causes(|c| { c.eviction_requested = Some(at(-600)); c.node_departing = true; }), Some(Cause::NodeDraining), true)]
#[case::request_on_a_departing_node(causes(|c| { c.eviction_requested = Some(at(0)); c.node_departing = true; c.previous = Some(Cause::NodeDraining); }), Some(Cause::NodeDraining), false)]
#[case::uncordoned(causes(|c| { c.eviction_requested = Some(at(0)); c.previous = Some(Cause::NodeDraining); }), None, true)]
#[case::uncordoned_and_the_last_request_came_late(called_off(-5, 0), None, true)]
#[case::uncordoned_as_late_as_can_be(called_off(-30, 0), None, true)]
#[case::asked_for_anew(called_off(-31, 0), Some(Cause::EvictionRequested), false)]
#[case::cordoned_again(Causes { node_departing: true, ..called_off(-5, 0) }, Some(Cause::NodeDraining), false)]
#[case::uncordoned_and_nothing_was_asked(Causes { eviction_requested: None, ..called_off(-5, 0) }, None, false)]
#[case::never_cordoned(causes(|c| { c.eviction_requested = Some(at(0)); c.previous = Some(Cause::EvictionRequested); }), Some(Cause::EvictionRequested), false)]
#[case::retiring_on_a_departing_node(causes(|c| { c.retiring = true; c.node_departing = true; }), Some(Cause::NodeDraining), false)]
#[case::retiring_and_asked_to_leave(causes(|c| { c.retiring = true; c.eviction_requested = Some(at(0)); }), Some(Cause::EvictionRequested), false)]
#[case::retiring_after_the_request_ran_out(causes(|c| { c.retiring = true; c.eviction_requested = Some(at(-600)); }), Some(Cause::Retiring), true)]
#[case::retiring_after_an_uncordon(causes(|c| { c.retiring = true; c.eviction_requested = Some(at(0)); c.previous = Some(Cause::NodeDraining); }), Some(Cause::Retiring), true)]
#[case::draining_binds_more_than_a_node(causes(|c| { c.draining = true; c.node_departing = true; }), Some(Cause::Draining), false)]
#[case::deletion_binds_more_than_all(causes(|c| { *c = Causes { deleted: true, pod_terminating: true, draining: true, retiring: true, node_departing: true, eviction_requested: Some(at(0)), ..Causes::default() }; }), Some(Cause::DeletionRequested), false)]
#[case::its_pod_s_deletion_binds_more_than_the_rest(causes(|c| { *c = Causes { deleted: false, pod_terminating: true, draining: true, retiring: true, node_departing: true, eviction_requested: Some(at(0)), ..Causes::default() }; }), Some(Cause::PodTerminating), false)]
#[case::deleted_after_uncordon(causes(|c| { c.deleted = true; c.eviction_requested = Some(at(0)); c.previous = Some(Cause::NodeDraining); }), Some(Cause::DeletionRequested), true)]
fn strongest(#[case] causes: Causes, #[case] want: Option<Cause>, #[case] withdrawn: bool) {
    assert_eq!((causes.strongest(T0), causes.withdrawn(T0)), (want, withdrawn));
}

#[rstest]
#[case(Cause::DeletionRequested, false, true)]
#[case(Cause::PodTerminating, false, true)]
#[case(Cause::Draining, false, true)]
#[case(Cause::NodeDraining, true, true)]
#[case(Cause::EvictionRequested, true, true)]
#[case(Cause::Retiring, false, false)]
fn what_a_cause_means(#[case] cause: Cause, #[case] may_pass: bool, #[case] moves: bool) {
    assert_eq!((cause.may_pass(), cause.moves()), (may_pass, moves));
    assert_eq!((Cause::parse(cause.as_str()), Cause::behind(cause.as_str())), (Some(cause), Some(cause)));
}

#[rstest]
#[case::hidden("NoFallbackAvailable", Some(Cause::NodeDraining))]
#[case::of_nobody_of_us("Sleeping", None)]
fn what_a_condition_hides(#[case] text: &str, #[case] want: Option<Cause>) {
    assert_eq!(Cause::behind(text), want);
}

#[rstest]
#[case::of_an_earlier_leader(None, Some(0), clock(Some(0), Some(0)))]
#[case::of_nobody(None, None, clock(None, None))]
#[case::put_off_and_not_written(Some(clock(Some(300), None)), Some(0), clock(Some(300), None))]
#[case::held(Some(clock(Some(0), Some(10))), Some(0), clock(Some(0), Some(10)))]
#[case::ended_and_not_written(Some(clock(None, None)), Some(0), clock(None, None))]
fn a_clock_goes_on(#[case] decided: Option<Clock>, #[case] written: Option<i64>, #[case] want: Clock) {
    assert_eq!(Clock::resumed(decided, written.map(at)), want);
}

/// A drain for `causes` whose door began to close at T0, with everybody listening and a fallback ready.
fn inputs(causes: Causes, now: i64) -> Inputs {
    Inputs {
        causes,
        closing_since: Some(T0),
        clock: Clock::default(),
        killed_at: None,
        audible: true,
        fallback_ready: true,
        now: at(now),
    }
}
fn started(causes: Causes, started: i64, now: i64) -> Inputs {
    Inputs { clock: clock(Some(started), None), ..inputs(causes, now) }
}
/// As `inputs`, with a pod that the kubelet ends at second `killed_at`.
fn killed(killed_at: i64, inputs: Inputs) -> Inputs {
    Inputs { killed_at: Some(at(killed_at)), ..inputs }
}
fn clock(started: Option<i64>, held_since: Option<i64>) -> Clock {
    Clock { started: started.map(at), held_since: held_since.map(at) }
}
fn running(seconds: i64) -> Deadline {
    Deadline::Running { at: at(seconds) }
}
const DEAF: Deadline = Deadline::Held(Held::ProxiesUnreachable);
const NOWHERE: Deadline = Deadline::Held(Held::NoFallbackAvailable);

#[rstest]
// Whether players are moved.
#[case::no_cause(inputs(Causes::default(), 0), POLICY, false, clock(None, None), Deadline::None)]
#[case::no_cause_any_more(started(Causes::default(), 0, 5), POLICY, false, clock(None, None), Deadline::None)]
#[case::retiring_leaves_them_alone(inputs(causes(|c| c.retiring = true), 500), POLICY, false, clock(None, None), Deadline::None)]
#[case::told_to_move_at_once(inputs(deleted(), 0), POLICY, true, clock(Some(0), None), running(60))]
#[case::may_finish_first(inputs(deleted(), 29), PATIENT, false, clock(None, None), Deadline::None)]
#[case::moved_after_that(inputs(deleted(), 30), PATIENT, true, clock(Some(30), None), running(90))]
#[case::not_stopped_by_a_longer_patience(started(deleted(), 0, 10), PATIENT, true, clock(Some(0), None), running(60))]
#[case::a_node(inputs(node(), 0), POLICY, true, clock(Some(0), None), running(60))]
#[case::a_request(inputs(requested(0), 0), POLICY, true, clock(Some(0), None), running(60))]
// A pod that somebody deleted: its grace is the longest that anything can take.
#[case::nobody_may_finish_first(killed(60, inputs(terminating(), 0)), PATIENT, true, clock(Some(0), None), running(55))]
#[case::the_group_s_deadline_is_earlier(
    killed(600, inputs(terminating(), 0)),
    POLICY,
    true,
    clock(Some(0), None),
    running(60)
)]
#[case::almost_at_the_end_of_its_grace(
    killed(40, started(terminating(), 0, 34)),
    POLICY,
    true,
    clock(Some(0), None),
    running(35)
)]
#[case::at_the_end_of_its_grace(
    killed(40, started(terminating(), 0, 35)),
    POLICY,
    true,
    clock(Some(0), None),
    Deadline::Passed
)]
#[case::its_grace_is_held_by_nothing(killed(40, Inputs { audible: false, fallback_ready: false, ..started(terminating(), 0, 35) }), HOLD, true, clock(Some(0), Some(35)), Deadline::Passed)]
#[case::until_then_the_drain_is_held(killed(40, Inputs { fallback_ready: false, ..started(terminating(), 0, 10) }), POLICY, true, clock(Some(0), Some(10)), NOWHERE)]
#[case::no_grace_worth_waiting_for(
    killed(3, inputs(terminating(), 0)),
    POLICY,
    true,
    clock(Some(0), None),
    Deadline::Passed
)]
#[case::a_deleted_server_s_pod(killed(40, started(deleted(), 0, 10)), POLICY, true, clock(Some(0), None), running(35))]
// The deadline.
#[case::almost_there(started(node(), 0, 59), POLICY, true, clock(Some(0), None), running(60))]
#[case::passed(started(node(), 0, 60), POLICY, true, clock(Some(0), None), Deadline::Passed)]
#[case::held_by_policy(started(node(), 0, 60), HOLD, true, clock(Some(0), None), Deadline::Held(Held::ByPolicy))]
#[case::deletion_is_held_by_policy_too(
    started(deleted(), 0, 60),
    HOLD,
    true,
    clock(Some(0), None),
    Deadline::Held(Held::ByPolicy)
)]
// What holds the clock.
#[case::nobody_hears(Inputs { audible: false, ..started(node(), 0, 10) }, POLICY, true, clock(Some(0), Some(10)), DEAF)]
#[case::nobody_hears_past_the_time(Inputs { audible: false, ..started(node(), 0, 500) }, POLICY, true, clock(Some(0), Some(500)), DEAF)]
#[case::nobody_hears_of_a_deletion(Inputs { audible: false, ..started(deleted(), 0, 10) }, POLICY, true, clock(Some(0), Some(10)), DEAF)]
#[case::nowhere_to_go(Inputs { fallback_ready: false, ..started(node(), 0, 10) }, POLICY, true, clock(Some(0), Some(10)), NOWHERE)]
#[case::nowhere_to_go_at_a_request(Inputs { fallback_ready: false, ..inputs(requested(0), 0) }, POLICY, true, clock(Some(0), Some(0)), NOWHERE)]
#[case::nowhere_to_go_at_a_deletion(Inputs { fallback_ready: false, ..started(deleted(), 0, 10) }, POLICY, true, clock(Some(0), None), running(60))]
#[case::still_nowhere(Inputs { fallback_ready: false, clock: clock(Some(0), Some(10)), ..inputs(node(), 300) }, POLICY, true, clock(Some(0), Some(10)), NOWHERE)]
#[case::goes_on_where_it_stood(Inputs { clock: clock(Some(0), Some(10)), ..inputs(node(), 300) }, POLICY, true, clock(Some(290), None), running(350))]
#[case::a_new_leader_charges_nothing(Inputs { clock: Clock::taken_over(Some(at(0))), ..inputs(node(), 300) }, POLICY, true, clock(Some(300), None), running(360))]
fn drains(
    #[case] inputs: Inputs,
    #[case] policy: Policy,
    #[case] moving: bool,
    #[case] clock: Clock,
    #[case] deadline: Deadline,
) {
    let decision = decide(&inputs, &policy);
    assert_eq!((decision.moving, decision.clock, decision.deadline), (moving, clock, deadline));
}

#[rstest]
#[case::nothing(inputs(Causes::default(), 0), POLICY, None)]
#[case::patience(inputs(deleted(), 0), PATIENT, Some(30))]
#[case::the_deadline(inputs(node(), 0), POLICY, Some(60))]
#[case::the_request_s_end(inputs(requested(-590), 0), POLICY, Some(10))]
#[case::the_earlier_of_both(inputs(requested(0), 0), POLICY, Some(60))]
#[case::the_end_of_the_grace(killed(40, inputs(terminating(), 0)), POLICY, Some(35))]
#[case::held_and_the_end_of_the_grace(killed(40, Inputs { audible: false, ..inputs(terminating(), 0) }), POLICY, Some(35))]
#[case::held_needs_no_wake(Inputs { audible: false, ..inputs(node(), 0) }, POLICY, None)]
fn looks_again(#[case] inputs: Inputs, #[case] policy: Policy, #[case] seconds: Option<i64>) {
    assert_eq!(decide(&inputs, &policy).wake, seconds.map(at));
}

#[rstest]
#[case::empty(node(), 0, Inside::Nobody, false, Some(SealReason::Empty))]
#[case::not_empty(node(), 0, Inside::Somebody, false, None)]
#[case::deadline(node(), 60, Inside::Somebody, false, Some(SealReason::Deadline))]
#[case::overridden(node(), 0, Inside::Somebody, true, Some(SealReason::Override))]
#[case::empty_says_more_than_the_others(node(), 60, Inside::Nobody, true, Some(SealReason::Empty))]
#[case::never_without_a_cause(Causes::default(), 600, Inside::Nobody, true, None)]
#[case::unless_it_was_begun(Causes::default(), 0, Inside::NobodyForGood, false, Some(SealReason::Empty))]
#[case::retiring_and_empty(causes(|c| c.retiring = true), 0, Inside::Nobody, false, Some(SealReason::Empty))]
#[case::retiring_has_no_deadline(causes(|c| c.retiring = true), 6000, Inside::Somebody, false, None)]
#[case::on_a_departing_node_it_has_one(causes(|c| { c.retiring = true; c.node_departing = true; }), 60, Inside::Somebody, false, Some(SealReason::Deadline))]
fn seals(
    #[case] causes: Causes,
    #[case] now: i64,
    #[case] inside: Inside,
    #[case] overridden: bool,
    #[case] want: Option<SealReason>,
) {
    let decision = decide(&started(causes, 0, now), &POLICY);
    assert_eq!(seal(&decision, inside, overridden), want);
}

proptest! {
    /// Whatever comes and goes, the deadline passes only after its clock ran for the whole timeout.
    #[test]
    fn the_deadline_needs_its_whole_time(steps in prop::collection::vec((1_i64..20, any::<bool>(), any::<bool>()), 1..40)) {
        let (mut clock, mut now, mut ran) = (Clock::default(), 0, 0);
        let mut counting = false;
        for (seconds, audible, fallback_ready) in steps {
            now += seconds;
            if counting { ran += seconds; }
            let decision = decide(&Inputs { clock, audible, fallback_ready, ..inputs(node(), now) }, &POLICY);
            if decision.deadline == Deadline::Passed {
                prop_assert!(ran >= 60, "after {ran} s");
                break;
            }
            clock = decision.clock;
            counting = clock.held_since.is_none();
        }
    }

    /// A group that says to wait never has its players disconnected.
    #[test]
    fn hold_holds(now in 0_i64..100_000, begun in prop::option::of(0_i64..100), audible in any::<bool>(), fallback_ready in any::<bool>()) {
        let inputs = Inputs { clock: clock(begun, None), audible, fallback_ready, ..inputs(deleted(), now) };
        prop_assert_ne!(decide(&inputs, &HOLD).deadline, Deadline::Passed);
    }
}
