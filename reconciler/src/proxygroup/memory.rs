//! What this process remembers of groups and proxies, beside what the API server keeps. Losing it costs clocks that start
//! over, which is the careful direction.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;

/// Entries kept at most; beyond it all are forgotten.
const BOUND: usize = 50_000;

/// Facts about one proxy pod whose duration matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fact {
    /// Something wants it gone.
    Caused,
    /// It is sealed.
    Sealed,
    /// It was told to be unready, and the kubelet says ready.
    Diverged,
}

/// What is remembered of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OfGroup {
    /// When the status was last written.
    pub(super) written: Option<Timestamp>,
    /// Why the API server refused the last pod that was asked for; gone when one was made, or the spec changed.
    pub(super) rejected: Option<(i64, String)>,
}

#[derive(Debug, Default)]
pub(super) struct Memories {
    since: Mutex<HashMap<(String, Fact), Instant>>,
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

    pub(super) fn forget_pod(&self, pod_uid: &str) {
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
}
