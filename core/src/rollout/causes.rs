//! Why a proxy must leave, and when what was asked for is void.

use std::time::Duration;

use jiff::Timestamp;

use super::Cause;
use crate::drain::{REQUEST_TTL, called_off_with};

/// What is known of the emptying of a pod's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Departure {
    /// Nobody empties it, since this process first looked. What was before, nobody here knows.
    Idle(Timestamp),
    /// It is being emptied.
    Underway,
    /// It was being emptied, and has taken pods again since.
    CalledOff(Timestamp),
}

impl Departure {
    /// What is known after a look; `before` is what was known, if this process has looked before.
    pub fn after(before: Option<Self>, departing: bool, now: Timestamp) -> Self {
        match before {
            _ if departing => Self::Underway,
            None => Self::Idle(now),
            Some(Self::Underway) => Self::CalledOff(now),
            Some(known @ (Self::Idle(_) | Self::CalledOff(_))) => known,
        }
    }

    /// Since when it takes pods again, if it was being emptied.
    pub fn called_off(self) -> Option<Timestamp> {
        match self {
            Self::CalledOff(at) => Some(at),
            Self::Idle(_) | Self::Underway => None,
        }
    }
}

/// What speaks for a proxy's going, its group's size and inputs aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Causes {
    /// It is sealed.
    pub sealed: bool,
    /// Its group is being deleted.
    pub group_deleted: bool,
    /// Whether its node is being emptied.
    pub departure: Departure,
    /// When somebody last asked to evict it.
    pub requested: Option<Timestamp>,
}

impl Causes {
    /// The most binding cause that holds at `now`.
    pub fn strongest(&self, now: Timestamp) -> Option<Cause> {
        if self.sealed {
            Some(Cause::Sealed)
        } else if self.group_deleted {
            Some(Cause::GroupDeleted)
        } else if self.requested.is_some() && !self.withdrawn(now) {
            Some(Cause::EvictionRequested)
        } else if self.departure == Departure::Underway {
            Some(Cause::NodeDeparting)
        } else {
            None
        }
    }

    /// Whether the request is void: nobody repeated it for [`REQUEST_TTL`], or it was made for a drain that was called off
    /// by an uncordon. One from before we first looked, on a node that is not being emptied, may have been, while nobody
    /// led: whoever still wants the pod asks again. Servers have the same rules ([`crate::drain::Causes::withdrawn`]).
    pub fn withdrawn(&self, now: Timestamp) -> bool {
        let Some(requested) = self.requested else {
            return false;
        };
        let called_off = match self.departure {
            Departure::CalledOff(at) => called_off_with(at, requested),
            Departure::Idle(since) => requested < since,
            Departure::Underway => false,
        };
        called_off || age(requested, now) >= REQUEST_TTL
    }
}

/// Zero for what lies ahead.
fn age(of: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(of)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// Nobody wants it gone, since an hour ago.
    fn at_rest() -> Causes {
        Causes { sealed: false, group_deleted: false, departure: Departure::Idle(at(-3600)), requested: None }
    }

    fn asked(seconds: i64) -> Causes {
        Causes { requested: Some(at(seconds)), ..at_rest() }
    }

    fn called_off(requested: i64, uncordoned: i64) -> Causes {
        Causes { departure: Departure::CalledOff(at(uncordoned)), ..asked(requested) }
    }

    const UNDERWAY: Departure = Departure::Underway;
    const REQUESTED: Option<Cause> = Some(Cause::EvictionRequested);

    #[rstest]
    #[case::nothing(at_rest(), None, false)]
    #[case::asked_for_while_nobody_led(Causes { departure: Departure::Idle(at(-30)), ..asked(-60) }, None, true)]
    #[case::a_drain_while_nobody_led(Causes { departure: UNDERWAY, ..asked(-60) }, REQUESTED, false)]
    #[case::asked_for(asked(-60), REQUESTED, false)]
    #[case::nobody_repeats_it(asked(-600), None, true)]
    #[case::a_drain_that_asks(Causes { departure: UNDERWAY, ..asked(-60) }, REQUESTED, false)]
    #[case::a_drain_that_asks_no_more(Causes { departure: UNDERWAY, ..asked(-600) }, Some(Cause::NodeDeparting), true)]
    #[case::uncordoned(called_off(-60, -1), None, true)]
    #[case::uncordoned_this_moment(called_off(0, 0), None, true)]
    #[case::the_drains_last_word_came_late(called_off(0, -5), None, true)]
    #[case::asked_for_anew(called_off(0, -40), REQUESTED, false)]
    #[case::uncordoned_and_nothing_was_asked(Causes { requested: None, ..called_off(0, 0) }, None, false)]
    #[case::a_deleted_group_asks_nobody(Causes { group_deleted: true, ..called_off(-60, -1) }, Some(Cause::GroupDeleted), true)]
    #[case::a_seal_is_final(Causes { sealed: true, ..called_off(-60, -1) }, Some(Cause::Sealed), true)]
    fn what_binds(#[case] causes: Causes, #[case] strongest: Option<Cause>, #[case] withdrawn: bool) {
        assert_eq!((causes.strongest(at(0)), causes.withdrawn(at(0))), (strongest, withdrawn));
    }

    #[rstest]
    #[case::the_first_look(None, false, Departure::Idle(at(0)))]
    #[case::at_rest(Some(Departure::Idle(at(-9))), false, Departure::Idle(at(-9)))]
    #[case::cordoned_before_we_looked(None, true, UNDERWAY)]
    #[case::cordoned(Some(Departure::Idle(at(-9))), true, UNDERWAY)]
    #[case::still_cordoned(Some(UNDERWAY), true, UNDERWAY)]
    #[case::uncordoned(Some(UNDERWAY), false, Departure::CalledOff(at(0)))]
    #[case::still_uncordoned(Some(Departure::CalledOff(at(-9))), false, Departure::CalledOff(at(-9)))]
    #[case::cordoned_again(Some(Departure::CalledOff(at(-9))), true, UNDERWAY)]
    fn departures(#[case] before: Option<Departure>, #[case] departing: bool, #[case] after: Departure) {
        assert_eq!(Departure::after(before, departing, at(0)), after);
    }
}
