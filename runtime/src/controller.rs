//! Runs a reconciler over a shared store and a queue of keys.
//!
//! kube's applier does the scheduling: one object is never reconciled twice at once, and an object that is asked for
//! again while it is being reconciled comes round once more. Here are the rules around it: bounded concurrency, delays
//! that grow with the number of failures in a row, every result counted, and an end that nobody asked for is an error.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::runtime::controller::{Action, Config, Error, ReconcileRequest, applier};
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use rand::Rng as _;
use tokio_util::sync::CancellationToken;

use crate::feed::{Fed, Feed};
use crate::keys::{KeySender, KeyStream};

/// What is particular about one controller.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// For logs and metrics.
    pub name: &'static str,
    /// How many objects are reconciled at once.
    pub concurrency: u16,
    /// First delay after a failure; doubles with each further one.
    pub first_retry: Duration,
    /// Longest delay after failures in a row.
    pub last_retry: Duration,
    /// Safety net: every object is looked at again this often, whatever the events say.
    pub resync: Duration,
}

impl Settings {
    /// Customary values under a name.
    pub fn named(name: &'static str) -> Self {
        Self {
            name,
            concurrency: 16,
            first_retry: Duration::from_millis(100),
            last_retry: Duration::from_secs(30),
            resync: Duration::from_secs(30),
        }
    }
}

/// What a reconciler's error says about trying again.
pub trait ReconcileError: std::error::Error + Send + Sync + 'static {
    /// Short constant name for metrics.
    fn label(&self) -> &'static str;
    /// `false` where only a change of the object can help; the resync still comes round.
    fn retryable(&self) -> bool;
}

/// Is told of each finished reconcile: controller, label of the error or `"ok"`, and how long it took.
pub type Observer = Arc<dyn Fn(&'static str, &'static str, Duration) + Send + Sync>;

/// Runs until `stop`; then finishes what is under way.
///
/// `keys` wakes single objects; `wake` is the same queue's other end, used for the resync.
///
/// # Errors
/// When the stream of reconciles ends without `stop`.
pub async fn run<K, C, F, Fut, E>(
    settings: Settings,
    feed: Feed<K>,
    (wake, keys): (KeySender<ObjectRef<K>>, KeyStream<ObjectRef<K>>),
    context: Arc<C>,
    reconcile: F,
    observer: Observer,
    stop: CancellationToken,
) -> anyhow::Result<()>
where
    K: Fed,
    C: Send + Sync + 'static,
    F: Fn(Arc<K>, Arc<C>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
    E: ReconcileError,
{
    feed.wait_synced().await;
    let failures = Arc::new(Failures::default());
    let resync = resync(settings.resync, feed.clone(), wake);
    let requests =
        keys.map(|key| Ok::<_, Infallible>(ReconcileRequest::from(key))).take_until(stop.clone().cancelled_owned());

    let settle = Arc::clone(&failures);
    let timed = move |object: Arc<K>, context: Arc<C>| {
        let key = ObjectRef::from_obj(object.as_ref()).to_string();
        let (settle, observer) = (Arc::clone(&settle), Arc::clone(&observer));
        let started = tokio::time::Instant::now();
        let work = reconcile(object, context);
        Box::pin(async move {
            let result = work.await;
            let label = match &result {
                Ok(_) => {
                    settle.clear(&key);
                    "ok"
                }
                Err(error) => error.label(),
            };
            observer(settings.name, label, started.elapsed());
            result
        })
    };
    let retry = move |object: Arc<K>, error: &E, _: Arc<C>| {
        let key = ObjectRef::from_obj(object.as_ref()).to_string();
        let attempt = failures.add(&key);
        let delay = if error.retryable() { delay(&settings, attempt) } else { settings.resync };
        tracing::warn!(
            controller = settings.name,
            object = key,
            error = error as &dyn std::error::Error,
            attempt,
            retry_ms = delay.as_millis(),
            "could not reconcile"
        );
        Action::requeue(delay)
    };
    let config = Config::default().concurrency(settings.concurrency);
    let results = applier(timed, retry, context, feed.store(), requests, config).for_each(|result| {
        match result {
            Ok((object, _)) => tracing::debug!(controller = settings.name, %object, "reconciled"),
            Err(Error::ObjectNotFound(object)) => tracing::debug!(controller = settings.name, %object, "already gone"),
            // Told by the retry policy above, with its delay.
            Err(Error::ReconcilerFailed(..)) => {}
            Err(error) => tracing::error!(
                controller = settings.name,
                error = &error as &dyn std::error::Error,
                "controller failed"
            ),
        }
        std::future::ready(())
    });
    tokio::select! {
        () = results => {}
        () = resync => {}
    }
    anyhow::ensure!(stop.is_cancelled(), "controller {} ended by itself", settings.name);
    Ok(())
}

async fn resync<K: Fed>(every: Duration, feed: Feed<K>, wake: KeySender<ObjectRef<K>>) {
    loop {
        wake.send_all(feed.all().iter().map(|object| ObjectRef::from_obj(object.as_ref())));
        tokio::time::sleep(every).await;
    }
}

/// Failures in a row by object.
#[derive(Default)]
struct Failures(Mutex<HashMap<String, (u32, Instant)>>);

impl Failures {
    /// Objects remembered at most; beyond it the oldest failures are forgotten.
    const BOUND: usize = 10_000;

    fn add(&self, key: &str) -> u32 {
        let mut counts = self.0.lock();
        if counts.len() >= Self::BOUND && !counts.contains_key(key) {
            let oldest = counts.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| key.clone());
            oldest.map(|oldest| counts.remove(&oldest));
        }
        let entry = counts.entry(key.to_owned()).or_insert_with(|| (0, Instant::now()));
        entry.0 = entry.0.saturating_add(1);
        entry.0
    }

    fn clear(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

/// Half to all of a delay that doubles with each failure in a row, so that failures spread out.
fn delay(settings: &Settings, attempt: u32) -> Duration {
    ceiling(settings, attempt).mul_f64(rand::rng().random_range(0.5..=1.0))
}

fn ceiling(settings: &Settings, attempt: u32) -> Duration {
    let doubled = settings.first_retry.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
    doubled.min(settings.last_retry)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first(1, 100)]
    #[case::doubles(3, 400)]
    #[case::is_capped(20, 30_000)]
    #[case::never_overflows(u32::MAX, 30_000)]
    fn delays_grow(#[case] attempt: u32, #[case] milliseconds: u64) {
        assert_eq!(ceiling(&Settings::named("test"), attempt), Duration::from_millis(milliseconds));
    }

    #[test]
    fn a_success_forgives_failures() {
        let failures = Failures::default();
        assert_eq!((failures.add("a"), failures.add("a"), failures.add("b")), (1, 2, 1));
        failures.clear("a");
        assert_eq!(failures.add("a"), 1);
    }
}
