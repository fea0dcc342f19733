//! The hub: what agents say, what controllers want, and what agents are told, in one place.
//!
//! ```text
//!  controllers ── want, set_ready, claim_seal, drain ──►┌─────┐──► Session::next: one message at a time ──► agents
//!  pod feed ───── observe_proxy, forget ───────────────►│ Hub │◄── Session::report, applied, … ◄─────────── agents
//!  controllers ◄─ changes(): which pod, what ───────────└─────┘
//! ```
//!
//! The decisions are [`spawnery_core::door`]'s; the hub holds one realm a namespace behind one lock, which is held for
//! microseconds and never across an await, wakes sessions and controllers, and asks for the lease before each message.

mod changes;
mod session;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spawnery_core::door::{Introduction, ProxyFacts, ProxyView, Realm, ServerView, ServerWant};
use spawnery_core::ledger::{Generation, PodUid, Rules};
use spawnery_runtime::clock::Clock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::channel::metrics::ChannelMetrics;
use changes::Queue;

pub use changes::Changes;
pub use session::{Next, Session};

/// How often counts, doors and answers are looked at for time that has passed.
const TICK: Duration = Duration::from_millis(250);

/// Times of the hub.
#[derive(Debug, Clone, Copy)]
pub struct HubConfig {
    /// How often agents report, at least.
    pub report_interval: Duration,
    /// When a session is ended.
    pub hard_deadline: Duration,
    /// How long after a write a report of an agent that confirms nothing counts as its confirmation.
    pub upstream_grace: Duration,
    /// How often every proxy is sent the full directory.
    pub resync: Duration,
    /// How long after a proxy left the endpoints the last newcomer may still arrive there.
    pub propagation: Duration,
}

impl Default for HubConfig {
    fn default() -> Self {
        let rules = Rules::default();
        Self {
            report_interval: rules.report_interval,
            hard_deadline: rules.hard_deadline,
            upstream_grace: rules.upstream_grace,
            resync: Duration::from_secs(30),
            propagation: rules.propagation,
        }
    }
}

/// Under which term, and whether still.
struct Lead {
    epoch: u64,
    may_send: Box<dyn Fn() -> bool + Send + Sync>,
}

/// A session that is up.
#[derive(Debug)]
struct Open {
    generation: Generation,
    wake: Arc<Notify>,
    cancel: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    realms: HashMap<String, Realm>,
    /// Namespace of each pod.
    homes: HashMap<PodUid, String>,
    sessions: HashMap<PodUid, Open>,
    last_generation: u64,
    leading_since: Option<Instant>,
    listed: bool,
}

/// See the [module](self).
pub struct Hub {
    config: HubConfig,
    rules: Rules,
    clock: Clock,
    lead: OnceLock<Lead>,
    state: Mutex<State>,
    queue: Arc<Queue>,
    metrics: ChannelMetrics,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}

impl Hub {
    /// A hub that does not lead yet: it may be told what exists, and says nothing to anybody.
    pub fn new(config: HubConfig, metrics: ChannelMetrics) -> Arc<Self> {
        let rules = Rules {
            report_interval: config.report_interval,
            hard_deadline: config.hard_deadline,
            upstream_grace: config.upstream_grace,
            propagation: config.propagation,
            ..Rules::default()
        };
        Arc::new(Self {
            config,
            rules,
            clock: Clock::system(),
            lead: OnceLock::new(),
            state: Mutex::default(),
            queue: Arc::default(),
            metrics,
        })
    }

    /// This process leads from now on, in the term `epoch`; `may_send` is asked before each message to an agent.
    ///
    /// To be called once, before agents are served; a process that loses the lease ends.
    pub fn lead(&self, epoch: u64, may_send: impl Fn() -> bool + Send + Sync + 'static) {
        let lead = Lead { epoch, may_send: Box::new(may_send) };
        if self.lead.set(lead).is_err() {
            return;
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.leading_since = Some(now);
        for realm in state.realms.values_mut() {
            realm.lead(now);
        }
    }

    /// The term in which this process leads; 0 before it does.
    pub fn epoch(&self) -> u64 {
        self.lead.get().map_or(0, |lead| lead.epoch)
    }

    /// Everything that existed when this process began to lead has been fed: each Server that is registered as wanted
    /// open, each other as wanted closed, each proxy pod as observed. Before that no directory is sent and no door
    /// closes.
    pub fn listed(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.listed = true;
        let namespaces: Vec<String> = state.realms.keys().cloned().collect();
        for namespace in namespaces {
            if let Some(realm) = state.realms.get_mut(&namespace) {
                realm.listed(now);
            }
            self.carry_out(&mut state, &namespace);
        }
    }

    /// Lets time pass until `stop`: counts grow stale, lost answers are asked for again, proxies get the full directory
    /// from time to time.
    pub async fn run(&self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut resync = tokio::time::interval(self.config.resync);
        resync.reset();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => self.everywhere(Realm::tick),
                _ = resync.tick() => self.everywhere(|realm, _| realm.resync()),
            }
        }
    }

    /// Wake-ups for controllers, from now on. Each pod and kind is queued at most once until it is taken.
    pub fn changes(&self) -> Changes {
        Changes::of(&self.queue)
    }

    /// What is wanted of a server pod. Declarative: say it at each reconcile.
    pub fn want(&self, want: ServerWant) {
        let (uid, namespace) = (want.uid.clone(), want.namespace.clone());
        self.at_home(&mut self.state.lock(), uid, &namespace, |realm, now| realm.want(want, now));
    }

    /// What the API server says about a proxy pod.
    pub fn observe_proxy(&self, facts: ProxyFacts) {
        let (uid, namespace, wall) = (facts.uid.clone(), facts.namespace.clone(), self.clock.wall());
        self.at_home(&mut self.state.lock(), uid, &namespace, |realm, now| realm.observe_proxy(facts, now, wall));
    }

    /// A pod is gone from the API (not merely terminating).
    pub fn forget(&self, uid: &PodUid) {
        self.of_pod(uid, (), |realm, now| realm.forget(uid, now));
        self.state.lock().homes.remove(uid);
    }

    /// Whether a proxy pod may take new players; `false` closes its door.
    pub fn set_ready(&self, uid: &PodUid, ready: bool) {
        self.of_pod(uid, (), |realm, now| realm.set_ready(uid, ready, now));
    }

    /// Takes the way back away before the seal is written; `false` = do not write it. With `anyway` the door need not be
    /// known to be empty: a deadline or an override.
    pub fn claim_seal(&self, uid: &PodUid, anyway: bool) -> bool {
        self.of_pod(uid, false, |realm, now| realm.claim_seal(uid, anyway, now))
    }

    /// The seal is written, or was found written.
    pub fn mark_sealed(&self, uid: &PodUid) {
        self.of_pod(uid, (), |realm, now| realm.mark_sealed(uid, now));
    }

    /// The seal was surely not written.
    pub fn abandon_seal(&self, uid: &PodUid) {
        self.of_pod(uid, (), |realm, now| realm.abandon_seal(uid, now));
    }

    /// Moves players off a server, at every proxy of the namespace, until stopped.
    pub fn drain(&self, namespace: &str, from_server: &str) {
        self.in_namespace(namespace, |realm, _| realm.drain(from_server));
    }

    /// Stops moving players off a server.
    pub fn stop_drain(&self, namespace: &str, from_server: &str) {
        self.in_namespace(namespace, |realm, _| realm.stop_drain(from_server));
    }

    /// What is known of a server pod. One that was never wanted is unknown, so occupied.
    pub fn server(&self, uid: &PodUid, now: Instant) -> ServerView {
        let state = self.state.lock();
        match state.realm_of(uid) {
            Some(realm) => realm.server(uid, now),
            None => self.new_realm(&state, "").server(uid, now),
        }
    }

    /// What is known of a proxy pod. One that was never observed is unknown, so occupied.
    pub fn proxy(&self, uid: &PodUid, now: Instant) -> ProxyView {
        let state = self.state.lock();
        match state.realm_of(uid) {
            Some(realm) => realm.proxy(uid, now),
            None => self.new_realm(&state, "").proxy(uid, now),
        }
    }

    /// Names in the directory of a namespace, sorted.
    pub fn directory(&self, namespace: &str) -> Vec<String> {
        let state = self.state.lock();
        let realm = state.realms.get(namespace);
        let listings = realm.into_iter().flat_map(|realm| realm.directory().listings());
        listings.map(|listing| listing.name.clone()).collect()
    }

    /// Opens the session of an agent whose token was accepted; the pod's session before, if any, is ended.
    pub fn open(self: &Arc<Self>, namespace: &str, who: Introduction) -> Session {
        let wake = Arc::new(Notify::new());
        let cancel = CancellationToken::new();
        let mut state = self.state.lock();
        state.last_generation = state.last_generation.saturating_add(1);
        let generation = Generation(state.last_generation);
        let open = Open { generation, wake: Arc::clone(&wake), cancel: cancel.clone() };
        if let Some(before) = state.sessions.insert(who.uid.clone(), open) {
            before.cancel.cancel();
        }
        // Under the same lock: two sessions of a pod that open at once must join in the order of their generations.
        self.at_home(&mut state, who.uid.clone(), namespace, |realm, now| realm.join(&who, generation, now));
        drop(state);
        self.metrics.stream_opened(who.role);
        Session::new(Arc::clone(self), namespace.to_owned(), who, generation, wake, cancel)
    }

    fn close(&self, session: &Session) {
        let (uid, generation) = (&session.who.uid, session.generation);
        self.in_namespace(&session.namespace, |realm, now| realm.leave(uid, generation, now));
        self.metrics.stream_closed(session.who.role);
        let mut state = self.state.lock();
        if state.sessions.get(uid).is_some_and(|open| open.generation == generation) {
            state.sessions.remove(uid);
            let known = state.realms.get(&session.namespace);
            if known.is_none_or(|realm| realm.ledger().get(uid).is_none()) {
                state.homes.remove(uid);
            }
        }
    }

    /// Whether this process leads and holds the lease at this moment.
    fn may_send(&self) -> bool {
        self.lead.get().is_some_and(|lead| (lead.may_send)())
    }

    fn new_realm(&self, state: &State, namespace: &str) -> Realm {
        Realm::new(namespace, self.rules, state.leading_since, state.listed)
    }

    fn at_home(&self, state: &mut State, uid: PodUid, namespace: &str, call: impl FnOnce(&mut Realm, Instant)) {
        state.homes.insert(uid, namespace.to_owned());
        self.within(state, namespace, call);
    }

    fn of_pod<T>(&self, uid: &PodUid, otherwise: T, call: impl FnOnce(&mut Realm, Instant) -> T) -> T {
        let home = self.state.lock().homes.get(uid).cloned();
        match home {
            Some(namespace) => self.in_namespace(&namespace, call),
            None => otherwise,
        }
    }

    fn in_namespace<T>(&self, namespace: &str, call: impl FnOnce(&mut Realm, Instant) -> T) -> T {
        self.within(&mut self.state.lock(), namespace, call)
    }

    fn within<T>(&self, state: &mut State, namespace: &str, call: impl FnOnce(&mut Realm, Instant) -> T) -> T {
        let now = self.clock.now();
        if !state.realms.contains_key(namespace) {
            let realm = self.new_realm(state, namespace);
            state.realms.insert(namespace.to_owned(), realm);
        }
        let realm = state.realms.get_mut(namespace).expect("inserted above if it was missing");
        let answer = call(realm, now);
        self.carry_out(state, namespace);
        answer
    }

    fn everywhere(&self, call: impl Fn(&mut Realm, Instant)) {
        let namespaces: Vec<String> = self.state.lock().realms.keys().cloned().collect();
        for namespace in namespaces {
            self.in_namespace(&namespace, &call);
        }
    }

    /// Wakes sessions and controllers.
    fn carry_out(&self, state: &mut State, namespace: &str) {
        let Some(realm) = state.realms.get_mut(namespace) else {
            return;
        };
        let effects = realm.take_effects();
        for uid in &effects.wake {
            if let Some(open) = state.sessions.get(uid) {
                open.wake.notify_one();
            }
        }
        self.queue.push(effects.changes);
    }
}

impl State {
    fn realm_of(&self, uid: &PodUid) -> Option<&Realm> {
        self.realms.get(self.homes.get(uid)?)
    }
}
