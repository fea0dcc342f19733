//! The end of a pod as a kubelet makes it: its pre-stop hook is called and waited for, at most as long as its grace; then
//! its game and its agent end, and the pod is taken off the API.

use super::{PodFacts, World};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// Says whose business the end of a pod is; kwok leaves those alone that say [`RUNNER`].
const END: &str = "tests.spawnery.cloud/end";
/// The value of [`END`].
const RUNNER: &str = "runner";
/// A call of ours to the API server; it may be frozen by the test.
const CALL_LIMIT: Duration = Duration::from_secs(5);

/// Takes the end of a pod upon the runner.
pub(super) async fn claim(world: &World, facts: &PodFacts) -> Result<()> {
    let patch = json!({ "metadata": { "uid": facts.uid, "annotations": { END: RUNNER } } });
    let (pods, params) = (pods(world, facts), PatchParams::default());
    timeout(CALL_LIMIT, pods.patch(&facts.name, &params, &Patch::Merge(&patch))).await.context("no answer")??;
    Ok(())
}

/// Calls the pre-stop hook, if the pod has one. A hook that cannot be called holds nothing up, as with a kubelet.
pub(super) async fn pre_stop(facts: &PodFacts, grace: Duration) {
    let Some((port, path)) = facts.pre_stop.as_ref().filter(|_| !grace.is_zero()) else { return };
    let Ok(address) = format!("http://{}{path}", facts.at(*port)).parse() else { return };
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    match timeout(grace, client.get(address)).await {
        Ok(Ok(answer)) => tracing::debug!(pod = facts.name, status = %answer.status(), "the pre-stop hook is done"),
        Ok(Err(error)) => tracing::debug!(pod = facts.name, %error, "the pre-stop hook failed"),
        Err(_) => tracing::debug!(pod = facts.name, "the pre-stop hook took all of the grace"),
    }
}

/// Takes the pod off the API. One that is gone already is no fault.
pub(super) async fn remove(world: &World, facts: &PodFacts) -> Result<()> {
    let uid = Preconditions { uid: Some(facts.uid.clone()), resource_version: None };
    let params = DeleteParams::default().grace_period(0).preconditions(uid);
    match timeout(CALL_LIMIT, pods(world, facts).delete(&facts.name, &params)).await.context("no answer")? {
        Err(error) if !matches!(&error, kube::Error::Api(status) if status.code == 404 || status.code == 409) => {
            Err(error.into())
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn pods(world: &World, facts: &PodFacts) -> Api<Pod> {
    Api::namespaced(world.client.clone(), &facts.namespace)
}
