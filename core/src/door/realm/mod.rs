//! One namespace: its ledger, its directory, its doors and what every agent was told.
//!
//! ```text
//!  controllers ── want, observe_proxy, set_ready, claim_seal ──┐
//!  agents ─────── join, hello, report, applied, leave ─────────┼─► Realm ──► next(): messages, one at a time
//!  time ───────── tick ────────────────────────────────────────┘         └─► Effects: who to wake, what changed
//! ```
//!
//! Everything is driven by calls; nothing here waits. After each call [`Realm::take_effects`] says which sessions have
//! something to be sent and which pods controllers should look at again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use jiff::Timestamp;

use super::directory::Directory;
use super::facts::{Change, ChangeKind, DoorView, ProxyFacts, ServerWant, WantDoor};
use super::machine::State;
use super::outbox::Talk;
use super::telling::{Place, Telling};
use crate::ledger::{Entry, Ledger, PodUid, Role, Rules};

mod doors;
mod drains;
mod judge;
mod send;
mod session;
mod view;

use drains::Drain;

pub use session::Introduction;

/// A server pod's place and door.
#[derive(Debug, Clone)]
struct Server {
    want: ServerWant,
    place: Place,
    door: State,
}

/// A proxy pod's facts, what its process was told, and its door.
#[derive(Debug, Clone)]
struct Proxy {
    facts: ProxyFacts,
    telling: Telling,
    door: State,
    /// Since when Kubernetes sends nobody here.
    unroutable_since: Option<Instant>,
    /// Its pod is gone from the API, and a session of it is still up.
    gone: bool,
}

impl Proxy {
    fn new(facts: ProxyFacts, may_inherit: bool) -> Self {
        Self { facts, telling: Telling::new(may_inherit), door: State::Open, unroutable_since: None, gone: false }
    }
}

/// What controllers were last told of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    connected: bool,
    ready: bool,
    count: (Option<u32>, u32),
    occupied: bool,
    door: DoorView,
}

/// What came of the calls since the last [`Realm::take_effects`].
#[derive(Debug, Default)]
pub struct Effects {
    /// Sessions that may have something to be sent.
    pub wake: BTreeSet<PodUid>,
    /// What changed, in order.
    pub changes: Vec<Change>,
}

/// Doors, directory and ledger of one namespace.
#[derive(Debug, Clone)]
pub struct Realm {
    namespace: String,
    rules: Rules,
    ledger: Ledger,
    directory: Directory,
    servers: HashMap<PodUid, Server>,
    proxies: BTreeMap<PodUid, Proxy>,
    talks: HashMap<PodUid, Talk>,
    by_name: HashMap<String, PodUid>,
    /// Pods whose doors are neither open nor sealed.
    shut: BTreeSet<PodUid>,
    /// Sealed pods that nothing else has been said about yet.
    sealed_before: BTreeSet<PodUid>,
    drains: BTreeMap<String, Drain>,
    drain_number: u64,
    nonce: u64,
    listed: bool,
    seen: HashMap<PodUid, Seen>,
    dirty: BTreeSet<PodUid>,
    wake: BTreeSet<PodUid>,
    changes: Vec<Change>,
}

impl Realm {
    /// An empty realm. `leading_since`: when this process began to lead; `listed`: everything that exists was fed.
    pub fn new(namespace: &str, rules: Rules, leading_since: Option<Instant>, listed: bool) -> Self {
        Self {
            namespace: namespace.to_owned(),
            rules,
            ledger: Ledger::new(rules, leading_since),
            directory: Directory::new(Directory::REMEMBERED),
            servers: HashMap::new(),
            proxies: BTreeMap::new(),
            talks: HashMap::new(),
            by_name: HashMap::new(),
            shut: BTreeSet::new(),
            sealed_before: BTreeSet::new(),
            drains: BTreeMap::new(),
            drain_number: 0,
            nonce: 0,
            listed,
            seen: HashMap::new(),
            dirty: BTreeSet::new(),
            wake: BTreeSet::new(),
            changes: Vec::new(),
        }
    }

    /// This process leads from now on.
    ///
    /// Until now an earlier leader spoke to the proxies: what they may route by is unknown.
    pub fn lead(&mut self, now: Instant) {
        self.ledger.lead(now);
        for proxy in self.proxies.values_mut() {
            proxy.telling.may_inherit = true;
        }
    }

    /// Every server and proxy pod that existed when this process began to lead has been fed. Before that no directory is
    /// sent (it would lack servers) and no door is closed (a proxy that may hold it could be missing).
    pub fn listed(&mut self, now: Instant) {
        self.listed = true;
        self.wake_proxies();
        self.touch_shut_doors();
        self.settle(now);
    }

    /// Whether nothing is kept here any more.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.proxies.is_empty() && self.talks.is_empty()
    }

    /// The directory that proxies are brought to.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What is wanted of a server pod. Saying it again changes nothing.
    pub fn want(&mut self, want: ServerWant, now: Instant) {
        let uid = want.uid.clone();
        self.ledger.declare(&uid, Role::Server, &want.name, &want.group);
        if want.was_routable {
            self.ledger.mark_routable(&uid);
        }
        self.by_name.insert(want.name.clone(), uid.clone());
        if !self.servers.contains_key(&uid) {
            let place = Place { inherited: want.was_routable, ..Place::default() };
            let (want, door) = (want.clone(), State::Closing);
            self.servers.insert(uid.clone(), Server { want, place, door });
            self.shut.insert(uid.clone());
        }
        if self.sealed_before.remove(&uid) {
            self.put_door(&uid, State::Sealed);
        }
        let open = want.door == WantDoor::Open && !want.address.is_empty();
        let was_routable = want.was_routable;
        let door = match self.servers.get_mut(&uid) {
            Some(server) => {
                server.want = want;
                server.door.clone()
            }
            None => return,
        };
        match (open, door) {
            (_, State::Sealing | State::Sealed) => {}
            (true, _) => self.open_server(&uid),
            (false, State::Open) => self.close_server(&uid),
            (false, _) if was_routable => self.own_door(&uid, true),
            (false, _) => {}
        }
        self.dirty.insert(uid);
        self.settle(now);
    }

    /// What the API server says about a proxy pod. `wall` is the wall clock at `now`.
    pub fn observe_proxy(&mut self, facts: ProxyFacts, now: Instant, wall: Timestamp) {
        let uid = facts.uid.clone();
        self.ledger.declare(&uid, Role::Proxy, &facts.name, &facts.group);
        if facts.started {
            self.ledger.mark_routable(&uid);
        }
        // A pod that appears after everything was listed was told nothing by an earlier leader.
        let may_inherit = !self.listed;
        if !self.proxies.contains_key(&uid) {
            let proxy = Proxy::new(facts.clone(), may_inherit);
            self.proxies.insert(uid.clone(), proxy);
        }
        if self.sealed_before.remove(&uid) {
            self.mark_sealed(&uid, now);
        }
        let Some(proxy) = self.proxies.get_mut(&uid) else {
            return;
        };
        let since = facts.container_since.and_then(|since| instant_of(since, now, wall));
        if let Some(since) = since {
            let (skew, reference) = (self.rules.clock_skew, self.ledger.leading_since());
            proxy.telling.process_since(since, reference, skew);
        }
        if facts.routable {
            proxy.unroutable_since = None;
        } else {
            proxy.unroutable_since.get_or_insert(now);
        }
        proxy.facts = facts;
        let terminal = proxy.facts.terminal;
        if terminal || since.is_some_and(|since| self.counted_before(&uid, since)) {
            let changed = self.ledger.drop_server_counts(&uid);
            self.touch_servers(&changed, now);
        }
        self.excuse_unstarted(now);
        self.dirty.insert(uid.clone());
        self.wake.insert(uid);
        self.touch_shut_doors();
        self.settle(now);
    }

    /// A pod is gone from the API.
    pub fn forget(&mut self, uid: &PodUid, now: Instant) {
        self.shut.remove(uid);
        self.sealed_before.remove(uid);
        if let Some(server) = self.servers.remove(uid) {
            if self.directory.remove(&server.want.name, uid).is_some() {
                self.wake_proxies();
            }
            if self.by_name.get(&server.want.name) == Some(uid) {
                self.by_name.remove(&server.want.name);
                self.drains.remove(&server.want.name);
            }
        }
        if let Some(proxy) = self.proxies.get_mut(uid) {
            proxy.gone = true;
        }
        if !self.is_connected(uid) {
            self.drop_pod(uid, now);
        }
        self.touch_shut_doors();
        self.settle(now);
    }

    /// Whether a proxy pod may take new players: `false` closes its door, `true` opens it again unless it is sealed.
    pub fn set_ready(&mut self, uid: &PodUid, ready: bool, now: Instant) {
        let Some(door) = self.proxies.get(uid).map(|proxy| proxy.door.clone()) else {
            return;
        };
        if ready && matches!(door, State::Sealing | State::Sealed) {
            return;
        }
        match (&door, ready) {
            (State::Open, false) => self.put_door(uid, State::Closing),
            (State::Closing | State::Closed(_) | State::Empty { .. }, true) => self.put_door(uid, State::Open),
            _ => {}
        }
        let talk = self.talks.entry(uid.clone()).or_default();
        talk.ready = Some(ready);
        talk.own_door.want(!ready);
        self.wake.insert(uid.clone());
        self.dirty.insert(uid.clone());
        self.settle(now);
    }

    /// Time has passed: counts grow stale, answers overdue, propagation ends.
    pub fn tick(&mut self, now: Instant) {
        if self.excuse_unstarted(now) {
            self.touch_shut_doors();
        }
        let pods = self.ledger.pods().map(|(uid, _)| uid.clone());
        self.dirty.extend(pods);
        self.settle(now);
    }

    /// What came of the calls since the last time this was asked.
    pub fn take_effects(&mut self) -> Effects {
        Effects { wake: std::mem::take(&mut self.wake), changes: std::mem::take(&mut self.changes) }
    }

    fn drop_pod(&mut self, uid: &PodUid, now: Instant) {
        self.proxies.remove(uid);
        self.talks.remove(uid);
        self.seen.remove(uid);
        self.dirty.remove(uid);
        let changed = self.ledger.forget(uid);
        self.touch_servers(&changed, now);
        for of in self.shut.clone() {
            if let Some(State::Closed(round)) = self.door_mut(&of)
                && round.pending.remove(uid)
            {
                self.dirty.insert(of);
            }
        }
    }

    /// A proxy that was never seen running, although this process has led for long enough to have seen it, was told
    /// nothing by an earlier leader either; `true` when that is news.
    fn excuse_unstarted(&mut self, now: Instant) -> bool {
        let since = self.ledger.leading_since();
        if since.is_none_or(|since| now.saturating_duration_since(since) < self.rules.clock_skew) {
            return false;
        }
        let mut news = false;
        for (uid, proxy) in &mut self.proxies {
            let seen = self.ledger.get(uid).is_some_and(Entry::ever_connected);
            if proxy.telling.may_inherit && !proxy.facts.started && !seen {
                proxy.telling.may_inherit = false;
                news = true;
            }
        }
        news
    }

    fn is_connected(&self, uid: &PodUid) -> bool {
        self.ledger.get(uid).is_some_and(Entry::connected)
    }

    /// Whether the pod's last report surely came from a process that was gone at `since`.
    fn counted_before(&self, uid: &PodUid, since: Instant) -> bool {
        let last = self.ledger.get(uid).and_then(Entry::last_count);
        last.and_then(|count| count.at.checked_add(self.rules.clock_skew)).is_some_and(|safe| safe <= since)
    }

    fn wake_proxies(&mut self) {
        self.wake.extend(self.proxies.keys().cloned());
    }

    /// Looks again at every door that is neither open nor sealed.
    fn touch_shut_doors(&mut self) {
        self.dirty.extend(self.shut.iter().cloned());
    }

    fn touch_servers(&mut self, names: &[String], now: Instant) {
        for name in names {
            if let Some(uid) = self.by_name.get(name) {
                self.ledger.note_emptiness(uid, now);
                self.dirty.insert(uid.clone());
            }
        }
    }
}

/// The monotonic moment of a wall-clock time that lies in the past.
fn instant_of(time: Timestamp, now: Instant, wall: Timestamp) -> Option<Instant> {
    let ago = wall.duration_since(time);
    if ago.is_negative() {
        return Some(now);
    }
    now.checked_sub(ago.unsigned_abs())
}

impl Change {
    fn of(namespace: &str, uid: &PodUid, ledger: &Ledger, kind: ChangeKind) -> Option<Self> {
        let entry = ledger.get(uid)?;
        Some(Self {
            uid: uid.clone(),
            namespace: namespace.to_owned(),
            name: entry.name.clone(),
            group: entry.group.clone(),
            role: entry.role,
            kind,
        })
    }
}
