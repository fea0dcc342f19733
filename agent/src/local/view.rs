//! What the local API shows.

use serde::Serialize;

use crate::session::state::State;
use crate::session::{Entry, Role, Tally};

/// A server that is being emptied.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainView {
    from_server: String,
    to_groups: Vec<String>,
}

fn drains(state: &State) -> Vec<DrainView> {
    state.drains().map(|(from, to)| DrainView { from_server: from.to_owned(), to_groups: to.to_vec() }).collect()
}

/// Everything that the agent knows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateView {
    role: Role,
    name: String,
    connected: bool,
    released: bool,
    epoch: u64,
    ready: bool,
    door_open: bool,
    set_ready: Option<bool>,
    gate_open: bool,
    accepting: bool,
    players: Option<u32>,
    slots: Option<u32>,
    revision: u64,
    seq: u64,
    applied_seq: u64,
    fenced_messages: u64,
    servers: Vec<Entry>,
    drains: Vec<DrainView>,
}

impl StateView {
    /// Of `state`, in the pod `name`.
    pub fn of(state: &State, name: &str) -> Self {
        Self {
            role: state.character().role,
            name: name.to_owned(),
            connected: state.connected(),
            released: state.standing().released,
            epoch: state.epoch(),
            ready: state.ready(),
            door_open: state.door_open(),
            set_ready: state.set_ready(),
            gate_open: state.gate_open(),
            accepting: state.accepting(),
            players: state.tally().map(Tally::players),
            slots: state.tally().map(Tally::slots),
            revision: state.revision(),
            seq: state.seq(),
            applied_seq: state.applied_seq(),
            fenced_messages: state.fenced(),
            servers: state.servers().cloned().collect(),
            drains: drains(state),
        }
    }
}

/// What the game has to carry out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryView {
    seq: u64,
    revision: u64,
    epoch: u64,
    servers: Vec<Entry>,
    drains: Vec<DrainView>,
    door_open: bool,
    accepting: bool,
}

impl DirectoryView {
    /// Of `state`.
    pub fn of(state: &State) -> Self {
        Self {
            seq: state.seq(),
            revision: state.revision(),
            epoch: state.epoch(),
            servers: state.servers().cloned().collect(),
            drains: drains(state),
            door_open: state.door_open(),
            accepting: state.accepting(),
        }
    }
}
