//! The ledger: every pod's entry, and what proxies see of each server in sum.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::entry::unseen_for;
use super::{Capabilities, Entry, Generation, PodUid, Rejected, Report, Role, Rules};

/// Entries of all pods of one namespace.
#[derive(Debug, Clone)]
pub struct Ledger {
    rules: Rules,
    leading_since: Option<Instant>,
    pods: HashMap<PodUid, Entry>,
    /// Players by server name, over all proxies.
    sums: HashMap<String, u64>,
}

impl Ledger {
    /// An empty ledger. `leading_since`: when this process began to lead; `None` while it does not.
    pub fn new(rules: Rules, leading_since: Option<Instant>) -> Self {
        Self { rules, leading_since, pods: HashMap::new(), sums: HashMap::new() }
    }

    /// This process leads from now on.
    pub fn lead(&mut self, now: Instant) {
        self.leading_since = Some(now);
    }

    /// When this process began to lead.
    pub fn leading_since(&self) -> Option<Instant> {
        self.leading_since
    }

    /// The entry of a pod.
    pub fn get(&self, uid: &PodUid) -> Option<&Entry> {
        self.pods.get(uid)
    }

    /// All entries.
    pub fn pods(&self) -> impl Iterator<Item = (&PodUid, &Entry)> {
        self.pods.iter()
    }

    /// Makes sure that the pod has an entry.
    pub fn declare(&mut self, uid: &PodUid, role: Role, name: &str, group: &str) {
        if !self.pods.contains_key(uid) {
            self.pods.insert(uid.clone(), Entry::new(role, name.to_owned(), group.to_owned()));
        }
    }

    /// The pod is, or once was, routable: from now on unknown means occupied.
    pub fn mark_routable(&mut self, uid: &PodUid) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.was_routable = true;
        }
    }

    /// A session of a declared pod opens and replaces the one before.
    pub fn connect(&mut self, uid: &PodUid, generation: Generation, now: Instant) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.connect(generation, now);
        }
    }

    /// A session ends; `false` when it was not the pod's current one.
    pub fn disconnect(&mut self, uid: &PodUid, generation: Generation, now: Instant) -> bool {
        let rules = self.rules;
        self.pods.get_mut(uid).is_some_and(|entry| entry.disconnect(generation, now, &rules))
    }

    /// The agent introduces itself; `false` when its session is not current.
    pub fn hello(
        &mut self,
        uid: &PodUid,
        generation: Generation,
        ready: bool,
        capabilities: Capabilities,
        now: Instant,
    ) -> bool {
        self.pods.get_mut(uid).is_some_and(|entry| entry.hello(generation, ready, capabilities, now))
    }

    /// The game has finished loading; `false` when the session is not current.
    pub fn ready(&mut self, uid: &PodUid, generation: Generation, now: Instant) -> bool {
        self.pods.get_mut(uid).is_some_and(|entry| entry.set_ready(generation, now))
    }

    /// The agent said something that carries no count; `false` when its session is not current.
    pub fn heard(&mut self, uid: &PodUid, generation: Generation, now: Instant) -> bool {
        self.pods.get_mut(uid).is_some_and(|entry| entry.heard(generation, now))
    }

    /// Takes a report; answers with the names of the servers whose sum over the proxies changed.
    ///
    /// # Errors
    ///
    /// [`Rejected`]: nothing of the report was taken.
    pub fn report(
        &mut self,
        uid: &PodUid,
        generation: Generation,
        report: &Report,
        now: Instant,
    ) -> Result<Vec<String>, Rejected> {
        let entry = self.pods.get_mut(uid).ok_or(Rejected::NotCurrent)?;
        let changed = entry.report(generation, report, now)?;
        let names = self.carry_over(uid, changed);
        self.note_emptiness(uid, now);
        Ok(names)
    }

    /// Forgets what a proxy said about servers (its process is gone); answers with the servers whose sum changed.
    pub fn drop_server_counts(&mut self, uid: &PodUid) -> Vec<String> {
        let changed = self.pods.get_mut(uid).map(|entry| entry.replace_servers(BTreeMap::new())).unwrap_or_default();
        self.carry_over(uid, changed)
    }

    /// Forgets a pod; answers with the servers whose sum changed.
    pub fn forget(&mut self, uid: &PodUid) -> Vec<String> {
        let changed = self.drop_server_counts(uid);
        self.pods.remove(uid);
        changed
    }

    /// Players on `server` by the last reports of all proxies.
    pub fn by_proxies(&self, server: &str) -> u32 {
        let sum = self.sums.get(server).copied().unwrap_or(0);
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// The last known count of a pod, however old: the larger of its own agent's and, for a server, the proxies'.
    pub fn last_players(&self, uid: &PodUid) -> u32 {
        self.pods.get(uid).map_or(0, |entry| {
            let own = entry.count.map_or(0, |count| count.players);
            own.max(self.by_proxies_of(entry))
        })
    }

    /// Players on the pod; `None` while its own agent's count is missing or stale.
    pub fn players(&self, uid: &PodUid, now: Instant) -> Option<u32> {
        let entry = self.pods.get(uid)?;
        let own = entry.fresh_count(now, &self.rules)?;
        Some(own.players.max(self.by_proxies_of(entry)))
    }

    /// Whether somebody is, or may be, on the pod. A pod that was never declared is unknown, so occupied.
    pub fn occupied(&self, uid: &PodUid, now: Instant) -> bool {
        let Some(entry) = self.pods.get(uid) else {
            return true;
        };
        self.last_players(uid) > 0 || (entry.was_routable && self.players(uid, now).is_none())
    }

    /// How long the pod has been known to be empty; `None` while anybody is there or its count is unknown.
    pub fn empty_for(&self, uid: &PodUid, now: Instant) -> Option<Duration> {
        let since = self.pods.get(uid)?.empty_since?;
        (self.players(uid, now)? == 0).then(|| now.saturating_duration_since(since))
    }

    /// How long the pod's agent could have been heard and was not.
    pub fn stream_down_for(&self, uid: &PodUid, now: Instant) -> Duration {
        match self.pods.get(uid) {
            Some(entry) => entry.stream_down_for(now, self.leading_since, &self.rules),
            None => unseen_for(now, self.leading_since, &self.rules),
        }
    }

    /// Starts or ends the time since which a pod is empty, after its own or a proxy's report.
    pub fn note_emptiness(&mut self, uid: &PodUid, now: Instant) {
        let people = self.last_players(uid);
        if let Some(entry) = self.pods.get_mut(uid) {
            if people > 0 || entry.count.is_none() {
                entry.empty_since = None;
            } else if entry.empty_since.is_none() {
                entry.empty_since = Some(now);
            }
        }
    }

    fn by_proxies_of(&self, entry: &Entry) -> u32 {
        match entry.role {
            Role::Server => self.by_proxies(&entry.name),
            Role::Proxy => 0,
        }
    }

    /// Carries one proxy's changes over into the sums.
    fn carry_over(&mut self, uid: &PodUid, changed: Vec<(String, u32)>) -> Vec<String> {
        let entry = self.pods.get(uid);
        let mut names = Vec::with_capacity(changed.len());
        for (server, before) in changed {
            let after = entry.map_or(0, |entry| entry.on_server(&server));
            let sum = self.sums.get(&server).copied().unwrap_or(0);
            let sum = sum.saturating_sub(before.into()).saturating_add(after.into());
            if sum == 0 {
                self.sums.remove(&server);
            } else {
                self.sums.insert(server.clone(), sum);
            }
            names.push(server);
        }
        names
    }
}
