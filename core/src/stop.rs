//! How long the end of a pod that was deleted is held up.
//!
//! `kubectl delete pod` asks nobody: the kubelet runs the container's `preStop` hook, sends SIGTERM when that returns, and
//! SIGKILL when the pod's grace is over. The hook is the agent's, and it waits while players are moved away:
//!
//! ```text
//! DELETE ─► hook called ──────── players are moved ───────► hook returns ─► SIGTERM ─► game saves and ends
//!   └─ leader sees it: door closed, drain, seal ─► Release ────┘   at the latest MARGIN before the grace is over
//! ```
//!
//! The leader decides as long as it is heard: only it knows that nobody can get in any more. Without it the pod's own count
//! has to do, for waiting would help nobody.

use jiff::Timestamp;
use std::time::Duration;

/// What the game gets of its pod's grace at the least, to save and to end.
pub const MARGIN: Duration = Duration::from_secs(5);
/// How long a pod that the leader does not release must have been empty to be let go all the same. Longer than a proxy
/// which confirms nothing takes to be believed.
pub const EMPTY_FOR: Duration = Duration::from_secs(15);

/// When the game of a pod that the kubelet ends at `killed_at` is told to stop at the latest.
pub fn stop_at(killed_at: Timestamp) -> Timestamp {
    killed_at.saturating_sub(MARGIN).unwrap_or(killed_at)
}

/// What the agent knows while the hook waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The leader said that the pod is sealed.
    pub released: bool,
    /// The leader was heard on a stream that is up.
    pub connected: bool,
    /// For how long the game has counted nobody; `None` when somebody is on it, or nobody can say.
    pub empty_for: Option<Duration>,
    /// For how long the hook has waited.
    pub waited: Duration,
    /// The pod's grace, which began when the hook was called.
    pub grace: Duration,
}

/// Whether the pod's end is held up any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is, and is to be decided again after this time, or when something changes.
    Wait(Duration),
    /// The game may be told to stop.
    Stop(Why),
}

/// Why a game may be told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The leader released the pod.
    Released,
    /// Nobody is on it.
    Empty,
    /// Its grace is nearly over.
    GraceOver,
}

impl Why {
    /// As it stands in answers and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "Released",
            Self::Empty => "Empty",
            Self::GraceOver => "GraceOver",
        }
    }
}

/// Decides whether the end of a pod is held up.
pub fn decide(facts: &Facts) -> Verdict {
    let left = facts.grace.saturating_sub(MARGIN).saturating_sub(facts.waited);
    let patience = if facts.connected { EMPTY_FOR } else { Duration::ZERO };
    let until_empty = facts.empty_for.map(|empty| patience.saturating_sub(empty));
    if facts.released {
        Verdict::Stop(Why::Released)
    } else if until_empty == Some(Duration::ZERO) {
        Verdict::Stop(Why::Empty)
    } else if left.is_zero() {
        Verdict::Stop(Why::GraceOver)
    } else {
        Verdict::Wait(until_empty.map_or(left, |until_empty| until_empty.min(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Somebody is on a server whose hook was called just now, with a minute of grace and a leader.
    const OCCUPIED: Facts = Facts {
        released: false,
        connected: true,
        empty_for: None,
        waited: Duration::ZERO,
        grace: Duration::from_mins(1),
    };
    const ALONE: Facts = Facts { connected: false, ..OCCUPIED };

    fn wait(seconds: u64) -> Verdict {
        Verdict::Wait(secs(seconds))
    }

    #[rstest]
    #[case::somebody_is_on_it(OCCUPIED, wait(55))]
    #[case::still(Facts { waited: secs(54), ..OCCUPIED }, wait(1))]
    #[case::five_seconds_are_the_game_s(Facts { waited: secs(55), ..OCCUPIED }, Verdict::Stop(Why::GraceOver))]
    #[case::a_grace_too_short_to_wait(Facts { grace: secs(5), ..OCCUPIED }, Verdict::Stop(Why::GraceOver))]
    #[case::sealed(Facts { released: true, ..OCCUPIED }, Verdict::Stop(Why::Released))]
    #[case::sealed_says_more_than_the_time(Facts { released: true, waited: secs(60), ..OCCUPIED }, Verdict::Stop(Why::Released))]
    #[case::empty_and_somebody_may_be_on_the_way(Facts { empty_for: Some(secs(0)), ..OCCUPIED }, wait(15))]
    #[case::empty_for_too_long(Facts { empty_for: Some(secs(15)), ..OCCUPIED }, Verdict::Stop(Why::Empty))]
    #[case::empty_near_the_end(Facts { empty_for: Some(secs(2)), waited: secs(50), ..OCCUPIED }, wait(5))]
    #[case::empty_without_a_leader(Facts { empty_for: Some(secs(0)), ..ALONE }, Verdict::Stop(Why::Empty))]
    #[case::occupied_without_a_leader(ALONE, wait(55))]
    #[case::without_a_leader_the_time_counts_too(Facts { waited: secs(55), ..ALONE }, Verdict::Stop(Why::GraceOver))]
    fn verdicts(#[case] facts: Facts, #[case] want: Verdict) {
        assert_eq!(decide(&facts), want);
    }

    #[test]
    fn the_leader_leaves_the_game_as_much_as_the_agent_does() {
        let killed_at = Timestamp::constant(1_800_000_060, 0);
        assert_eq!(stop_at(killed_at), Timestamp::constant(1_800_000_055, 0));
        assert_eq!(stop_at(Timestamp::MIN), Timestamp::MIN);
    }

    prop_compose! {
        fn any_facts()(
            bits in any::<[bool; 2]>(),
            empty_for in prop::option::of(0_u64..40),
            waited in 0_u64..200,
            grace in 0_u64..200,
        ) -> Facts {
            let [released, connected] = bits;
            Facts { released, connected, empty_for: empty_for.map(secs), waited: secs(waited), grace: secs(grace) }
        }
    }

    proptest! {
        /// Somebody who may be on a game that may not be stopped yet has all of the grace but the game's own share.
        #[test]
        fn people_keep_their_time(facts in any_facts()) {
            let held = !facts.released && facts.empty_for.is_none();
            let left = facts.waited + MARGIN < facts.grace;
            if held && left {
                prop_assert!(matches!(decide(&facts), Verdict::Wait(_)));
            }
        }

        /// No end is held up for ever: each wait ends in time.
        #[test]
        fn waits_end(facts in any_facts()) {
            if let Verdict::Wait(wait) = decide(&facts) {
                let end = facts.waited + wait;
                prop_assert!(end > facts.waited && end + MARGIN <= facts.grace);
            }
        }
    }
}
