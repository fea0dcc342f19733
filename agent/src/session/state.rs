//! What the agent knows, and what follows from what it hears.

use std::collections::BTreeMap;

use spawnery_proto::capability;

use super::due::Owed;
use super::outbox::Outbox;
use super::{Entry, Incoming, Mark, Outgoing, Role, Tally};

/// Where counts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The game says them over the local API.
    Local,
    /// The agent asks the game by Minecraft's server list ping.
    Ping,
}

/// Who carries out what the operator orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// Nobody: there is no game behind that routes players, so orders are confirmed at once.
    None,
    /// A part of the game that follows the local API and confirms there.
    External,
}

/// What stays the same for the agent's life.
#[derive(Clone, Copy, Debug)]
pub struct Character {
    /// Whose agent it is.
    pub role: Role,
    /// Where counts come from.
    pub source: Source,
    /// Who carries out orders.
    pub adapter: Adapter,
    /// The game refuses newcomers while the door is closed. Needs [`Adapter::External`].
    pub door_enforced: bool,
}

/// Whether a message moves anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It was taken.
    Fresh,
    /// It is an earlier leader's: nothing was changed, and it is no sign of life.
    Fenced,
}

/// How the pod stands, for a pre-stop hook that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The operator said that the pod is sealed.
    pub released: bool,
    /// The operator was heard on the stream that is up.
    pub connected: bool,
    /// The count; `None` when the game cannot tell.
    pub players: Option<u32>,
}

/// The game confirmed a sequence number that was never handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AheadOfUs {
    /// The highest that was.
    pub newest: u64,
}

/// A stream on which the operator was heard.
#[derive(Debug, Default)]
struct Session {
    outbox: Outbox,
    owed: Owed,
    said_ready: bool,
}

/// Everything that the agent knows. One lock guards it, so what is queued in one call is queued together, in order.
#[derive(Debug)]
pub struct State {
    character: Character,
    /// `None`: cannot tell, so nothing is reported, and unknown is occupied.
    tally: Option<Tally>,
    /// The highest serial number among the counts taken.
    serial: u64,
    ready: bool,
    /// The highest epoch heard. Survives streams.
    epoch: u64,
    fenced: u64,
    servers: BTreeMap<String, Entry>,
    revision: u64,
    drains: BTreeMap<String, Vec<String>>,
    set_ready: Option<bool>,
    /// As the operator wants it.
    door_open: bool,
    /// The pod is sealed, which is final.
    released: bool,
    /// Grows with everything that the game must see.
    seq: u64,
    applied: u64,
    /// The sequence number of the first whole directory.
    first_sync: Option<u64>,
    question: Option<u64>,
    session: Option<Session>,
}

impl State {
    /// Knows nothing yet. `seq` must be above every sequence number of an earlier life of this agent, so that a game which
    /// outlived it can confirm nothing by an old number.
    pub fn new(character: Character, seq: u64) -> Self {
        Self {
            character,
            tally: None,
            serial: 0,
            ready: false,
            epoch: 0,
            fenced: 0,
            servers: BTreeMap::new(),
            revision: 0,
            drains: BTreeMap::new(),
            set_ready: None,
            door_open: true,
            released: false,
            seq,
            applied: 0,
            first_sync: None,
            question: None,
            session: None,
        }
    }

    /// The first message of a stream.
    pub fn hello(&self) -> Outgoing {
        let proxy = self.character.role == Role::Proxy;
        let capabilities = capability::ALL.into_iter().filter(|name| match *name {
            capability::DIRECTORY_REVISIONS | capability::SERVER_OCCUPANCY => proxy,
            capability::DOOR => self.character.door_enforced,
            _ => true,
        });
        Outgoing::Hello { ready: self.ready, capabilities: capabilities.map(str::to_owned).collect() }
    }

    /// The operator was heard on a new stream, which began with `hello`: from now on everything is said there. What waited
    /// for the old stream is dropped, and the present is said instead.
    pub fn begin(&mut self, hello: &Outgoing) {
        let said_ready = matches!(hello, Outgoing::Hello { ready: true, .. });
        self.question = None;
        self.session = Some(Session { said_ready, ..Session::default() });
        self.say_ready();
        self.report();
    }

    /// The stream is gone; what was asked on it needs no answer.
    pub fn end(&mut self) {
        self.session = None;
        self.question = None;
    }

    /// Takes what the operator said.
    pub fn hear(&mut self, message: &Incoming) -> Heard {
        if let Some(epoch) = message.epoch() {
            if epoch < self.epoch {
                self.fenced = self.fenced.saturating_add(1);
                return Heard::Fenced;
            }
            self.epoch = epoch;
        }
        match message {
            // Clocks are the driver's.
            Incoming::ReportInterval(_) | Incoming::SessionDeadline { .. } | Incoming::KeepAlive { .. } => {}
            Incoming::Release { .. } => self.released = true,
            Incoming::ReportNow { nonce } => self.ask(*nonce),
            Incoming::Door { open, mark } => self.turn_door(*open, *mark),
            Incoming::FullSync { servers, mark } => {
                self.servers = servers.iter().map(|entry| (entry.name.clone(), entry.clone())).collect();
                // Drains still in force follow each whole directory.
                self.drains.clear();
                self.routed(*mark);
                self.first_sync = self.first_sync.or(Some(self.seq));
            }
            Incoming::Register { server, mark } => {
                self.servers.insert(server.name.clone(), server.clone());
                self.routed(*mark);
            }
            Incoming::Unregister { name, mark } => {
                self.servers.remove(name);
                self.routed(*mark);
            }
            Incoming::Drain { from_server, to_groups, .. } => {
                if to_groups.is_empty() {
                    self.drains.remove(from_server);
                } else {
                    self.drains.insert(from_server.clone(), to_groups.clone());
                }
                self.advance();
            }
            Incoming::SetReady { ready, .. } => {
                self.set_ready = Some(*ready);
                self.advance();
            }
        }
        if self.character.adapter == Adapter::None {
            self.settle(self.seq);
        }
        Heard::Fresh
    }

    /// The directory is now at `mark`: the game must see it, and its confirmation is owed.
    fn routed(&mut self, mark: Mark) {
        self.revision = mark.revision;
        let seq = self.advance();
        // An operator that does not number its directory expects no confirmation.
        if let Some(session) = self.session.as_mut().filter(|_| mark != Mark::default()) {
            session.owed.directory(seq, mark);
        }
    }

    fn turn_door(&mut self, open: bool, mark: Mark) {
        self.door_open = open;
        let seq = self.advance();
        if let Some(session) = self.session.as_mut().filter(|_| self.character.door_enforced) {
            session.owed.door(seq, open, mark);
        }
    }

    /// Someone must count anew: the pinger, the game, or, where the game says each change before it happens, nobody.
    fn ask(&mut self, nonce: u64) {
        match (self.character.source, self.character.adapter) {
            (Source::Ping, _) => self.question = Some(nonce),
            (Source::Local, Adapter::External) => {
                let seq = self.advance();
                if let Some(session) = &mut self.session {
                    session.owed.question(seq, nonce);
                }
            }
            (Source::Local, Adapter::None) => {
                if let (Some(session), Some(tally)) = (&mut self.session, &self.tally) {
                    session.outbox.answer(tally.clone(), nonce);
                }
            }
        }
    }

    fn advance(&mut self) -> u64 {
        self.seq = self.seq.saturating_add(1);
        self.seq
    }

    /// The game says its count; `None` when it cannot tell. A count with a `serial` below the highest taken is late and
    /// changes nothing: it was sent before one that is already here. Whether it was taken.
    pub fn counted(&mut self, tally: Option<Tally>, serial: Option<u64>) -> bool {
        if serial.is_some_and(|serial| serial < self.serial) {
            return false;
        }
        self.serial = serial.unwrap_or(self.serial);
        if self.tally != tally {
            self.tally = tally;
            self.report();
        }
        true
    }

    /// The question that a ping begun now would answer.
    pub fn question(&self) -> Option<u64> {
        self.question
    }

    /// A ping begun when `asked` was the open question has ended; `None` when the game did not answer it.
    pub fn pinged(&mut self, tally: Option<Tally>, asked: Option<u64>) {
        if tally.is_some() {
            self.loaded(true);
        }
        self.counted(tally, None);
        let Some(nonce) = asked else { return };
        // A question put meanwhile stays open: it wants a count begun after it.
        if self.question.take_if(|open| *open == nonce).is_some()
            && let (Some(session), Some(tally)) = (&mut self.session, &self.tally)
        {
            session.outbox.answer(tally.clone(), nonce);
        }
    }

    /// Servers: whether the game has finished loading.
    pub fn loaded(&mut self, ready: bool) {
        self.ready = ready;
        self.say_ready();
    }

    /// Nothing lowers readiness on a live stream; what was lowered is left out of the next Hello.
    fn say_ready(&mut self) {
        if let Some(session) = self.session.as_mut().filter(|session| self.ready && !session.said_ready) {
            session.said_ready = true;
            if self.character.role == Role::Server {
                session.outbox.push(Outgoing::Ready);
            }
        }
    }

    /// Says the count if there is one.
    pub fn report(&mut self) {
        if let (Some(session), Some(tally)) = (&mut self.session, &self.tally) {
            session.outbox.count(tally.clone());
        }
    }

    /// The game has carried out everything up to `seq`, and `tally` is its count since then.
    pub fn applied(&mut self, seq: u64, tally: Tally, serial: Option<u64>) -> Result<(), AheadOfUs> {
        if seq > self.seq {
            return Err(AheadOfUs { newest: self.seq });
        }
        // A late body's count is older than the one here; what it says about `seq` is as true as ever.
        let late = serial.is_some_and(|serial| serial < self.serial);
        if !late {
            self.serial = serial.unwrap_or(self.serial);
            let changed = self.tally.as_ref() != Some(&tally);
            self.tally = Some(tally);
            if changed {
                self.report();
            }
        }
        self.settle(seq);
        Ok(())
    }

    /// Says what carrying out everything up to `seq` confirms. The count goes first, on the same stream: whoever was sent
    /// to a server before the directory left it is in a count that the operator has when it reads the confirmation.
    fn settle(&mut self, seq: u64) {
        self.applied = self.applied.max(seq);
        let Some(session) = &mut self.session else { return };
        let settled = session.owed.settle(seq);
        if let (Some(nonce), Some(tally)) = (settled.nonce, &self.tally) {
            session.outbox.answer(tally.clone(), nonce);
        }
        if let Some(mark) = settled.directory {
            session.outbox.confirm(self.tally.clone(), mark);
        }
        if let Some((open, mark)) = settled.door {
            session.outbox.push(Outgoing::DoorApplied { open, mark });
        }
    }

    /// The next message to say on the stream.
    pub fn next_outgoing(&mut self) -> Option<Outgoing> {
        self.session.as_mut()?.outbox.pop()
    }

    /// Whether something waits to be said.
    pub fn has_outgoing(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.outbox.is_empty())
    }

    /// Whether the stream must be given up because something could not be queued for it.
    pub fn overrun(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.outbox.overrun())
    }

    /// Whether the operator was heard on the stream that is up.
    pub fn connected(&self) -> bool {
        self.session.is_some()
    }

    /// What a pre-stop hook waits for.
    pub fn standing(&self) -> Standing {
        Standing {
            released: self.released,
            connected: self.connected(),
            players: self.tally.as_ref().map(Tally::players),
        }
    }

    /// What stays the same.
    pub fn character(&self) -> Character {
        self.character
    }

    /// The count as last known.
    pub fn tally(&self) -> Option<&Tally> {
        self.tally.as_ref()
    }

    /// The highest epoch heard.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many messages of earlier leaders were dropped.
    pub fn fenced(&self) -> u64 {
        self.fenced
    }

    /// The directory's revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The servers to which new players may be sent, by name.
    pub fn servers(&self) -> impl Iterator<Item = &Entry> {
        self.servers.values()
    }

    /// Servers to empty, and the groups to try for their players.
    pub fn drains(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.drains.iter().map(|(from, to)| (from.as_str(), to.as_slice()))
    }

    /// What the operator last said about readiness, if anything.
    pub fn set_ready(&self) -> Option<bool> {
        self.set_ready
    }

    /// The door as the operator wants it.
    pub fn door_open(&self) -> bool {
        self.door_open
    }

    /// Whether newcomers may be let in at all.
    pub fn accepting(&self) -> bool {
        self.door_open && self.set_ready != Some(false)
    }

    /// Servers: the game has loaded. Proxies: the gate is open.
    pub fn ready(&self) -> bool {
        match self.character.role {
            Role::Server => self.ready,
            Role::Proxy => self.gate_open(),
        }
    }

    /// Proxies: the readiness gate. It opens once a whole directory was applied, unless the operator has said no; it stays
    /// open when the stream is lost, for the directory in use is as good as before.
    pub fn gate_open(&self) -> bool {
        self.character.role == Role::Proxy
            && self.set_ready != Some(false)
            && self.first_sync.is_some_and(|first| self.applied >= first)
    }

    /// The newest sequence number.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The newest sequence number that the game has carried out.
    pub fn applied_seq(&self) -> u64 {
        self.applied
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "state_props.rs"]
mod props;
