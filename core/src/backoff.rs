//! How long a group waits before it creates the next server after servers that failed.
//!
//! What is counted is what says that the group cannot start: attempts of which no server ever took players. A server that
//! did is broken by what happened to it since (its node crashed, its game did), which the next one need not share, and would
//! otherwise leave a group that lost a node without a replacement for good. Servers made together are one attempt.

use crate::member::Member;
use crate::phase::Phase;
use jiff::Timestamp;
use std::time::Duration;

/// The wait after the first failure.
pub const BASE: Duration = Duration::from_secs(10);
/// The longest wait.
pub const CAP: Duration = Duration::from_mins(5);
/// Failed attempts in a row after which a group gives up until its spec changes.
pub const GIVE_UP: u32 = 6;

/// What a group remembers of its failures (`status.consecutiveFailures`, `status.lastFailureAt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failures {
    /// Failed attempts without a success in between.
    pub consecutive: u32,
    /// The newest failure that was counted; older ones are never counted again.
    pub last: Option<Timestamp>,
}

/// Whether servers may be created now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// Nothing stands in the way.
    Clear,
    /// Not before `until`.
    Waiting {
        /// When the wait is over.
        until: Timestamp,
    },
    /// Not before the spec changes.
    GivenUp,
}

/// Counts failed attempts to start servers of `generation`, each once, and starts over at a server that became ready since.
///
/// A server that became ready at the same moment as another failed does not make that failure undone. One that was made
/// before the last failure belongs to the same attempt: nobody waited before it was made. (The moments are of two clocks;
/// where they are further apart than [`BASE`], a group tries more often and gives up later.)
pub fn count_failures(so_far: Failures, members: &[Member], generation: i64) -> Failures {
    let newer = |moment: &Timestamp| so_far.last.is_none_or(|last| *moment > last);
    let mine = || members.iter().filter(|m| m.generation == generation);
    let success = mine().filter_map(|m| m.ready_since).filter(newer).max();
    let mut failures = Failures { consecutive: if success.is_some() { 0 } else { so_far.consecutive }, ..so_far };
    let never_came_up = mine().filter(|m| m.phase == Phase::Failed && !m.was_registered);
    let mut failed: Vec<(Timestamp, Timestamp)> = never_came_up
        .filter_map(|m| Some((m.failed_at.filter(newer)?, m.created_at)))
        .filter(|(at, _)| success.is_none_or(|success| *at >= success))
        .collect();
    failed.sort_unstable();
    for (failed_at, created_at) in failed {
        // One of the same attempt does not move the moment: of servers that start and fail in turns none would ever be made
        // after the last failure.
        if failures.consecutive == 0 || failures.last.is_none_or(|last| created_at > last) {
            failures.consecutive = failures.consecutive.saturating_add(1);
            failures.last = failures.last.max(Some(failed_at));
        }
    }
    failures
}

/// Whether a group with these failures may create servers at `now`.
pub fn decide(failures: &Failures, now: Timestamp) -> Backoff {
    if failures.consecutive >= GIVE_UP {
        return Backoff::GivenUp;
    }
    let Some(last) = failures.last.filter(|_| failures.consecutive > 0) else {
        return Backoff::Clear;
    };
    let until = last.saturating_add(delay(failures.consecutive)).unwrap_or(Timestamp::MAX);
    if now < until { Backoff::Waiting { until } } else { Backoff::Clear }
}

/// The wait after the `n`-th failed attempt in a row: 10 s, twice as long each time, at most 5 min.
pub fn delay(n: u32) -> Duration {
    if n == 0 {
        return Duration::ZERO;
    }
    let factor = 2_u32.checked_pow(n - 1).unwrap_or(u32::MAX);
    BASE.saturating_mul(factor).min(CAP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::testing::{T0, at, member};
    use proptest::prelude::*;
    use rstest::rstest;

    /// Failed before it ever took players, made at the start.
    fn failed(seconds: i64) -> Member {
        member("f").coming_up().failed(at(seconds))
    }
    fn made(seconds: i64, server: Member) -> Member {
        server.with(|m| m.created_at = at(seconds))
    }
    fn once_up(server: Member) -> Member {
        server.with(|m| m.was_registered = true)
    }
    fn ready(seconds: i64) -> Member {
        member("r").with(|m| m.ready_since = Some(at(seconds)))
    }
    fn so_far(consecutive: u32, last: Option<i64>) -> Failures {
        Failures { consecutive, last: last.map(at) }
    }

    #[rstest]
    #[case::nothing_happened(so_far(0, None), vec![], so_far(0, None))]
    #[case::the_first_failure(so_far(0, None), vec![failed(1)], so_far(1, Some(1)))]
    #[case::counted_once(so_far(1, Some(1)), vec![failed(1)], so_far(1, Some(1)))]
    #[case::servers_that_were_made_together_count_once(so_far(0, None), vec![failed(2), failed(2), failed(3)], so_far(1, Some(2)))]
    #[case::so_does_the_rest_of_them_later(so_far(1, Some(1)), vec![failed(1), failed(2), failed(3)], so_far(1, Some(1)))]
    #[case::each_round_counts(so_far(1, Some(1)), vec![made(11, failed(12)), made(11, failed(13))], so_far(2, Some(12)))]
    #[case::also_two_at_one_look(so_far(0, None), vec![made(11, failed(12)), failed(1)], so_far(2, Some(12)))]
    #[case::one_that_came_up_before_it_failed_does_not(so_far(0, None), vec![once_up(failed(1))], so_far(0, None))]
    #[case::whatever_became_of_the_others(so_far(1, Some(1)), vec![made(11, once_up(failed(12))), made(11, failed(13))], so_far(2, Some(13)))]
    #[case::another_generation_does_not(so_far(0, None), vec![failed(1).old()], so_far(0, None))]
    #[case::a_success_starts_over(so_far(3, Some(3)), vec![failed(3), ready(4)], so_far(0, Some(3)))]
    #[case::an_old_success_does_not(so_far(3, Some(3)), vec![failed(3), ready(2)], so_far(3, Some(3)))]
    #[case::another_generation_s_success_does_not(so_far(3, Some(3)), vec![ready(4).old()], so_far(3, Some(3)))]
    #[case::failures_before_the_success_do_not_count(so_far(2, Some(1)), vec![failed(2), ready(4)], so_far(0, Some(1)))]
    #[case::failures_after_the_success_do(so_far(2, Some(1)), vec![ready(4), failed(5)], so_far(1, Some(5)))]
    #[case::failures_at_the_success_do(so_far(2, Some(1)), vec![ready(4), failed(4)], so_far(1, Some(4)))]
    #[case::a_failure_not_in_phase_failed_does_not(so_far(0, None), vec![failed(1).with(|m| m.phase = Phase::Terminating)], so_far(0, None))]
    fn counts(#[case] before: Failures, #[case] members: Vec<Member>, #[case] want: Failures) {
        let once = count_failures(before, &members, 1);
        assert_eq!(once, want);
        assert_eq!(count_failures(once, &members, 1), want, "a second look changes nothing");
    }

    #[rstest]
    #[case::a_node_with_six_of_them_crashed(6, true, Backoff::Clear)]
    #[case::six_that_never_came_up_are_one_bad_round(6, false, Backoff::Waiting { until: at(10) })]
    fn survives_a_bad_round(#[case] servers: usize, #[case] came_up: bool, #[case] want: Backoff) {
        let down = || failed(0).with(|m| m.was_registered = came_up);
        let members: Vec<Member> = std::iter::repeat_with(down).take(servers).collect();
        assert_eq!(decide(&count_failures(Failures::default(), &members, 1), T0), want);
    }

    #[test]
    fn gives_up_on_a_group_that_never_comes_up() {
        let mut failures = Failures::default();
        let mut now = T0;
        for round in 1..=GIVE_UP {
            assert_ne!(decide(&failures, now), Backoff::GivenUp, "round {round}");
            let tried: Vec<Member> = (0..3)
                .map(|_| failed(0).with(|m| (m.created_at, m.failed_at) = (now, Some(now + Duration::from_mins(5)))))
                .collect();
            failures = count_failures(failures, &tried, 1);
            assert_eq!(failures.consecutive, round);
            now = now + Duration::from_mins(5) + delay(round);
        }
        assert_eq!(decide(&failures, now), Backoff::GivenUp);
    }

    #[test]
    fn gives_up_on_servers_that_never_come_up_in_turns() {
        // Each server fails 300 s after it was made, and the next one in its place is made as soon as the group may.
        let mut failures = Failures::default();
        let (mut slots, mut tried) = ([at(0), at(150)], Vec::new());
        for now in (0..86_400).map(at) {
            for made_at in &mut slots {
                if now.duration_since(*made_at).as_secs() >= 300 {
                    let failed_at = *made_at + Duration::from_mins(5);
                    tried.push(failed(0).with(|m| (m.created_at, m.failed_at) = (*made_at, Some(failed_at))));
                    failures = count_failures(failures, &tried, 1);
                    *made_at = now + Duration::from_hours(24);
                }
                let gone = now.duration_since(*made_at).is_negative() && decide(&failures, now) == Backoff::Clear;
                if gone {
                    *made_at = now;
                }
            }
            if decide(&failures, now) == Backoff::GivenUp {
                return;
            }
        }
        panic!("{failures:?}");
    }

    #[rstest]
    #[case::none(so_far(0, None), Backoff::Clear)]
    #[case::forgiven(so_far(0, Some(0)), Backoff::Clear)]
    #[case::first(so_far(1, Some(0)), Backoff::Waiting { until: at(10) })]
    #[case::first_over(so_far(1, Some(-10)), Backoff::Clear)]
    #[case::fifth(so_far(5, Some(0)), Backoff::Waiting { until: at(160) })]
    #[case::sixth(so_far(6, Some(-100_000)), Backoff::GivenUp)]
    fn waits(#[case] failures: Failures, #[case] want: Backoff) {
        assert_eq!(decide(&failures, T0), want);
    }

    #[rstest]
    #[case(0, 0)]
    #[case(1, 10)]
    #[case(2, 20)]
    #[case(3, 40)]
    #[case(4, 80)]
    #[case(5, 160)]
    #[case(6, 300)]
    #[case(u32::MAX, 300)]
    fn delays(#[case] n: u32, #[case] seconds: u64) {
        assert_eq!(delay(n), Duration::from_secs(seconds));
    }

    proptest! {
        #[test]
        fn never_falls(n in 0_u32..200) {
            prop_assert!(delay(n) <= delay(n + 1));
            prop_assert!(delay(n) <= CAP);
        }

        #[test]
        fn the_watermark_never_falls(last in prop::option::of(0_i64..50), failures in prop::collection::vec(0_i64..50, 0..6), successes in prop::collection::vec(0_i64..50, 0..6)) {
            let members: Vec<Member> = failures.into_iter().map(failed).chain(successes.into_iter().map(ready)).collect();
            let before = so_far(1, last);
            let after = count_failures(before, &members, 1);
            prop_assert!(after.last >= before.last);
            prop_assert_eq!(count_failures(after, &members, 1), after);
        }
    }
}
