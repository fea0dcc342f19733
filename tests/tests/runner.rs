//! The kubelet's stand-in, with real agents and no operator.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use spawnery_certs::issue::Authority;
use spawnery_tests::{
    Cluster, ClusterConfig, eventually,
    game::player::{Player, PlayerState},
    runner::{Games, Runner, RunnerOptions},
};
use std::{net::SocketAddr, time::Duration};

const LIMIT: Duration = Duration::from_secs(30);

/// What the reconciler would make in a game namespace, and one server pod.
fn objects(namespace: &str, ca: &str) -> String {
    let meta = |name: &str| json!({ "name": name, "namespace": namespace });
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("spawnery-server") });
    let bundle = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("spawnery-ca"), "data": { "ca.crt": ca },
    });
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("lobby-server-config"),
        "data": { "config.yaml": "maxPlayers: 7\n" },
    });
    let env = |name: &str, value: &str| json!({ "name": name, "value": value });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "lobby-a", "namespace": namespace, "labels": {
            "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": "server",
            "spawnery.cloud/group": "lobby" } },
        "spec": {
            "serviceAccountName": "spawnery-server",
            "containers": [{
                "name": "minecraft", "image": "example.test/lobby:1",
                "readinessProbe": { "exec": { "command": ["slp"] } },
                "env": [
                    env("SPAWNERY_NETWORK", "main"), env("SPAWNERY_GROUP", "lobby"), env("SPAWNERY_SERVER", "lobby-a"),
                    env("SPAWNERY_OPERATOR_ENDPOINT", "spawnery-operator.spawnery-system.svc:9443"),
                ],
            }],
            "volumes": [
                { "name": "spawnery-agent", "projected": { "sources": [
                    { "serviceAccountToken": { "audience": "spawnery-operator", "expirationSeconds": 600, "path": "token" } },
                    { "configMap": { "name": "spawnery-ca" } }] } },
                { "name": "spawnery-config", "projected": { "sources": [
                    { "configMap": { "name": "lobby-server-config" } }] } },
            ],
        },
    });
    [account, bundle, config, pod].map(|object| format!("---\n{object}\n")).concat()
}

/// The pod's Ready condition and how often its container was restarted.
async fn state(pods: &Api<Pod>) -> Result<(bool, i32)> {
    let status = pods.get("lobby-a").await?.status.context("no status")?;
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let restarts = status.container_statuses.iter().flatten().map(|container| container.restart_count).sum();
    Ok((ready, restarts))
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_a_pod_and_ends_with_it() -> Result<()> {
    let cluster = Cluster::start(ClusterConfig { nodes: vec!["node".into()], ..ClusterConfig::default() }).await?;
    let nobody = SocketAddr::from((cluster.free_address(), 9443));
    let runner = Runner::start(&cluster, RunnerOptions { operator: nobody, games: Games::Mini }).await?;
    let inside = cluster.clone();
    cluster
        .with_namespace("runner", |namespace| async move {
            let authority = Authority::generate("2026-01-01T00:00:00Z".parse()?)?;
            inside.apply(&objects(namespace.name(), authority.cert_pem())).await?;
            let pods: Api<Pod> = Api::namespaced(inside.client().await?, namespace.name());
            eventually(LIMIT, "the pod to be Ready", || async {
                ensure!(state(&pods).await? == (true, 0), "{:?}", state(&pods).await?);
                Ok(())
            })
            .await?;
            let pod = runner.pod(namespace.name(), "lobby-a").context("the pod is not run")?;
            let player = Player::join(pod.game_address(), "alex");
            ensure!(player.wait_on(LIMIT).await? == "lobby-a");
            let agent = pod.local_api();
            eventually(LIMIT, "the agent to know of the player", || async {
                let state = agent.state().await?;
                let number = |key: &str| state.get(key).and_then(Value::as_u64);
                ensure!(number("players") == Some(1) && number("slots") == Some(7), "{state}");
                Ok(())
            })
            .await?;
            pod.restart_game().await?;
            let lost = player.wait_for(LIMIT, "lost", |state| matches!(state, PlayerState::Lost { .. })).await;
            ensure!(lost.is_ok(), "{lost:?}");
            eventually(LIMIT, "the restarted pod to be Ready", || async {
                ensure!(state(&pods).await? == (true, 1), "{:?}", state(&pods).await?);
                Ok(())
            })
            .await?;
            let next = Player::join(pod.game_address(), "steve");
            next.wait_on(LIMIT).await?;
            pods.delete("lobby-a", &DeleteParams::default()).await?;
            let lost = next.wait_for(LIMIT, "lost", |state| matches!(state, PlayerState::Lost { .. })).await;
            ensure!(lost.is_ok(), "{lost:?}");
            ensure!(runner.pod(namespace.name(), "lobby-a").is_none());
            ensure!(pod.with_agent(|_| Ok(())).is_err() || agent.state().await.is_err());
            Ok(())
        })
        .await
}
