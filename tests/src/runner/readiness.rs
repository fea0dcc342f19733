//! The readiness probe of a pod, and what its status says of its container.

use super::{PodFacts, World};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::{net::TcpStream, sync::Mutex, time::timeout};

/// Between two probes. A kubelet takes seconds; tests need not wait for that.
const INTERVAL: Duration = Duration::from_millis(200);
/// A probe on loopback that takes longer has failed.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// A call of ours to the API server; it may be frozen by the test.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// What a process ends with that was killed.
const KILLED: i32 = 128 + 9;

/// Held by whoever changes the pod's status, which is read and written as a whole.
pub(super) type StatusLock = Mutex<()>;

/// Probes for as long as the pod lives, and writes each change to its status.
pub(super) async fn keep(world: &World, facts: &PodFacts, lock: &StatusLock) {
    let address = facts.at(facts.probe_port);
    let mut written = None;
    loop {
        let ready = matches!(timeout(PROBE_LIMIT, TcpStream::connect(address)).await, Ok(Ok(_)));
        // kwok starts a pod that has a probe unready.
        if written.unwrap_or_default() != ready {
            match write(world, facts, lock, ready).await {
                Ok(()) => written = Some(ready),
                Err(error) => tracing::debug!(pod = facts.name, error = %format!("{error:#}"), "could not set Ready"),
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Writes the conditions, and the container's state as it is, with `ready` in it.
async fn write(world: &World, facts: &PodFacts, lock: &StatusLock, ready: bool) -> Result<()> {
    let status = if ready { "True" } else { "False" };
    let condition = |kind: &str| json!({ "type": kind, "status": status, "lastTransitionTime": now() });
    change(world, facts, lock, |containers| {
        for container in containers {
            container.insert("ready".to_owned(), json!(ready));
        }
        json!([condition("Ready"), condition("ContainersReady")])
    })
    .await
}

/// Says that the container has ended, as a kubelet does before it starts it again.
pub(super) async fn say_ended(world: &World, facts: &PodFacts, lock: &StatusLock) -> Result<()> {
    change(world, facts, lock, |containers| {
        for container in containers {
            let begin = container.get("state").and_then(|state| state.pointer("/running/startedAt")).cloned();
            let ended = json!({ "exitCode": KILLED, "reason": "Error", "startedAt": begin, "finishedAt": now() });
            container.insert("state".to_owned(), json!({ "terminated": ended }));
        }
        json!([])
    })
    .await
}

/// Says that the container was started again, as a kubelet does.
pub(super) async fn count_restart(world: &World, facts: &PodFacts, lock: &StatusLock) -> Result<()> {
    change(world, facts, lock, |containers| {
        for container in containers {
            let restarts = container.get("restartCount").and_then(Value::as_i64).unwrap_or_default();
            let before = container.insert("state".to_owned(), json!({ "running": { "startedAt": now() } }));
            container.insert("restartCount".to_owned(), json!(restarts + 1));
            if let Some(ended) = before.filter(|state| state.get("terminated").is_some()) {
                container.insert("lastState".to_owned(), ended);
            }
        }
        json!([])
    })
    .await
}

/// Changes the container states, which can only be written as a whole, and the conditions that the change returns.
async fn change(
    world: &World,
    facts: &PodFacts,
    lock: &StatusLock,
    change: impl FnOnce(&mut Vec<Map<String, Value>>) -> Value,
) -> Result<()> {
    let _status = lock.lock().await;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &facts.namespace);
    let pod = timeout(CALL_LIMIT, pods.get(&facts.name)).await.context("no answer")??;
    let containers = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
    let containers = serde_json::to_value(containers).and_then(serde_json::from_value);
    let mut containers: Vec<Map<String, Value>> = containers.context("not a container status")?;
    let conditions = change(&mut containers);
    let status = json!({ "conditions": conditions, "containerStatuses": containers });
    let patch = Patch::Strategic(json!({ "metadata": { "uid": facts.uid }, "status": status }));
    let params = PatchParams::default();
    timeout(CALL_LIMIT, pods.patch_status(&facts.name, &params, &patch)).await.context("no answer")??;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the kubelet's stand-in writes when things happened; no decision reads it"
)]
fn now() -> jiff::Timestamp {
    // Kubernetes' times have no fractions.
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Second).unwrap_or(now)
}
