//! Runs a reconciler over a shared store and a queue of keys.
//!
//! kube's applier does the scheduling: one object is never reconciled twice at once, and an object that is asked for
//! again while it is being reconciled comes round once more. Here are the rules around it: bounded concurrency, delays
//! that grow with the number of failures in a row and hold against wake-ups, every result counted, and an end that nobody
//! asked for is an error.

mod retries;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::controller::{Action, Config, Error, ReconcileRequest, applier};
use kube::runtime::reflector::ObjectRef;
use tokio_util::sync::CancellationToken;

use crate::feed::{Fed, Feed};
use crate::keys::{KeySender, KeyStream};
use retries::Retries;

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
    /// `false` where somebody has to set something right of which we do not hear, such as a right: wake-ups then wait for
    /// the growing delay too, unless the object was edited, is to go, or the [`Era`] is another.
    fn retryable(&self) -> bool;
}

/// What all reconciles of a controller share, as far as failures depend on it.
pub trait Era: Send + Sync + 'static {
    /// A number that changes when objects that failed have to be looked at again without delay.
    fn era(&self) -> u64 {
        0
    }
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
    C: Era,
    F: Fn(Arc<K>, Arc<C>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
    E: ReconcileError,
{
    feed.wait_synced().await;
    let retries = Arc::new(Retries::new(settings));
    let resync = resync(settings.resync, feed.clone(), wake);
    let requests =
        keys.map(|key| Ok::<_, Infallible>(ReconcileRequest::from(key))).take_until(stop.clone().cancelled_owned());

    let settle = Arc::clone(&retries);
    let timed = move |object: Arc<K>, context: Arc<C>| {
        let (settle, observer) = (Arc::clone(&settle), Arc::clone(&observer));
        let started = tokio::time::Instant::now();
        let work = match settle.held(object.as_ref(), context.era()) {
            None => Ok(reconcile(Arc::clone(&object), context)),
            Some(left) => Err(left),
        };
        Box::pin(async move {
            let result = match work {
                Ok(work) => work.await,
                Err(left) => return Ok(Action::requeue(left)),
            };
            let label = match &result {
                Ok(_) => {
                    settle.succeeded(object.as_ref());
                    "ok"
                }
                Err(error) => error.label(),
            };
            observer(settings.name, label, started.elapsed());
            result
        })
    };
    let retry = move |object: Arc<K>, error: &E, context: Arc<C>| {
        let failure = retries.failed(object.as_ref(), error, context.era());
        tracing::warn!(
            controller = settings.name,
            object = %ObjectRef::from_obj(object.as_ref()),
            error = error as &dyn std::error::Error,
            attempt = failure.attempt,
            retry_ms = failure.delay.as_millis(),
            "could not reconcile"
        );
        Action::requeue(failure.delay)
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

#[cfg(test)]
mod tests;
