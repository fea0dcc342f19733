//! What an agent is told next.

use std::time::Instant;

use super::Realm;
use crate::door::directory::Next;
use crate::door::machine::State;
use crate::door::outbox::Out;
use crate::ledger::{Capabilities, Generation, PodUid, Role};

impl Realm {
    /// The next message for a session, or `None` while there is nothing to say (or the session was replaced). What is
    /// handed out counts as told: whoever calls this must send it on that session's stream, in this order.
    ///
    /// Order: the directory, then drains, then the pod's own readiness and door, then requests for counts, then that the
    /// pod is sealed.
    pub fn next(&mut self, uid: &PodUid, generation: Generation, now: Instant) -> Option<Out> {
        let entry = self.ledger.get(uid)?;
        let role = entry.role;
        let can = if entry.greeted() { entry.capabilities() } else { Capabilities::default() };
        let current = self.talks.get(uid)?.outbox.as_ref()?.generation == generation;
        if !current {
            return None;
        }
        if role == Role::Proxy {
            if !self.listed {
                return None;
            }
            let directory = self.next_directory(uid, now);
            let fleet = directory.or_else(|| self.next_drain(uid, can)).or_else(|| self.next_ready(uid));
            if fleet.is_some() {
                return fleet;
            }
        }
        self.next_door(uid, can).or_else(|| self.next_request(uid, can)).or_else(|| self.next_release(uid, can))
    }

    fn next_directory(&mut self, uid: &PodUid, now: Instant) -> Option<Out> {
        let outbox = self.talks.get_mut(uid)?.outbox.as_mut()?;
        let next = match outbox.directory {
            Some(sent) if !outbox.resync => self.directory.after(sent),
            _ => Next::Everything,
        };
        let (revision, out) = match next {
            Next::Nothing => return None,
            Next::Register(revision, server) => (revision, Out::Register { revision, server }),
            Next::Unregister(revision, name) => (revision, Out::Unregister { revision, name }),
            Next::Everything => {
                let revision = self.directory.revision();
                outbox.resync = false;
                outbox.drains = 0;
                outbox.ready = None;
                let servers = self.directory.listings().cloned().collect();
                (revision, Out::FullSync { revision, servers })
            }
        };
        outbox.directory = Some(revision);
        self.proxies.get_mut(uid)?.telling.told(revision, now);
        Some(out)
    }

    fn next_drain(&mut self, uid: &PodUid, can: Capabilities) -> Option<Out> {
        let groups = &self.proxies.get(uid)?.facts.fallback_groups;
        let outbox = self.talks.get_mut(uid)?.outbox.as_mut()?;
        // An upstream agent knows no way to stop, and one without targets has nothing to be told.
        let said = |active: bool| {
            if active { !groups.is_empty() } else { can.directory_revisions }
        };
        let (from_server, drain) = self
            .drains
            .iter()
            .filter(|(_, drain)| drain.number > outbox.drains && said(drain.active))
            .min_by_key(|(_, drain)| drain.number)?;
        outbox.drains = drain.number;
        Some(Out::Drain {
            from_server: from_server.clone(),
            to_groups: if drain.active { groups.clone() } else { Vec::new() },
        })
    }

    fn next_ready(&mut self, uid: &PodUid) -> Option<Out> {
        let talk = self.talks.get_mut(uid)?;
        let ready = talk.ready?;
        let outbox = talk.outbox.as_mut()?;
        if outbox.ready == Some(ready) {
            return None;
        }
        outbox.ready = Some(ready);
        Some(Out::SetReady(ready))
    }

    fn next_door(&mut self, uid: &PodUid, can: Capabilities) -> Option<Out> {
        let talk = self.talks.get_mut(uid)?;
        let outbox = talk.outbox.as_mut()?;
        if !can.door || outbox.door >= talk.own_door.revision {
            return None;
        }
        outbox.door = talk.own_door.revision;
        Some(Out::Door { open: !talk.own_door.closed, revision: talk.own_door.revision })
    }

    fn next_request(&mut self, uid: &PodUid, can: Capabilities) -> Option<Out> {
        let talk = self.talks.get_mut(uid)?;
        let outbox = talk.outbox.as_mut()?;
        if !can.report_now || talk.ask <= talk.answered || talk.ask <= outbox.nonce {
            return None;
        }
        outbox.nonce = talk.ask;
        Some(Out::ReportNow { nonce: talk.ask })
    }

    fn next_release(&mut self, uid: &PodUid, can: Capabilities) -> Option<Out> {
        let sealed = self.door(uid) == Some(&State::Sealed);
        let outbox = self.talks.get_mut(uid)?.outbox.as_mut()?;
        if !can.release || !sealed || outbox.released {
            return None;
        }
        outbox.released = true;
        Some(Out::Release)
    }
}
