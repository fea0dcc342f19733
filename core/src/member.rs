//! A server as the group it belongs to sees it.

use crate::phase::Phase;
use jiff::Timestamp;
use std::time::Duration;

/// How long a server that proxies still send players to keeps the room it last reported while nobody can count on it. A
/// game that loads beside others is slow to answer and is not worth another server; one that is dead fails its readiness
/// probe sooner and leaves the directory.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// One server of a group, as a value: what sizing, retirement, backoff and pruning decide on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name of the Server object.
    pub name: String,
    /// What it is doing.
    pub phase: Phase,
    /// The group's `metadata.generation` when it was created.
    pub generation: i64,
    /// It was made from what the group asks for now; a server that is not is stale and gets replaced.
    pub current: bool,
    /// When the Server object was created.
    pub created_at: Timestamp,
    /// People on it, at most `slots`; the last known number when `stale`.
    pub players: u32,
    /// How many fit, at most the group's `maxPlayers`; zero when it never reported.
    pub slots: u32,
    /// Nothing recent is known about its players.
    pub stale: bool,
    /// Age of its last report; zero when it never reported.
    pub silent_for: Duration,
    /// It was in a directory of the proxies at some time.
    pub was_registered: bool,
    /// `spec.retire` is set.
    pub retire: bool,
    /// The Server object has a deletion timestamp.
    pub deleting: bool,
    /// Its pod is on a node that is being emptied.
    pub condemned: bool,
    /// Its door is closed or closing for a reason that may pass (an eviction request): it takes nobody new, so it is no
    /// room, and it stays.
    pub closing: bool,
    /// Its pod is gone, going or dead, and whoever was on it with it.
    pub sessions_gone: bool,
    /// How long it has been reported empty; `None` when it is not, or nobody knows.
    pub empty_for: Option<Duration>,
    /// Ready without a break since.
    pub ready_since: Option<Timestamp>,
    /// When it failed.
    pub failed_at: Option<Timestamp>,
}

impl Member {
    /// It takes nobody new, for good or for now.
    pub const fn leaving(&self) -> bool {
        self.phase.leaving() || self.condemned || self.closing
    }

    /// Whether it is one of the servers that the group's size counts.
    pub const fn counts(&self) -> bool {
        !self.leaving() && !matches!(self.phase, Phase::Failed)
    }

    /// Somebody is on it, or nobody can tell.
    pub const fn may_have_players(&self) -> bool {
        self.players > 0 || (self.stale && self.was_registered)
    }

    /// Somebody is on it for the purpose of protecting it: nobody is on a pod that is gone.
    pub const fn occupied(&self) -> bool {
        !self.sessions_gone && self.may_have_players()
    }

    /// Reported empty just now: known, not presumed.
    pub const fn known_empty(&self) -> bool {
        self.players == 0 && !self.stale
    }

    /// Free slots it is worth to the group, where a server that is still coming up is worth all it will have, and one that
    /// players are sent to what it last reported, for a while.
    pub fn expected_free(&self, max_players: u32) -> u32 {
        let coming_up = !self.was_registered;
        if !self.counts() || self.sessions_gone {
            0
        } else if self.slots == 0 {
            max_players
        } else if self.stale && !coming_up && self.patience_left().is_none() {
            0
        } else {
            self.slots.saturating_sub(self.players)
        }
    }

    /// For how long a silent server that players are still sent to keeps its room.
    pub fn patience_left(&self) -> Option<Duration> {
        let silent = self.stale && self.slots > 0 && matches!(self.phase, Phase::Ready);
        PATIENCE.checked_sub(self.silent_for).filter(|left| silent && !left.is_zero())
    }

    /// Free slots that a player could take now.
    pub const fn ready_free(&self) -> u32 {
        if matches!(self.phase, Phase::Ready) && !self.stale { self.slots.saturating_sub(self.players) } else { 0 }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::Member;
    use crate::phase::Phase;
    use jiff::Timestamp;
    use std::time::Duration;

    /// The moment at which tables happen.
    pub(crate) const T0: Timestamp = Timestamp::constant(1_800_000_000, 0);

    pub(crate) fn at(seconds: i64) -> Timestamp {
        Timestamp::constant(1_800_000_000 + seconds, 0)
    }

    /// A ready, registered, known-empty server of the current generation with 20 slots, idle for an hour.
    pub(crate) fn member(name: &str) -> Member {
        Member {
            name: name.to_owned(),
            phase: Phase::Ready,
            generation: 1,
            current: true,
            created_at: T0,
            players: 0,
            slots: 20,
            stale: false,
            silent_for: Duration::ZERO,
            was_registered: true,
            retire: false,
            deleting: false,
            condemned: false,
            closing: false,
            sessions_gone: false,
            empty_for: Some(Duration::from_hours(1)),
            ready_since: Some(T0),
            failed_at: None,
        }
    }

    impl Member {
        pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
            change(&mut self);
            self
        }
        /// With so many people on it.
        pub(crate) fn players(self, players: u32) -> Self {
            self.with(|m| {
                m.players = players;
                m.empty_for = None;
            })
        }
        /// Made from an earlier state of the group.
        pub(crate) fn old(self) -> Self {
            self.with(|m| {
                m.current = false;
                m.generation = 0;
            })
        }
        /// Created and not yet heard of.
        pub(crate) fn coming_up(self) -> Self {
            self.with(|m| {
                m.phase = Phase::Starting;
                m.slots = 0;
                m.stale = true;
                m.was_registered = false;
                m.empty_for = None;
                m.ready_since = None;
            })
        }
        /// No report for so long that its room is lost too.
        pub(crate) fn silent(self) -> Self {
            self.silent_for(super::PATIENCE)
        }
        /// No report for so long, and for longer than a count is believed.
        pub(crate) fn silent_for(self, silent_for: Duration) -> Self {
            self.with(|m| {
                m.stale = true;
                m.silent_for = silent_for;
                m.empty_for = None;
            })
        }
        pub(crate) fn failed(self, failed_at: Timestamp) -> Self {
            self.with(|m| {
                m.phase = Phase::Failed;
                m.failed_at = Some(failed_at);
                m.ready_since = None;
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::member;
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::ready(member("a"), true)]
    #[case::coming_up(member("a").coming_up(), true)]
    #[case::failed(member("a").failed(testing::T0), false)]
    #[case::retiring(member("a").with(|m| m.phase = Phase::Retiring), false)]
    #[case::draining(member("a").with(|m| m.phase = Phase::Draining), false)]
    #[case::terminating(member("a").with(|m| m.phase = Phase::Terminating), false)]
    #[case::on_a_departing_node(member("a").with(|m| m.condemned = true), false)]
    #[case::behind_a_closing_door(member("a").with(|m| m.closing = true), false)]
    fn counts(#[case] m: Member, #[case] want: bool) {
        assert_eq!(m.counts(), want);
    }

    #[rstest]
    #[case::empty(member("a"), false)]
    #[case::somebody(member("a").players(1), true)]
    #[case::silent_and_once_registered(member("a").silent(), true)]
    #[case::silent_and_never_registered(member("a").coming_up(), false)]
    fn may_have_players(#[case] m: Member, #[case] want: bool) {
        assert_eq!(m.may_have_players(), want);
    }

    #[rstest]
    #[case::pod_gone(member("a").players(3).with(|m| m.sessions_gone = true), false)]
    #[case::pod_there(member("a").players(3), true)]
    fn occupied(#[case] m: Member, #[case] want: bool) {
        assert_eq!(m.occupied(), want);
    }

    #[rstest]
    #[case::free_slots(member("a").players(5), 15)]
    #[case::never_reported(member("a").coming_up(), 30)]
    #[case::silent(member("a").silent(), 0)]
    #[case::silent_for_a_moment(member("a").players(5).silent_for(Duration::from_secs(29)), 15)]
    #[case::silent_for_a_moment_and_out_of_the_directory(member("a").silent_for(Duration::from_secs(29)).with(|m| m.phase = Phase::Starting), 0)]
    #[case::fell_silent_while_coming_up(member("a").coming_up().silent().with(|m| m.slots = 20), 20)]
    #[case::pod_gone(member("a").with(|m| m.sessions_gone = true), 0)]
    #[case::never_reported_and_gone(member("a").coming_up().with(|m| m.sessions_gone = true), 0)]
    #[case::leaving(member("a").with(|m| m.condemned = true), 0)]
    #[case::full(member("a").players(20), 0)]
    fn expected_free(#[case] m: Member, #[case] want: u32) {
        assert_eq!(m.expected_free(30), want);
    }

    #[rstest]
    #[case::ready(member("a").players(5), 15)]
    #[case::starting(member("a").with(|m| m.phase = Phase::Starting), 0)]
    #[case::silent(member("a").silent(), 0)]
    fn ready_free(#[case] m: Member, #[case] want: u32) {
        assert_eq!(m.ready_free(), want);
    }
}
