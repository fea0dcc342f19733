//! Which pods hold a door, whom to ask, and what follows.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Change, Proxy, Realm, Seen, Server};
use crate::door::facts::{ChangeKind, DoorView};
use crate::door::machine::{Round, Situation, State, Step, step};
use crate::ledger::{Entry, PodUid};

impl Proxy {
    /// Whether a process of this pod may exist.
    fn lives(&self) -> bool {
        !self.facts.terminal
    }

    /// Whether this proxy may still route to a server that was taken out of the directory.
    fn holds(&self, server: &Server) -> bool {
        self.lives() && self.telling.holds(&server.place)
    }

    /// Whether this proxy may have, or have had, the server in its directory.
    pub(super) fn knew(&self, server: &Server) -> bool {
        self.lives() && self.telling.knew(&server.place)
    }
}

impl Seen {
    /// What controllers take for granted of a pod they were told nothing about.
    fn nothing(door: DoorView) -> Self {
        Self { connected: false, ready: false, count: (None, 0), occupied: false, door }
    }
}

impl Realm {
    /// Brings every pod that was touched to where it belongs, and notes what changed for controllers.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(uid) = self.dirty.pop_first() {
            self.step(&uid, now);
            self.note_changes(&uid, now);
        }
    }

    /// Names of the pods that may still let newcomers in.
    pub(super) fn holders(&self, uid: &PodUid, now: Instant) -> Vec<String> {
        let mut holders = Vec::new();
        if let Some(server) = self.servers.get(uid) {
            let proxies = self.proxies.values().filter(|proxy| proxy.holds(server));
            holders.extend(proxies.map(|proxy| proxy.facts.name.clone()));
            if !self.listed {
                holders.push("the list of proxies".to_owned());
            }
        }
        if let Some(proxy) = self.proxies.get(uid)
            && self.reached_by_kubernetes(proxy, now)
        {
            holders.push("the service's endpoints".to_owned());
        }
        if self.own_door_missing(uid) {
            let name = self.ledger.get(uid).map(|entry| entry.name.clone());
            holders.extend(name);
        }
        holders
    }

    fn held(&self, uid: &PodUid, now: Instant) -> bool {
        let by_proxies = self
            .servers
            .get(uid)
            .is_some_and(|server| !self.listed || self.proxies.values().any(|proxy| proxy.holds(server)));
        let by_kubernetes = self.proxies.get(uid).is_some_and(|proxy| self.reached_by_kubernetes(proxy, now));
        by_proxies || by_kubernetes || self.own_door_missing(uid)
    }

    /// Whether a newcomer may still arrive by way of the proxy's Service.
    fn reached_by_kubernetes(&self, proxy: &Proxy, now: Instant) -> bool {
        let settled = |since: Instant| now.saturating_duration_since(since) >= self.rules.propagation;
        proxy.lives() && !proxy.unroutable_since.is_some_and(settled)
    }

    /// Since when nobody new can get to the proxy by any way that we know of; `None` while somebody may. Its Service
    /// leads nowhere once the kubelet has called it unready for long enough, whoever hears us or not; past the Service,
    /// by a port of its node, only its agent keeps people out, as long as we hear it. An agent that cannot is told of
    /// otherwise (`enforced`). One that stays silent for as long as any agent may take to come back is not waited for: its
    /// pod may be broken, and from then on the kubelet's word is all that there will be.
    pub(super) fn shut_since(&self, uid: &PodUid, now: Instant) -> Option<Instant> {
        let proxy = self.proxies.get(uid)?;
        let off_the_service = proxy.unroutable_since?.checked_add(self.rules.propagation)?;
        if !proxy.facts.host_port {
            return Some(off_the_service);
        }
        let Some(entry) = self.ledger.get(uid).filter(|entry| entry.introduced()) else {
            let silent_since = now.checked_sub(self.ledger.stream_down_for(uid, now))?;
            let given_up = silent_since.checked_add(self.rules.takeover_grace())?;
            return (given_up <= now).then(|| given_up.max(off_the_service));
        };
        if !entry.capabilities().door {
            return Some(off_the_service);
        }
        let refusing = self.talks.get(uid)?.own_door.refusing_since?;
        Some(refusing.max(off_the_service))
    }

    /// Whether the pod's agent can refuse newcomers and has not confirmed that it does.
    fn own_door_missing(&self, uid: &PodUid) -> bool {
        let can = self.ledger.get(uid).is_some_and(|entry| entry.capabilities().door);
        let confirmed = self.talks.get(uid).is_some_and(|talk| talk.own_door.confirmed_closed());
        can && !confirmed && self.ever_routable(uid)
    }

    pub(super) fn ever_routable(&self, uid: &PodUid) -> bool {
        self.ledger.get(uid).is_some_and(Entry::was_routable)
    }

    /// Pods whose count must say that nobody is inside.
    fn concerned(&self, uid: &PodUid) -> BTreeSet<PodUid> {
        let over = self.proxies.get(uid).is_some_and(|proxy| !proxy.lives());
        let own = (self.ever_routable(uid) && !over).then(|| uid.clone());
        let counts = |proxy: &Proxy| {
            let entry = self.ledger.get(&proxy.facts.uid);
            entry.is_some_and(|entry| entry.capabilities().server_occupancy)
        };
        let server = self.servers.get(uid);
        let proxies = self
            .proxies
            .values()
            .filter(|proxy| server.is_some_and(|server| proxy.knew(server)) && counts(proxy))
            .map(|proxy| proxy.facts.uid.clone());
        own.into_iter().chain(proxies).collect()
    }

    fn situation(&self, uid: &PodUid, door: &State, now: Instant) -> Situation {
        let overdue = match door {
            State::Closed(round) => now.saturating_duration_since(round.asked_at) >= self.rules.stale_after(),
            _ => false,
        };
        Situation { held: self.held(uid, now), people: self.ledger.last_players(uid) > 0, overdue }
    }

    fn step(&mut self, uid: &PodUid, now: Instant) {
        loop {
            let Some(door) = self.door(uid) else {
                return;
            };
            if matches!(door, State::Open | State::Sealing | State::Sealed) {
                return;
            }
            let next = match step(door, self.situation(uid, door, now)) {
                Step::Stay => return,
                Step::WaitForConfirmations => State::Closing,
                Step::Empty { confirmed_at } => State::Empty { confirmed_at },
                Step::Ask { confirmed_at } => State::Closed(self.ask(uid, confirmed_at.unwrap_or(now), now)),
            };
            self.put_door(uid, next);
        }
    }

    fn ask(&mut self, uid: &PodUid, confirmed_at: Instant, now: Instant) -> Round {
        let pending = self.concerned(uid);
        self.nonce = self.nonce.saturating_add(1);
        for of in &pending {
            self.talks.entry(of.clone()).or_default().ask = self.nonce;
            self.wake.insert(of.clone());
        }
        Round { nonce: self.nonce, confirmed_at, asked_at: now, pending, spoiled: false }
    }

    fn note_changes(&mut self, uid: &PodUid, now: Instant) {
        let Some(entry) = self.ledger.get(uid) else {
            return;
        };
        let slots = entry.last_count().map_or(0, |count| count.slots);
        let seen = Seen {
            connected: entry.introduced(),
            ready: entry.ready(),
            count: (self.ledger.players(uid, now), slots),
            occupied: self.ledger.occupied(uid, now),
            door: self.door_view(uid, now),
        };
        let before = self.seen.insert(uid.clone(), seen.clone());
        let before = before.unwrap_or_else(|| Seen::nothing(seen.door.clone()));
        let kinds = [
            (ChangeKind::Connected, before.connected != seen.connected),
            (ChangeKind::Ready, before.ready != seen.ready),
            (ChangeKind::Count, before.count != seen.count),
            (ChangeKind::Occupied, before.occupied != seen.occupied),
            (ChangeKind::Door, before.door != seen.door),
        ];
        for (kind, _) in kinds.into_iter().filter(|(_, changed)| *changed) {
            let change = Change::of(&self.namespace, uid, &self.ledger, kind);
            self.changes.extend(change);
        }
    }
}
