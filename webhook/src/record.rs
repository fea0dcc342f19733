//! Writes eviction requests on pods, beside the answering of them.
//!
//! A bounded queue and a few writers: an answer never waits for a write, and a flood of requests never becomes a flood of
//! patches. What does not fit is dropped and counted; the requester asks again within seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use spawnery_api::names::{annotation, manager};
use spawnery_api::view::PodView;
use spawnery_core::eviction::RECORD_EVERY;
use spawnery_core::eviction::request::EvictionRequest;
use spawnery_runtime::client::{CALL, deadline};
use tokio::sync::mpsc;

use crate::metrics::Metrics;

/// Records that wait for a writer; beyond that they are dropped.
const QUEUE: usize = 1024;
/// Writes at once.
const WRITERS: usize = 8;
/// Pods that are remembered before those of more than a minute ago are forgotten.
const MEMORY: usize = 4096;

/// One request to be written.
#[derive(Debug)]
pub(crate) struct Record {
    /// Namespace of the pod.
    pub(crate) namespace: String,
    /// Name of the pod.
    pub(crate) name: String,
    /// UID of the pod that was judged; no other is written to.
    pub(crate) uid: String,
    /// What is written.
    pub(crate) request: EvictionRequest,
}

type Memory = Arc<Mutex<HashMap<String, Instant>>>;

/// The queue's entry, and the memory of what went in.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Record>,
    memory: Memory,
    metrics: Metrics,
}

/// The queue's other end.
pub(crate) struct RecorderTask {
    queue: mpsc::Receiver<Record>,
    memory: Memory,
    metrics: Metrics,
    client: kube::Client,
}

impl Recorder {
    /// A recorder, and the task that writes what it takes. `client` must not retry by itself.
    pub(crate) fn new(client: kube::Client, metrics: Metrics) -> (Self, RecorderTask) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let memory = Memory::default();
        let task = RecorderTask { queue: receiver, memory: Arc::clone(&memory), metrics: metrics.clone(), client };
        (Self { queue: sender, memory, metrics }, task)
    }

    /// How long ago a record for the pod was queued; `None` if it was not, if that is forgotten, or if writing it failed.
    pub(crate) fn queued(&self, uid: &str, now: Instant) -> Option<Duration> {
        self.memory.lock().get(uid).map(|at| now.saturating_duration_since(*at))
    }

    /// Forgets the pod: its record was cleared, or it is gone. The next request for it is written at once.
    pub(crate) fn forget(&self, uid: &str) {
        self.memory.lock().remove(uid);
    }

    /// Queues a record, or drops it if the queue is full.
    pub(crate) fn record(&self, record: Record, now: Instant) {
        let uid = record.uid.clone();
        match self.queue.try_send(record) {
            Ok(()) => {
                let mut memory = self.memory.lock();
                if memory.len() >= MEMORY {
                    memory.retain(|_, at| now.saturating_duration_since(*at) < RECORD_EVERY);
                }
                memory.insert(uid, now);
                self.metrics.record("queued");
            }
            Err(_) => self.metrics.record("dropped"),
        }
    }
}

impl RecorderTask {
    /// Writes until all recorders are gone.
    ///
    /// # Errors
    /// None; the type is that of supervised tasks.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let records = futures::stream::poll_fn(|context| self.queue.poll_recv(context));
        let (memory, metrics, client) = (&self.memory, &self.metrics, &self.client);
        records.for_each_concurrent(WRITERS, |record| write(client, memory, metrics, record)).await;
        Ok(())
    }
}

async fn write(client: &kube::Client, memory: &Memory, metrics: &Metrics, record: Record) {
    let Record { namespace, name, uid, request } = record;
    let api: Api<PodView> = Api::namespaced(client.clone(), &namespace);
    // The UID in the patch makes it fail on another pod of that name.
    let patch = json!({
        "metadata": { "uid": uid, "annotations": { annotation::EVICTION_REQUESTED: request.to_annotation() } },
    });
    let params = PatchParams { field_manager: Some(manager::EVICTION_RECORD.to_owned()), ..PatchParams::default() };
    match deadline(CALL, api.patch_subresource("status", &name, &params, &Patch::Merge(&patch))).await {
        Ok(_) => metrics.record("written"),
        Err(error) if error.is_not_found() || error.is_conflict() || error.is_invalid() => metrics.record("gone"),
        Err(error) => {
            // The next attempt to evict is recorded at once.
            memory.lock().remove(&uid);
            metrics.record("failed");
            tracing::warn!(
                namespace,
                name,
                uid,
                error = &error as &dyn std::error::Error,
                "could not record an eviction request on its pod"
            );
        }
    }
}
