//! Replacing the webhook's replicas one by one, as an upgrade does, fails no call: the promise, and its control.

use anyhow::{Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{Api, api::PostParams};
use serde_json::json;
use spawnery_api::{names::object, v1alpha1::Network};
use spawnery_tests::{
    eventually,
    stack::{Arena, Replica, StackOptions},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_mins(1);
/// The API server keeps connections open between calls, to each replica some.
const CALLERS: usize = 6;
/// Often enough that a call is on its way at any moment, seldom enough to leave the rest of the machine alone.
const PAUSE: Duration = Duration::from_millis(4);
/// How many times a replica is replaced.
const ROUNDS: usize = 4;
/// How many times the control may try: a kill that meets no call fails none.
const CONTROL_ROUNDS: usize = 10;

fn options() -> StackOptions {
    StackOptions { webhooks: 2, shutdown_delay: "2s".to_owned(), ..StackOptions::default() }
}

/// Edits that the webhook has to judge (`failurePolicy: Fail`), again and again, and what came of them.
struct Calls {
    done: Arc<AtomicU32>,
    failed: Arc<parking_lot::Mutex<Vec<String>>>,
    stop: CancellationToken,
}

impl Calls {
    async fn start(arena: &Arena) -> Result<Self> {
        let calls = Self { done: Arc::default(), failed: Arc::default(), stop: CancellationToken::new() };
        let client = arena.stack().cluster().client().await?;
        let networks: Api<Network> = Api::namespaced(client, arena.namespace());
        let network: Network = serde_json::from_value(json!({
            "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Network", "metadata": { "name": "asked-about" },
            "spec": { "forwardingSecretRef": { "name": "forwarding" } },
        }))?;
        for _ in 0..CALLERS {
            let (networks, network) = (networks.clone(), network.clone());
            let (done, failed) = (Arc::clone(&calls.done), Arc::clone(&calls.failed));
            let ask = async move {
                loop {
                    let params = PostParams { dry_run: true, ..PostParams::default() };
                    match networks.create(&params, &network).await {
                        Ok(_) => _ = done.fetch_add(1, Ordering::Relaxed),
                        Err(error) => failed.lock().push(error.to_string()),
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            };
            tokio::spawn(calls.stop.clone().run_until_cancelled_owned(ask));
        }
        calls.wait_more(50).await?;
        Ok(calls)
    }

    /// Waits until so many more calls have gone through.
    async fn wait_more(&self, more: u32) -> Result<()> {
        let want = self.done.load(Ordering::Relaxed) + more;
        eventually(LIMIT, "calls to go through", || async {
            let done = self.done.load(Ordering::Relaxed);
            ensure!(done >= want, "{done} of {want}; failed: {:?}", self.failed.lock());
            Ok(())
        })
        .await
    }

    fn failed(&self) -> Vec<String> {
        self.failed.lock().clone()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The webhook is asked about edits only once the leader has registered it.
async fn wait_registered(arena: &Arena) -> Result<()> {
    let client = arena.stack().cluster().client().await?;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let name = object::WEBHOOK_CONFIGURATION;
    eventually(LIMIT, "the webhook to be registered", || async { Ok(configurations.get(name).await?) }).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_webhooks_fails_no_call() -> Result<()> {
    Arena::run("upgrade", options(), async |arena| {
        wait_registered(&arena).await?;
        let calls = Calls::start(&arena).await?;
        for _ in 0..ROUNDS {
            let replica = busiest(&arena, &calls).await?;
            replica.stop().await?;
            calls.wait_more(50).await?;
            replica.start()?;
            replica.wait_ready(LIMIT).await?;
        }
        let failed = calls.failed();
        ensure!(failed.is_empty(), "{} calls failed, such as {:?}", failed.len(), failed.first());
        Ok(())
    })
    .await
}

/// The replica that is asked now: the API server keeps its connections, and all may lead to one.
async fn busiest<'a>(arena: &'a Arena, calls: &Calls) -> Result<&'a Replica> {
    let (first, second) = (arena.stack().webhook(0)?, arena.stack().webhook(1)?);
    let before = (reviews(first).await?, reviews(second).await?);
    calls.wait_more(20).await?;
    let after = (reviews(first).await?, reviews(second).await?);
    Ok(if after.0 - before.0 >= after.1 - before.1 { first } else { second })
}

/// How many edits this replica has judged.
async fn reviews(replica: &Replica) -> Result<u64> {
    let metrics = replica.metrics().await?;
    let counted = metrics
        .lines()
        .filter(|line| line.starts_with("spawnery_webhook_decisions_total{") && line.contains("endpoint=\"validate\""));
    counted.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?)).sum()
}

/// The same replacement, without a farewell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_webhooks_fails_calls() -> Result<()> {
    Arena::run("upgrade-control", options(), async |arena| {
        wait_registered(&arena).await?;
        let calls = Calls::start(&arena).await?;
        for _ in 0..CONTROL_ROUNDS {
            let replica = busiest(&arena, &calls).await?;
            replica.kill().await?;
            calls.wait_more(20).await?;
            replica.start()?;
            replica.wait_ready(LIMIT).await?;
            if !calls.failed().is_empty() {
                return Ok(());
            }
        }
        anyhow::bail!("{CONTROL_ROUNDS} kills failed no call: the test above could not fail either")
    })
    .await
}
