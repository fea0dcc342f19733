//! Who leads: the protocol of client-go's leases as one pure decision.
//!
//! Nobody's wall clock is trusted. A lease that somebody else holds has run out when *we* have not seen it change for as
//! long as its holder promised, measured on our own monotonic clock; a holder stops leading before that, because it
//! counts from before its renewal was sent.

use std::time::{Duration, Instant};

/// The three durations of an election. Their order keeps two leaders apart: a holder gives up after `renew_within`, and
/// nobody else takes over before `lease` has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long others leave an unchanged lease alone.
    pub lease: Duration,
    /// How long a holder goes on leading after the start of its last successful renewal.
    pub renew_within: Duration,
    /// Pause between two looks at, or renewals of, the lease.
    pub retry: Duration,
}

impl Default for Timing {
    /// client-go's customary 15, 10 and 2 seconds.
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew_within: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// What we last saw of the lease object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Identity of the holder; `None` after a release.
    pub holder: Option<String>,
    /// How long the holder said it leads without a renewal; `None` where the object does not say.
    pub promised: Option<Duration>,
    /// How often the lease changed hands; it is the epoch of messages to agents.
    pub transitions: u64,
    /// When we first saw the object in exactly this version.
    pub unchanged_since: Instant,
}

/// What to do about the lease now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is no lease: create it in our name.
    Create,
    /// It is free or has run out: replace it (compare-and-set) in our name with this number of transitions.
    Take {
        /// One more than the lease showed.
        transitions: u64,
    },
    /// It is ours: renew it, transitions unchanged.
    Renew,
    /// Somebody else holds it: look again at this moment.
    Wait {
        /// Never later than one retry from now.
        until: Instant,
    },
}

/// Decides the next move of `me` on a lease last seen as `seen`.
pub fn step(seen: Option<&Observed>, timing: &Timing, me: &str, now: Instant) -> Step {
    let Some(seen) = seen else { return Step::Create };
    let take = Step::Take { transitions: seen.transitions.saturating_add(1) };
    match seen.holder.as_deref() {
        None | Some("") => take,
        Some(holder) if holder == me => Step::Renew,
        Some(_) => {
            let runs_out = later(seen.unchanged_since, seen.promised.unwrap_or(timing.lease));
            if now >= runs_out { take } else { Step::Wait { until: runs_out.min(later(now, timing.retry)) } }
        }
    }
}

/// Until when a renewal whose request was sent at `sent` lets its holder lead.
pub fn leads_until(sent: Instant, timing: &Timing) -> Instant {
    later(sent, timing.renew_within)
}

/// The number of transitions a new lease starts with.
///
/// Agents drop messages of an epoch lower than one they have seen, so somebody's `kubectl delete lease` must not send
/// the epoch back to zero. Minutes since 1970 run ahead of any lease that changes hands less than once a minute.
pub fn first_transitions(now: jiff::Timestamp) -> u64 {
    u64::try_from(now.as_second() / 60).unwrap_or(0)
}

fn later(from: Instant, by: Duration) -> Instant {
    // A promise beyond what the clock can hold (a hostile object) is cut to a day.
    from.checked_add(by).unwrap_or_else(|| from + Duration::from_hours(24))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn seen(holder: Option<&str>, promised: Option<u64>, age: u64, now: Instant) -> Observed {
        Observed {
            holder: holder.map(str::to_owned),
            promised: promised.map(S),
            transitions: 7,
            unchanged_since: now.checked_sub(S(age)).expect("the test's clock starts late enough"),
        }
    }

    fn now() -> Instant {
        Instant::now() + S(100_000)
    }

    #[rstest]
    #[case::released(None, Some(15), 0)]
    #[case::released_as_an_empty_string(Some(""), Some(15), 0)]
    #[case::run_out(Some("other"), Some(15), 15)]
    #[case::run_out_by_its_own_promise(Some("other"), Some(3), 3)]
    #[case::run_out_by_our_timing_without_a_promise(Some("other"), None, 15)]
    fn takes(#[case] holder: Option<&str>, #[case] promised: Option<u64>, #[case] age: u64) {
        let now = now();
        let step = step(Some(&seen(holder, promised, age, now)), &Timing::default(), "me", now);
        assert_eq!(step, Step::Take { transitions: 8 });
    }

    #[rstest]
    #[case::fresh(Some(15), 0, 2)]
    #[case::looks_again_when_it_runs_out(Some(15), 14, 1)]
    #[case::a_longer_promise_is_kept(Some(60), 20, 2)]
    fn waits(#[case] promised: Option<u64>, #[case] age: u64, #[case] wait: u64) {
        let now = now();
        let step = step(Some(&seen(Some("other"), promised, age, now)), &Timing::default(), "me", now);
        assert_eq!(step, Step::Wait { until: now + S(wait) });
    }

    #[rstest]
    #[case::fresh(0)]
    #[case::even_run_out(100)]
    fn renews_its_own(#[case] age: u64) {
        let now = now();
        assert_eq!(step(Some(&seen(Some("me"), Some(15), age, now)), &Timing::default(), "me", now), Step::Renew);
    }

    #[test]
    fn creates_what_is_missing() {
        assert_eq!(step(None, &Timing::default(), "me", Instant::now()), Step::Create);
    }

    #[test]
    fn epochs_of_a_recreated_lease_go_on_rising() {
        let before: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().expect("a date");
        let after: jiff::Timestamp = "2026-01-01T01:00:00Z".parse().expect("a date");
        assert_eq!(first_transitions(after), first_transitions(before) + 60);
    }

    proptest! {
        /// A holder that renewed at any moment, seen by a rival any time later, has stopped leading before the rival takes over.
        #[test]
        fn never_two_leaders(sent in 0_u64..1_000_000, latency in 0_u64..9_000, rival in 0_u64..100_000) {
            let start = now();
            let timing = Timing::default();
            let at = |ms: u64| start + Duration::from_millis(ms);
            let first_seen = at(sent + latency);
            let lease = Observed { holder: Some("a".into()), promised: Some(timing.lease), transitions: 1, unchanged_since: first_seen };
            let look = first_seen + Duration::from_millis(rival);
            if matches!(step(Some(&lease), &timing, "b", look), Step::Take { .. }) {
                prop_assert!(look > leads_until(at(sent), &timing));
            }
        }
    }
}
