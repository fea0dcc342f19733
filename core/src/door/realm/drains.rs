//! Moving players off servers, at every proxy of the namespace.

use super::Realm;

/// A drain in force, or one that was stopped since the last full round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drain {
    pub(super) number: u64,
    pub(super) active: bool,
}

impl Realm {
    /// Tells every proxy to move the players off a server, now and whenever it (re)joins, until stopped.
    pub fn drain(&mut self, from_server: &str) {
        if self.drains.get(from_server).is_some_and(|drain| drain.active) {
            return;
        }
        self.number_drain(from_server, true);
    }

    /// Stops moving players off a server.
    pub fn stop_drain(&mut self, from_server: &str) {
        if self.drains.get(from_server).is_some_and(|drain| drain.active) {
            self.number_drain(from_server, false);
        }
    }

    /// Sends every proxy the full directory again, and with it the drains and its readiness.
    pub fn resync(&mut self) {
        self.drains.retain(|_, drain| drain.active);
        for uid in self.proxies.keys() {
            if let Some(outbox) = self.talks.get_mut(uid).and_then(|talk| talk.outbox.as_mut()) {
                outbox.resync = true;
                self.wake.insert(uid.clone());
            }
        }
    }

    fn number_drain(&mut self, from_server: &str, active: bool) {
        self.drain_number = self.drain_number.saturating_add(1);
        let drain = Drain { number: self.drain_number, active };
        self.drains.insert(from_server.to_owned(), drain);
        self.wake_proxies();
    }
}
