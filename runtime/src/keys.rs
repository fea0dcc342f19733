//! A queue of keys in which each waits at most once.
//!
//! Watches and agents push faster than a controller reconciles; because a key that waits already is not added again,
//! the queue is never longer than there are objects, and a burst about one object costs one reconcile.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::Stream;
use futures::task::AtomicWaker;
use parking_lot::Mutex;

/// Keys that wait at most; more than any cluster has objects, so only a defect or an attack reaches it.
const BOUND: usize = 200_000;

struct Shared<T> {
    waiting: Mutex<Waiting<T>>,
    waker: AtomicWaker,
    senders: AtomicU64,
    dropped: AtomicU64,
}

struct Waiting<T> {
    order: VecDeque<T>,
    members: HashSet<T>,
}

/// The pushing end; cheap to clone.
pub struct KeySender<T>(Arc<Shared<T>>);

/// The pulling end: a stream that ends when every sender is gone and nothing waits.
pub struct KeyStream<T>(Arc<Shared<T>>);

/// A new queue.
pub fn keys<T: Eq + Hash + Clone>() -> (KeySender<T>, KeyStream<T>) {
    let shared = Arc::new(Shared {
        waiting: Mutex::new(Waiting { order: VecDeque::new(), members: HashSet::new() }),
        waker: AtomicWaker::new(),
        senders: AtomicU64::new(1),
        dropped: AtomicU64::new(0),
    });
    (KeySender(Arc::clone(&shared)), KeyStream(shared))
}

impl<T: Eq + Hash + Clone> KeySender<T> {
    /// Adds a key unless it waits already. Never blocks.
    pub fn send(&self, key: T) {
        let mut waiting = self.0.waiting.lock();
        if waiting.members.len() >= BOUND {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if waiting.members.insert(key.clone()) {
            waiting.order.push_back(key);
            drop(waiting);
            self.0.waker.wake();
        }
    }

    /// Adds several keys.
    pub fn send_all(&self, keys: impl IntoIterator<Item = T>) {
        keys.into_iter().for_each(|key| self.send(key));
    }

    /// How many keys wait.
    pub fn len(&self) -> usize {
        self.0.waiting.lock().order.len()
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys were refused because the queue was full; the periodic resync makes up for them.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl<T> Clone for KeySender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for KeySender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.waker.wake();
        }
    }
}

impl<T: Eq + Hash> Stream for KeyStream<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        // Registered before looking, so that a key pushed in between wakes us.
        self.0.waker.register(cx.waker());
        let gone = self.0.senders.load(Ordering::Acquire) == 0;
        let mut waiting = self.0.waiting.lock();
        match waiting.order.pop_front() {
            Some(key) => {
                waiting.members.remove(&key);
                Poll::Ready(Some(key))
            }
            None if gone => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl<T> std::fmt::Debug for KeySender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeySender").field("waiting", &self.0.waiting.lock().order.len()).finish()
    }
}

impl<T> std::fmt::Debug for KeyStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyStream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    #[tokio::test]
    async fn a_waiting_key_is_not_added_twice() {
        let (sender, stream) = keys();
        sender.send_all(["a", "b", "a", "a"]);
        drop(sender);
        assert_eq!(stream.collect::<Vec<_>>().await, ["a", "b"]);
    }

    #[tokio::test]
    async fn a_key_that_was_taken_can_be_added_again() {
        let (sender, mut stream) = keys();
        sender.send("a");
        assert_eq!(stream.next().await, Some("a"));
        sender.send("a");
        assert_eq!(stream.next().await, Some("a"));
        assert!(stream.next().now_or_never().is_none(), "nothing waits any more");
    }

    #[tokio::test]
    async fn a_sleeping_reader_is_woken() {
        let (sender, mut stream) = keys();
        let reader = tokio::spawn(async move { stream.next().await });
        tokio::task::yield_now().await;
        sender.send(7);
        assert_eq!(reader.await.expect("the reader ends"), Some(7));
    }
}
