//! What agents say.

use std::time::Instant;

use super::{Proxy, Realm};
use crate::door::directory::Revision;
use crate::door::facts::ProxyFacts;
use crate::door::machine::{Round, State};
use crate::door::outbox::Outbox;
use crate::ledger::{Capabilities, Entry, Generation, PodUid, Rejected, Report, Role};

/// Who opens a session, as its token proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduction {
    /// UID of the pod.
    pub uid: PodUid,
    /// Name of the pod.
    pub name: String,
    /// Group of the pod.
    pub group: String,
    /// What the pod does.
    pub role: Role,
}

impl Realm {
    /// A session opens and replaces the pod's one before.
    pub fn join(&mut self, who: &Introduction, generation: Generation, now: Instant) {
        let uid = &who.uid;
        self.ledger.declare(uid, who.role, &who.name, &who.group);
        let renewed = self.is_connected(uid);
        self.ledger.connect(uid, generation, now);
        if who.role == Role::Proxy {
            let may_inherit = !self.listed;
            let proxy = self
                .proxies
                .entry(uid.clone())
                .or_insert_with(|| Proxy::new(unobserved(who, &self.namespace), may_inherit));
            proxy.telling.new_session();
            self.ledger.mark_routable(uid);
        }
        let talk = self.talks.entry(uid.clone()).or_default();
        talk.outbox = Some(Outbox::new(generation));
        talk.own_door.new_session(renewed);
        self.wake.insert(uid.clone());
        self.dirty.insert(uid.clone());
        self.settle(now);
    }

    /// The agent introduces itself.
    pub fn hello(
        &mut self,
        uid: &PodUid,
        generation: Generation,
        ready: bool,
        capabilities: Capabilities,
        now: Instant,
    ) {
        if self.ledger.hello(uid, generation, ready, capabilities, now) {
            self.wake.insert(uid.clone());
            self.dirty.insert(uid.clone());
            self.settle(now);
        }
    }

    /// The game has finished loading.
    pub fn ready(&mut self, uid: &PodUid, generation: Generation, now: Instant) {
        if self.ledger.ready(uid, generation, now) {
            self.dirty.insert(uid.clone());
            self.settle(now);
        }
    }

    /// The agent said something without a meaning for us.
    pub fn heard(&mut self, uid: &PodUid, generation: Generation, now: Instant) {
        self.ledger.heard(uid, generation, now);
    }

    /// The agent counted.
    ///
    /// # Errors
    ///
    /// [`Rejected`]: nothing of the report was taken; the session goes on.
    pub fn report(
        &mut self,
        uid: &PodUid,
        generation: Generation,
        report: &Report,
        now: Instant,
    ) -> Result<(), Rejected> {
        let changed = self.ledger.report(uid, generation, report, now)?;
        self.touch_servers(&changed, now);
        self.confirm_by_report(uid, now);
        self.take_answer(uid, report.nonce, now);
        self.dirty.insert(uid.clone());
        self.settle(now);
        Ok(())
    }

    /// The proxy routes by the directory of this revision from now on. Confirmations of another session, or of a
    /// revision that this session was not sent, say nothing.
    pub fn directory_applied(&mut self, uid: &PodUid, generation: Generation, revision: Revision, now: Instant) {
        if !self.ledger.heard(uid, generation, now) {
            return;
        }
        let sent = self.talks.get(uid).and_then(|talk| talk.outbox.as_ref()).and_then(|outbox| outbox.directory);
        if sent.is_some_and(|sent| revision <= sent)
            && let Some(proxy) = self.proxies.get_mut(uid)
            && proxy.telling.applied(revision)
        {
            self.touch_closing_doors(revision);
            self.settle(now);
        }
    }

    /// The pod itself refuses newcomers, or takes them again.
    pub fn door_applied(&mut self, uid: &PodUid, generation: Generation, open: bool, revision: u64, now: Instant) {
        if !self.ledger.heard(uid, generation, now) {
            return;
        }
        if let Some(talk) = self.talks.get_mut(uid) {
            let door = &mut talk.own_door;
            if door.revision == revision && door.closed != open {
                door.confirm(now);
                self.dirty.insert(uid.clone());
                self.settle(now);
            }
        }
    }

    /// A session ends.
    pub fn leave(&mut self, uid: &PodUid, generation: Generation, now: Instant) {
        if !self.ledger.disconnect(uid, generation, now) {
            return;
        }
        if let Some(talk) = self.talks.get_mut(uid) {
            talk.outbox = None;
        }
        let known = self.servers.contains_key(uid) || self.proxies.get(uid).is_some_and(|proxy| !proxy.gone);
        if known {
            self.dirty.insert(uid.clone());
        } else {
            self.drop_pod(uid, now);
            self.touch_shut_doors();
        }
        self.settle(now);
    }

    /// An agent that cannot confirm has confirmed what was written long enough before its report.
    fn confirm_by_report(&mut self, uid: &PodUid, now: Instant) {
        let speaks = self.ledger.get(uid).filter(|entry| entry.greeted()).map(Entry::capabilities);
        if speaks.is_some_and(|can| !can.directory_revisions)
            && let Some(proxy) = self.proxies.get_mut(uid)
            && proxy.telling.reported(now, self.rules.upstream_grace)
        {
            self.touch_shut_doors();
        }
    }

    /// Counts the report as an answer to the rounds that wait for one from this pod.
    fn take_answer(&mut self, uid: &PodUid, nonce: u64, now: Instant) {
        let Some(entry) = self.ledger.get(uid).filter(|entry| entry.greeted()) else {
            return;
        };
        let counts_on_request = entry.capabilities().report_now;
        let Some(talk) = self.talks.get_mut(uid) else {
            return;
        };
        let was_asked = talk.outbox.as_ref().is_some_and(|outbox| nonce <= outbox.nonce);
        let answered = if was_asked { nonce } else { 0 };
        talk.answered = talk.answered.max(answered);
        let own_people = entry.last_count().map_or(0, |count| count.players);
        let interval = self.rules.report_interval;
        let answers = |round: &Round| {
            if counts_on_request {
                answered >= round.nonce
            } else {
                now.saturating_duration_since(round.confirmed_at) >= interval
            }
        };
        let mut touched = Vec::new();
        for of in &self.shut {
            let (door, people) = if let Some(server) = self.servers.get_mut(of) {
                let seen = || entry.on_server(&server.want.name);
                let people = if of == uid { own_people } else { seen() };
                (&mut server.door, people)
            } else if of == uid
                && let Some(proxy) = self.proxies.get_mut(of)
            {
                (&mut proxy.door, own_people)
            } else {
                continue;
            };
            if take(door, uid, people, &answers) {
                touched.push(of.clone());
            }
        }
        self.dirty.extend(touched);
    }

    /// Looks again at the doors that a confirmation of `revision` may release.
    fn touch_closing_doors(&mut self, revision: Revision) {
        let may_be_released = |uid: &&PodUid| {
            let server = self.servers.get(*uid);
            server.is_some_and(|server| server.door == State::Closing && server.place.removed_at <= revision)
        };
        let released: Vec<PodUid> = self.shut.iter().filter(may_be_released).cloned().collect();
        self.dirty.extend(released);
    }
}

/// Takes one pod's count for one door's round; `true` when the round changed.
fn take(door: &mut State, from: &PodUid, people: u32, answers: &impl Fn(&Round) -> bool) -> bool {
    let State::Closed(round) = door else {
        return false;
    };
    if people > 0 {
        let news = !round.spoiled;
        round.spoiled = true;
        return news;
    }
    round.pending.contains(from) && answers(round) && round.pending.remove(from)
}

/// What is taken for granted of a proxy whose agent came before the watch event of its pod.
fn unobserved(who: &Introduction, namespace: &str) -> ProxyFacts {
    ProxyFacts {
        uid: who.uid.clone(),
        namespace: namespace.to_owned(),
        name: who.name.clone(),
        group: who.group.clone(),
        fallback_groups: Vec::new(),
        terminal: false,
        started: true,
        container_since: None,
        routable: true,
        host_port: false,
    }
}
