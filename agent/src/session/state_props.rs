//! Whatever happens in whatever order: what a confirmation on the stream is worth.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// The operator changes the directory.
    Route,
    /// A new leader takes over; its revisions start again.
    Elect,
    /// A message of an earlier leader arrives.
    Stale,
    /// The operator asks for a count.
    Ask,
    /// The game looks at the directory.
    Look,
    /// The game confirms what it last looked at.
    Apply,
    /// The game's count changes.
    Count,
    /// The count goes unknown.
    Forget,
    /// The stream takes this many messages.
    Say(usize),
    /// The stream breaks, and another comes up.
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Route),
        1 => Just(Step::Elect),
        1 => Just(Step::Stale),
        2 => Just(Step::Ask),
        4 => Just(Step::Look),
        4 => Just(Step::Apply),
        4 => Just(Step::Count),
        1 => Just(Step::Forget),
        4 => (0usize..4).prop_map(Step::Say),
        1 => Just(Step::Reconnect),
    ];
    proptest::collection::vec(step, 0..200)
}

/// The run so far. Counts carry the number of the step that made them as players, so an older one is a smaller one.
struct Run {
    state: State,
    epoch: u64,
    revision: u64,
    nonce: u64,
    looked: u64,
    /// What was heard on this stream, and where the sequence stood then.
    heard: Vec<(Mark, u64)>,
    /// What was asked on this stream, and at which step.
    asked: Vec<(u64, u32)>,
    /// What the game confirmed, and the count that it gave with it.
    applied: Vec<(u64, u32)>,
    last_count: Option<u32>,
    last_confirmed: Option<Mark>,
}

impl Run {
    fn take(&mut self, step: &Step, now: u32) -> Result<(), TestCaseError> {
        let tally = Tally::new(now, 20);
        match step {
            Step::Route => {
                self.revision += 1;
                let mark = Mark { revision: self.revision, epoch: self.epoch };
                prop_assert_eq!(self.state.hear(&Incoming::Unregister { name: "a".into(), mark }), Heard::Fresh);
                self.heard.push((mark, self.state.seq()));
            }
            Step::Elect => {
                self.epoch += 1;
                self.revision = 0;
            }
            Step::Stale => {
                let mark = Mark { revision: self.revision + 1, epoch: self.state.epoch().saturating_sub(1) };
                if mark.epoch < self.state.epoch() {
                    prop_assert_eq!(self.state.hear(&Incoming::FullSync { servers: vec![], mark }), Heard::Fenced);
                }
            }
            Step::Ask => {
                self.nonce += 1;
                self.state.hear(&Incoming::ReportNow { nonce: self.nonce });
                self.asked.push((self.nonce, now));
            }
            Step::Look => self.looked = self.state.seq(),
            Step::Apply => {
                prop_assert_eq!(self.state.applied(self.looked, tally, None), Ok(()));
                self.applied.push((self.looked, now));
            }
            Step::Count => drop(self.state.counted(Some(tally), None)),
            Step::Forget => drop(self.state.counted(None, None)),
            Step::Say(messages) => {
                for _ in 0..*messages {
                    let Some(message) = self.state.next_outgoing() else {
                        break;
                    };
                    self.check(&message)?;
                }
            }
            Step::Reconnect => {
                self.state.end();
                let hello = self.state.hello();
                self.state.begin(&hello);
                self.heard.clear();
                self.asked.clear();
                (self.last_count, self.last_confirmed) = (None, None);
            }
        }
        prop_assert!(!self.state.overrun(), "the queue stays far below its bound");
        Ok(())
    }

    fn check(&mut self, message: &Outgoing) -> Result<(), TestCaseError> {
        match message {
            Outgoing::Count { tally, nonce } => {
                prop_assert!(Some(tally.players()) >= self.last_count, "counts are said in the order of their making");
                self.last_count = Some(tally.players());
                if *nonce > 0 {
                    let asked = self.asked.iter().find(|(asked, _)| asked == nonce);
                    let Some((_, at)) = asked else {
                        return Err(TestCaseError::fail("an answer to no question here"));
                    };
                    prop_assert!(tally.players() > *at, "counted after the question");
                }
            }
            Outgoing::DirectoryApplied(mark) => {
                let heard = self.heard.iter().find(|(heard, _)| heard == mark);
                let Some((_, seq)) = heard else {
                    return Err(TestCaseError::fail("not heard on this stream"));
                };
                let first = self.applied.iter().find(|(applied, _)| applied >= seq);
                let Some((_, count)) = first else {
                    return Err(TestCaseError::fail("the game has not applied it"));
                };
                prop_assert!(self.last_count >= Some(*count), "the count of that moment went before");
                prop_assert!(Some((mark.epoch, mark.revision)) > self.last_confirmed.map(|m| (m.epoch, m.revision)));
                self.last_confirmed = Some(*mark);
            }
            Outgoing::Hello { .. } | Outgoing::Ready | Outgoing::DoorApplied { .. } => {
                return Err(TestCaseError::fail("nothing asks for this"));
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn confirmations_are_true_and_counts_go_before_them(steps in steps()) {
        let character =
            Character { role: Role::Proxy, source: Source::Local, adapter: Adapter::External, door_enforced: false };
        let mut state = State::new(character, 1000);
        let hello = state.hello();
        state.begin(&hello);
        let mut run = Run {
            state,
            epoch: 1,
            revision: 0,
            nonce: 0,
            looked: 0,
            heard: vec![],
            asked: vec![],
            applied: vec![],
            last_count: None,
            last_confirmed: None,
        };
        for (now, step) in (1u32..).zip(&steps) {
            run.take(step, now)?;
        }
        run.take(&Step::Say(usize::MAX), 0)?;
    }
}
