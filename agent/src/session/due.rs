//! What the game still has to confirm, and what its confirmation is worth.

use std::collections::VecDeque;

use super::Mark;

/// Directory states that may wait for a confirmation. A game that is further behind than this gets no confirmation for
/// what it skipped, and one for what it then applies.
const BOUND: usize = 1024;

/// What was handed to the game on this stream and not yet confirmed by it, by sequence number.
#[derive(Debug, Default)]
pub struct Owed {
    directories: VecDeque<(u64, Mark)>,
    door: Option<(u64, bool, Mark)>,
    question: Option<(u64, u64)>,
}

/// What a confirmation settles.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The newest directory state that the game has applied.
    pub directory: Option<Mark>,
    /// The door as the game has it.
    pub door: Option<(bool, Mark)>,
    /// The newest question that its count answers.
    pub nonce: Option<u64>,
}

impl Owed {
    /// Sequence number `seq` brought the directory to `mark`.
    pub fn directory(&mut self, seq: u64, mark: Mark) {
        if self.directories.len() >= BOUND {
            self.directories.pop_front();
        }
        self.directories.push_back((seq, mark));
    }

    /// Sequence number `seq` brought the door to `open`; an older order is overtaken.
    pub fn door(&mut self, seq: u64, open: bool, mark: Mark) {
        self.door = Some((seq, open, mark));
    }

    /// Question `nonce` was put to the game with sequence number `seq`; an answer to it answers older ones.
    pub fn question(&mut self, seq: u64, nonce: u64) {
        self.question = Some((seq, nonce));
    }

    /// The game has applied everything up to `seq` and counted afterwards.
    pub fn settle(&mut self, seq: u64) -> Settled {
        let mut settled = Settled::default();
        while let Some((_, mark)) = self.directories.pop_front_if(|(at, _)| *at <= seq) {
            settled.directory = Some(mark);
        }
        settled.door = self.door.take_if(|(at, ..)| *at <= seq).map(|(_, open, mark)| (open, mark));
        settled.nonce = self.question.take_if(|(at, _)| *at <= seq).map(|(_, nonce)| nonce);
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(revision: u64) -> Mark {
        Mark { revision, epoch: 1 }
    }

    #[test]
    fn only_what_was_applied_is_settled_and_the_newest_of_it() {
        let mut owed = Owed::default();
        owed.directory(10, mark(1));
        owed.directory(11, mark(2));
        owed.directory(13, mark(3));
        owed.door(12, false, mark(9));
        owed.question(13, 77);
        assert_eq!(owed.settle(9), Settled::default());
        assert_eq!(owed.settle(11), Settled { directory: Some(mark(2)), ..Settled::default() });
        assert_eq!(owed.settle(12), Settled { door: Some((false, mark(9))), ..Settled::default() });
        let rest = Settled { directory: Some(mark(3)), door: None, nonce: Some(77) };
        assert_eq!(owed.settle(500), rest);
        assert_eq!(owed.settle(500), Settled::default(), "nothing is settled twice");
    }

    #[test]
    fn a_game_far_behind_settles_what_it_applies_in_the_end() {
        let mut owed = Owed::default();
        (1..=5000).for_each(|seq| owed.directory(seq, mark(seq)));
        assert_eq!(owed.settle(100).directory, None, "what was forgotten is not confirmed");
        assert_eq!(owed.settle(5000).directory, Some(mark(5000)));
    }

    #[test]
    fn an_overtaken_door_is_not_confirmed() {
        let mut owed = Owed::default();
        owed.door(1, false, mark(1));
        owed.door(2, true, mark(2));
        assert_eq!(owed.settle(1).door, None);
        assert_eq!(owed.settle(2).door, Some((true, mark(2))));
    }
}
