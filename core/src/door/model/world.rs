//! The world of the model.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::door::{DoorView, Introduction, Out, ProxyFacts, Realm, Revision, ServerWant, WantDoor};
use crate::ledger::{Capabilities, Generation, PodUid, Report, Role, Rules, ServerCount};

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
enum Said {
    Count(Report),
    Applied(Revision),
}

/// A session's two directions.
#[derive(Debug, Default)]
struct Link {
    generation: u64,
    down: VecDeque<Out>,
    up: VecDeque<Said>,
}

struct Proxy {
    uid: PodUid,
    directory: BTreeSet<String>,
    connecting: [i32; 2],
    on: [i32; 2],
    frozen: bool,
    link: Option<Link>,
    container_since: Timestamp,
    unseen: VecDeque<ProxyFacts>,
    /// The node's clock against ours, in seconds; within what the rules allow.
    clock: i64,
}

struct Server {
    uid: PodUid,
    link: Option<Link>,
    want: WantDoor,
    removed: bool,
    /// What the counts said when the door began to close.
    empty_at_close: bool,
}

pub(super) struct World {
    guard: Guard,
    realm: Realm,
    now: Instant,
    begun: Instant,
    generation: u64,
    pods: u64,
    proxies: Vec<Proxy>,
    servers: Vec<Server>,
}

const ALL: Capabilities = Capabilities {
    directory_revisions: true,
    report_now: true,
    server_occupancy: true,
    door: false,
    keep_alive: true,
};

pub(super) const PROXIES: usize = 2;

const NAMES: [&str; 2] = ["lobby-a", "lobby-b"];

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

    fn connect(&mut self, p: usize, s: usize) {
        let proxy = &mut self.proxies[p];
        if !proxy.frozen && proxy.directory.contains(NAMES[s]) {
            proxy.connecting[s] += 1;
            self.say_count(p, 0);
        }
    }

    fn arrive(&mut self, p: usize, s: usize) {
        let proxy = &mut self.proxies[p];
        if !proxy.frozen && proxy.connecting[s] > 0 {
            proxy.connecting[s] -= 1;
            proxy.on[s] += 1;
            self.say_count(p, 0);
            self.say_own_count(s, 0);
        }
    }

    fn leave(&mut self, p: usize, s: usize) {
        let proxy = &mut self.proxies[p];
        if !proxy.frozen && proxy.on[s] > 0 {
            proxy.on[s] -= 1;
            self.say_count(p, 0);
            self.say_own_count(s, 0);
        }
    }

    fn say_count(&mut self, p: usize, nonce: u64) {
        let proxy = &mut self.proxies[p];
        let on = |s: usize| ServerCount {
            server: NAMES[s].to_owned(),
            players: proxy.on[s],
            connecting: proxy.connecting[s],
        };
        let players = proxy.on.iter().chain(&proxy.connecting).sum();
        let report = Report { players, slots: 500, nonce, servers: vec![on(0), on(1)] };
        if let Some(link) = &mut proxy.link {
            link.up.push_back(Said::Count(report));
        }
    }

    fn say_own_count(&mut self, s: usize, nonce: u64) {
        let players = self.proxies.iter().map(|proxy| proxy.on[s]).sum();
        let report = Report { players, slots: 100, nonce, servers: Vec::new() };
        if let Some(link) = &mut self.servers[s].link {
            link.up.push_back(Said::Count(report));
        }
    }

    fn pump(&mut self, p: usize) {
        let proxy = &mut self.proxies[p];
        if let Some(link) = &mut proxy.link {
            let next = self.realm.next(&proxy.uid, Generation(link.generation), self.now);
            link.down.extend(next);
        }
    }

    /// One message reaches the proxy, which counts what it decided before and confirms only then.
    fn deliver(&mut self, p: usize) {
        let proxy = &mut self.proxies[p];
        if proxy.frozen {
            return;
        }
        let Some(out) = proxy.link.as_mut().and_then(|link| link.down.pop_front()) else {
            return;
        };
        let revision = match out {
            Out::FullSync { revision, servers } => {
                proxy.directory = servers.into_iter().map(|server| server.name).collect();
                revision
            }
            Out::Register { revision, server } => {
                proxy.directory.insert(server.name);
                revision
            }
            Out::Unregister { revision, name } => {
                proxy.directory.remove(&name);
                revision
            }
            Out::ReportNow { nonce } => return self.say_count(p, nonce),
            Out::Drain { .. } | Out::SetReady(_) | Out::Door { .. } => return,
        };
        self.say_count(p, 0);
        if let Some(link) = &mut self.proxies[p].link {
            link.up.push_back(Said::Applied(revision));
        }
    }

    fn hear(&mut self, p: usize) {
        let proxy = &mut self.proxies[p];
        let Some(link) = &mut proxy.link else { return };
        let generation = Generation(link.generation);
        match link.up.pop_front() {
            Some(Said::Count(report)) => {
                self.realm.report(&proxy.uid, generation, &report, self.now).unwrap();
            }
            Some(Said::Applied(revision)) => {
                self.realm.directory_applied(&proxy.uid, generation, revision, self.now);
            }
            None => {}
        }
    }

    fn serve(&mut self, s: usize) {
        let server = &mut self.servers[s];
        let Some(link) = &mut server.link else { return };
        let generation = Generation(link.generation);
        link.down.extend(self.realm.next(&server.uid, generation, self.now));
        let asked = link.down.pop_front();
        if let Some(Said::Count(report)) = link.up.pop_front() {
            self.realm.report(&server.uid, generation, &report, self.now).unwrap();
        }
        if let Some(Out::ReportNow { nonce }) = asked {
            self.say_own_count(s, nonce);
        }
    }

    pub(super) fn removed(&self) -> u32 {
        self.servers.iter().map(|server| u32::from(server.removed)).sum()
    }

    fn flush_all(&mut self) {
        (0..PROXIES).for_each(|p| self.flush(p));
        for _ in 0..20 {
            self.serve(0);
            self.serve(1);
        }
    }

    fn flush(&mut self, p: usize) {
        for _ in 0..12 {
            self.pump(p);
            self.deliver(p);
            self.hear(p);
            self.hear(p);
        }
    }

    fn cut(&mut self, p: usize) {
        let proxy = &mut self.proxies[p];
        if let Some(link) = proxy.link.take() {
            self.realm.leave(&proxy.uid, Generation(link.generation), self.now);
        }
    }

    fn dial(&mut self, p: usize) {
        if self.proxies[p].frozen {
            return;
        }
        self.generation += 1;
        let generation = self.generation;
        let proxy = &mut self.proxies[p];
        proxy.link = Some(Link { generation, ..Link::default() });
        let who = Introduction {
            uid: proxy.uid.clone(),
            name: proxy.uid.to_string(),
            group: "edge".to_owned(),
            role: Role::Proxy,
        };
        self.realm.join(&who, Generation(generation), self.now);
        self.realm.hello(&who.uid, Generation(generation), false, ALL, self.now);
        self.say_count(p, 0);
    }

    fn cut_server(&mut self, s: usize) {
        let server = &mut self.servers[s];
        if let Some(link) = server.link.take() {
            self.realm.leave(&server.uid, Generation(link.generation), self.now);
        }
    }

    fn dial_server(&mut self, s: usize) {
        if self.servers[s].removed {
            return;
        }
        self.generation += 1;
        let generation = self.generation;
        let server = &mut self.servers[s];
        server.link = Some(Link { generation, ..Link::default() });
        let who = Introduction {
            uid: server.uid.clone(),
            name: NAMES[s].to_owned(),
            group: "lobby".to_owned(),
            role: Role::Server,
        };
        self.realm.join(&who, Generation(generation), self.now);
        self.realm.hello(&who.uid, Generation(generation), true, ALL, self.now);
        self.say_own_count(s, 0);
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
