//! The same without our work: what the machine and the API server take for themselves.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use spawnery_certs::Pair;
use spawnery_tests::bench::{Samples, Sightings};
use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

/// What a watch must have shown by then.
const LIMIT: Duration = Duration::from_secs(30);
/// Of the object that stands for a Server.
const PAYLOAD_BYTES: usize = 1500;

/// How long after its creation was asked for a watch shows an object that nobody else cares about.
pub(super) async fn creates(client: &kube::Client, namespace: &str, count: u32) -> Result<Samples> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let mut sightings = Sightings::begin(api.clone()).await?;
    let mut times = Vec::new();
    for n in 0..count {
        let name = format!("bare-{n}");
        let data = [("payload".to_owned(), "x".repeat(PAYLOAD_BYTES))].into();
        let metadata = kube::api::ObjectMeta { name: Some(name.clone()), ..Default::default() };
        let object = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        let begin = Instant::now();
        api.create(&PostParams::default(), &object).await.context("could not create an object")?;
        let (at, _) = sightings.wait(LIMIT, "new object", |object| object.name_any() == name).await?;
        times.push(at.saturating_duration_since(begin));
    }
    Ok(times.into_iter().collect())
}

/// How long after a change of its label was asked for a watch shows it, on a pod that nobody else cares about.
pub(super) async fn labels(client: &kube::Client, namespace: &str, count: u32) -> Result<Samples> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = serde_json::from_value(pod("bare"))?;
    api.create(&PostParams::default(), &pod).await.context("could not create a pod")?;
    let running = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let mut sightings = Sightings::begin(api.clone()).await?;
    if !running(&api.get("bare").await?) {
        sightings.wait(LIMIT, "running pod", |pod| pod.name_any() == "bare" && running(pod)).await?;
    }
    let mut times = Vec::new();
    for n in 0..count {
        let value = n.to_string();
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "bench": value } } }));
        let begin = Instant::now();
        api.patch_subresource("status", "bare", &PatchParams::default(), &patch).await.context("could not label")?;
        let labelled = |pod: &Pod| pod.labels().get("bench") == Some(&value);
        let (at, _) = sightings.wait(LIMIT, "changed label", labelled).await?;
        times.push(at.saturating_duration_since(begin));
    }
    Ok(times.into_iter().collect())
}

/// How long a client with nothing else to do takes to bring so many pods to Running, one after another.
pub(super) async fn pods(client: &kube::Client, namespace: &str, count: u32) -> Result<Duration> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut sightings = Sightings::begin(api.clone()).await?;
    let begin = Instant::now();
    for n in 0..count {
        let pod = serde_json::from_value(pod(&format!("bare-{n}")))?;
        api.create(&PostParams::default(), &pod).await.context("could not create a pod")?;
    }
    let mut running = std::collections::BTreeSet::new();
    while running.len() < usize::try_from(count)? {
        let runs = |pod: &Pod| {
            pod.name_any().starts_with("bare-")
                && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        running.insert(sightings.wait(LIMIT, "running pod", runs).await?.1.name_any());
    }
    Ok(begin.elapsed())
}

/// A pod that is nobody's.
fn pod(name: &str) -> serde_json::Value {
    json!({
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": "sleep", "image": "example.test/sleep:1" }] },
    })
}

/// Serves nothing over HTTPS, in a process of its own.
#[derive(Debug, clap::Args)]
pub(crate) struct EmptyArgs {
    /// Where to listen.
    #[arg(long)]
    pub(super) address: SocketAddr,
    /// PEM of the certificate.
    #[arg(long)]
    pub(super) cert: PathBuf,
    /// PEM of its key.
    #[arg(long)]
    pub(super) key: PathBuf,
}

/// Serves nothing until it is killed.
pub(crate) async fn serve_empty(args: &EmptyArgs) -> Result<()> {
    let read =
        |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()));
    let pair = Pair { cert_pem: read(&args.cert)?, key_pem: read(&args.key)? };
    spawnery_tests::bench::serve_empty(args.address, &pair).await
}
