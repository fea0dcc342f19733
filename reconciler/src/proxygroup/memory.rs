//! What this process remembers of groups and proxies, beside what the API server keeps. Losing it costs clocks that start
//! over, which is the careful direction.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use spawnery_core::rollout::Departure;

use crate::objects::Refusals;

/// Entries kept at most; beyond it all are forgotten.
const BOUND: usize = 50_000;

/// Facts about one proxy pod whose duration matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fact {
    /// Something wants it gone.
    Caused,
    /// Nothing does any more, and it is not back as it was.
    Released,
    /// It is sealed.
    Sealed,
    /// It was told to take nobody in, and somebody may still get in.
    Diverged,
    /// The scheduler finds no node for it.
    Unschedulable,
}

/// What is remembered of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OfGroup {
    /// When the status was last written.
    pub(super) written: Option<Timestamp>,
    /// Why the API server refused the last pod that was asked for; gone when one was made, or the spec changed.
    pub(super) rejected: Option<(i64, String)>,
    /// Which of the other objects the API server refused.
    pub(super) refused: Refusals,
}

#[derive(Debug, Default)]
pub(super) struct Memories {
    since: Mutex<HashMap<(String, Fact), Instant>>,
    departures: Mutex<HashMap<String, Departure>>,
    groups: Mutex<HashMap<String, OfGroup>>,
}

impl Memories {
    /// For how long the fact has held without a break, as far as we have looked; zero when it does not hold.
    pub(super) fn lasting(&self, pod_uid: &str, fact: Fact, holds: bool, now: Instant) -> Duration {
        let key = (pod_uid.to_owned(), fact);
        let mut since = self.since.lock();
        if !holds {
            since.remove(&key);
            return Duration::ZERO;
        }
        if since.len() >= BOUND && !since.contains_key(&key) {
            since.clear();
        }
        now.saturating_duration_since(*since.entry(key).or_insert(now))
    }

    /// For how long nothing has wanted the proxy gone, if something did before (`may_have`: for all that is remembered, it
    /// may) and it is not back as it was. To be asked before [`Fact::Caused`] is noted.
    pub(super) fn released(
        &self,
        pod_uid: &str,
        caused: bool,
        may_have: bool,
        back: bool,
        now: Instant,
    ) -> Option<Duration> {
        let before = {
            let since = self.since.lock();
            [Fact::Caused, Fact::Released].into_iter().any(|fact| since.contains_key(&(pod_uid.to_owned(), fact)))
        };
        let released = (before || may_have) && !caused && !back;
        let lasting = self.lasting(pod_uid, Fact::Released, released, now);
        released.then_some(lasting)
    }

    /// What is known of the emptying of the pod's node after this look.
    pub(super) fn departure(&self, pod_uid: &str, departing: bool, now: Timestamp) -> Departure {
        let mut departures = self.departures.lock();
        let known = departures.get(pod_uid).copied();
        let next = Departure::after(known, departing, now);
        if known != Some(next) {
            if departures.len() >= BOUND && !departures.contains_key(pod_uid) {
                departures.clear();
            }
            departures.insert(pod_uid.to_owned(), next);
        }
        next
    }

    /// Whether this process has looked at the pod before.
    pub(super) fn knows(&self, pod_uid: &str) -> bool {
        self.departures.lock().contains_key(pod_uid)
    }

    pub(super) fn forget_pod(&self, pod_uid: &str) {
        self.departures.lock().remove(pod_uid);
        self.since.lock().retain(|(uid, _), _| uid != pod_uid);
    }

    pub(super) fn group(&self, uid: &str) -> OfGroup {
        self.groups.lock().get(uid).cloned().unwrap_or_default()
    }

    pub(super) fn update_group(&self, uid: &str, change: impl FnOnce(&mut OfGroup)) {
        let mut groups = self.groups.lock();
        if groups.len() >= BOUND && !groups.contains_key(uid) {
            groups.clear();
        }
        change(groups.entry(uid.to_owned()).or_default());
    }

    pub(super) fn forget_group(&self, uid: &str) {
        self.groups.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_starts_the_clock_over() {
        let (memories, t0) = (Memories::default(), Instant::now());
        let at = |seconds| t0 + Duration::from_secs(seconds);
        assert_eq!(memories.lasting("u", Fact::Diverged, true, t0), Duration::ZERO);
        assert_eq!(memories.lasting("u", Fact::Diverged, true, at(60)), Duration::from_mins(1));
        assert_eq!(memories.lasting("u", Fact::Sealed, true, at(60)), Duration::ZERO, "each fact has its own clock");
        assert_eq!(memories.lasting("u", Fact::Diverged, false, at(61)), Duration::ZERO);
        assert_eq!(memories.lasting("u", Fact::Diverged, true, at(90)), Duration::ZERO);
        memories.forget_pod("u");
        assert_eq!(memories.lasting("u", Fact::Sealed, true, at(99)), Duration::ZERO);
    }

    #[test]
    fn a_proxy_is_released_until_it_is_back() {
        let (memories, t0) = (Memories::default(), Instant::now());
        let look = |caused, back, seconds| {
            let now = t0 + Duration::from_secs(seconds);
            let released = memories.released("u", caused, false, back, now);
            memories.lasting("u", Fact::Caused, caused, now);
            released.map(|released| released.as_secs())
        };
        assert_eq!(look(false, false, 0), None, "nothing ever wanted it gone");
        assert_eq!(look(true, true, 1), None);
        assert_eq!(look(false, false, 2), Some(0));
        assert_eq!(look(false, false, 5), Some(3));
        assert_eq!(look(true, false, 6), None);
        assert_eq!(look(false, false, 7), Some(0));
        assert_eq!(look(false, true, 8), None);
        assert_eq!(look(false, false, 9), None, "it fell by itself");
        assert!(memories.released("u", false, true, false, t0).is_some(), "an earlier leader may have had a reason");
    }

    #[test]
    fn a_drain_that_was_called_off_is_remembered_until_the_next() {
        let (memories, now) = (Memories::default(), Timestamp::UNIX_EPOCH);
        assert!(!memories.knows("u"));
        assert_eq!(memories.departure("u", false, now), Departure::Idle(now));
        assert!(memories.knows("u"));
        assert_eq!(memories.departure("u", true, now), Departure::Underway);
        assert_eq!(memories.departure("u", false, now), Departure::CalledOff(now));
        assert_eq!(memories.departure("v", false, now), Departure::Idle(now), "each pod has its own");
        assert_eq!(memories.departure("u", true, now), Departure::Underway);
        memories.forget_pod("u");
        assert_eq!(memories.departure("u", false, now), Departure::Idle(now));
    }
}
