//! How a proxy that leaves goes: wait, seal, remove.

use std::time::Duration;

use super::Cause;
use crate::occupancy::SealReason;
use crate::stop;

/// Whoever asked for a pod's eviction gets so long to evict it once it is sealed; then it is removed all the same.
pub const HAND_OVER: Duration = Duration::from_secs(10);

/// Where the door of the proxy stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DoorState {
    /// Somebody is, or may be, inside, or may still get in.
    Shutting,
    /// Closed, and known to be empty since.
    Empty,
    /// Sealed, for so long as we have known.
    Sealed(Duration),
}

/// A proxy whose door is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    /// Why it must leave; none when it was chosen (outdated or too many).
    pub cause: Option<Cause>,
    /// Its door.
    pub door: DoorState,
    /// For how long its door has been told to close, by the wall clock.
    pub closing_for: Duration,
    /// For how long nobody new could get in, as far as this process has seen; zero while somebody may.
    pub shut_for: Duration,
    /// How long its players may take.
    pub timeout: Duration,
    /// Whether whoever is left after that is waited for.
    pub hold: bool,
    /// Whether an administrator lets it go whoever is on it.
    pub overridden: bool,
    /// In how long the kubelet ends the pod whoever is on it, when somebody deleted it past us; its pre-stop hook waits for
    /// the seal.
    pub killed_in: Option<Duration>,
}

/// What to do with a leaving proxy now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing; look again after this time, or when something changes.
    Wait(Option<Duration>),
    /// Seal it for this reason.
    Seal(SealReason),
    /// Delete it.
    Remove,
}

/// Who removes a pod that is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum HandOver {
    /// Whoever asked for its eviction, if soon.
    ToEvictor,
    /// We.
    Ours,
}

/// Who removes a pod that leaves for this cause. After a restart only the seal is left to tell, and it waits.
fn hand_over(cause: Option<Cause>) -> HandOver {
    match cause {
        Some(Cause::EvictionRequested | Cause::NodeDeparting | Cause::Sealed) => HandOver::ToEvictor,
        Some(Cause::GroupDeleted) | None => HandOver::Ours,
    }
}

impl Leaving {
    /// The next step.
    pub fn step(&self) -> Step {
        if let Some(left) = self.killed_in {
            return self.held_up(left);
        }
        match self.door {
            DoorState::Sealed(known) => match hand_over(self.cause) {
                HandOver::ToEvictor if known < HAND_OVER => Step::Wait(Some(HAND_OVER.saturating_sub(known))),
                HandOver::ToEvictor | HandOver::Ours => Step::Remove,
            },
            DoorState::Empty => Step::Seal(SealReason::Empty),
            DoorState::Shutting if self.overridden => Step::Seal(SealReason::Override),
            DoorState::Shutting if self.hold => Step::Wait(None),
            DoorState::Shutting if self.ran() >= self.timeout => Step::Seal(SealReason::Deadline),
            DoorState::Shutting => Step::Wait(Some(self.timeout.saturating_sub(self.ran()))),
        }
    }

    /// How far the clock of its deadline is. Whoever could still get in has not had that time: a proxy that never heard that
    /// its door is to close, or on which nobody looked, is charged nothing.
    fn ran(&self) -> Duration {
        self.closing_for.min(self.shut_for)
    }

    /// The next step for a pod that is on its way out already: what is left of its grace is all that its players get.
    fn held_up(&self, left: Duration) -> Step {
        let left = left.saturating_sub(stop::MARGIN);
        match self.door {
            DoorState::Sealed(_) => Step::Wait(None),
            DoorState::Empty => Step::Seal(SealReason::Empty),
            DoorState::Shutting if self.overridden => Step::Seal(SealReason::Override),
            DoorState::Shutting if left.is_zero() => Step::Seal(SealReason::Deadline),
            DoorState::Shutting => Step::Wait(Some(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const EVICTED: Option<Cause> = Some(Cause::EvictionRequested);

    fn leaving(cause: Option<Cause>, door: DoorState) -> Leaving {
        Leaving {
            cause,
            door,
            closing_for: SECOND,
            shut_for: SECOND,
            timeout: 300 * SECOND,
            hold: false,
            overridden: false,
            killed_in: None,
        }
    }

    /// Its door was told to close, and was shut, as long ago as its players may take.
    fn late(leaving: Leaving) -> Leaving {
        Leaving { closing_for: leaving.timeout, shut_for: leaving.timeout, ..leaving }
    }

    /// A pod that the kubelet ends in so many seconds.
    fn killed(seconds: u32, door: DoorState) -> Leaving {
        Leaving { killed_in: Some(seconds * SECOND), ..leaving(None, door) }
    }

    #[rstest]
    #[case::somebody_is_inside(leaving(None, DoorState::Shutting), Step::Wait(Some(299 * SECOND)))]
    #[case::the_deadline_passed(late(leaving(EVICTED, DoorState::Shutting)), Step::Seal(SealReason::Deadline))]
    #[case::it_never_heard_us_so_people_still_come(
        Leaving { shut_for: Duration::ZERO, ..late(leaving(EVICTED, DoorState::Shutting)) },
        Step::Wait(Some(300 * SECOND))
    )]
    #[case::it_heard_us_late(
        Leaving { shut_for: 20 * SECOND, ..late(leaving(EVICTED, DoorState::Shutting)) },
        Step::Wait(Some(280 * SECOND))
    )]
    #[case::it_was_shut_before_it_was_asked_to_leave(
        Leaving { closing_for: 20 * SECOND, ..late(leaving(EVICTED, DoorState::Shutting)) },
        Step::Wait(Some(280 * SECOND))
    )]
    #[case::an_administrator_says_go_though_it_hears_nothing(
        Leaving { shut_for: Duration::ZERO, overridden: true, ..leaving(EVICTED, DoorState::Shutting) },
        Step::Seal(SealReason::Override)
    )]
    #[case::its_owner_said_hold(
        Leaving { hold: true, ..late(leaving(EVICTED, DoorState::Shutting)) },
        Step::Wait(None)
    )]
    #[case::an_administrator_says_go(
        Leaving { hold: true, overridden: true, ..leaving(EVICTED, DoorState::Shutting) },
        Step::Seal(SealReason::Override)
    )]
    #[case::empty_is_empty_though_the_deadline_passed(
        late(leaving(None, DoorState::Empty)),
        Step::Seal(SealReason::Empty)
    )]
    #[case::empty(leaving(None, DoorState::Empty), Step::Seal(SealReason::Empty))]
    #[case::the_evictor_gets_its_chance(leaving(EVICTED, DoorState::Sealed(4 * SECOND)), Step::Wait(Some(6 * SECOND)))]
    #[case::and_loses_it(leaving(EVICTED, DoorState::Sealed(HAND_OVER)), Step::Remove)]
    #[case::a_drain_gets_it_too(
        leaving(Some(Cause::NodeDeparting), DoorState::Sealed(SECOND)),
        Step::Wait(Some(9 * SECOND))
    )]
    #[case::nobody_else_removes_what_we_chose(leaving(None, DoorState::Sealed(Duration::ZERO)), Step::Remove)]
    #[case::deleted_past_us(killed(60, DoorState::Shutting), Step::Wait(Some(55 * SECOND)))]
    #[case::deleted_past_us_and_empty(killed(60, DoorState::Empty), Step::Seal(SealReason::Empty))]
    #[case::deleted_past_us_at_the_end_of_its_grace(killed(5, DoorState::Shutting), Step::Seal(SealReason::Deadline))]
    #[case::no_policy_holds_the_kubelet(
        Leaving { hold: true, ..killed(5, DoorState::Shutting) },
        Step::Seal(SealReason::Deadline)
    )]
    #[case::no_timeout_cuts_its_grace(
        late(killed(60, DoorState::Shutting)),
        Step::Wait(Some(55 * SECOND))
    )]
    #[case::deleted_past_us_and_overridden(
        Leaving { overridden: true, ..killed(60, DoorState::Shutting) },
        Step::Seal(SealReason::Override)
    )]
    #[case::deleted_past_us_and_sealed(killed(60, DoorState::Sealed(60 * SECOND)), Step::Wait(None))]
    #[case::nor_what_a_deleted_group_leaves(
        leaving(Some(Cause::GroupDeleted), DoorState::Sealed(Duration::ZERO)),
        Step::Remove
    )]
    fn steps(#[case] leaving: Leaving, #[case] want: Step) {
        assert_eq!(leaving.step(), want);
    }
}
