//! Each verdict, as the API server passes it on.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use spawnery_api::names::{annotation, label};
use spawnery_core::eviction::{CAUSE, Why, request::EvictionRequest};
use spawnery_tests::{Namespace, eventually};
use std::time::{Duration, Instant};

use crate::lone::{Answer, LIMIT, Lone, managed, pod};

async fn in_namespace<F>(name: &str, body: impl FnOnce(&'static Lone, Namespace) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let lone = Lone::shared().await?;
    lone.cluster.with_namespace(name, |namespace| body(lone, namespace)).await
}

fn ensure_refused(answer: &Answer, why: Why) -> Result<()> {
    ensure!(answer.code == 429 && !answer.retry_after, "{answer:?}");
    ensure!(answer.body.pointer("/reason") == Some(&json!("TooManyRequests")), "{answer:?}");
    ensure!(answer.body.pointer("/details/causes/0/reason") == Some(&json!(CAUSE)), "{answer:?}");
    ensure!(
        answer.message().contains("evictions.spawnery.cloud") && answer.message().ends_with(why.message()),
        "{answer:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_occupied_pod_is_refused_whatever_the_version_of_the_body_and_recorded_once() -> Result<()> {
    in_namespace("occupied", async |lone, namespace| {
        let pods = lone.occupied_pod(&namespace, "lobby-abcd").await?;
        lone.make(&namespace, &managed("other", &[(label::OCCUPIED, "true")])).await?;
        lone.wait_seen(&namespace, "other", true).await?;
        ensure!(recorded(&pods, "lobby-abcd").await.is_err(), "dry runs left a record");
        let mark = lone.cluster.audit().mark()?;
        for version in ["policy/v1", "policy/v1beta1", "policy/v1", "policy/v1"] {
            let answer = lone.evict(&namespace, "lobby-abcd", &json!({ "apiVersion": version }), "").await?;
            ensure_refused(&answer, Why::Occupied).context(version)?;
        }
        let record = eventually(LIMIT, "the record on the pod", || recorded(&pods, "lobby-abcd")).await?;
        ensure!(!record.requester.is_empty(), "{record:?}");
        ensure_refused(&lone.evict(&namespace, "lobby-abcd", &Value::Null, "").await?, Why::Occupied)?;
        // A record that is asked for later is written later: once it is there, all earlier ones are.
        ensure_refused(&lone.evict(&namespace, "other", &Value::Null, "").await?, Why::Occupied)?;
        eventually(LIMIT, "one write for each pod", || async {
            let written = |pod: &str| -> Result<usize> {
                let events = lone.cluster.audit().events(mark)?;
                let ours =
                    events.iter().filter(|event| event.namespace() == Some(namespace.name()) && event.verb == "patch");
                Ok(ours.filter(|event| event.resource() == "pods/status" && event.name() == Some(pod)).count())
            };
            ensure!(written("other")? == 1, "the later one is not written yet");
            ensure!(written("lobby-abcd")? == 1, "{} writes", written("lobby-abcd")?);
            Ok(())
        })
        .await
    })
    .await
}

pub(crate) async fn recorded(pods: &Api<Pod>, name: &str) -> Result<EvictionRequest> {
    let pod = pods.get(name).await?;
    let text = pod.annotations().get(annotation::EVICTION_REQUESTED).context("no record")?;
    Ok(EvictionRequest::from_annotation(text)?)
}

#[tokio::test]
async fn a_dry_run_in_either_place_changes_nothing() -> Result<()> {
    in_namespace("dry", async |lone, namespace| {
        let pods = lone.occupied_pod(&namespace, "full").await?;
        lone.make(&namespace, &managed("empty", &[])).await?;
        lone.wait_seen(&namespace, "empty", false).await?;
        let before = (pods.get("full").await?, pods.get("empty").await?);
        let body = json!({ "deleteOptions": { "dryRun": ["All"] } });
        for (more, query) in [(&body, ""), (&json!({ "deleteOptions": {} }), "?dryRun=All")] {
            ensure_refused(&lone.evict(&namespace, "full", more, query).await?, Why::Occupied)?;
            let begin = Instant::now();
            let empty = lone.evict(&namespace, "empty", more, query).await?;
            ensure!(empty.code == 201 && begin.elapsed() < Duration::from_secs(1), "{empty:?}");
            ensure!(empty.warnings.iter().any(|warning| warning.contains("door")), "{empty:?}");
        }
        let after = (pods.get("full").await?, pods.get("empty").await?);
        ensure!(before == after, "something was written");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_seal_ends_a_hold_and_the_first_attempt_succeeds() -> Result<()> {
    in_namespace("held", async |lone, namespace| {
        let pods = lone.occupied_pod(&namespace, "other").await?;
        lone.make(&namespace, &managed("empty", &[])).await?;
        lone.wait_seen(&namespace, "empty", false).await?;
        let leader = async {
            // The leader acts on the record.
            eventually(LIMIT, "the record on the pod", || recorded(&pods, "empty")).await?;
            lone.label(&namespace, "empty", &json!({ label::SEALED: "true" })).await
        };
        let begin = Instant::now();
        let (answer, led) = tokio::join!(lone.evict(&namespace, "empty", &Value::Null, ""), leader);
        led?;
        let answer = answer?;
        ensure!(answer.code == 201, "{answer:?}");
        println!("the first attempt took {:?}", begin.elapsed());
        eventually(LIMIT, "the pod to go", || async {
            ensure!(pods.get_opt("empty").await?.is_none(), "still there");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn an_empty_pod_that_nobody_seals_is_refused_in_time() -> Result<()> {
    in_namespace("open", async |lone, namespace| {
        lone.occupied_pod(&namespace, "other").await?;
        lone.make(&namespace, &managed("empty", &[])).await?;
        lone.wait_seen(&namespace, "empty", false).await?;
        let begin = Instant::now();
        ensure_refused(&lone.evict(&namespace, "empty", &Value::Null, "").await?, Why::Open)?;
        let held = begin.elapsed();
        ensure!((Duration::from_millis(1_400)..Duration::from_millis(2_500)).contains(&held), "held {held:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_none_of_our_business_goes_its_way() -> Result<()> {
    in_namespace("passes", async |lone, namespace| {
        let pods = lone.occupied_pod(&namespace, "full").await?;
        let other = json!({ "deleteOptions": { "preconditions": { "uid": "00000000-0000-0000-0000-000000000000" } } });
        let answer = lone.evict(&namespace, "full", &other, "").await?;
        ensure!(answer.code == 409, "the UID of another pod: {answer:?}");
        ensure!(pods.get("full").await?.metadata.deletion_timestamp.is_none());
        let answer = lone.evict(&namespace, "nobody", &Value::Null, "").await?;
        ensure!(answer.code == 404, "a pod that does not exist: {answer:?}");
        lone.make(&namespace, &pod("foreign", &json!({ "app": "other", label::OCCUPIED: "true" }))).await?;
        let answer = lone.evict(&namespace, "foreign", &Value::Null, "").await?;
        ensure!(answer.code == 201, "a pod that is not ours: {answer:?}");
        lone.label(&namespace, "full", &json!({ label::SEALED: "true" })).await?;
        eventually(LIMIT, "the eviction of a sealed pod", || async {
            let answer = lone.evict(&namespace, "full", &Value::Null, "").await?;
            ensure!(answer.code == 201, "{answer:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn a_pod_in_a_namespace_without_a_network_goes_its_way() -> Result<()> {
    in_namespace("without", async |lone, namespace| {
        lone.make(&namespace, &pod("foreign", &json!({ "app": "other" }))).await?;
        let answer = lone.evict(&namespace, "foreign", &Value::Null, "").await?;
        ensure!(answer.code == 201, "{answer:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_forged_stamp_is_corrected() -> Result<()> {
    in_namespace("stamp", async |lone, namespace| {
        let inputs = r#"{"image":"paper:1","role":"server"}"#;
        let mut forged = managed("forged", &[(label::POD_HASH, "0000000000000000")]);
        forged["metadata"]["annotations"] = json!({ annotation::POD_INPUTS: inputs });
        let made = lone.make(&namespace, &forged).await?;
        let want = spawnery_core::pod_hash::of_annotation(inputs)?;
        ensure!(made.labels().get(label::POD_HASH).map(String::as_str) == Some(want.as_str()), "{:?}", made.labels());
        let without = managed("without-inputs", &[(label::POD_HASH, "0000000000000000")]);
        let made = lone.make(&namespace, &without).await?;
        ensure!(
            made.labels().get(label::POD_HASH).map(String::as_str) == Some("0000000000000000"),
            "{:?}",
            made.labels()
        );
        ensure!(made.labels().len() == 5, "{:?}", made.labels());
        Ok(())
    })
    .await
}
