//! A realm, and agents that do as they are told.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::door::{Introduction, Out, ProxyFacts, Realm, Revision, ServerWant, WantDoor};
use crate::ledger::{Capabilities, Entry, Generation, PodUid, Report, Role, Rules, ServerCount};

pub(super) const OURS: Capabilities = Capabilities {
    directory_revisions: true,
    report_now: true,
    server_occupancy: true,
    door: false,
    keep_alive: true,
    release: true,
};
pub(super) const UPSTREAM: Capabilities = Capabilities {
    directory_revisions: false,
    report_now: false,
    server_occupancy: false,
    door: false,
    keep_alive: false,
    release: false,
};

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn uid(name: &str) -> PodUid {
    PodUid::from(name)
}

pub(super) fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(super) fn want(name: &str, door: WantDoor, was_routable: bool) -> ServerWant {
    ServerWant {
        uid: uid(name),
        namespace: "game".into(),
        name: name.into(),
        group: "lobby".into(),
        address: format!("{name}:25565"),
        was_routable,
        door,
    }
}

pub(super) fn proxy(name: &str) -> ProxyFacts {
    ProxyFacts {
        uid: uid(name),
        namespace: "game".into(),
        name: name.into(),
        group: "edge".into(),
        fallback_groups: vec!["lobby".into()],
        terminal: false,
        started: true,
        container_since: None,
        routable: true,
        host_port: false,
    }
}

/// A realm at second `at`, counted from when it began to lead.
pub(super) struct Scene {
    pub(super) realm: Realm,
    t0: Instant,
    pub(super) at: u64,
    generation: u64,
}

impl Scene {
    /// Server `s` is open, proxies `p` and `q` were told so and have confirmed it; nobody is anywhere.
    pub(super) fn new(proxies: Capabilities, server: Capabilities) -> Self {
        let mut scene = Self::bare();
        for name in ["p", "q"] {
            scene.realm.observe_proxy(proxy(name), scene.now(), wall(0));
        }
        scene.realm.listed(scene.now());
        scene.want("s", WantDoor::Closed, false);
        scene.want("s", WantDoor::Open, true);
        scene.join("s", Role::Server, server);
        scene.count("s", 0, 0);
        for name in ["p", "q"] {
            scene.join(name, Role::Proxy, proxies);
            scene.through(name, 0, 0);
            scene.obey(name);
        }
        scene
    }

    pub(super) fn bare() -> Self {
        let t0 = Instant::now();
        let realm = Realm::new("game", Rules::default(), Some(t0), false);
        Self { realm, t0, at: 0, generation: 0 }
    }

    pub(super) fn now(&self) -> Instant {
        self.t0 + secs(self.at)
    }

    pub(super) fn want(&mut self, name: &str, door: WantDoor, was_routable: bool) {
        self.realm.want(want(name, door, was_routable), self.now());
    }

    pub(super) fn want_all(&mut self, names: &[String], door: WantDoor) {
        for name in names {
            self.want(name, door, true);
        }
    }

    pub(super) fn join(&mut self, name: &str, role: Role, can: Capabilities) {
        self.generation += 1;
        let generation = Generation(self.generation);
        let group = if role == Role::Proxy { "edge" } else { "lobby" };
        let who = Introduction { uid: uid(name), name: name.into(), group: group.into(), role };
        self.realm.join(&who, generation, self.now());
        self.realm.hello(&who.uid, generation, role == Role::Server, can, self.now());
    }

    pub(super) fn session(&self, name: &str) -> Generation {
        self.realm.ledger().get(&uid(name)).and_then(Entry::session).expect("connected")
    }

    pub(super) fn cut(&mut self, name: &str) {
        let generation = self.session(name);
        self.realm.leave(&uid(name), generation, self.now());
    }

    pub(super) fn count(&mut self, name: &str, players: i32, nonce: u64) {
        let report = Report { players, slots: 20, nonce, servers: Vec::new() };
        self.realm.report(&uid(name), self.session(name), &report, self.now()).unwrap();
    }

    pub(super) fn through(&mut self, name: &str, connecting: i32, nonce: u64) {
        let servers = vec![ServerCount { server: "s".into(), players: 0, connecting }];
        let report = Report { players: connecting, slots: 500, nonce, servers };
        self.realm.report(&uid(name), self.session(name), &report, self.now()).unwrap();
    }

    pub(super) fn messages(&mut self, name: &str) -> Vec<Out> {
        let generation = self.session(name);
        let now = self.now();
        std::iter::from_fn(|| self.realm.next(&uid(name), generation, now)).collect()
    }

    pub(super) fn confirm(&mut self, name: &str, revision: Revision) {
        self.realm.directory_applied(&uid(name), self.session(name), revision, self.now());
    }

    /// The agent takes all its messages and answers each as an agent of ours on an empty pod.
    pub(super) fn obey(&mut self, name: &str) {
        for out in self.messages(name) {
            match out {
                Out::FullSync { revision, .. } | Out::Register { revision, .. } | Out::Unregister { revision, .. } => {
                    self.confirm(name, revision);
                }
                Out::ReportNow { nonce } => self.count(name, 0, nonce),
                Out::Door { open, revision } => {
                    let generation = self.session(name);
                    self.realm.door_applied(&uid(name), generation, open, revision, self.now());
                }
                Out::Drain { .. } | Out::SetReady(_) | Out::Release => {}
            }
        }
    }

    pub(super) fn all_obey(&mut self, names: &[&str]) {
        for name in names {
            self.obey(name);
        }
    }

    pub(super) fn door(&self, name: &str) -> String {
        match name {
            "s" | "t" => self.realm.server(&uid(name), self.now()).door.to_string(),
            _ => self.realm.proxy(&uid(name), self.now()).door.to_string(),
        }
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.at += seconds;
        self.realm.tick(self.now());
    }
}
