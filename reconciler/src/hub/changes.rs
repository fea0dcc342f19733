//! Wake-ups for controllers: deduplicated, and so bounded by the number of pods.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use spawnery_core::door::{Change, ChangeKind};
use spawnery_core::ledger::PodUid;
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Pending {
    order: VecDeque<Change>,
    queued: HashSet<(PodUid, ChangeKind)>,
    /// Whether anybody listens: without a listener nothing is kept.
    listened: bool,
}

/// What was not taken yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pending: Mutex<Pending>,
    wake: Notify,
}

impl Queue {
    pub(super) fn push(&self, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        let mut pending = self.pending.lock();
        if !pending.listened {
            return;
        }
        for change in changes {
            if pending.queued.insert((change.uid.clone(), change.kind)) {
                pending.order.push_back(change);
            }
        }
        self.wake.notify_one();
    }

    fn pop(&self) -> Option<Change> {
        let mut pending = self.pending.lock();
        let change = pending.order.pop_front()?;
        pending.queued.remove(&(change.uid.clone(), change.kind));
        Some(change)
    }
}

/// The one listener's end.
#[derive(Debug)]
pub struct Changes {
    queue: Arc<Queue>,
}

impl Changes {
    pub(super) fn of(queue: &Arc<Queue>) -> Self {
        queue.pending.lock().listened = true;
        Self { queue: Arc::clone(queue) }
    }

    /// The next change; waits for one.
    pub async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.queue.pop() {
                return change;
            }
            self.queue.wake.notified().await;
        }
    }
}
