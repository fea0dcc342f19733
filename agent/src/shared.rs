//! The one place where parts of the agent meet: the state behind its lock, and who must be woken when it moves.

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::session::state::{Standing, State};

/// The state, and the wakers of those who wait for it.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    outgoing: Notify,
    question: Notify,
    seq: watch::Sender<u64>,
    gate: watch::Sender<bool>,
    standing: watch::Sender<Standing>,
}

impl Shared {
    /// Around `state`.
    pub fn new(state: State) -> Self {
        let (seq, gate) = (watch::Sender::new(state.seq()), watch::Sender::new(state.gate_open()));
        let standing = watch::Sender::new(state.standing());
        Self { state: Mutex::new(state), outgoing: Notify::new(), question: Notify::new(), seq, gate, standing }
    }

    /// Looks at the state or changes it, and wakes whom the change concerns. What `change` queues is queued in one piece:
    /// nothing comes between.
    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        // Published under the lock, so that what is seen last is what is true; waking never blocks.
        if state.has_outgoing() || state.overrun() {
            self.outgoing.notify_one();
        }
        if state.question().is_some() {
            self.question.notify_one();
        }
        publish(&self.seq, state.seq());
        publish(&self.gate, state.gate_open());
        publish(&self.standing, state.standing());
        result
    }

    /// Waits until something may wait to be said.
    pub async fn outgoing(&self) {
        self.outgoing.notified().await;
    }

    /// Waits until the operator may have asked for a new count.
    pub async fn question(&self) {
        self.question.notified().await;
    }

    /// The newest sequence number, as it grows.
    pub fn seq(&self) -> watch::Receiver<u64> {
        self.seq.subscribe()
    }

    /// How the pod stands, as it changes.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Whether the readiness gate is open, as it changes.
    pub fn gate(&self) -> watch::Receiver<bool> {
        self.gate.subscribe()
    }
}

fn publish<T: PartialEq>(to: &watch::Sender<T>, value: T) {
    to.send_if_modified(|known| {
        let changed = *known != value;
        *known = value;
        changed
    });
}
