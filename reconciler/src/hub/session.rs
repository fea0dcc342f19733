//! One agent's session, as the channel drives it.

use std::sync::Arc;
use std::time::Duration;

use spawnery_core::door::{Introduction, Out, Revision};
use spawnery_core::ledger::{Capabilities, Generation, Rejected, Report};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Hub;

/// What to do on a session's stream next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Send this. It counts as told.
    Send(Out),
    /// Wait for [`Session::woken`].
    Wait,
    /// End the stream: the lease is not ours any more.
    NotLeading,
}

/// A session; ends when it is dropped.
#[derive(Debug)]
pub struct Session {
    hub: Arc<Hub>,
    pub(super) namespace: String,
    pub(super) who: Introduction,
    pub(super) generation: Generation,
    wake: Arc<Notify>,
    replaced: CancellationToken,
}

impl Drop for Session {
    fn drop(&mut self) {
        let hub = Arc::clone(&self.hub);
        hub.close(self);
    }
}

impl Session {
    pub(super) fn new(
        hub: Arc<Hub>,
        namespace: String,
        who: Introduction,
        generation: Generation,
        wake: Arc<Notify>,
        replaced: CancellationToken,
    ) -> Self {
        Self { hub, namespace, who, generation, wake, replaced }
    }

    /// Who is at the other end.
    pub fn who(&self) -> &Introduction {
        &self.who
    }

    /// The term in which messages are sent.
    pub fn epoch(&self) -> u64 {
        self.hub.epoch()
    }

    /// How often the agent reports, at least.
    pub fn report_interval(&self) -> Duration {
        self.hub.config.report_interval
    }

    /// The next message. The lease is checked for each.
    pub fn next(&self) -> Next {
        if !self.hub.may_send() {
            return Next::NotLeading;
        }
        let next = self.hub.in_namespace(&self.namespace, |realm, now| realm.next(&self.who.uid, self.generation, now));
        next.map_or(Next::Wait, Next::Send)
    }

    /// Whether this process leads at this moment, for messages that are not the hub's.
    pub fn may_send(&self) -> bool {
        self.hub.may_send()
    }

    /// Waits until there may be something to be sent.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Waits until another session of the same pod has taken over.
    pub async fn replaced(&self) {
        self.replaced.cancelled().await;
    }

    /// Whether the agent redials when it hears nothing.
    pub fn wants_keep_alive(&self) -> bool {
        self.hub.in_namespace(&self.namespace, |realm, _| {
            let entry = realm.ledger().get(&self.who.uid);
            entry.is_some_and(|entry| entry.greeted() && entry.capabilities().keep_alive)
        })
    }

    /// The agent introduces itself.
    pub fn hello(&self, ready: bool, capabilities: Capabilities) {
        self.hub.in_namespace(&self.namespace, |realm, now| {
            realm.hello(&self.who.uid, self.generation, ready, capabilities, now);
        });
    }

    /// The game has finished loading.
    pub fn ready(&self) {
        self.hub.in_namespace(&self.namespace, |realm, now| {
            realm.ready(&self.who.uid, self.generation, now);
        });
    }

    /// The agent said something that means nothing to us.
    pub fn heard(&self) {
        self.hub.in_namespace(&self.namespace, |realm, now| {
            realm.heard(&self.who.uid, self.generation, now);
        });
    }

    /// The agent counted.
    ///
    /// # Errors
    ///
    /// [`Rejected`]: counted in the metrics; the session goes on.
    pub fn report(&self, report: &Report) -> Result<(), Rejected> {
        let taken = self
            .hub
            .in_namespace(&self.namespace, |realm, now| realm.report(&self.who.uid, self.generation, report, now));
        if taken.is_err() {
            self.hub.metrics.report_rejected(self.who.role);
        }
        taken
    }

    /// The proxy routes by the directory of this revision; a word on another leader's directory means nothing.
    pub fn directory_applied(&self, epoch: u64, revision: u64) {
        self.hub.in_namespace(&self.namespace, |realm, now| {
            if epoch == self.hub.epoch() {
                realm.directory_applied(&self.who.uid, self.generation, Revision(revision), now);
            } else {
                realm.heard(&self.who.uid, self.generation, now);
            }
        });
    }

    /// The pod itself refuses newcomers, or takes them again.
    pub fn door_applied(&self, epoch: u64, open: bool, revision: u64) {
        self.hub.in_namespace(&self.namespace, |realm, now| {
            if epoch == self.hub.epoch() {
                realm.door_applied(&self.who.uid, self.generation, open, revision, now);
            } else {
                realm.heard(&self.who.uid, self.generation, now);
            }
        });
    }
}
