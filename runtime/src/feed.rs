//! One watch for each kind: a store that many read, and keys for everybody who must look again.
//!
//! ```text
//! API server ──list, watch──► FeedTask ──► Store (shared, lean)
//!                                │
//!                                └─ taps: each change, deletes and what a relist no longer shows included ──► key queues
//! ```
//!
//! kube's shared streams never forward deletes and can hang a subscriber; its watcher hides bookmarks, which are the only
//! sign of life on a quiet kind. So list and watch are driven here, over kube's typed client.

mod mirror;
mod watch;
mod wire;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::clock::Clock;
use crate::keys::KeySender;
use mirror::Mirror;
pub use watch::FeedTask;
pub use wire::Wire;

/// What an object must be to be fed: static type, cheap to share.
pub trait Fed: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K> Fed for K where K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

/// One change of one object, told after the store shows it.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// New, or changed.
    Applied {
        /// As it is now.
        new: &'a Arc<K>,
        /// As it was, where the same object (by UID) was known.
        old: Option<&'a Arc<K>>,
    },
    /// Deleted, or no longer matched by the selector; its last known state.
    Gone(&'a Arc<K>),
}

impl<'a, K> Change<'a, K> {
    /// The states a mapper has to look at: after a change of labels both the old and the new one name dependants.
    pub fn states(&self) -> impl Iterator<Item = &'a K> + use<'a, K> {
        let (first, second) = match self {
            Self::Applied { new, old } => (*new, *old),
            Self::Gone(last) => (*last, None),
        };
        std::iter::once(first.as_ref()).chain(second.map(Arc::as_ref))
    }
}

type Tap<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;
type Slim<K> = Box<dyn Fn(&mut K) + Send + Sync>;

/// Readers' end of a feed; cheap to clone.
pub struct Feed<K: Fed> {
    name: &'static str,
    store: Store<K>,
    health: Arc<Health>,
}

impl<K: Fed> Clone for Feed<K> {
    fn clone(&self) -> Self {
        Self { name: self.name, store: self.store.clone(), health: Arc::clone(&self.health) }
    }
}

impl<K: Fed> Debug for Feed<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("name", &self.name).field("synced", &self.synced()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Health {
    last_heard: Mutex<Option<Instant>>,
    synced: tokio::sync::watch::Sender<bool>,
}

impl Health {
    fn heard(&self, at: Instant) {
        *self.last_heard.lock() = Some(at);
    }
}

impl<K: Fed> Feed<K> {
    /// Starts the description of a feed of `api`'s objects; `name` is for logs and readiness.
    pub fn builder(name: &'static str, api: Api<K>) -> FeedBuilder<K> {
        FeedBuilder { name, api, selector: Selector::default(), slim: None, taps: Vec::new() }
    }

    /// As [`Feed::builder`] for kinds whose schema lets objects pass that we cannot read: one of those is left out, with
    /// a warning, where it would otherwise stop the whole list. Decoding costs about twice as much.
    pub fn guarded(name: &'static str, api: Api<DeserializeGuard<K>>) -> FeedBuilder<K, DeserializeGuard<K>> {
        FeedBuilder { name, api, selector: Selector::default(), slim: None, taps: Vec::new() }
    }

    /// A feed that shows these objects and never changes.
    #[cfg(test)]
    pub(crate) fn of(objects: Vec<K>) -> Self {
        let mut mirror = Mirror::new(None, Vec::new());
        mirror.listed(objects, &[]);
        let synced = tokio::sync::watch::Sender::new(true);
        Self { name: "test", store: mirror.store(), health: Arc::new(Health { last_heard: Mutex::new(None), synced }) }
    }

    /// For logs and readiness.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The store, for kube's runtime.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// One object of a namespaced kind.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// One object of a cluster-wide kind.
    pub fn get_cluster(&self, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name))
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// All objects of one namespace that `keep` accepts.
    pub fn within(&self, namespace: &str, keep: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let mut found = self.store.state();
        found.retain(|object| object.meta().namespace.as_deref() == Some(namespace) && keep(object));
        found
    }

    /// Whether the first list is complete.
    pub fn synced(&self) -> bool {
        *self.health.synced.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn wait_synced(&self) {
        let mut synced = self.health.synced.subscribe();
        // The sender lives in `self.health`, so waiting cannot fail.
        let _ = synced.wait_for(|done| *done).await;
    }

    /// How long ago the API server last told us something: an event, a bookmark or a list. `None` before the first list.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.health.last_heard.lock().map(|at| now.saturating_duration_since(at))
    }

    /// Whether the store may be trusted as current: synced, and heard from within `limit`.
    pub fn fresh(&self, now: Instant, limit: Duration) -> bool {
        self.synced() && self.age(now).is_some_and(|age| age < limit)
    }
}

/// Which objects are fed; everything that the API server has, unless something is said.
#[derive(Debug, Clone, Default)]
struct Selector {
    labels: Option<String>,
    fields: Option<String>,
}

/// A feed that is being described.
pub struct FeedBuilder<K: Fed, G = K> {
    name: &'static str,
    api: Api<G>,
    selector: Selector,
    slim: Option<Slim<K>>,
    taps: Vec<Tap<K>>,
}

impl<K: Fed, G> Debug for FeedBuilder<K, G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K: Fed, G: Wire<K>> FeedBuilder<K, G> {
    /// Only objects that this label selector matches.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.selector.labels = Some(selector.into());
        self
    }

    /// Only the object of this name: a right on that alone is enough.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.selector.fields = Some(format!("metadata.name={name}"));
        self
    }

    /// Drops from each object what nobody reads, before it is kept. Managed fields always go.
    #[must_use]
    pub fn slim(mut self, slim: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.slim = Some(Box::new(slim));
        self
    }

    /// Calls `tap` on each change, after the store shows it. It runs on the watch's task, so it must be quick.
    #[must_use]
    pub fn tap(mut self, tap: impl Fn(&Change<'_, K>) + Send + Sync + 'static) -> Self {
        self.taps.push(Box::new(tap));
        self
    }

    /// Sends the keys that `map` derives from an object on each of its changes.
    #[must_use]
    pub fn wake<T, I>(self, keys: &KeySender<T>, map: impl Fn(&K) -> I + Send + Sync + 'static) -> Self
    where
        T: Eq + Hash + Clone + Send + Sync + 'static,
        I: IntoIterator<Item = T>,
    {
        let keys = keys.clone();
        self.tap(move |change| change.states().for_each(|state| keys.send_all(map(state))))
    }

    /// As [`FeedBuilder::wake`], but a change of a known object only counts where `differs(old, new)`. For readers of
    /// part of an object: an object's own status writes would otherwise wake all of them.
    #[must_use]
    pub fn wake_where<T, I>(
        self,
        keys: &KeySender<T>,
        differs: impl Fn(&K, &K) -> bool + Send + Sync + 'static,
        map: impl Fn(&K) -> I + Send + Sync + 'static,
    ) -> Self
    where
        T: Eq + Hash + Clone + Send + Sync + 'static,
        I: IntoIterator<Item = T>,
    {
        let keys = keys.clone();
        self.tap(move |change| {
            if let Change::Applied { new, old: Some(old) } = change
                && !differs(old, new)
            {
                return;
            }
            change.states().for_each(|state| keys.send_all(map(state)));
        })
    }

    /// The readers' end, and the task that fills it.
    pub fn build(self, clock: Clock) -> (Feed<K>, FeedTask<K, G>) {
        let mirror = Mirror::new(self.slim, self.taps);
        let health = Arc::new(Health { last_heard: Mutex::new(None), synced: tokio::sync::watch::Sender::new(false) });
        let feed = Feed { name: self.name, store: mirror.store(), health: Arc::clone(&health) };
        (feed, FeedTask::new(self.name, self.api, self.selector, mirror, health, clock))
    }
}
