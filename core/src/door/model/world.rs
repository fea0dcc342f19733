//! The world of the model.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::door::{DoorView, Out, ProxyFacts, Realm, Revision, ServerWant, WantDoor};
use crate::ledger::{Capabilities, PodUid, Report, Rules};

/// What is left out of the careful way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Nothing.
    AllUp,
    /// Seals as soon as the counts say nobody, without waiting for the proxies' confirmations.
    NoConfirmations,
    /// Waits for the confirmations, then believes the counts it had when it began to close.
    OldReports,
    /// Opens a sealed door again.
    ReopenSealed,
    /// A new leader takes proxies it has not heard for empty-handed.
    ForgetEarlierLeader,
}

/// One thing that happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// A player begins to connect through a proxy to a server in that proxy's directory.
    Connect(usize, usize),
    /// A connecting player gets in.
    Arrive(usize, usize),
    /// A player leaves.
    Leave(usize, usize),
    /// Messages of the realm are put on the link.
    Pump(usize, usize),
    /// Messages on the link reach the proxy.
    Deliver(usize, usize),
    /// Messages of the proxy reach the realm.
    Hear(usize, usize),
    /// Messages of and to a server's agent get through.
    Serve(usize, usize),
    /// Everything that anybody has to say gets through.
    Flush,
    /// A link breaks; what is on it is lost.
    Cut(usize),
    Dial(usize),
    Freeze(usize),
    Thaw(usize),
    /// The container is replaced; everybody on it is disconnected.
    Restart(usize),
    /// The realm sees the oldest state of the pod that it has not seen yet.
    Observe(usize),
    /// The pod is deleted and another takes its place.
    Replace(usize),
    CutServer(usize),
    DialServer(usize),
    Close(usize),
    Open(usize),
    /// A controller seals and removes the server if it may.
    Remove(usize),
    /// Milliseconds pass; agents report now and then.
    Pass(u64),
    /// Another leader takes over.
    TakeOver,
}

#[derive(Debug, Clone)]
pub(super) enum Said {
    Count(Report),
    Applied(Revision),
}

/// A session's two directions.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) generation: u64,
    pub(super) down: VecDeque<Out>,
    pub(super) up: VecDeque<Said>,
}

pub(super) struct Proxy {
    pub(super) uid: PodUid,
    pub(super) directory: BTreeSet<String>,
    pub(super) connecting: [i32; 2],
    pub(super) on: [i32; 2],
    pub(super) frozen: bool,
    pub(super) link: Option<Link>,
    pub(super) container_since: Timestamp,
    pub(super) unseen: VecDeque<ProxyFacts>,
    /// The node's clock against ours, in seconds; within what the rules allow.
    pub(super) clock: i64,
}

pub(super) struct Server {
    pub(super) uid: PodUid,
    pub(super) link: Option<Link>,
    pub(super) want: WantDoor,
    pub(super) removed: bool,
    /// What the counts said when the door began to close.
    pub(super) empty_at_close: bool,
}

pub(super) struct World {
    pub(super) guard: Guard,
    pub(super) realm: Realm,
    pub(super) now: Instant,
    pub(super) begun: Instant,
    pub(super) generation: u64,
    pub(super) pods: u64,
    pub(super) proxies: Vec<Proxy>,
    pub(super) servers: Vec<Server>,
}

pub(super) const ALL: Capabilities = Capabilities {
    directory_revisions: true,
    report_now: true,
    server_occupancy: true,
    door: false,
    keep_alive: true,
    release: true,
};

pub(super) const PROXIES: usize = 2;

pub(super) const NAMES: [&str; 2] = ["lobby-a", "lobby-b"];

impl World {
    pub(super) fn new(guard: Guard) -> Self {
        let now = Instant::now();
        let mut world = Self {
            guard,
            realm: Realm::new("game", Rules::default(), Some(now), false),
            now,
            begun: now,
            generation: 0,
            pods: 0,
            proxies: Vec::new(),
            servers: Vec::new(),
        };
        for name in NAMES {
            let uid = PodUid::from(name);
            world.servers.push(Server { uid, link: None, want: WantDoor::Open, removed: false, empty_at_close: false });
        }
        for index in 0..PROXIES {
            let proxy = world.new_proxy(index);
            world.proxies.push(proxy);
        }
        world.feed();
        for server in 0..2 {
            world.dial_server(server);
        }
        for proxy in 0..PROXIES {
            world.dial(proxy);
            world.flush(proxy);
        }
        world
    }

    pub(super) fn run(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Connect(p, s) => self.connect(p, s),
            Op::Arrive(p, s) => self.arrive(p, s),
            Op::Leave(p, s) => self.leave(p, s),
            Op::Pump(p, n) => (0..n).for_each(|_| self.pump(p)),
            Op::Deliver(p, n) => (0..n).for_each(|_| self.deliver(p)),
            Op::Hear(p, n) => (0..n).for_each(|_| self.hear(p)),
            Op::Serve(s, n) => (0..n).for_each(|_| self.serve(s)),
            Op::Flush => self.flush_all(),
            Op::Cut(p) => self.cut(p),
            Op::Dial(p) => self.dial(p),
            Op::Freeze(p) => self.proxies[p].frozen = true,
            Op::Thaw(p) => self.proxies[p].frozen = false,
            Op::Restart(p) => self.restart(p),
            Op::Observe(p) => self.observe(p),
            Op::Replace(p) => self.replace(p),
            Op::CutServer(s) => self.cut_server(s),
            Op::DialServer(s) => self.dial_server(s),
            Op::Close(s) => self.want(s, WantDoor::Closed),
            Op::Open(s) => self.reopen(s),
            Op::Remove(s) => self.remove(s)?,
            Op::Pass(millis) => self.pass(millis),
            Op::TakeOver => self.take_over(),
        }
        self.check()
    }

    /// Nobody is on, or on the way to, a removed server, and no process could send somebody there.
    fn check(&self) -> Result<(), String> {
        for (index, server) in self.servers.iter().enumerate().filter(|(_, server)| server.removed) {
            let people: i32 = self.proxies.iter().map(|p| p.on[index] + p.connecting[index]).sum();
            if people > 0 {
                return Err(format!("{people} players on removed {}", server.uid));
            }
            if let Some(proxy) = self.proxies.iter().find(|p| p.directory.contains(NAMES[index])) {
                return Err(format!("{} can still route to removed {}", proxy.uid, server.uid));
            }
        }
        Ok(())
    }

    /// Everybody leaves and can be heard: every closed door must get empty.
    pub(super) fn come_to_rest(&mut self) -> Result<(), String> {
        for server in 0..2 {
            self.want(server, WantDoor::Closed);
            self.dial_server(server);
        }
        for proxy in 0..PROXIES {
            self.proxies[proxy].frozen = false;
            self.proxies[proxy].on = [0; 2];
            self.proxies[proxy].connecting = [0; 2];
            self.dial(proxy);
        }
        for _ in 0..4 {
            self.pass(12_000);
            self.flush_all();
        }
        for server in self.servers.iter().filter(|server| !server.removed) {
            let door = self.realm.server(&server.uid, self.now).door;
            if door != DoorView::Empty {
                return Err(format!("{} is {door} with nobody there: {door:?}", server.uid));
            }
        }
        self.check()
    }

    fn restart(&mut self, p: usize) {
        self.cut(p);
        let clock = self.proxies[p].clock;
        let since = self.wall(clock);
        let proxy = &mut self.proxies[p];
        proxy.directory.clear();
        proxy.on = [0; 2];
        proxy.connecting = [0; 2];
        proxy.frozen = false;
        proxy.container_since = since;
        let facts = facts(proxy);
        proxy.unseen.push_back(facts);
        self.say_own_count(0, 0);
        self.say_own_count(1, 0);
    }

    fn observe(&mut self, p: usize) {
        let wall = self.wall(0);
        if let Some(facts) = self.proxies[p].unseen.pop_front() {
            self.realm.observe_proxy(facts, self.now, wall);
        }
    }

    fn replace(&mut self, p: usize) {
        self.restart(p);
        let gone = self.proxies[p].uid.clone();
        self.realm.forget(&gone, self.now);
        self.proxies[p] = self.new_proxy(p);
        let wall = self.wall(0);
        let facts = ProxyFacts { started: false, container_since: None, ..facts(&self.proxies[p]) };
        self.realm.observe_proxy(facts, self.now, wall);
    }

    fn new_proxy(&mut self, index: usize) -> Proxy {
        self.pods += 1;
        let clock = [-20, 20].get(index).copied().unwrap_or(0);
        Proxy {
            uid: PodUid::from(format!("edge-{}", self.pods)),
            directory: BTreeSet::new(),
            connecting: [0; 2],
            on: [0; 2],
            frozen: false,
            link: None,
            container_since: self.wall(clock),
            unseen: VecDeque::new(),
            clock,
        }
    }

    fn want(&mut self, s: usize, door: WantDoor) {
        let server = &mut self.servers[s];
        if server.removed {
            return;
        }
        if server.want == WantDoor::Open {
            server.empty_at_close = self.realm.ledger().players(&server.uid, self.now) == Some(0);
        }
        server.want = door;
        let want = want(s, server);
        self.realm.want(want, self.now);
    }

    fn reopen(&mut self, s: usize) {
        if self.guard == Guard::ReopenSealed && self.servers[s].removed {
            let uid = self.servers[s].uid.clone();
            self.realm.forget(&uid, self.now);
            self.realm.want(want(s, &self.servers[s]), self.now);
            let open = ServerWant { door: WantDoor::Open, ..want(s, &self.servers[s]) };
            self.realm.want(open, self.now);
        } else {
            self.want(s, WantDoor::Open);
        }
    }

    fn remove(&mut self, s: usize) -> Result<(), String> {
        let server = &self.servers[s];
        if server.removed || server.want == WantDoor::Open {
            return Ok(());
        }
        let view = self.realm.server(&server.uid, self.now);
        let anyway = match self.guard {
            Guard::AllUp | Guard::ReopenSealed | Guard::ForgetEarlierLeader => false,
            Guard::NoConfirmations => !view.occupied,
            Guard::OldReports => matches!(view.door, DoorView::Closed { .. }) && server.empty_at_close,
        };
        let uid = server.uid.clone();
        if self.realm.claim_seal(&uid, anyway, self.now) {
            self.realm.mark_sealed(&uid, self.now);
            self.servers[s].removed = true;
        }
        self.check()
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.realm.tick(self.now);
        if millis >= 1_000 {
            for p in 0..PROXIES {
                if !self.proxies[p].frozen {
                    self.say_count(p, 0);
                }
            }
            self.say_own_count(0, 0);
            self.say_own_count(1, 0);
        }
    }

    fn take_over(&mut self) {
        self.realm = Realm::new("game", Rules::default(), Some(self.now), self.guard == Guard::ForgetEarlierLeader);
        for proxy in &mut self.proxies {
            proxy.link = None;
        }
        for server in &mut self.servers {
            server.link = None;
        }
        self.feed();
    }

    /// Tells the realm everything that exists, as a new leader is told.
    fn feed(&mut self) {
        let wall = self.wall(0);
        for (index, server) in self.servers.iter().enumerate() {
            self.realm.want(want(index, server), self.now);
            if server.removed {
                self.realm.mark_sealed(&server.uid, self.now);
            }
        }
        for proxy in &mut self.proxies {
            proxy.unseen.clear();
            self.realm.observe_proxy(facts(proxy), self.now, wall);
        }
        self.realm.listed(self.now);
    }

    fn wall(&self, clock: i64) -> Timestamp {
        let passed = self.now.saturating_duration_since(self.begun).as_millis();
        Timestamp::from_millisecond(1_800_000_000_000 + i64::try_from(passed).unwrap() + clock * 1_000).unwrap()
    }
}

fn want(index: usize, server: &Server) -> ServerWant {
    ServerWant {
        uid: server.uid.clone(),
        namespace: "game".to_owned(),
        name: NAMES[index].to_owned(),
        group: "lobby".to_owned(),
        address: "10.0.0.1:25565".to_owned(),
        was_routable: true,
        door: if server.removed { WantDoor::Closed } else { server.want },
    }
}

fn facts(proxy: &Proxy) -> ProxyFacts {
    ProxyFacts {
        uid: proxy.uid.clone(),
        namespace: "game".to_owned(),
        name: proxy.uid.to_string(),
        group: "edge".to_owned(),
        fallback_groups: vec!["lobby".to_owned()],
        terminal: false,
        started: true,
        container_since: Some(proxy.container_since),
        routable: true,
        host_port: false,
    }
}
