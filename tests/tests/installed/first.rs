//! The first objects that somebody applies, right after `helm install --wait`.

use crate::world::{DECISIONS, World, tell};
use anyhow::{Result, ensure};
use serde_json::json;
use spawnery_tests::command::Output;
use std::time::Instant;

/// What no schema and no CEL rule of the definition sees: the webhook alone refuses it.
const FAULT: &str = "spec.routing.fallbackGroups[1]: \"lobby\" stands in the list already, at [0]";

/// The very first object of an installation has a fault, and is refused. There is no second try.
pub(crate) async fn the_first_object_is_reviewed(world: &World<'_>) -> Result<()> {
    let begin = Instant::now();
    let said = apply_faulty(world).await?;
    ensure!(
        !said.ok() && said.all().contains(FAULT),
        "the first object was not refused by our webhook\n{}",
        said.all()
    );
    tell(&format!("the first object was refused {:.0} ms after helm was done", begin.elapsed().as_secs_f64() * 1e3));
    let calls = world.ground.counted_with("webhook", DECISIONS, r#"decision="rejected""#).await?;
    ensure!(calls == 1, "the webhook has refused {calls} objects");
    Ok(())
}

/// Every object of the first network was reviewed, and every pod of it stamped.
pub(crate) async fn the_first_network_was_reviewed(world: &World<'_>) -> Result<()> {
    let mut reviewed = 0;
    for passed in [r#"endpoint="validate",decision="fine""#, r#"endpoint="validate",decision="warned""#] {
        reviewed += world.ground.counted_with("webhook", DECISIONS, passed).await?;
    }
    ensure!(reviewed == 3, "{reviewed} of a Network, a ServerGroup and a ProxyGroup were reviewed");
    let pods = u64::try_from(world.pods().list(&kube::api::ListParams::default()).await?.items.len())?;
    let stamped = world.ground.counted_with("webhook", DECISIONS, r#"endpoint="mutate-pods""#).await?;
    ensure!(stamped >= pods && pods > 0, "{stamped} of {pods} pods passed the webhook");
    Ok(())
}

/// The control: with nobody to review it, the same object is taken.
pub(crate) async fn without_us_the_first_object_passes(world: &World<'_>) -> Result<()> {
    let said = apply_faulty(world).await?;
    ensure!(said.ok(), "something else than our webhook refuses it\n{}", said.all());
    Ok(())
}

/// On the server's side only: it leaves nothing behind, and is reviewed like any other.
async fn apply_faulty(world: &World<'_>) -> Result<Output> {
    let path = world.cluster.directory().join("faulty.json");
    let group = json!({
        "apiVersion": "spawnery.cloud/v1alpha1",
        "kind": "ProxyGroup",
        "metadata": { "name": "faulty", "namespace": "default" },
        "spec": {
            "networkRef": { "name": "production" },
            "image": "local.test/none:1",
            "replicas": 1,
            "expose": { "type": "HostPort", "hostPort": { "port": 25577 } },
            "routing": { "fallbackGroups": ["lobby", "lobby"] },
        },
    });
    std::fs::write(&path, group.to_string())?;
    world.cluster.kubectl(["apply", "--dry-run=server", "-f", &path.display().to_string()]).await
}
