//! Our own writes, until the watch shows them.
//!
//! A controller that is woken by an agent right after it wrote would read its cache as it was before the write, decide
//! the same again, and meet a conflict. It reads through [`Latest`] instead.

use std::collections::HashMap;
use std::sync::Arc;

use kube::{Resource, ResourceExt};
use parking_lot::Mutex;

/// Objects remembered at most. A watch shows a write within milliseconds, so only a defect reaches the bound; then the
/// memory is emptied, which costs conflicts and nothing else.
const BOUND: usize = 4096;

/// The newest state of objects that this process knows of, by UID.
#[derive(Debug)]
pub struct Latest<K>(Mutex<HashMap<String, Arc<K>>>);

impl<K> Default for Latest<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Resource> Latest<K> {
    /// Remembers the answer to a write.
    pub fn wrote(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        if let Some(uid) = object.uid() {
            let mut known = self.0.lock();
            if known.len() >= BOUND {
                known.clear();
            }
            known.insert(uid, Arc::clone(&object));
        }
        object
    }

    /// The newer of what the cache shows and what we wrote.
    pub fn of(&self, seen: Arc<K>) -> Arc<K> {
        let Some(uid) = seen.uid() else { return seen };
        let mut known = self.0.lock();
        let Some(ours) = known.get(&uid) else { return seen };
        if version(ours.as_ref()) > version(seen.as_ref()) {
            return Arc::clone(ours);
        }
        known.remove(&uid);
        seen
    }

    /// Drops what is remembered of an object, because it is gone or the memory proved wrong.
    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

/// Resource versions of one kind are numbers that grow (Kubernetes promises it since 1.35, etcd always did); one that is
/// not a number is older than everything, so that the cache wins.
fn version<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use rstest::rstest;

    fn object(version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.uid = Some("u".to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    #[rstest]
    #[case::the_cache_lags("12", "9", "12")]
    #[case::the_cache_caught_up("12", "12", "12")]
    #[case::the_cache_is_ahead("12", "13", "13")]
    #[case::not_a_number("x12", "9", "9")]
    fn the_newer_wins(#[case] ours: &str, #[case] seen: &str, #[case] want: &str) {
        let latest = Latest::default();
        latest.wrote(object(ours));
        assert_eq!(latest.of(Arc::new(object(seen))).resource_version().as_deref(), Some(want));
    }

    #[test]
    fn once_the_cache_caught_up_it_is_alone() {
        let latest = Latest::default();
        latest.wrote(object("12"));
        latest.of(Arc::new(object("12")));
        assert!(latest.0.lock().is_empty());
        latest.wrote(object("14"));
        latest.forget("u");
        assert_eq!(latest.of(Arc::new(object("13"))).resource_version().as_deref(), Some("13"));
    }
}
