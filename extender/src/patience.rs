//! The two cases in which an answer waits a moment for our own watches, because at once it would be a worse one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spawnery_core::placement::depends;
use tokio::sync::Notify;

use crate::App;
use crate::answers::sift;
use crate::index::Asked;
use crate::metrics::Awaited;
use crate::wire::{Call, Filtered};

/// Longest wait for where the last pod went. Seeing that takes some 10 ms; a scheduler waits 500 ms for us, and places
/// nothing meanwhile.
const LAST_POD: Duration = Duration::from_millis(100);
/// How far our watches may be behind the scheduler's when it asks because of what it has just seen.
const LAG: Duration = Duration::from_millis(100);
/// Waits for our watches that may follow each other at once. Pods that fit nowhere are asked about at every event in the
/// cluster; when these are used up, events are frequent, and the next one has the scheduler ask again.
const LAGS: u32 = 5;
/// For one more of them: all together they take a tenth of the scheduler's time at the most.
const LAG_EVERY: Duration = Duration::from_secs(1);

/// What waits share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patience(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    changed: Notify,
    lags: Mutex<Lags>,
}

/// Waits for our watches that are left.
#[derive(Debug, Default)]
struct Lags {
    used: u32,
    since: Option<Instant>,
}

impl Lags {
    /// Takes one, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let back = now.saturating_duration_since(since).as_millis() / LAG_EVERY.as_millis().max(1);
        if back > 0 {
            self.used = self.used.saturating_sub(u32::try_from(back).unwrap_or(u32::MAX));
            self.since = Some(now);
        }
        let left = self.used < LAGS;
        self.used += u32::from(left);
        left
    }
}

impl Patience {
    /// The index has changed, or a pod has ended its flight: those who wait look again.
    pub(crate) fn look_again(&self) {
        self.0.changed.notify_waiters();
    }

    /// Waits until `done`, looking after every change, at most for `limit`; whether it was.
    async fn until(&self, limit: Duration, done: impl Fn() -> bool) -> bool {
        let looks = async {
            loop {
                // Before the look, so that no change falls in between.
                let changed = self.0.changed.notified();
                if done() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(limit, looks).await.is_ok()
    }
}

/// The answer to `filter`, after waiting where that makes it a better one, and for how long it waited.
pub(crate) async fn filter<'a>(app: &App, asked: &Asked, call: &'a Call<'_>) -> (Filtered<'a>, Duration) {
    let mut waited = Duration::ZERO;
    let hangs = || {
        let Some(under_way) = app.flights.under_way(asked, call.pod.uid(), app.clock.now()) else { return false };
        let index = app.index.read();
        let seen = index.seen_by(asked);
        let mut places = call.nodes.iter().filter_map(|node| seen.place(node.as_str()));
        places.any(|place| depends(asked.newcomer, under_way, &place))
    };
    if hangs() {
        let begin = app.clock.now();
        let seen = app.patience.until(LAST_POD, || !hangs()).await;
        app.metrics.waited(Awaited::LastPod, seen);
        waited += app.clock.now().saturating_duration_since(begin);
    }
    let look = || sift(&app.index.read(), Some(asked), &call.nodes);
    let filtered = look();
    // The scheduler asks again about a pod that fitted nowhere because it has seen something change. If our watch shows
    // that after we have refused once more, nothing makes the scheduler ask a third time.
    if !filtered.fits_nowhere() || !app.patience.0.lags.lock().take(app.clock.now()) {
        return (filtered, waited);
    }
    let begin = app.clock.now();
    let seen = app.patience.until(LAG, || !look().fits_nowhere()).await;
    app.metrics.waited(Awaited::OwnWatch, seen);
    waited += app.clock.now().saturating_duration_since(begin);
    (look(), waited)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn waits_run_out_and_come_back() {
        let (mut lags, now) = (Lags::default(), Instant::now());
        assert!((0..LAGS).all(|_| lags.take(now)));
        assert!(!lags.take(now + LAG_EVERY / 2));
        assert!(lags.take(now + LAG_EVERY));
        assert!(!lags.take(now + LAG_EVERY + LAG_EVERY / 2));
        let later = now + LAG_EVERY * 60;
        assert_eq!((0..2 * LAGS).filter(|_| lags.take(later)).count(), usize::try_from(LAGS).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_ends_the_wait_and_its_limit_does() {
        let (patience, done) = (Patience::default(), Arc::new(AtomicBool::new(false)));
        assert!(!patience.until(LAG, || done.load(Ordering::Relaxed)).await);
        let (tells, sets) = (patience.clone(), Arc::clone(&done));
        let change = tokio::spawn(async move {
            tokio::time::sleep(LAG / 2).await;
            sets.store(true, Ordering::Relaxed);
            tells.look_again();
        });
        assert!(patience.until(LAG, || done.load(Ordering::Relaxed)).await);
        change.await.unwrap();
    }
}
