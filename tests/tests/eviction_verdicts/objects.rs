//! Own custom resources, as `kubectl` shows the answers.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::lone::{DryApply as _, Lone};

pub(crate) fn proxy_group(namespace: &str, fallbacks: &[&str]) -> String {
    json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "ProxyGroup",
        "metadata": { "name": "edge", "namespace": namespace },
        "spec": {
            "networkRef": { "name": "main" }, "replicas": 1, "image": "velocity:1",
            "expose": { "type": "NodePort", "nodePort": { "port": 30000 } },
            "routing": { "fallbackGroups": fallbacks },
        },
    })
    .to_string()
}

fn server_group(namespace: &str, mount_path: &str) -> String {
    json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "ServerGroup",
        "metadata": { "name": "lobby", "namespace": namespace },
        "spec": {
            "networkRef": { "name": "main" }, "type": "Ephemeral", "image": "paper:1", "maxPlayers": 20,
            "scaling": { "minReplicas": 1, "maxReplicas": 4, "spareSlots": 10 },
            "mounts": [{ "name": "extra", "mountPath": mount_path, "configMap": { "name": "extra" } }],
        },
    })
    .to_string()
}

fn server(namespace: &str, retire: bool) -> String {
    json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server",
        "metadata": { "name": "lobby-abcd", "namespace": namespace },
        "spec": { "groupRef": { "name": "lobby" }, "retire": retire },
    })
    .to_string()
}

#[tokio::test]
async fn broken_groups_are_refused_with_field_value_and_what_is_accepted() -> Result<()> {
    let lone = Lone::shared().await?;
    lone.cluster
        .with_namespace("broken", async |namespace| {
            let cases = [
                (
                    proxy_group(namespace.name(), &["lobby", "lobby"]),
                    "spec.routing.fallbackGroups[1]: \"lobby\" stands in the list",
                ),
                (
                    proxy_group(namespace.name(), &["Lobby"]),
                    "spec.routing.fallbackGroups[0]: \"Lobby\" has a character",
                ),
                (
                    server_group(namespace.name(), "/etc/spawnery/x"),
                    "spec.mounts[extra].mountPath: \"/etc/spawnery/x\" would hide",
                ),
            ];
            for (manifest, want) in cases {
                let output = lone.cluster.try_apply_dry(&manifest).await?;
                ensure!(!output.ok() && output.all().contains(want), "{}", output.all());
            }
            Ok(())
        })
        .await
}

#[tokio::test]
async fn unknown_names_are_only_warned_about() -> Result<()> {
    let lone = Lone::shared().await?;
    lone.cluster
        .with_namespace("unknown", async |namespace| {
            let output = lone.cluster.try_apply_dry(&proxy_group(namespace.name(), &["nowhere"])).await?;
            ensure!(output.ok(), "{}", output.all());
            for want in ["Warning: spec.networkRef.name", "there is no ServerGroup \"nowhere\" yet", "limits.memory"] {
                ensure!(output.all().contains(want), "{want} is missing in: {}", output.all());
            }
            let output = lone.cluster.try_apply_dry(&server_group(namespace.name(), "/opt/x")).await?;
            ensure!(output.ok() && output.all().contains("there is no ConfigMap \"extra\" yet"), "{}", output.all());
            Ok(())
        })
        .await
}

#[tokio::test]
async fn fields_of_the_group_are_the_groups() -> Result<()> {
    let lone = Lone::shared().await?;
    lone.cluster
        .with_namespace("owned", async |namespace| {
            lone.cluster.apply(&server(namespace.name(), false)).await?;
            let output = lone.cluster.try_apply(&server(namespace.name(), true)).await?;
            ensure!(
                !output.ok() && output.all().contains("spec.retire belongs to the server's group"),
                "{}",
                output.all()
            );
            let overridden = [
                "-n",
                namespace.name(),
                "annotate",
                "server.spawnery.cloud",
                "lobby-abcd",
                "spawnery.cloud/override=true",
            ];
            ensure!(lone.cluster.kubectl(overridden).await?.ok());
            let patch = [
                "-n",
                namespace.name(),
                "patch",
                "mcsrv",
                "lobby-abcd",
                "--type=merge",
                "-p",
                r#"{"spec":{"retire":true}}"#,
            ];
            let output = lone.cluster.kubectl(patch).await?;
            ensure!(output.ok(), "{}", output.all());
            Ok(())
        })
        .await
}
