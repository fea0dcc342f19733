//! A vigil over a namespace: everything that happens to its servers, their pods and the proxies' directories.
//!
//! ```text
//!  Servers ──watch──► registered, readiness losses ┐
//!  pods ─────watch──► UIDs, the occupied label     ├─► one list of what happened, and when
//!  proxies ──look───► whom they route to           ┘
//! ```
//!
//! A watch leaves nothing out. Proxies are looked at in their own process, so often that nothing is missed that lasts
//! longer than a player takes to join.

use super::Arena;
use crate::runner::Role;
use anyhow::{Context as _, Result, ensure};
use futures::{FutureExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use spawnery_api::{names::label, v1alpha1::Server};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Between two looks at the proxies.
const LOOK: Duration = Duration::from_millis(10);
/// Lists of a few hundred objects take milliseconds.
const FIRST_LOOK_LIMIT: Duration = Duration::from_secs(30);
/// So many happenings are named in full when there should have been none.
const NAMED: usize = 12;

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The Server's status says that newcomers may be sent to it.
    Registered,
    /// The Server's status says so no more.
    Deregistered,
    /// Its readiness losses are now this many.
    ReadinessLosses(i32),
    /// There is a Server that was not there before.
    ServerCame,
    /// The Server is gone.
    ServerGone,
    /// There is a pod that was not there before.
    PodCame,
    /// The pod is gone.
    PodGone,
    /// The pod is labelled as occupied from now on.
    Labelled,
    /// The pod is not labelled as occupied any more.
    Unlabelled,
    /// This proxy sends newcomers there from now on.
    RoutedBy(String),
    /// This proxy sends nobody there any more.
    DroppedBy(String),
}

/// Something that happened to a server or its pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happened {
    /// When we heard of it.
    pub at: Instant,
    /// The Server's, and pod's, name.
    pub who: String,
    /// What.
    pub what: What,
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.who, self.what)
    }
}

/// Somebody who watches until dropped.
#[derive(Debug)]
pub struct Vigil {
    book: Arc<Mutex<Book>>,
    begin: Instant,
    _stop: DropGuard,
}

#[derive(Debug, Default)]
struct Book {
    /// Registered and readiness losses, by name.
    servers: BTreeMap<String, (bool, i32)>,
    /// Name and label, by UID.
    pods: BTreeMap<String, (String, bool)>,
    /// Servers by proxy.
    routed: BTreeMap<String, BTreeSet<String>>,
    happened: Vec<Happened>,
}

/// One kind of object that is watched.
struct Kind<K> {
    key: fn(&K) -> String,
    /// Writes down what the object is now; and what happened to it, unless this is the first look.
    note: fn(&mut Book, &K, bool),
    known: fn(&Book) -> BTreeSet<String>,
    gone: fn(&mut Book, &str),
}

const SERVERS: Kind<Server> = Kind {
    key: |server| server.name_any(),
    note: Book::note_server,
    known: |book| book.servers.keys().cloned().collect(),
    gone: |book, name| {
        book.servers.remove(name);
        book.happens(name, What::ServerGone);
    },
};

const PODS: Kind<Pod> = Kind {
    key: |pod| pod.uid().unwrap_or_default(),
    note: Book::note_pod,
    known: |book| book.pods.keys().cloned().collect(),
    gone: |book, uid| {
        if let Some((name, _)) = book.pods.remove(uid) {
            book.happens(&name, What::PodGone);
        }
    },
};

impl Vigil {
    /// Begins to watch; what there is now is how it should be.
    ///
    /// # Errors
    /// When the API server does not say what there is.
    pub async fn begin(arena: &Arc<Arena>) -> Result<Self> {
        let (book, stop) = (Arc::new(Mutex::new(Book::default())), CancellationToken::new());
        look(&mut book.lock(), arena, true);
        tokio::spawn(stop.clone().run_until_cancelled_owned(look_often(Arc::clone(&book), Arc::downgrade(arena))));
        Self::follow(book, stop, arena.servers(), arena.pods()).await
    }

    /// Begins to watch servers and pods alone, where proxies are in pods that cannot be looked into.
    ///
    /// # Errors
    /// When the API server does not say what there is.
    pub async fn over(client: &kube::Client, namespace: &str) -> Result<Self> {
        let (servers, pods) = (Api::namespaced(client.clone(), namespace), Api::namespaced(client.clone(), namespace));
        Self::follow(Arc::default(), CancellationToken::new(), servers, pods).await
    }

    async fn follow(
        book: Arc<Mutex<Book>>,
        stop: CancellationToken,
        servers: Api<Server>,
        pods: Api<Pod>,
    ) -> Result<Self> {
        let (servers_listed, mut servers_known) = watch::channel(false);
        let (pods_listed, mut pods_known) = watch::channel(false);
        let watch = |task| tokio::spawn(stop.clone().run_until_cancelled_owned(task));
        watch(follow(servers, SERVERS, Arc::clone(&book), servers_listed).boxed());
        watch(follow(pods, PODS, Arc::clone(&book), pods_listed).boxed());
        let known =
            async { tokio::try_join!(servers_known.wait_for(|known| *known), pods_known.wait_for(|known| *known)) };
        timeout(FIRST_LOOK_LIMIT, known).await.context("no list of servers and pods")?.context("the watch ended")?;
        Ok(Self { book, begin: Instant::now(), _stop: stop.drop_guard() })
    }

    /// Everything that happened, in order.
    pub fn happened(&self) -> Vec<Happened> {
        self.book.lock().happened.clone()
    }

    /// What happened to one server and its pod, in order.
    pub fn happened_to(&self, who: &str) -> Vec<Happened> {
        self.happened().into_iter().filter(|happened| happened.who == who).collect()
    }

    /// Nothing has happened to anybody.
    ///
    /// # Errors
    /// Says what has.
    pub fn ensure_quiet(&self) -> Result<()> {
        let happened = self.happened();
        let after = |happened: &Happened| {
            format!("{:.2} s: {happened}", happened.at.saturating_duration_since(self.begin).as_secs_f64())
        };
        let first: Vec<String> = happened.iter().take(NAMED).map(after).collect();
        ensure!(happened.is_empty(), "{} things happened that should not have: {first:#?}", happened.len());
        Ok(())
    }
}

impl Book {
    fn happens(&mut self, who: &str, what: What) {
        self.happened.push(Happened { at: Instant::now(), who: who.to_owned(), what });
    }

    fn note_server(&mut self, server: &Server, first: bool) {
        let (name, status) = (server.name_any(), server.status.as_ref());
        let now = status.map_or((false, 0), |status| (status.registered, status.readiness_losses));
        let before = self.servers.insert(name.clone(), now);
        if first {
            return;
        }
        if before.is_none() {
            self.happens(&name, What::ServerCame);
        }
        let before = before.unwrap_or_default();
        if before.0 != now.0 {
            self.happens(&name, if now.0 { What::Registered } else { What::Deregistered });
        }
        if before.1 != now.1 {
            self.happens(&name, What::ReadinessLosses(now.1));
        }
    }

    fn note_pod(&mut self, pod: &Pod, first: bool) {
        let name = pod.name_any();
        let occupied = pod.labels().get(label::OCCUPIED).is_some_and(|value| value == label::TRUE);
        let before = self.pods.insert(pod.uid().unwrap_or_default(), (name.clone(), occupied));
        if first {
            return;
        }
        if before.is_none() {
            self.happens(&name, What::PodCame);
        }
        if before.is_some_and(|(_, occupied)| occupied) != occupied {
            self.happens(&name, if occupied { What::Labelled } else { What::Unlabelled });
        }
    }

    fn note_routes(&mut self, proxy: &str, now: &BTreeSet<String>, first: bool) {
        let before = self.routed.insert(proxy.to_owned(), now.clone()).unwrap_or_default();
        if first {
            return;
        }
        for server in now.difference(&before) {
            self.happens(server, What::RoutedBy(proxy.to_owned()));
        }
        for server in before.difference(now) {
            self.happens(server, What::DroppedBy(proxy.to_owned()));
        }
    }
}

/// Watches one kind; says so once the first list is known.
async fn follow<K>(api: Api<K>, kind: Kind<K>, book: Arc<Mutex<Book>>, known: watch::Sender<bool>)
where
    K: kube::Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()).default_backoff());
    let mut listed = BTreeSet::new();
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => listed.clear(),
            Ok(Some(Event::InitApply(object))) => {
                listed.insert((kind.key)(&object));
                (kind.note)(&mut book.lock(), &object, !*known.borrow());
            }
            Ok(Some(Event::InitDone)) => {
                let mut book = book.lock();
                for key in (kind.known)(&book).difference(&listed) {
                    (kind.gone)(&mut book, key);
                }
                known.send_replace(true);
            }
            Ok(Some(Event::Apply(object))) => (kind.note)(&mut book.lock(), &object, false),
            Ok(Some(Event::Delete(object))) => (kind.gone)(&mut book.lock(), &(kind.key)(&object)),
            Ok(None) => return,
            // The watcher goes on by itself; the API server may be stopped by the test.
            Err(error) => tracing::debug!(%error, "the watch broke"),
        }
    }
}

async fn look_often(book: Arc<Mutex<Book>>, arena: Weak<Arena>) {
    while let Some(arena) = arena.upgrade() {
        look(&mut book.lock(), &arena, false);
        drop(arena);
        sleep(LOOK).await;
    }
}

/// Looks whom each proxy of the mini game routes to. A proxy that has ended routes nobody and says nothing.
fn look(book: &mut Book, arena: &Arena, first: bool) {
    for pod in arena.stack().runner().pods_in(arena.namespace(), Role::Proxy) {
        let Some(game) = pod.game() else { continue };
        let Some(proxy) = game.mini_proxy() else { continue };
        let first = first || !book.routed.contains_key(&pod.facts().name);
        book.note_routes(&pod.facts().name, &proxy.servers().into_iter().collect(), first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn server(registered: bool, losses: i32) -> Server {
        serde_json::from_value(json!({
            "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server", "metadata": { "name": "lobby-a" },
            "spec": { "groupRef": { "name": "lobby" }, "groupGeneration": 1, "podHash": "", "retire": false },
            "status": { "registered": registered, "readinessLosses": losses },
        }))
        .unwrap()
    }

    fn pod(uid: &str, occupied: bool) -> Pod {
        let labels = if occupied { json!({ label::OCCUPIED: label::TRUE }) } else { json!({}) };
        serde_json::from_value(json!({ "metadata": { "name": "lobby-a", "uid": uid, "labels": labels } })).unwrap()
    }

    fn what(book: &Book) -> Vec<What> {
        book.happened.iter().map(|happened| happened.what.clone()).collect()
    }

    #[test]
    fn the_first_look_is_how_it_should_be() {
        let mut book = Book::default();
        book.note_server(&server(true, 2), true);
        book.note_pod(&pod("u1", true), true);
        book.note_routes("edge-a", &BTreeSet::from(["lobby-a".to_owned()]), true);
        book.note_server(&server(true, 2), false);
        book.note_pod(&pod("u1", true), false);
        book.note_routes("edge-a", &BTreeSet::from(["lobby-a".to_owned()]), false);
        assert_eq!(what(&book), []);
    }

    #[test]
    fn tells_everything_that_happens_later() {
        let mut book = Book::default();
        book.note_server(&server(true, 0), true);
        book.note_pod(&pod("u1", true), true);
        book.note_routes("edge-a", &BTreeSet::from(["lobby-a".to_owned()]), true);
        book.note_server(&server(false, 1), false);
        book.note_routes("edge-a", &BTreeSet::new(), false);
        book.note_pod(&pod("u1", false), false);
        (PODS.gone)(&mut book, "u1");
        book.note_pod(&pod("u2", false), false);
        (SERVERS.gone)(&mut book, "lobby-a");
        let dropped = What::DroppedBy("edge-a".to_owned());
        let want = [
            What::Deregistered,
            What::ReadinessLosses(1),
            dropped,
            What::Unlabelled,
            What::PodGone,
            What::PodCame,
            What::ServerGone,
        ];
        assert_eq!(what(&book), want);
    }
}
