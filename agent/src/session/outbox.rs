//! What waits to be said on the stream, in order and bounded.

use std::collections::VecDeque;

use super::{Mark, Outgoing, Tally};

/// Messages that may wait. Counts and confirmations replace older ones, so in practice a handful do; more means that the
/// stream has not moved for long, and a new one starts from the present anyway.
pub const BOUND: usize = 256;

/// Messages in the order in which they were true.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Outgoing>,
    overrun: bool,
}

impl Outbox {
    /// Queues a count of the agent's own accord. A count that still waits at the end is replaced: nobody needs to hear
    /// what is no longer so.
    pub fn count(&mut self, tally: Tally) {
        if let Some(Outgoing::Count { tally: last, nonce: 0 }) = self.queue.back_mut() {
            *last = tally;
        } else {
            self.push(Outgoing::Count { tally, nonce: 0 });
        }
    }

    /// Queues the answer to a question.
    pub fn answer(&mut self, tally: Tally, nonce: u64) {
        self.push(Outgoing::Count { tally, nonce });
    }

    /// Queues the confirmation of `mark`, and before it `tally`, the count that was true when the game applied it. A
    /// confirmation that still waits at the end is replaced together with its count: the newer covers it.
    pub fn confirm(&mut self, tally: Option<Tally>, mark: Mark) {
        if matches!(self.queue.back(), Some(Outgoing::DirectoryApplied(_))) {
            self.queue.pop_back();
        }
        if let Some(tally) = tally {
            self.count(tally);
        }
        self.push(Outgoing::DirectoryApplied(mark));
    }

    /// Queues anything else.
    pub fn push(&mut self, message: Outgoing) {
        if self.queue.len() >= BOUND {
            self.overrun = true;
        } else {
            self.queue.push_back(message);
        }
    }

    /// The next message to say.
    pub fn pop(&mut self) -> Option<Outgoing> {
        self.queue.pop_front()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a message did not fit: the stream must be given up, for its peer misses something.
    pub fn overrun(&self) -> bool {
        self.overrun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(players: u32) -> Tally {
        Tally::new(players, 20)
    }

    fn mark(revision: u64) -> Mark {
        Mark { revision, epoch: 1 }
    }

    fn drained(mut outbox: Outbox) -> Vec<Outgoing> {
        std::iter::from_fn(|| outbox.pop()).collect()
    }

    #[test]
    fn a_waiting_count_is_replaced_but_never_across_a_confirmation() {
        let mut outbox = Outbox::default();
        outbox.count(tally(1));
        outbox.count(tally(2));
        outbox.confirm(Some(tally(3)), mark(7));
        outbox.count(tally(4));
        let count = |players, nonce| Outgoing::Count { tally: tally(players), nonce };
        assert_eq!(drained(outbox), [count(3, 0), Outgoing::DirectoryApplied(mark(7)), count(4, 0)]);
    }

    #[test]
    fn a_newer_confirmation_replaces_a_waiting_one_with_its_count() {
        let mut outbox = Outbox::default();
        for revision in 1..=1000 {
            outbox.confirm(Some(tally(1)), mark(revision));
        }
        assert!(!outbox.overrun());
        let want = [Outgoing::Count { tally: tally(1), nonce: 0 }, Outgoing::DirectoryApplied(mark(1000))];
        assert_eq!(drained(outbox), want);
    }

    #[test]
    fn answers_are_kept_and_the_bound_is_told() {
        let mut outbox = Outbox::default();
        outbox.count(tally(1));
        for nonce in 1..BOUND as u64 {
            outbox.answer(tally(1), nonce);
        }
        assert!(!outbox.overrun());
        outbox.answer(tally(1), u64::MAX);
        assert!(outbox.overrun());
    }
}
