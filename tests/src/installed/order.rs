//! Whether the webhook was registered before the replicas that `helm install --wait` waits for were ready.
//!
//! A command that follows an installation may be lucky or not; what came first is a fact. It is read from watches, by
//! resource version: etcd counts all writes of a cluster in one sequence, whatever kind they are of.

use super::{OPERATOR_NAMESPACE, ground::is_ready};
use crate::eventually::eventually;
use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Pod};
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use parking_lot::Mutex;
use spawnery_api::names::{label, object};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What a watch tells comes within milliseconds.
const TOLD_LIMIT: Duration = Duration::from_secs(30);

/// A write, and when we heard of it.
#[derive(Debug, Clone, Copy)]
struct Write {
    version: u64,
    at: Instant,
}

#[derive(Debug, Default)]
struct Seen {
    registered: Option<Write>,
    /// The first write that shows a replica of the reconciler as Ready, by pod.
    ready: BTreeMap<String, Write>,
}

/// Somebody who watches from before an installation. Dropping it ends that.
#[derive(Debug)]
pub struct Order {
    seen: Arc<Mutex<Seen>>,
    _stop: DropGuard,
}

impl Order {
    /// Begins to watch, while nothing is installed.
    pub fn begin(client: &kube::Client) -> Self {
        let (seen, stop) = (Arc::new(Mutex::new(Seen::default())), CancellationToken::new());
        let pods: Api<Pod> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
        let replicas = watcher::Config::default().labels(&format!("{}=reconciler", label::PART));
        let told = Arc::clone(&seen);
        let watch = watcher(pods, replicas).applied_objects().try_for_each(move |pod| {
            if let (true, Some(write)) = (is_ready(&pod), write(&pod)) {
                told.lock().ready.entry(pod.name_any()).or_insert(write);
            }
            std::future::ready(Ok(()))
        });
        tokio::spawn(stop.clone().run_until_cancelled_owned(watch));
        let registrations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let ours = watcher::Config::default().fields(&format!("metadata.name={}", object::WEBHOOK_CONFIGURATION));
        let told = Arc::clone(&seen);
        let watch = watcher(registrations, ours).applied_objects().try_for_each(move |registration| {
            let mut seen = told.lock();
            seen.registered = seen.registered.or_else(|| write(&registration));
            std::future::ready(Ok(()))
        });
        tokio::spawn(stop.clone().run_until_cancelled_owned(watch));
        Self { seen, _stop: stop.drop_guard() }
    }

    /// Waits until `replicas` have been seen ready, and returns how long after the registration the first of them was.
    ///
    /// # Errors
    /// When one was ready before there was a registration.
    pub async fn registered_first(&self, replicas: usize) -> Result<Duration> {
        let told = eventually(TOLD_LIMIT, "the registration and the ready replicas to be told", || async {
            let seen = self.seen.lock();
            let registered = seen.registered.context("no registration")?;
            ensure!(seen.ready.len() >= replicas, "ready: {:?}", seen.ready.keys());
            Ok((registered, seen.ready.clone()))
        });
        let (registered, ready) = told.await?;
        let early: Vec<_> =
            ready.iter().filter(|(_, ready)| ready.version < registered.version).map(|(pod, _)| pod).collect();
        ensure!(early.is_empty(), "ready before the webhook was registered: {early:?}");
        let first = ready.values().map(|ready| ready.at).min().context("no replica")?;
        Ok(first.saturating_duration_since(registered.at))
    }
}

fn write(object: &impl Resource) -> Option<Write> {
    let version = object.meta().resource_version.as_deref()?.parse().ok()?;
    Some(Write { version, at: Instant::now() })
}
