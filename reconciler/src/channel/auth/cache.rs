//! Reviews that were made lately.

use std::collections::HashMap;
use std::time::Instant;

/// SHA-256 of a token: tokens themselves are not kept.
pub(super) type Key = [u8; 32];

/// Values with an end, bounded in number.
#[derive(Debug)]
pub(super) struct Cache<V> {
    entries: HashMap<Key, (V, Instant)>,
    most: usize,
}

impl<V: Clone> Cache<V> {
    pub(super) fn new(most: usize) -> Self {
        Self { entries: HashMap::new(), most }
    }

    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<V> {
        let (value, until) = self.entries.get(key)?;
        (now < *until).then(|| value.clone())
    }

    /// Keeps `value` until `until`. When it is full, what has ended goes, then what would end first.
    pub(super) fn put(&mut self, key: Key, value: V, until: Instant, now: Instant) {
        if self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            self.entries.retain(|_, (_, until)| now < *until);
        }
        while self.entries.len() >= self.most && !self.entries.contains_key(&key) {
            let first = self.entries.iter().min_by_key(|(_, (_, until))| *until);
            let Some(first) = first.map(|(key, _)| *key) else {
                break;
            };
            self.entries.remove(&first);
        }
        self.entries.insert(key, (value, until));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_forgets_what_has_ended_and_when_full_what_ends_first() {
        let t0 = Instant::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut cache = Cache::new(2);
        cache.put([1; 32], 'a', at(10), t0);
        assert_eq!(cache.get(&[1; 32], at(9)), Some('a'));
        assert_eq!(cache.get(&[1; 32], at(10)), None);
        cache.put([2; 32], 'b', at(60), t0);
        cache.put([3; 32], 'c', at(30), at(5));
        assert_eq!(cache.get(&[1; 32], at(5)), None, "ended first");
        cache.put([4; 32], 'd', at(90), at(40));
        assert_eq!(cache.get(&[2; 32], at(40)), Some('b'), "the one that had ended went");
        cache.put([2; 32], 'e', at(99), at(41));
        assert_eq!(cache.get(&[2; 32], at(41)), Some('e'), "a known one is replaced");
        assert_eq!(cache.entries.len(), 2);
    }
}
