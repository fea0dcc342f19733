//! What is known of a pod, for controllers.

use std::time::{Duration, Instant};

use super::Realm;
use crate::door::facts::{DoorView, ProxyView, ServerView};
use crate::door::machine::State;
use crate::ledger::{Entry, PodUid};

impl Realm {
    /// What is known of a server pod; a pod that was never declared is occupied and its door open.
    pub fn server(&self, uid: &PodUid, now: Instant) -> ServerView {
        let entry = self.ledger.get(uid);
        let connected = |of: &PodUid| self.ledger.get(of).is_some_and(Entry::connected);
        let server = self.servers.get(uid);
        let knowing = self.proxies.values().filter(|proxy| server.is_some_and(|server| proxy.knew(server)));
        let refuses = entry.is_some_and(|entry| entry.capabilities().door);
        let players = self.ledger.players(uid, now);
        ServerView {
            connected: entry.is_some_and(Entry::introduced),
            ready: entry.is_some_and(Entry::ready),
            players,
            last_players: self.ledger.last_players(uid),
            slots: entry.and_then(Entry::last_count).map_or(0, |count| count.slots),
            stale: players.is_none(),
            silent_for: entry
                .and_then(Entry::last_count)
                .map_or(Duration::ZERO, |count| now.saturating_duration_since(count.at)),
            ever_connected: entry.is_some_and(Entry::ever_connected),
            stream_down_for: self.ledger.stream_down_for(uid, now),
            empty_for: self.ledger.empty_for(uid, now),
            occupied: self.ledger.occupied(uid, now),
            deaf: knowing.filter(|proxy| !connected(&proxy.facts.uid)).map(|proxy| proxy.facts.name.clone()).collect(),
            enforced: refuses || self.proxies.values().any(|proxy| !proxy.facts.terminal),
            door: self.door_view(uid, now),
        }
    }

    /// What is known of a proxy pod; one that was never declared is occupied and its door open.
    pub fn proxy(&self, uid: &PodUid, now: Instant) -> ProxyView {
        let entry = self.ledger.get(uid);
        let refuses = entry.is_some_and(|entry| entry.capabilities().door);
        let host_port = self.proxies.get(uid).is_some_and(|proxy| proxy.facts.host_port);
        let players = self.ledger.players(uid, now);
        ProxyView {
            connected: entry.is_some_and(Entry::introduced),
            players,
            last_players: self.ledger.last_players(uid),
            slots: entry.and_then(Entry::last_count).map_or(0, |count| count.slots),
            stale: players.is_none(),
            ever_connected: entry.is_some_and(Entry::ever_connected),
            stream_down_for: self.ledger.stream_down_for(uid, now),
            empty_for: self.ledger.empty_for(uid, now),
            occupied: self.ledger.occupied(uid, now),
            enforced: refuses || !host_port,
            shut_for: self.shut_since(uid, now).map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
            door: self.door_view(uid, now),
        }
    }

    pub(super) fn door_view(&self, uid: &PodUid, now: Instant) -> DoorView {
        match self.door(uid) {
            None | Some(State::Open) => DoorView::Open,
            Some(State::Closing) => DoorView::Closing { waiting_for: self.holders(uid, now) },
            Some(State::Closed(_)) if self.ledger.last_players(uid) > 0 => {
                DoorView::Closed { waiting_for: vec!["everybody to leave".to_owned()] }
            }
            Some(State::Closed(round)) => DoorView::Closed {
                waiting_for: round
                    .pending
                    .iter()
                    .filter_map(|of| self.ledger.get(of))
                    .map(|entry| entry.name.clone())
                    .collect(),
            },
            Some(State::Empty { .. }) => DoorView::Empty,
            Some(State::Sealing) => DoorView::Sealing,
            Some(State::Sealed) => DoorView::Sealed,
        }
    }
}
