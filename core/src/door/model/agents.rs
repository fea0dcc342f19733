//! Players, processes and links of the model.

use super::world::{ALL, Link, NAMES, PROXIES, Said, World};
use crate::door::{Introduction, Out};
use crate::ledger::{Generation, Report, Role, ServerCount};

impl World {
    pub(super) fn connect(&mut self, p: usize, s: usize) {
        let proxy = &mut self.proxies[p];
        if !proxy.frozen && proxy.directory.contains(NAMES[s]) {
            proxy.connecting[s] += 1;
            self.say_count(p, 0);
        }
    }

    pub(super) fn arrive(&mut self, p: usize, s: usize) {
        let proxy = &mut self.proxies[p];
        if !proxy.frozen && proxy.connecting[s] > 0 {
            proxy.connecting[s] -= 1;
            proxy.on[s] += 1;
            self.say_count(p, 0);
            self.say_own_count(s, 0);
        }
    }

    pub(super) fn leave(&mut self, p: usize, s: usize) {
        let proxy = &mut self.proxies[p];
        if !proxy.frozen && proxy.on[s] > 0 {
            proxy.on[s] -= 1;
            self.say_count(p, 0);
            self.say_own_count(s, 0);
        }
    }

    pub(super) fn say_count(&mut self, p: usize, nonce: u64) {
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

    pub(super) fn say_own_count(&mut self, s: usize, nonce: u64) {
        let players = self.proxies.iter().map(|proxy| proxy.on[s]).sum();
        let report = Report { players, slots: 100, nonce, servers: Vec::new() };
        if let Some(link) = &mut self.servers[s].link {
            link.up.push_back(Said::Count(report));
        }
    }

    pub(super) fn pump(&mut self, p: usize) {
        let proxy = &mut self.proxies[p];
        if let Some(link) = &mut proxy.link {
            let next = self.realm.next(&proxy.uid, Generation(link.generation), self.now);
            link.down.extend(next);
        }
    }

    /// One message reaches the proxy, which counts what it decided before and confirms only then.
    pub(super) fn deliver(&mut self, p: usize) {
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
            Out::Drain { .. } | Out::SetReady(_) | Out::Door { .. } | Out::Release => return,
        };
        self.say_count(p, 0);
        if let Some(link) = &mut self.proxies[p].link {
            link.up.push_back(Said::Applied(revision));
        }
    }

    pub(super) fn hear(&mut self, p: usize) {
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

    pub(super) fn serve(&mut self, s: usize) {
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

    pub(super) fn flush_all(&mut self) {
        (0..PROXIES).for_each(|p| self.flush(p));
        for _ in 0..20 {
            self.serve(0);
            self.serve(1);
        }
    }

    pub(super) fn flush(&mut self, p: usize) {
        for _ in 0..12 {
            self.pump(p);
            self.deliver(p);
            self.hear(p);
            self.hear(p);
        }
    }

    pub(super) fn cut(&mut self, p: usize) {
        let proxy = &mut self.proxies[p];
        if let Some(link) = proxy.link.take() {
            self.realm.leave(&proxy.uid, Generation(link.generation), self.now);
        }
    }

    pub(super) fn dial(&mut self, p: usize) {
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

    pub(super) fn cut_server(&mut self, s: usize) {
        let server = &mut self.servers[s];
        if let Some(link) = server.link.take() {
            self.realm.leave(&server.uid, Generation(link.generation), self.now);
        }
    }

    pub(super) fn dial_server(&mut self, s: usize) {
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
}
