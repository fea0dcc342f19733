//! Another image of ours, under people's feet.

use crate::world::{LIMIT, World, tell};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use spawnery_api::names::label;
use spawnery_tests::{
    eventually,
    installed::{NAMESPACE, OPERATOR_NAMESPACE, OTHER_TAG, Reviews},
    stack::Vigil,
};
use std::time::Instant;

pub(crate) async fn nobody_notices_an_upgrade(world: &mut World<'_>) -> Result<()> {
    let server = world.join_until(5).await?;
    let vigil = Vigil::over(&world.client, NAMESPACE).await?;
    let reviews = Reviews::begin(&world.client, NAMESPACE, &server, "lobby");
    let begin = Instant::now();
    world.ground.follow("Upgrade").await?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), OPERATOR_NAMESPACE);
    eventually(LIMIT, "only pods of the other image", || async {
        let pods = pods.list(&ListParams::default().labels(label::PART)).await?;
        let old = pods.iter().filter(|pod| !runs(pod, OTHER_TAG)).map(ResourceExt::name_any).collect::<Vec<_>>();
        ensure!(old.is_empty(), "of the first image: {old:?}");
        Ok(())
    })
    .await?;
    world.ground.all_ready().await?;
    // A count that comes in shows that the new leader has the agents.
    world.crowd.players().first().context("nobody")?.leave();
    world.shown(4).await?;
    let tally = reviews.tally();
    tell(&format!(
        "upgrade: {:.1} s, {} webhook calls answered, {} failed",
        begin.elapsed().as_secs_f64(),
        tally.answered,
        tally.failures
    ));
    ensure!(tally.failures == 0 && tally.answered > 100, "{tally:#?}");
    vigil.ensure_quiet()?;
    world.crowd.ensure_unharmed()
}

fn runs(pod: &Pod, tag: &str) -> bool {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    containers
        .iter()
        .all(|container| container.image.as_deref().is_some_and(|image| image.ends_with(&format!(":{tag}"))))
}
