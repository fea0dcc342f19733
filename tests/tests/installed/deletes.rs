//! `kubectl delete pod` of a server with people on it: the one way past every webhook.

use crate::world::{LIMIT, World, tell};
use anyhow::{Context as _, Result, ensure};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;
use spawnery_api::v1alpha1::ServerGroup;
use spawnery_tests::{Process, eventually, installed::NAMESPACE};
use std::{fs, time::Instant};

/// The group's switch for the hook, read when a pod is made.
const SWITCH: &str = "spawnery.cloud/pre-stop";
const LOBBY: &str = "lobby";
/// What `tests/minecraft/server.js` says when SIGTERM reaches it, up to the number of players that it still has.
const TERMINATING: &str = r#"{"event":"terminating","players":"#;

pub(crate) async fn a_deleted_pod_keeps_its_players_until_they_are_moved(world: &mut World<'_>) -> Result<()> {
    let server = world.join_until(5).await?;
    ensure!(has_hook(world, &server).await?, "{server} has no preStop hook");
    // For the pod that will stand in: the control needs one without.
    switch(world, Some("false")).await?;
    let log = follow_log(world, &server)?;
    let begin = Instant::now();
    delete(world, &server).await?;
    let on_it = terminated_with(world, &log, &server).await?;
    tell(&format!("a deleted pod: SIGTERM after {:.1} s, with {on_it} people on it", begin.elapsed().as_secs_f64()));
    ensure!(on_it == 0, "{on_it} people were on the game when SIGTERM reached it");
    world.crowd.ensure_unharmed()?;
    let other = world.the_lobby().await?;
    ensure!(world.crowd.on(&other).count() == 5, "they play on {:?}", world.crowd.by_server());
    Ok(())
}

/// The control: the same, with the hook left out.
pub(crate) async fn without_the_hook_a_deleted_pod_cuts_its_players(world: &mut World<'_>) -> Result<()> {
    let server = world.the_lobby().await?;
    ensure!(!has_hook(world, &server).await?, "{server} has a preStop hook");
    switch(world, None).await?;
    let log = follow_log(world, &server)?;
    delete(world, &server).await?;
    let on_it = terminated_with(world, &log, &server).await?;
    ensure!(on_it == 5, "{on_it} people were on the game when SIGTERM reached it");
    eventually(LIMIT, "them to be cut", || async {
        let harmed = world.crowd.harmed().len();
        ensure!(harmed == 5, "{harmed} came to harm");
        Ok(())
    })
    .await?;
    world.crowd = spawnery_tests::stack::Crowd::new();
    let other = world.the_lobby().await?;
    ensure!(has_hook(world, &other).await?, "{other} has no preStop hook");
    Ok(())
}

async fn has_hook(world: &World<'_>, pod: &str) -> Result<bool> {
    let pod = world.pods().get(pod).await?;
    let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    Ok(containers.iter().any(|c| c.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.pre_stop.is_some())))
}

async fn switch(world: &World<'_>, value: Option<&str>) -> Result<()> {
    let groups: kube::Api<ServerGroup> = kube::Api::namespaced(world.client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { SWITCH: value } } }));
    groups.patch(LOBBY, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// What the game prints is gone with its pod, so it is read while it comes.
fn follow_log(world: &World<'_>, pod: &str) -> Result<Process> {
    world.cluster.kubectl_spawn(&format!("game-{pod}"), ["logs", "--follow", "-n", NAMESPACE, pod])
}

async fn delete(world: &World<'_>, pod: &str) -> Result<()> {
    let args = ["delete", "pod", pod, "-n", NAMESPACE, "--wait=false"];
    world.cluster.kubectl(args).await?.stdout().map(drop)
}

/// Waits until SIGTERM has reached the game, and returns how many people it had then; and until the pod is gone.
async fn terminated_with(world: &World<'_>, log: &Process, pod: &str) -> Result<usize> {
    let path = log.log_path().context("no log")?;
    let players = eventually(LIMIT, "the game to end", || async {
        let text = fs::read_to_string(path).context("no log")?;
        // The game's console writes control characters before it.
        let told = text.lines().find_map(|line| line.split_once(TERMINATING)?.1.strip_suffix('}'));
        let players = told.and_then(|players| players.parse::<usize>().ok());
        players.context("the game goes on")
    })
    .await?;
    eventually(LIMIT, "the pod to be gone", || async {
        let found = world.pods().get_opt(pod).await?;
        ensure!(found.is_none(), "{:?}", found.map(|pod| pod.name_any()));
        Ok(())
    })
    .await?;
    Ok(players)
}
