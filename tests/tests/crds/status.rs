//! The status subresource, defaults, and what is dropped.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::spec;
use crate::world::{self, GROUP, Kind, World};

async fn in_namespace<F, Fut>(name: &str, kind: Kind, body: F) -> Result<()>
where
    F: FnOnce(Api<DynamicObject>) -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let world = World::start().await?;
    let client = world.cluster.client().await?;
    world
        .cluster
        .with_namespace(name, |ns| async move { body(world::api(&client, kind, GROUP, ns.name())).await })
        .await
}

#[rstest]
#[case::sixteen_digits("0123456789abcdef", true)]
#[case::empty("", true)]
#[case::too_long("0123456789abcdef0", false)]
#[case::upper_case("0123456789ABCDEF", false)]
#[case::no_digits("0123456789abcdeg", false)]
#[tokio::test]
async fn a_networks_hash_is_sixteen_digits_or_nothing(
    #[case] hash: &'static str,
    #[case] accepted: bool,
) -> Result<()> {
    in_namespace("hash", Kind::Network, |networks| async move {
        let network = world::object(Kind::Network, GROUP, "production", &spec::network())?;
        networks.create(&PostParams::default(), &network).await?;
        let patch = json!({"status": {"forwardingSecretHash": hash}});
        let patched = networks.patch_status("production", &PatchParams::default(), &Patch::Merge(patch)).await;
        ensure!(patched.is_ok() == accepted, "{patched:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn status_is_written_through_its_subresource_alone() -> Result<()> {
    in_namespace("status", Kind::Server, |servers| async move {
        let mut server = world::object(Kind::Server, GROUP, "lobby-abcd", &spec::server())?;
        server.data["status"] = json!({"phase": "Ready", "players": 3});
        let stored = servers.create(&PostParams::default(), &server).await?;
        ensure!(stored.data.get("status").is_none(), "{stored:?}");
        let patch = json!({"status": {"phase": "Ready", "players": 3, "slots": 20, "door": "Closing"}});
        let stored = servers.patch_status("lobby-abcd", &PatchParams::default(), &Patch::Merge(patch)).await?;
        ensure!(
            stored.data["status"] == json!({"phase": "Ready", "players": 3, "slots": 20, "door": "Closing"}),
            "{stored:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn two_writers_of_conditions_do_not_fight() -> Result<()> {
    in_namespace("conditions", Kind::Server, |servers| async move {
        let server = world::object(Kind::Server, GROUP, "lobby-abcd", &spec::server())?;
        servers.create(&PostParams::default(), &server).await?;
        for (manager, kind) in [("one", "Accepted"), ("two", "Ready")] {
            let apply = json!({
                "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Server", "metadata": {"name": "lobby-abcd"},
                "status": {"conditions": [{"type": kind, "status": "True", "reason": "Test", "message": "",
                                           "lastTransitionTime": "2026-11-29T10:00:00Z"}]},
            });
            servers.patch_status("lobby-abcd", &PatchParams::apply(manager), &Patch::Apply(apply)).await?;
        }
        let stored = servers.get("lobby-abcd").await?;
        ensure!(stored.data["status"]["conditions"].as_array().is_some_and(|list| list.len() == 2), "{stored:?}");
        let reasonless = json!({"status": {"conditions": [{"type": "Accepted", "status": "Maybe", "reason": "",
            "message": "", "lastTransitionTime": "2026-11-29T10:00:00Z"}]}});
        let refused = servers.patch_status("lobby-abcd", &PatchParams::default(), &Patch::Merge(reasonless)).await;
        ensure!(refused.is_err(), "{refused:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn defaults_are_filled_in_and_nulls_dropped() -> Result<()> {
    in_namespace("defaults", Kind::ServerGroup, |groups| async move {
        let mut spec = spec::ephemeral();
        spec["storage"] = Value::Null;
        spec["drain"] = Value::Null;
        spec["update"] = json!({});
        let group = world::object(Kind::ServerGroup, GROUP, "lobby", &spec)?;
        let stored = groups.create(&PostParams::default(), &group).await?;
        let spec = stored.data.get("spec").context("no spec")?;
        ensure!(spec.get("storage").is_none(), "{spec}");
        ensure!(
            spec["drain"] == json!({"timeoutSeconds": 60, "moveAfterSeconds": 0, "onDeadline": "Disconnect"}),
            "{spec}"
        );
        ensure!(spec["update"] == json!({"maxUnavailable": 1, "maxStaleSeconds": 0}), "{spec}");
        ensure!(spec["terminationGracePeriodSeconds"] == 60 && spec["failedRetentionSeconds"] == 3600, "{spec}");
        ensure!(spec["scaling"]["scaleDownStabilizationSeconds"] == 300, "{spec}");
        ensure!(stored.data.get("status").is_none(), "{stored:?}");
        Ok(())
    })
    .await?;
    in_namespace("defaults", Kind::ProxyGroup, |groups| async move {
        let mut spec = spec::proxies();
        spec["config"] = json!({});
        let group = world::object(Kind::ProxyGroup, GROUP, "gateway", &spec)?;
        let stored = groups.create(&PostParams::default(), &group).await?;
        let spec = &stored.data["spec"];
        ensure!(spec["drain"] == json!({"timeoutSeconds": 300, "onDeadline": "Disconnect"}), "{spec}");
        ensure!(spec["config"] == json!({"onlineMode": true}), "{spec}");
        Ok(())
    })
    .await
}
