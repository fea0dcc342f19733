//! What a proxy's process was told of the directory, and so which servers it may route to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::directory::Revision;

/// A stretch of writes to an agent that confirms nothing.
#[derive(Debug, Clone, Copy)]
struct Write {
    revision: Revision,
    begun: Instant,
    last: Instant,
}

/// Writes closer together than this share one stretch, so that few are kept.
const STRETCH: Duration = Duration::from_secs(1);

/// What the process of one proxy pod was told. A pod whose process was replaced starts anew.
#[derive(Debug, Clone, Default)]
pub(super) struct Telling {
    /// Revision of the first full list it was sent by this leader.
    first: Option<Revision>,
    /// Latest revision it was sent, on any session.
    sent: Option<Revision>,
    last_told: Option<Instant>,
    /// Latest revision that it confirmed.
    applied: Option<Revision>,
    /// It may route by what an earlier leader told it.
    pub(super) may_inherit: bool,
    writes: VecDeque<Write>,
}

/// A server's place in the directory, as far as holding its door goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// When this leader first listed it.
    pub(super) first_open: Option<Revision>,
    /// When it was last taken out; 0 when this leader never listed it.
    pub(super) removed_at: Revision,
    /// An earlier leader may have listed it.
    pub(super) inherited: bool,
}

impl Telling {
    pub(super) fn new(may_inherit: bool) -> Self {
        Self { may_inherit, ..Self::default() }
    }

    pub(super) fn told(&mut self, revision: Revision, now: Instant) {
        self.first.get_or_insert(revision);
        self.sent = self.sent.max(Some(revision));
        self.last_told = Some(now);
        match self.writes.back_mut() {
            Some(write) if now.saturating_duration_since(write.begun) < STRETCH => {
                write.revision = write.revision.max(revision);
                write.last = now;
            }
            _ => self.writes.push_back(Write { revision, begun: now, last: now }),
        }
    }

    /// What was written on an earlier stream may never have arrived.
    pub(super) fn new_session(&mut self) {
        self.writes.clear();
    }

    /// It confirmed a revision; `true` when that is news.
    pub(super) fn applied(&mut self, revision: Revision) -> bool {
        let news = self.applied.is_none_or(|before| before < revision);
        if news {
            self.applied = Some(revision);
        }
        news
    }

    /// It reported without being able to confirm: whatever was written at least `grace` ago counts as confirmed.
    pub(super) fn reported(&mut self, now: Instant, grace: Duration) -> bool {
        let mut news = false;
        while let Some(write) = self.writes.front().copied()
            && now.saturating_duration_since(write.last) >= grace
        {
            self.writes.pop_front();
            news |= self.applied(write.revision);
        }
        news
    }

    /// The pod's process began, or the last one ended, at `since`. When everything that was told lies safely before
    /// that, it was told to a process that is gone; `true` then.
    ///
    /// `reference` stands for the last telling when this leader has told nothing: when it began to lead.
    pub(super) fn process_since(&mut self, since: Instant, reference: Option<Instant>, skew: Duration) -> bool {
        let Some(last) = self.last_told.or(reference) else {
            return false;
        };
        let gone = last.checked_add(skew).is_some_and(|safe| safe <= since);
        if gone {
            *self = Self::default();
        }
        gone
    }

    /// Whether the process may have, or have had, the server in its directory.
    pub(super) fn knew(&self, place: &Place) -> bool {
        let told = match (place.first_open, self.first, self.sent) {
            (Some(opened), Some(first), Some(sent)) => opened <= sent && place.removed_at > first,
            _ => false,
        };
        told || (self.may_inherit && place.inherited)
    }

    /// Whether the process may still route to a server that is out of the directory.
    pub(super) fn holds(&self, place: &Place) -> bool {
        let confirmed = self.applied.is_some_and(|applied| applied >= place.removed_at);
        !confirmed && self.knew(place)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const REMOVED: Place = Place { first_open: Some(Revision(4)), removed_at: Revision(8), inherited: false };
    const INHERITED: Place = Place { first_open: None, removed_at: Revision(0), inherited: true };

    fn telling(first: u64, sent: u64, applied: Option<u64>, may_inherit: bool) -> Telling {
        Telling {
            first: (first > 0).then_some(Revision(first)),
            sent: (sent > 0).then_some(Revision(sent)),
            applied: applied.map(Revision),
            may_inherit,
            ..Telling::default()
        }
    }

    #[rstest]
    #[case::told_while_listed(telling(2, 5, None, false), REMOVED, true)]
    #[case::told_of_the_removal_is_not_confirmed(telling(2, 8, Some(7), false), REMOVED, true)]
    #[case::confirmed_the_removal(telling(2, 8, Some(8), false), REMOVED, false)]
    #[case::confirmed_something_later(telling(2, 9, Some(9), false), REMOVED, false)]
    #[case::never_told(telling(0, 0, None, false), REMOVED, false)]
    #[case::joined_after_the_removal(telling(8, 8, None, false), REMOVED, false)]
    #[case::told_nothing_since_before_it_was_listed(telling(1, 3, None, false), REMOVED, false)]
    #[case::told_by_an_earlier_leader(telling(0, 0, None, true), INHERITED, true)]
    #[case::full_list_of_this_leader_not_confirmed(telling(3, 3, None, true), INHERITED, true)]
    #[case::full_list_of_this_leader_confirmed(telling(3, 3, Some(3), true), INHERITED, false)]
    #[case::new_process_inherits_nothing(telling(0, 0, None, false), INHERITED, false)]
    #[case::nothing_to_inherit(telling(0, 0, None, true), REMOVED, false)]
    fn holds_what_it_may_route_to(#[case] telling: Telling, #[case] place: Place, #[case] want: bool) {
        assert_eq!(telling.holds(&place), want);
    }

    #[rstest]
    #[case::too_early(9, false)]
    #[case::late_enough(10, true)]
    fn a_report_confirms_what_was_written_long_enough_ago(#[case] after: u64, #[case] want: bool) {
        let t0 = Instant::now();
        let mut telling = Telling::default();
        telling.told(Revision(5), t0);
        telling.told(Revision(8), t0);
        telling.reported(t0 + Duration::from_secs(after), Duration::from_secs(10));
        assert_eq!(!telling.holds(&REMOVED), want);
    }

    #[test]
    fn what_was_written_on_a_lost_stream_is_not_confirmed_by_a_later_report() {
        let t0 = Instant::now();
        let mut telling = Telling::default();
        telling.told(Revision(5), t0);
        telling.told(Revision(8), t0);
        telling.new_session();
        telling.reported(t0 + Duration::from_mins(1), Duration::from_secs(10));
        assert!(telling.holds(&REMOVED));
    }

    #[test]
    fn a_steady_stream_of_writes_keeps_few_stretches_and_confirms_the_old_ones() {
        let t0 = Instant::now();
        let mut telling = Telling::default();
        for step in 0..300_u64 {
            let now = t0 + Duration::from_millis(step * 100);
            telling.told(Revision(step), now);
            telling.reported(now, Duration::from_secs(10));
            assert!(telling.writes.len() <= 12, "{}", telling.writes.len());
        }
        assert!(telling.applied > Some(Revision(150)), "{:?}", telling.applied);
    }

    #[rstest]
    #[case::clocks_may_differ(29, false)]
    #[case::surely_later(30, true)]
    fn a_process_that_began_surely_after_the_last_telling_knows_nothing(#[case] after: u64, #[case] want: bool) {
        let t0 = Instant::now();
        let mut telling = Telling::default();
        telling.told(Revision(5), t0);
        let skew = Duration::from_secs(30);
        assert_eq!(telling.process_since(t0 + Duration::from_secs(after), Some(t0), skew), want);
        assert_eq!(!telling.holds(&REMOVED), want);
    }
}
