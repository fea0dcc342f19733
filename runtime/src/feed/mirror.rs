//! Keeps a store as the API server tells it, and tells taps what changed.

use std::sync::Arc;

use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::Event;

use super::wire::Unreadable;
use super::{Change, Fed, Slim, Tap};

pub(super) struct Mirror<K: Fed> {
    store: Store<K>,
    writer: kube::runtime::reflector::store::Writer<K>,
    slim: Option<Slim<K>>,
    taps: Vec<Tap<K>>,
}

impl<K: Fed> Mirror<K> {
    pub(super) fn new(slim: Option<Slim<K>>, taps: Vec<Tap<K>>) -> Self {
        let (store, writer) = store();
        Self { store, writer, slim, taps }
    }

    pub(super) fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// An object appeared or changed.
    pub(super) fn applied(&mut self, object: K) {
        let object = self.slimmed(object);
        let key = ObjectRef::from_obj(&object);
        let before = self.store.get(&key);
        self.writer.apply_watcher_event(&Event::Apply(object));
        self.tell_applied(before, &key);
    }

    /// An object went.
    pub(super) fn deleted(&mut self, object: K) {
        let object = self.slimmed(object);
        self.writer.apply_watcher_event(&Event::Delete(object.clone()));
        self.tell(&Change::Gone(&Arc::new(object)));
    }

    /// An object went whose last state cannot be read; the state before it is told.
    pub(super) fn deleted_unreadable(&mut self, object: &Unreadable<K>) {
        if let Some(known) = self.store.get(&object.key) {
            self.writer.apply_watcher_event(&Event::Delete(known.as_ref().clone()));
            self.tell(&Change::Gone(&known));
        }
    }

    /// A complete list: what it lacks has gone while we were not watching. An object that cannot be read stays as it was
    /// known, because acting on less would be less careful.
    pub(super) fn listed(&mut self, mut objects: Vec<K>, unreadable: &[Unreadable<K>]) {
        let before = self.store.state();
        let known = unreadable.iter().filter_map(|object| self.store.get(&object.key));
        objects.extend(known.map(|object| object.as_ref().clone()));
        self.writer.apply_watcher_event(&Event::Init);
        for object in objects {
            let object = self.slimmed(object);
            self.writer.apply_watcher_event(&Event::InitApply(object));
        }
        let mut known: std::collections::HashMap<ObjectRef<K>, Arc<K>> =
            before.into_iter().map(|object| (ObjectRef::from_obj(object.as_ref()), object)).collect();
        self.writer.apply_watcher_event(&Event::InitDone);
        for object in self.store.state() {
            let key = ObjectRef::from_obj(object.as_ref());
            self.tell_applied(known.remove(&key), &key);
        }
        for gone in known.into_values() {
            self.tell(&Change::Gone(&gone));
        }
    }

    fn slimmed(&self, mut object: K) -> K {
        object.meta_mut().managed_fields = None;
        if let Some(slim) = &self.slim {
            slim(&mut object);
        }
        object
    }

    /// A name that now stands for another object (deleted and made anew) is told as both.
    fn tell_applied(&self, before: Option<Arc<K>>, key: &ObjectRef<K>) {
        let Some(new) = self.store.get(key) else { return };
        let old = match before {
            Some(old) if old.meta().uid == new.meta().uid => Some(old),
            Some(other) => {
                self.tell(&Change::Gone(&other));
                None
            }
            None => None,
        };
        self.tell(&Change::Applied { new: &new, old: old.as_ref() });
    }

    fn tell(&self, change: &Change<'_, K>) {
        self.taps.iter().for_each(|tap| tap(change));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;
    use parking_lot::Mutex;

    use super::*;

    fn object(name: &str, uid: &str, label: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some("ns".into()),
                uid: Some(uid.into()),
                labels: Some([("group".to_owned(), label.to_owned())].into()),
                managed_fields: Some(Vec::new()),
                ..ObjectMeta::default()
            },
            data: Some([("big".to_owned(), "value".to_owned())].into()),
            ..ConfigMap::default()
        }
    }

    type Told = Arc<Mutex<Vec<String>>>;

    fn mirror() -> (Mirror<ConfigMap>, Told) {
        let told = Told::default();
        let writes = Arc::clone(&told);
        let label = |object: &ConfigMap| {
            let labels = object.metadata.labels.clone().unwrap_or_default();
            format!(
                "{}={}",
                object.metadata.name.clone().unwrap_or_default(),
                labels.get("group").cloned().unwrap_or_default()
            )
        };
        let tap: Tap<ConfigMap> = Box::new(move |change| {
            let line = match change {
                Change::Applied { new, old: Some(old) } => format!("{} -> {}", label(old), label(new)),
                Change::Applied { new, old: None } => format!("+ {}", label(new)),
                Change::Gone(last) => format!("- {}", label(last)),
            };
            writes.lock().push(line);
        });
        (Mirror::new(Some(Box::new(|object: &mut ConfigMap| object.data = None)), vec![tap]), told)
    }

    #[test]
    fn tells_changes_deletes_and_replacements() {
        let (mut mirror, told) = mirror();
        mirror.listed(vec![object("a", "1", "x")], &[]);
        mirror.applied(object("a", "1", "y"));
        mirror.applied(object("a", "2", "z"));
        mirror.deleted(object("a", "2", "z"));
        assert_eq!(*told.lock(), ["+ a=x", "a=x -> a=y", "- a=y", "+ a=z", "- a=z"]);
        assert!(mirror.store().state().is_empty());
    }

    #[test]
    fn a_relist_tells_what_went_meanwhile() {
        let (mut mirror, told) = mirror();
        mirror.listed(vec![object("a", "1", "x"), object("b", "2", "x")], &[]);
        told.lock().clear();
        mirror.listed(vec![object("b", "2", "x")], &[]);
        assert_eq!(*told.lock(), ["b=x -> b=x", "- a=x"]);
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_was_until_it_goes() {
        let (mut mirror, told) = mirror();
        let unreadable = Unreadable { key: ObjectRef::from_obj(&object("a", "1", "x")), why: "no spec".into() };
        mirror.listed(vec![object("a", "1", "x")], &[]);
        mirror.listed(vec![], std::slice::from_ref(&unreadable));
        assert_eq!(mirror.store().state().len(), 1);
        mirror.deleted_unreadable(&unreadable);
        assert_eq!(*told.lock(), ["+ a=x", "a=x -> a=x", "- a=x"]);
        assert!(mirror.store().state().is_empty());
    }

    #[test]
    fn keeps_only_what_is_read() {
        let (mut mirror, _told) = mirror();
        mirror.listed(vec![object("a", "1", "x")], &[]);
        let kept = mirror.store().state();
        assert!(kept.iter().all(|object| object.data.is_none() && object.metadata.managed_fields.is_none()));
    }
}
