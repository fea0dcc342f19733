//! What a pod carries on its outside about the people on it, so that those who remove pods can see it.
//!
//! Three marks that change in one write: our label, the hint for the cluster autoscaler and the one for Karpenter. A mark
//! of its own says that the pod is sealed: closed, confirmed empty (or past its deadline), and about to be removed.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// For how long ahead Karpenter is asked to leave a node with people alone.
pub const PROTECT_FOR: Duration = Duration::from_hours(6);
/// How much of that may be left before it is asked again.
pub const RENEW_AT: Duration = Duration::from_hours(3);

/// Why a pod may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SealReason {
    /// Nobody is on it and nobody can get on it any more.
    Empty,
    /// The deadline that its owner declared has passed.
    Deadline,
    /// Somebody with the right to say so said so.
    Override,
}

impl SealReason {
    /// As it stands in the annotation.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Deadline => "Deadline",
            Self::Override => "Override",
        }
    }

    /// Reads the annotation.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "Empty" => Self::Empty,
            "Deadline" => Self::Deadline,
            "Override" => Self::Override,
            _ => return None,
        })
    }
}

/// What is known about the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Somebody is on it, or nobody can tell.
    pub occupied: bool,
    /// The pod's `status.startTime`, from which Karpenter counts; `None` before it was placed.
    pub started: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}

/// The marks that the pod carries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Carried {
    /// The occupied label is `"true"`.
    pub occupied: bool,
    /// `cluster-autoscaler.kubernetes.io/safe-to-evict`.
    pub safe_to_evict: Option<String>,
    /// `karpenter.sh/do-not-disrupt`.
    pub do_not_disrupt: Option<String>,
}

/// The marks that the pod shall carry; all are written together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    /// The occupied label: `"true"`, or absent.
    pub occupied: bool,
    /// For the cluster autoscaler: its answer to "may this pod be evicted".
    pub safe_to_evict: &'static str,
    /// For Karpenter: a duration counted from the start of the pod, or absent.
    pub do_not_disrupt: Option<String>,
}

/// The marks to write, if the pod does not carry the right ones.
pub fn marks(facts: &Facts, carried: &Carried) -> Option<Marks> {
    let do_not_disrupt = if facts.occupied { protection(facts, carried.do_not_disrupt.as_deref()) } else { None };
    let marks = Marks {
        occupied: facts.occupied,
        safe_to_evict: if facts.occupied { "false" } else { "true" },
        do_not_disrupt,
    };
    let right = marks.occupied == carried.occupied
        && carried.safe_to_evict.as_deref() == Some(marks.safe_to_evict)
        && marks.do_not_disrupt == carried.do_not_disrupt;
    (!right).then_some(marks)
}

/// When the mark for Karpenter has to be looked at again, counted from `now`; `None` while it needs no renewal.
pub fn renew_in(facts: &Facts, carried: &Carried) -> Option<Duration> {
    if !facts.occupied {
        return None;
    }
    let left = protected_for(facts, carried.do_not_disrupt.as_deref()?)?;
    Some(left.saturating_sub(RENEW_AT))
}

/// The value that protects for [`PROTECT_FOR`] from now, or the carried one while it is good enough.
fn protection(facts: &Facts, carried: Option<&str>) -> Option<String> {
    let started = facts.started?;
    if let Some(value) = carried
        && protected_for(facts, value).is_some_and(|left| left > RENEW_AT)
    {
        return Some(value.to_owned());
    }
    let age = Duration::try_from(facts.now.duration_since(started)).unwrap_or_default();
    let minutes = age.saturating_add(PROTECT_FOR).as_secs().div_ceil(60);
    Some(format!("{}h{}m0s", minutes / 60, minutes % 60))
}

/// How long a carried value still protects. A value that does not read as a duration (`"true"`) protects for ever, and
/// that is what it must not do: it counts as nothing.
fn protected_for(facts: &Facts, value: &str) -> Option<Duration> {
    let from_start: SignedDuration = value.parse().ok()?;
    let until = facts.started?.checked_add(from_start).ok()?;
    Some(Duration::try_from(until.duration_since(facts.now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::testing::{T0, at};
    use proptest::prelude::*;
    use rstest::rstest;

    fn facts(occupied: bool, age: Duration) -> Facts {
        Facts { occupied, started: Some(T0), now: T0 + age }
    }
    fn carried(occupied: bool, safe_to_evict: Option<&str>, do_not_disrupt: Option<&str>) -> Carried {
        Carried {
            occupied,
            safe_to_evict: safe_to_evict.map(str::to_owned),
            do_not_disrupt: do_not_disrupt.map(str::to_owned),
        }
    }
    #[expect(clippy::unnecessary_wraps, reason = "stands in a table of options")]
    fn occupied_until(value: &str) -> Option<Marks> {
        Some(Marks { occupied: true, safe_to_evict: "false", do_not_disrupt: Some(value.to_owned()) })
    }
    const EMPTY: Option<Marks> = Some(Marks { occupied: false, safe_to_evict: "true", do_not_disrupt: None });
    const fn hours(n: u64) -> Duration {
        Duration::from_hours(n)
    }

    #[rstest]
    #[case::a_fresh_empty_pod(facts(false, hours(1)), carried(false, Some("true"), None), None)]
    #[case::absence_would_hold_the_node(facts(false, hours(1)), carried(false, None, None), EMPTY)]
    #[case::upstream_s_mark_is_corrected(facts(false, hours(1)), carried(false, Some("false"), None), EMPTY)]
    #[case::somebody_joins(facts(true, hours(1)), carried(false, Some("true"), None), occupied_until("7h0m0s"))]
    #[case::it_stays_occupied(facts(true, hours(2)), carried(true, Some("false"), Some("7h0m0s")), None)]
    #[case::not_renewed_too_early(facts(true, hours(4).checked_sub(Duration::from_secs(1)).unwrap()), carried(true, Some("false"), Some("7h0m0s")), None)]
    #[case::renewed_when_little_is_left(
        facts(true, hours(4)),
        carried(true, Some("false"), Some("7h0m0s")),
        occupied_until("10h0m0s")
    )]
    #[case::renewed_when_over(
        facts(true, hours(30)),
        carried(true, Some("false"), Some("7h0m0s")),
        occupied_until("36h0m0s")
    )]
    #[case::rounded_up(
        facts(true, Duration::from_secs(61)),
        carried(true, Some("false"), None),
        occupied_until("6h2m0s")
    )]
    #[case::never_for_ever(facts(true, hours(1)), carried(true, Some("false"), Some("true")), occupied_until("7h0m0s"))]
    #[case::everybody_left(facts(false, hours(2)), carried(true, Some("false"), Some("7h0m0s")), EMPTY)]
    #[case::a_leftover_is_removed(facts(false, hours(2)), carried(false, Some("true"), Some("7h0m0s")), EMPTY)]
    #[case::a_hint_alone_is_repaired(
        facts(true, hours(1)),
        carried(true, Some("true"), Some("7h0m0s")),
        occupied_until("7h0m0s")
    )]
    #[case::a_label_alone_is_repaired(
        facts(true, hours(1)),
        carried(false, Some("false"), Some("7h0m0s")),
        occupied_until("7h0m0s")
    )]
    #[case::not_placed_yet(Facts { occupied: true, started: None, now: T0 }, carried(true, Some("false"), None), None)]
    fn writes(#[case] facts: Facts, #[case] carried: Carried, #[case] want: Option<Marks>) {
        assert_eq!(marks(&facts, &carried), want);
    }

    #[rstest]
    #[case::empty(facts(false, hours(1)), None, None)]
    #[case::six_hours_left(facts(true, hours(1)), Some("7h0m0s"), Some(hours(3)))]
    #[case::due(facts(true, hours(5)), Some("7h0m0s"), Some(Duration::ZERO))]
    #[case::nothing_carried(facts(true, hours(1)), None, None)]
    fn renews(#[case] facts: Facts, #[case] do_not_disrupt: Option<&str>, #[case] want: Option<Duration>) {
        assert_eq!(renew_in(&facts, &carried(true, Some("false"), do_not_disrupt)), want);
    }

    #[test]
    fn seal_reasons_read_back() {
        for reason in [SealReason::Empty, SealReason::Deadline, SealReason::Override] {
            assert_eq!(SealReason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(SealReason::parse("Whim"), None);
    }

    proptest! {
        /// What is written is right: a second look writes nothing, and the protection lasts between three and six hours
        /// (and a minute, for rounding).
        #[test]
        fn settles(age in 0_i64..10_000_000, occupied in any::<bool>(), before in 0_i64..10_000_000) {
            let now = Facts { occupied, started: Some(T0), now: at(age) };
            let earlier = marks(&Facts { occupied: true, started: Some(T0), now: at(before.min(age)) }, &Carried::default()).unwrap();
            let mut carried = Carried { occupied: true, safe_to_evict: Some("false".to_owned()), do_not_disrupt: earlier.do_not_disrupt };
            if let Some(marks) = marks(&now, &carried) {
                carried = Carried { occupied: marks.occupied, safe_to_evict: Some(marks.safe_to_evict.to_owned()), do_not_disrupt: marks.do_not_disrupt };
            }
            prop_assert_eq!(marks(&now, &carried), None);
            prop_assert_eq!(carried.occupied, occupied);
            if let Some(value) = &carried.do_not_disrupt {
                let left = protected_for(&now, value).unwrap();
                prop_assert!(left > RENEW_AT && left <= PROTECT_FOR + Duration::from_mins(1));
            }
            prop_assert_eq!(carried.do_not_disrupt.is_some(), occupied);
        }
    }
}
