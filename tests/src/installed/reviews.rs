//! Calls of our webhooks that never pause, and what became of them.
//!
//! ```text
//!  eviction of an occupied pod, dry ──► must be refused with 429 by the webhook
//!  edit of a group, dry             ──► must be accepted; its webhook must not fail
//! ```
//! Both are dry runs: nothing changes but the counts here. A webhook that cannot be called shows in either: the edit is
//! refused with an internal error, and the eviction is refused by the floor in other words, or goes through.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{EvictParams, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::json;
use spawnery_api::v1alpha1::ServerGroup;
use std::{sync::Arc, time::Duration};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Between two rounds of one eviction and one edit.
const PERIOD: Duration = Duration::from_millis(50);
/// The API server gives a webhook 3 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The webhook's name, which the API server puts before its message.
const WEBHOOK: &str = "evictions.spawnery.cloud";
/// So many failures are kept word by word.
const KEPT: usize = 10;

/// What became of the calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that the webhook answered.
    pub answered: usize,
    /// Calls that it did not: the first of them, word by word.
    pub failed: Vec<String>,
    /// All of those.
    pub failures: usize,
}

/// Whoever asks. Dropping it ends the calls.
#[derive(Debug)]
pub struct Reviews {
    tally: Arc<Mutex<Tally>>,
    _stop: DropGuard,
}

impl Reviews {
    /// Begins to ask about an occupied pod and about its group.
    pub fn begin(client: &kube::Client, namespace: &str, pod: &str, group: &str) -> Self {
        let (tally, stop) = (Arc::new(Mutex::new(Tally::default())), CancellationToken::new());
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let groups: Api<ServerGroup> = Api::namespaced(client.clone(), namespace);
        let task = ask(pods, groups, pod.to_owned(), group.to_owned(), Arc::clone(&tally));
        tokio::spawn(stop.clone().run_until_cancelled_owned(task));
        Self { tally, _stop: stop.drop_guard() }
    }

    /// What became of them so far.
    pub fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }
}

impl Tally {
    fn note(&mut self, answer: Result<()>) {
        let Err(error) = answer else {
            self.answered += 1;
            return;
        };
        self.failures += 1;
        if self.failed.len() < KEPT {
            self.failed.push(format!("{error:#}"));
        }
    }
}

async fn ask(pods: Api<Pod>, groups: Api<ServerGroup>, pod: String, group: String, tally: Arc<Mutex<Tally>>) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for n in 0_u64.. {
        ticks.tick().await;
        let (evicted, edited) = tokio::join!(evict(&pods, &pod), edit(&groups, &group, n));
        let mut tally = tally.lock();
        tally.note(evicted.context("eviction"));
        tally.note(edited.context("edit"));
    }
}

async fn evict(pods: &Api<Pod>, pod: &str) -> Result<()> {
    let post_options = PostParams { dry_run: true, ..PostParams::default() };
    let params = EvictParams { post_options, ..EvictParams::default() };
    match timeout(ANSWER_LIMIT, pods.evict(pod, &params)).await.context("no answer")? {
        Ok(_) => anyhow::bail!("allowed"),
        Err(kube::Error::Api(status)) if status.code == 429 && status.message.contains(WEBHOOK) => Ok(()),
        Err(error) => Err(error).context("not refused by the webhook"),
    }
}

async fn edit(groups: &Api<ServerGroup>, group: &str, n: u64) -> Result<()> {
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    // Another value each time: what changes nothing is not reviewed.
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "example.test/n": n.to_string() } } }));
    timeout(ANSWER_LIMIT, groups.patch(group, &params, &patch)).await.context("no answer")??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failures_are_kept_and_all_are_counted() {
        let mut tally = Tally::default();
        tally.note(Ok(()));
        for n in 0..12 {
            tally.note(Err(anyhow::anyhow!("{n}")));
        }
        assert_eq!((tally.answered, tally.failures, tally.failed.len()), (1, 12, KEPT));
    }
}
