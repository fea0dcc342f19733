//! Requests that wait for something to happen to a pod.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Who waits for which pod, by UID. An entry lives as long as somebody waits, so the map is as large as requests are held.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<HashMap<String, Arc<Notify>>>);

/// One place in the queue of a pod.
#[derive(Debug)]
pub(crate) struct Ticket {
    uid: String,
    changed: Arc<Notify>,
    waiters: Arc<Waiters>,
}

impl Waiters {
    /// Waits for changes of a pod from now on.
    pub(crate) fn join(self: &Arc<Self>, uid: &str) -> Ticket {
        let changed = Arc::clone(self.0.lock().entry(uid.to_owned()).or_default());
        Ticket { uid: uid.to_owned(), changed, waiters: Arc::clone(self) }
    }

    /// Tells those who wait for the pod that it has changed.
    pub(crate) fn wake(&self, uid: &str) {
        if let Some(changed) = self.0.lock().get(uid) {
            changed.notify_waiters();
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl Ticket {
    /// Completes at the next change. Enable it before looking at the pod, so that no change falls in between.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiters = self.waiters.0.lock();
        // One reference is the map's, one ours: nobody else waits.
        if Arc::strong_count(&self.changed) <= 2 {
            waiters.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_wakes_those_who_wait_for_that_pod() {
        let waiters = Arc::new(Waiters::default());
        let (first, second, other) = (waiters.join("a"), waiters.join("a"), waiters.join("b"));
        let (first, second) = (first.changed(), second.changed());
        let mut other = Box::pin(other.changed());
        other.as_mut().enable();
        waiters.wake("a");
        // `notify_waiters` also reaches those that were created before it and not polled yet.
        first.await;
        second.await;
        assert!(futures::poll!(other).is_pending());
    }

    #[test]
    fn nothing_is_left_behind() {
        let waiters = Arc::new(Waiters::default());
        let (first, second) = (waiters.join("a"), waiters.join("a"));
        drop(first);
        assert_eq!(waiters.len(), 1);
        drop(second);
        assert_eq!(waiters.len(), 0);
        waiters.wake("a");
    }
}
