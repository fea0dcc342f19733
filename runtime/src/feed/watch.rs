//! Drives list and watch for one feed.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::core::WatchEvent;
use rand::Rng as _;

use super::mirror::Mirror;
use super::wire::Unreadable;
use super::{Fed, Health, Selector, Wire};
use crate::client::{CALL, CallError, LIST, deadline};
use crate::clock::Clock;

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// The API server sends a bookmark about every minute, but none while nothing at all has happened since the list. Silent
/// for longer, a watch is quiet or dead, and nobody can tell; a new list (rather than a new watch, which proves nothing)
/// keeps the store's age below the 90 s at which readers distrust it.
const SILENT: Duration = Duration::from_secs(75);
/// Longest pause after failures in a row.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Fills a feed until it is dropped.
pub struct FeedTask<K: Fed, G = K> {
    name: &'static str,
    api: Api<G>,
    selector: Selector,
    mirror: Mirror<K>,
    health: Arc<Health>,
    clock: Clock,
}

impl<K: Fed, G> std::fmt::Debug for FeedTask<K, G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedTask").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where to go on after a watch ended.
enum Next {
    /// Watch on from this version.
    Watch(String),
    /// That version is too old, or the watch went silent.
    List,
}

impl<K: Fed, G: Wire<K>> FeedTask<K, G> {
    pub(super) fn new(
        name: &'static str,
        api: Api<G>,
        selector: Selector,
        mirror: Mirror<K>,
        health: Arc<Health>,
        clock: Clock,
    ) -> Self {
        Self { name, api, selector, mirror, health, clock }
    }

    /// Lists, watches, and starts over whenever that is needed; never ends by itself.
    ///
    /// # Errors
    /// None; the type is that of supervised tasks.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let mut failures = 0_u32;
        let mut next = Next::List;
        loop {
            let version = match next {
                Next::Watch(version) => version,
                Next::List => match self.list().await {
                    Ok(version) => version,
                    Err(error) => {
                        failures = self.pause(failures, "list", &error).await;
                        next = Next::List;
                        continue;
                    }
                },
            };
            next = match self.watch(version, &mut failures).await {
                Ok(next) => next,
                Err((version, error)) => {
                    failures = self.pause(failures, "watch", &error).await;
                    Next::Watch(version)
                }
            };
        }
    }

    async fn list(&mut self) -> Result<String, CallError> {
        let Selector { labels, fields } = self.selector.clone();
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        (params.label_selector, params.field_selector) = (labels, fields);
        let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
        let version = loop {
            let page = deadline(LIST, self.api.list(&params)).await?;
            for item in page.items {
                match item.open() {
                    Ok(object) => objects.push(object),
                    Err(object) => unreadable.push(object),
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => break page.metadata.resource_version.unwrap_or_default(),
            }
        };
        let count = objects.len();
        for object in &unreadable {
            self.warn(object);
        }
        self.mirror.listed(objects, &unreadable);
        self.health.heard(self.clock.now());
        if !self.health.synced.send_replace(true) {
            tracing::info!(feed = self.name, objects = count, "first list is complete");
        }
        Ok(version)
    }

    async fn watch(&mut self, mut version: String, failures: &mut u32) -> Result<Next, (String, CallError)> {
        let Selector { labels, fields } = self.selector.clone();
        let params = WatchParams {
            label_selector: labels,
            field_selector: fields,
            // Spread, so that the watches of a process do not all reconnect at once.
            timeout: Some(rand::rng().random_range(240..300)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let stream = match deadline(CALL, self.api.watch(&params, &version)).await {
            Ok(stream) => stream.map_err(CallError::Api),
            Err(error) => return gone_or(error, version),
        };
        let mut stream = std::pin::pin!(stream);
        loop {
            let Ok(item) = tokio::time::timeout(SILENT, stream.next()).await else {
                tracing::debug!(feed = self.name, silent_seconds = SILENT.as_secs(), "watch went silent, listing anew");
                return Ok(Next::List);
            };
            let event = match item {
                None => return Ok(Next::Watch(version)),
                Some(Err(error)) => return gone_or(error, version),
                Some(Ok(WatchEvent::Error(status))) => return gone_or(kube::Error::Api(status).into(), version),
                Some(Ok(event)) => event,
            };
            *failures = 0;
            let seen = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let seen = object.meta().resource_version.clone();
                    match object.open() {
                        Ok(object) => self.mirror.applied(object),
                        Err(object) => self.warn(&object),
                    }
                    seen
                }
                WatchEvent::Deleted(object) => {
                    let seen = object.meta().resource_version.clone();
                    match object.open() {
                        Ok(object) => self.mirror.deleted(object),
                        Err(object) => self.mirror.deleted_unreadable(&object),
                    }
                    seen
                }
                WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
                WatchEvent::Error(_) => None,
            };
            self.health.heard(self.clock.now());
            if let Some(seen) = seen.filter(|seen| !seen.is_empty()) {
                version = seen;
            }
        }
    }

    fn warn(&self, object: &Unreadable<K>) {
        tracing::warn!(feed = self.name, object = %object.key, error = object.why,
            "left out an object that cannot be read; what was known of it stands");
    }

    async fn pause(&self, failures: u32, what: &str, error: &CallError) -> u32 {
        let ceiling = Duration::from_millis(250).saturating_mul(2_u32.saturating_pow(failures.min(10))).min(MAX_PAUSE);
        let pause = ceiling.mul_f64(rand::rng().random_range(0.5..=1.0));
        tracing::warn!(
            feed = self.name,
            call = what,
            error = error as &dyn std::error::Error,
            attempt = failures + 1,
            pause_ms = pause.as_millis(),
            "could not follow a kind, trying again"
        );
        tokio::time::sleep(pause).await;
        failures.saturating_add(1)
    }
}

fn gone_or(error: CallError, version: String) -> Result<Next, (String, CallError)> {
    match &error {
        CallError::Api(kube::Error::Api(status)) if status.code == 410 => Ok(Next::List),
        _ => Err((version, error)),
    }
}
