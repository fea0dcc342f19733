//! The door itself: which state follows which, and from what.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::ledger::PodUid;

/// One asking for counts after the door was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Round {
    /// Requests of at least this number were sent after the last confirmation.
    pub(super) nonce: u64,
    /// When the last confirmation came in.
    pub(super) confirmed_at: Instant,
    /// When this round began.
    pub(super) asked_at: Instant,
    /// Pods that have not answered with zero.
    pub(super) pending: BTreeSet<PodUid>,
    /// Somebody was seen since the round began.
    pub(super) spoiled: bool,
}

impl Round {
    /// Somebody was seen, or an answer seems lost: only fresh answers count.
    fn must_be_repeated(&self, overdue: bool) -> bool {
        self.spoiled || (overdue && !self.pending.is_empty())
    }
}

/// Where a door stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Open,
    Closing,
    Closed(Round),
    /// Closed at this moment by the last confirmation, and answered empty since.
    Empty {
        confirmed_at: Instant,
    },
    Sealing,
    Sealed,
}

impl State {
    /// Neither open nor on the way to be sealed: may move on, or back.
    pub(super) fn is_shut(&self) -> bool {
        matches!(self, Self::Closing | Self::Closed(_) | Self::Empty { .. })
    }
}

/// What the rest of the realm says about the pod at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Situation {
    /// Somebody may still let newcomers in.
    pub(super) held: bool,
    /// The last counts, however old, show somebody inside.
    pub(super) people: bool,
    /// A round whose answers are missing was begun so long ago that they may be lost.
    pub(super) overdue: bool,
}

/// What must be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Stay,
    /// A confirmation is missing (again).
    WaitForConfirmations,
    /// Ask everybody concerned for a count. `confirmed_at`: when the last confirmation came in; `None` = just now.
    Ask { confirmed_at: Option<Instant> },
    /// Everybody concerned has answered that nobody is inside.
    Empty { confirmed_at: Instant },
}

/// What follows from `state` in this situation. Doors that are open, being sealed or sealed stay so whatever happens.
pub(super) fn step(state: &State, situation: Situation) -> Step {
    match state {
        State::Closing if !situation.held => Step::Ask { confirmed_at: None },
        State::Closed(_) | State::Empty { .. } if situation.held => Step::WaitForConfirmations,
        State::Closed(round) if !situation.people && round.must_be_repeated(situation.overdue) => {
            Step::Ask { confirmed_at: Some(round.confirmed_at) }
        }
        State::Closed(round) if !situation.people && round.pending.is_empty() => {
            Step::Empty { confirmed_at: round.confirmed_at }
        }
        State::Empty { confirmed_at } if situation.people => Step::Ask { confirmed_at: Some(*confirmed_at) },
        State::Open | State::Closing | State::Closed(_) | State::Empty { .. } | State::Sealing | State::Sealed => {
            Step::Stay
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    const QUIET: Situation = Situation { held: false, people: false, overdue: false };
    const HELD: Situation = Situation { held: true, ..QUIET };
    const PEOPLE: Situation = Situation { people: true, ..QUIET };
    const OVERDUE: Situation = Situation { overdue: true, ..QUIET };

    fn closed(at: Instant, pending: &[&str], spoiled: bool) -> State {
        State::Closed(Round {
            nonce: 1,
            confirmed_at: at,
            asked_at: at + Duration::from_secs(1),
            pending: pending.iter().map(|uid| PodUid::from(*uid)).collect(),
            spoiled,
        })
    }

    #[rstest]
    fn what_follows() {
        let t = Instant::now();
        let asks_again = Step::Ask { confirmed_at: Some(t) };
        let empty = Step::Empty { confirmed_at: t };
        let is_empty = State::Empty { confirmed_at: t };
        let table = [
            ("an open door stays", State::Open, QUIET, Step::Stay),
            ("a confirmation is missing", State::Closing, HELD, Step::Stay),
            ("all confirmations are in", State::Closing, QUIET, Step::Ask { confirmed_at: None }),
            ("also with people inside", State::Closing, PEOPLE, Step::Ask { confirmed_at: None }),
            ("an answer is missing", closed(t, &["s"], false), QUIET, Step::Stay),
            ("an answer may be lost", closed(t, &["s"], false), OVERDUE, asks_again),
            ("all answered zero", closed(t, &[], false), QUIET, empty),
            ("all answered, long ago", closed(t, &[], false), OVERDUE, empty),
            ("zero answers, but a count says otherwise", closed(t, &[], false), PEOPLE, Step::Stay),
            ("somebody was seen and has left", closed(t, &[], true), QUIET, asks_again),
            ("somebody was seen and is there", closed(t, &[], true), PEOPLE, Step::Stay),
            ("a holder turned up", closed(t, &[], false), HELD, Step::WaitForConfirmations),
            ("a holder turned up late", is_empty.clone(), HELD, Step::WaitForConfirmations),
            ("somebody turned up late", is_empty.clone(), PEOPLE, asks_again),
            ("empty stays", is_empty, QUIET, Step::Stay),
            ("a seal that is being written stands", State::Sealing, HELD, Step::Stay),
            ("a seal stands", State::Sealed, PEOPLE, Step::Stay),
        ];
        for (case, state, situation, want) in table {
            assert_eq!(step(&state, situation), want, "{case}");
        }
    }
}
