//! What is known of one pod's agent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Capabilities, Generation, Rejected, Report, Role, Rules};

/// A count of an agent and when it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Players on the pod.
    pub players: u32,
    /// Most players it takes.
    pub slots: u32,
    /// When it arrived.
    pub at: Instant,
}

/// One pod in the ledger.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What the pod does.
    pub role: Role,
    /// Name of the pod; for servers also the name by which proxies count.
    pub name: String,
    /// Group of the pod.
    pub group: String,
    pub(super) was_routable: bool,
    pub(super) count: Option<Count>,
    pub(super) servers: BTreeMap<String, u32>,
    pub(super) empty_since: Option<Instant>,
    session: Option<Generation>,
    ever_connected: bool,
    introduced: bool,
    down_since: Option<Instant>,
    heard_at: Option<Instant>,
    capabilities: Capabilities,
    greeted: bool,
    ready: bool,
}

impl Entry {
    pub(super) fn new(role: Role, name: String, group: String) -> Self {
        Self {
            role,
            name,
            group,
            was_routable: false,
            count: None,
            servers: BTreeMap::new(),
            empty_since: None,
            session: None,
            ever_connected: false,
            introduced: false,
            down_since: None,
            heard_at: None,
            capabilities: Capabilities::default(),
            greeted: false,
            ready: false,
        }
    }

    /// The current session, if the stream is up.
    pub fn session(&self) -> Option<Generation> {
        self.session
    }

    /// Whether the stream is up.
    pub fn connected(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the agent has said Hello and has not been gone since. Only then is its not being ready worth anything: a
    /// stream that has just been opened says nothing yet.
    pub fn introduced(&self) -> bool {
        self.introduced && self.connected()
    }

    /// Whether an agent of this pod has ever reached this leader.
    pub fn ever_connected(&self) -> bool {
        self.ever_connected
    }

    /// Whether the agent says that the game is ready; never true without a stream.
    pub fn ready(&self) -> bool {
        self.ready
    }

    /// Whether the pod was ever routable.
    pub fn was_routable(&self) -> bool {
        self.was_routable
    }

    /// What the agent can do; that of its last session until the current one has said Hello.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Whether the current session has said Hello.
    pub fn greeted(&self) -> bool {
        self.greeted && self.connected()
    }

    /// The last count of the pod's own agent, however old.
    pub fn last_count(&self) -> Option<Count> {
        self.count
    }

    /// The own agent's count, if it is young enough to be believed.
    pub fn fresh_count(&self, now: Instant, rules: &Rules) -> Option<Count> {
        self.count.filter(|count| now.saturating_duration_since(count.at) < rules.stale_after())
    }

    /// Players on, and on the way to, `server` by this proxy's last report.
    pub fn on_server(&self, server: &str) -> u32 {
        self.servers.get(server).copied().unwrap_or(0)
    }

    /// How long the agent could have been heard and was not.
    ///
    /// Zero once it has said Hello on a stream that is up. An agent that this leader has not heard yet is charged nothing
    /// until the agents' hard deadline and the time to reconnect have passed since it leads (`leading_since`; `None` =
    /// does not lead).
    pub fn stream_down_for(&self, now: Instant, leading_since: Option<Instant>, rules: &Rules) -> Duration {
        if self.introduced() {
            return Duration::ZERO;
        }
        if let Some(since) = self.down_since {
            return now.saturating_duration_since(since);
        }
        unseen_for(now, leading_since, rules)
    }

    /// A session opens. One that replaces a live session carries its readiness and its emptiness over; otherwise the
    /// agent starts anew.
    pub(super) fn connect(&mut self, generation: Generation, now: Instant) {
        if !self.connected() {
            self.ready = false;
            self.empty_since = None;
            self.introduced = false;
        }
        self.session = Some(generation);
        self.ever_connected = true;
        self.heard_at = Some(now);
        self.greeted = false;
    }

    /// A session ends; `false` when it was not the current one. The last count stays, readiness does not.
    ///
    /// A stream that was cut because its agent had fallen silent counts as down since the agent's last word, for at most
    /// the time after which a count is stale: a frozen agent is then as late as one whose process died.
    pub(super) fn disconnect(&mut self, generation: Generation, now: Instant, rules: &Rules) -> bool {
        if self.session != Some(generation) {
            return false;
        }
        let silent = self.heard_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let was_silent = silent.saturating_mul(2) >= rules.report_interval.saturating_mul(3);
        let back = if was_silent { silent.min(rules.stale_after()) } else { Duration::ZERO };
        // A stream on which nobody said Hello was no sign of life: whatever clock ran before runs on.
        if self.introduced {
            self.down_since = Some(now.checked_sub(back).unwrap_or(now));
        }
        self.session = None;
        self.ready = false;
        self.greeted = false;
        self.introduced = false;
        true
    }

    pub(super) fn hello(
        &mut self,
        generation: Generation,
        ready: bool,
        capabilities: Capabilities,
        now: Instant,
    ) -> bool {
        let current = self.heard(generation, now);
        if current {
            self.capabilities = capabilities;
            self.greeted = true;
            self.introduced = true;
            self.down_since = None;
            self.ready |= ready;
        }
        current
    }

    pub(super) fn set_ready(&mut self, generation: Generation, now: Instant) -> bool {
        let current = self.heard(generation, now);
        if current {
            self.ready = true;
        }
        current
    }

    /// Notes that the agent spoke; `false` when the session is not the current one.
    pub(super) fn heard(&mut self, generation: Generation, now: Instant) -> bool {
        let current = self.session == Some(generation);
        if current {
            self.heard_at = Some(now);
        }
        current
    }

    /// Takes a report and answers with the servers whose count on this proxy changed, each with its count before.
    pub(super) fn report(
        &mut self,
        generation: Generation,
        report: &Report,
        now: Instant,
    ) -> Result<Vec<(String, u32)>, Rejected> {
        if !self.heard(generation, now) {
            return Err(Rejected::NotCurrent);
        }
        let (players, slots) = (unsigned(report.players)?, unsigned(report.slots)?);
        if players > slots {
            return Err(Rejected::MoreThanSlots { players, slots });
        }
        let mut servers = BTreeMap::new();
        for on in &report.servers {
            let people = unsigned(on.players)?.saturating_add(unsigned(on.connecting)?);
            if people > 0 {
                let sum: &mut u32 = servers.entry(on.server.clone()).or_default();
                *sum = sum.saturating_add(people);
            }
        }
        self.count = Some(Count { players, slots, at: now });
        Ok(self.replace_servers(servers))
    }

    /// Puts a new map of per-server counts in the place of the old; answers with what changed and its count before.
    pub(super) fn replace_servers(&mut self, servers: BTreeMap<String, u32>) -> Vec<(String, u32)> {
        let before = std::mem::replace(&mut self.servers, servers);
        let gone_or_other = before
            .iter()
            .filter(|(name, count)| self.servers.get(*name) != Some(*count))
            .map(|(name, count)| (name.clone(), *count));
        let new = self.servers.keys().filter(|name| !before.contains_key(*name)).map(|name| (name.clone(), 0));
        gone_or_other.chain(new).collect()
    }
}

/// How long a pod that was never heard counts as down.
pub(crate) fn unseen_for(now: Instant, leading_since: Option<Instant>, rules: &Rules) -> Duration {
    let led = leading_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    if led >= rules.takeover_grace() { led } else { Duration::ZERO }
}

fn unsigned(count: i32) -> Result<u32, Rejected> {
    u32::try_from(count).map_err(|_| Rejected::Negative)
}
