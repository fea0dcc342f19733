//! When a watch saw something.

use anyhow::{Context as _, Result, bail};
use futures::TryStreamExt as _;
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use std::{
    fmt::Debug,
    time::{Duration, Instant},
};
use tokio::{
    sync::mpsc::{Receiver, channel},
    time::timeout_at,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Objects that were seen and not yet asked for. A bench asks all the time.
const BACKLOG: usize = 65_536;
/// A list and the start of a watch.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Every object as it appears and changes, with the moment at which a watch of ours was told.
pub struct Sightings<K> {
    seen: Receiver<(Instant, K)>,
    _stop: DropGuard,
}

impl<K> Sightings<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Watches from now on: what is there already does not count.
    ///
    /// # Errors
    /// When the watch does not start.
    pub async fn begin(api: Api<K>) -> Result<Self> {
        let (sender, seen) = channel(BACKLOG);
        let (started, starts) = tokio::sync::oneshot::channel();
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let mut started = Some(started);
            let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default()));
            // A watch that breaks ends the sightings, and whoever waits learns it.
            while let Ok(Some(event)) = events.try_next().await {
                match event {
                    Event::InitDone => drop(started.take().map(|started| started.send(()))),
                    Event::Apply(object) => {
                        if sender.try_send((Instant::now(), object)).is_err() {
                            return;
                        }
                    }
                    Event::Init | Event::InitApply(_) | Event::Delete(_) => {}
                }
            }
        }));
        let started = tokio::time::timeout(START_LIMIT, starts).await.context("the watch does not start")?;
        started.context("the watch broke")?;
        Ok(Self { seen, _stop: stop.drop_guard() })
    }

    /// Waits for an object that is as wanted; the moment at which the watch was told, and the object.
    ///
    /// # Errors
    /// When there is none within `limit`.
    pub async fn wait(&mut self, limit: Duration, what: &str, wanted: impl Fn(&K) -> bool) -> Result<(Instant, K)> {
        let end = tokio::time::Instant::now() + limit;
        loop {
            match timeout_at(end, self.seen.recv()).await {
                Ok(Some((at, object))) if wanted(&object) => return Ok((at, object)),
                Ok(Some(_)) => {}
                Ok(None) => bail!("the watch for {what} broke"),
                Err(_) => bail!("saw no {what} in {limit:?}"),
            }
        }
    }

    /// Forgets what was seen and not asked for.
    pub fn forget(&mut self) {
        while self.seen.try_recv().is_ok() {}
    }
}
