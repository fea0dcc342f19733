//! What was asked of the API server and the caches do not show yet, so that it is not asked twice.

use crate::sizing::Reservations;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// After so long a request that never showed is asked again.
pub const TTL: Duration = Duration::from_secs(30);

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The object's creation.
    Create,
    /// The object's deletion.
    Delete,
    /// `spec.retire` on the object.
    Retire,
}

/// What the cache shows of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// It is being deleted, or leaves by its phase.
    pub leaving: bool,
    /// `spec.retire` is set.
    pub retire: bool,
}

/// Requests by group `K` and object name; one kind for a name, the last one wins.
#[derive(Debug)]
pub struct Expectations<K> {
    groups: HashMap<K, HashMap<String, (Kind, Instant)>>,
}

impl<K> Default for Expectations<K> {
    fn default() -> Self {
        Self { groups: HashMap::new() }
    }
}

impl<K: Eq + Hash> Expectations<K> {
    /// Remembers that `kind` was asked for `name` at `now`. Call it before the request is sent: the cache may show the
    /// answer before the caller has it.
    pub fn expect(&mut self, group: K, name: &str, kind: Kind, now: Instant) {
        self.groups.entry(group).or_default().insert(name.to_owned(), (kind, now));
    }

    /// Takes back a request that the API server refused.
    pub fn retract(&mut self, group: &K, name: &str) {
        if let Some(names) = self.groups.get_mut(group) {
            names.remove(name);
        }
    }

    /// Forgets a group that is gone.
    pub fn forget(&mut self, group: &K) {
        self.groups.remove(group);
    }

    /// Drops what the cache shows by now or what is too old, and returns what is still outstanding. `seen` says what the
    /// cache shows of an object, `None` if nothing.
    pub fn outstanding(&mut self, group: &K, now: Instant, seen: impl Fn(&str) -> Option<Seen>) -> Reservations {
        let mut reservations = Reservations::default();
        let Some(names) = self.groups.get_mut(group) else {
            return reservations;
        };
        names.retain(|name, (kind, asked)| {
            let shown = match (*kind, seen(name)) {
                (Kind::Create, seen) => seen.is_some(),
                (Kind::Delete | Kind::Retire, None) => true,
                (Kind::Delete, Some(seen)) => seen.leaving,
                (Kind::Retire, Some(seen)) => seen.retire,
            };
            !shown && now.saturating_duration_since(*asked) < TTL
        });
        for (name, (kind, _)) in names.iter() {
            match kind {
                Kind::Create => reservations.creates = reservations.creates.saturating_add(1),
                Kind::Delete => drop(reservations.deletes.insert(name.clone())),
                Kind::Retire => drop(reservations.retires.insert(name.clone())),
            }
        }
        if names.is_empty() {
            self.groups.remove(group);
        }
        reservations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const HERE: Option<Seen> = Some(Seen { leaving: false, retire: false });
    const LEAVING: Option<Seen> = Some(Seen { leaving: true, retire: false });
    const RETIRING: Option<Seen> = Some(Seen { leaving: false, retire: true });

    #[rstest]
    #[case::create_not_shown(Kind::Create, None, 0, true)]
    #[case::create_shown(Kind::Create, HERE, 0, false)]
    #[case::create_too_old(Kind::Create, None, 30, false)]
    #[case::create_not_too_old(Kind::Create, None, 29, true)]
    #[case::delete_not_shown(Kind::Delete, HERE, 0, true)]
    #[case::delete_shown(Kind::Delete, LEAVING, 0, false)]
    #[case::delete_done(Kind::Delete, None, 0, false)]
    #[case::retire_not_shown(Kind::Retire, HERE, 0, true)]
    #[case::retire_shown(Kind::Retire, RETIRING, 0, false)]
    #[case::retire_is_not_shown_by_leaving(Kind::Retire, LEAVING, 0, true)]
    #[case::retired_and_gone(Kind::Retire, None, 0, false)]
    fn clears(#[case] kind: Kind, #[case] seen: Option<Seen>, #[case] seconds: u64, #[case] outstanding: bool) {
        let start = Instant::now();
        let mut expectations = Expectations::default();
        expectations.expect("g", "a", kind, start);
        let left = expectations.outstanding(&"g", start + Duration::from_secs(seconds), |_| seen);
        assert_eq!(left != Reservations::default(), outstanding);
    }

    #[test]
    fn the_last_kind_wins() {
        let start = Instant::now();
        let mut expectations = Expectations::default();
        expectations.expect("g", "a", Kind::Create, start);
        expectations.expect("g", "a", Kind::Delete, start);
        let left = expectations.outstanding(&"g", start, |_| HERE);
        assert_eq!((left.creates, left.deletes.len()), (0, 1));
    }

    #[test]
    fn groups_do_not_mix_and_can_be_forgotten() {
        let start = Instant::now();
        let mut expectations = Expectations::default();
        expectations.expect("g", "a", Kind::Create, start);
        expectations.expect("h", "b", Kind::Create, start);
        expectations.expect("h", "c", Kind::Create, start);
        expectations.forget(&"g");
        expectations.retract(&"h", "c");
        assert_eq!(expectations.outstanding(&"g", start, |_| None).creates, 0);
        assert_eq!(expectations.outstanding(&"h", start, |_| None).creates, 1);
    }
}
