//! Opening, closing and sealing doors.

use std::time::Instant;

use super::Realm;
use crate::door::directory::Listing;
use crate::door::machine::State;
use crate::ledger::PodUid;

impl Realm {
    /// Takes the way back away, before the seal is written: `false`, and nothing happens, when the door is not known to
    /// be empty. With `anyway` (a deadline or an override) the state of the door does not matter.
    pub fn claim_seal(&mut self, uid: &PodUid, anyway: bool, now: Instant) -> bool {
        let claimed = self.door(uid).is_some_and(|door| match door {
            State::Empty { .. } | State::Sealing => true,
            State::Open | State::Closing | State::Closed(_) => anyway,
            State::Sealed => false,
        });
        if claimed {
            self.shut_for_good(uid, State::Sealing, now);
        }
        claimed
    }

    /// The seal is written, or was found written.
    pub fn mark_sealed(&mut self, uid: &PodUid, now: Instant) {
        if self.door(uid).is_none() {
            self.sealed_before.insert(uid.clone());
            return;
        }
        self.shut_for_good(uid, State::Sealed, now);
        self.wake.insert(uid.clone());
    }

    /// The seal was surely not written: the door is closed as before and proves its emptiness anew.
    pub fn abandon_seal(&mut self, uid: &PodUid, now: Instant) {
        if self.door(uid) == Some(&State::Sealing) {
            self.put_door(uid, State::Closing);
        }
        self.dirty.insert(uid.clone());
        self.settle(now);
    }

    pub(super) fn open_server(&mut self, uid: &PodUid) {
        let Some(server) = self.servers.get_mut(uid) else {
            return;
        };
        let listing = Listing {
            name: server.want.name.clone(),
            address: server.want.address.clone(),
            group: server.want.group.clone(),
            uid: uid.clone(),
        };
        let replaced =
            self.directory.get(&listing.name).filter(|before| before.uid != *uid).map(|before| before.uid.clone());
        if let Some(revision) = self.directory.put(listing) {
            server.place.first_open.get_or_insert(revision);
            self.ledger.mark_routable(uid);
            if let Some(before) = replaced {
                if let Some(server) = self.servers.get_mut(&before) {
                    server.place.removed_at = revision;
                }
                self.put_door(&before, State::Closing);
                self.dirty.insert(before);
            }
            self.wake_proxies();
        }
        self.put_door(uid, State::Open);
        self.own_door(uid, false);
    }

    pub(super) fn close_server(&mut self, uid: &PodUid) {
        let Some(server) = self.servers.get_mut(uid) else {
            return;
        };
        if let Some(revision) = self.directory.remove(&server.want.name, uid) {
            server.place.removed_at = revision;
            self.wake_proxies();
        }
        self.put_door(uid, State::Closing);
        self.own_door(uid, true);
    }

    fn shut_for_good(&mut self, uid: &PodUid, state: State, now: Instant) {
        if self.servers.get(uid).is_some_and(|server| server.door == State::Open) {
            self.close_server(uid);
        }
        if self.proxies.contains_key(uid) {
            self.set_ready(uid, false, now);
        }
        if self.door(uid).is_some_and(|door| *door != State::Sealed) {
            self.put_door(uid, state);
        }
        self.own_door(uid, true);
        self.dirty.insert(uid.clone());
        self.settle(now);
    }

    pub(super) fn own_door(&mut self, uid: &PodUid, closed: bool) {
        if self.talks.entry(uid.clone()).or_default().own_door.want(closed) {
            self.wake.insert(uid.clone());
        }
    }

    pub(super) fn door(&self, uid: &PodUid) -> Option<&State> {
        let server = self.servers.get(uid).map(|server| &server.door);
        server.or_else(|| self.proxies.get(uid).map(|proxy| &proxy.door))
    }

    pub(super) fn door_mut(&mut self, uid: &PodUid) -> Option<&mut State> {
        match self.servers.get_mut(uid) {
            Some(server) => Some(&mut server.door),
            None => self.proxies.get_mut(uid).map(|proxy| &mut proxy.door),
        }
    }

    pub(super) fn put_door(&mut self, uid: &PodUid, state: State) {
        if state.is_shut() {
            self.shut.insert(uid.clone());
        } else {
            self.shut.remove(uid);
        }
        if let Some(door) = self.door_mut(uid) {
            *door = state;
        }
    }
}
