//! Anybody in the cluster can reach the webhook; only the API server is told where to post evictions.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use spawnery_api::names::label;
use spawnery_tests::{Namespace, eventually};

use crate::broken::{code, exchange, post};
use crate::lone::{LIMIT, Lone, managed};
use crate::verdicts::recorded;

/// The requester that a stranger makes up.
const FORGED: &str = "system:serviceaccount:kube-system:node-controller";

/// What a stranger posts: what the API server would, had somebody asked it for an eviction of the pod.
pub(crate) fn forged(namespace: &Namespace, pod: &str) -> String {
    let eviction = json!({ "group": "policy", "version": "v1", "kind": "Eviction" });
    let pods = json!({ "group": "", "version": "v1", "resource": "pods" });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": eviction, "resource": pods, "subResource": "eviction",
            "name": pod, "namespace": namespace.name(), "operation": "CREATE", "dryRun": false,
            "userInfo": { "username": FORGED, "groups": ["system:authenticated"] },
            "object": { "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod } },
        },
    })
    .to_string()
}

#[tokio::test]
async fn a_forged_review_is_not_answered_and_leaves_no_record() -> Result<()> {
    let lone = Lone::shared().await?;
    let story = async |namespace: Namespace| {
        let pods = lone.occupied_pod(&namespace, "lobby-abcd").await?;
        let review = forged(&namespace, "lobby-abcd");
        let strangers = lone.counted("spawnery_webhook_unknown_paths_total").await?;
        let registered = lone.eviction_path().await?;
        let guessed = format!("/evictions/{}", "0".repeat(64));
        let without_the_end = registered.get(..registered.len().saturating_sub(1)).unwrap_or_default();
        let paths = ["/evictions", "/evictions/", &guessed, without_the_end];
        for path in paths {
            let answer = exchange(lone, &post(&format!("{path}?timeout=3s"), &review)).await?;
            ensure!(code(&answer) == "404", "{path}: {answer}");
            ensure!(answer.ends_with("\r\n\r\n"), "{path} is told more than that: {answer}");
        }
        let counted = lone.counted("spawnery_webhook_unknown_paths_total").await? - strangers;
        ensure!(counted == 4, "{counted} of {} counted", paths.len());
        // A pod gets one record a minute, so had any of them been taken, this one would not be written.
        let answer = lone.evict(&namespace, "lobby-abcd", &Value::Null, "").await?;
        ensure!(answer.code == 429, "{answer:?}");
        let record =
            eventually(LIMIT, "the record of an eviction through the API server", || recorded(&pods, "lobby-abcd"));
        let requester = record.await?.requester;
        ensure!(requester != FORGED && !requester.is_empty(), "recorded for {requester:?}");
        // The control: the path was all that was in the way.
        lone.make(&namespace, &managed("other", &[(label::OCCUPIED, "true")])).await?;
        lone.wait_seen(&namespace, "other", true).await?;
        let path = format!("{registered}?timeout=3s");
        let answer = exchange(lone, &post(&path, &forged(&namespace, "other"))).await?;
        ensure!(code(&answer) == "200", "{answer}");
        let record = eventually(LIMIT, "the record of the same review", || recorded(&pods, "other")).await?;
        ensure!(record.requester == FORGED, "{record:?}");
        Ok(())
    };
    lone.cluster.with_namespace("strangers", story).await
}
