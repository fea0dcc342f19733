//! `kubectl drain` and players: the promise of the product.

#![expect(clippy::indexing_slicing, reason = "helpers of tests are tests; JSON that lacks a key gives null")]

use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use spawnery_api::names::label;
use spawnery_tests::{
    Output, eventually,
    runner::Role,
    stack::{Arena, Crowd, Evicted, LOBBY, SmallNetwork, StackOptions, refusals, wait_refusals},
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(30);
/// The promise: kubectl's next try after the last player has left succeeds.
const DONE_LIMIT: Duration = Duration::from_secs(10);
/// How an API server says that a budget refused.
const BUDGET: &str = "violate the pod's disruption budget";

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_waits_for_players_and_completes_when_they_have_left() -> Result<()> {
    Arena::run("waits", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let (crowd, server, node) = arena.players(3).await?;
        let uid = arena.uid(&server).await?;
        let drain = arena.drain(&node)?;
        let messages = wait_refusals(&drain, 3).await?;
        ensure!(messages.iter().all(|message| *message == messages[0]), "the text changes: {messages:#?}");
        ensure!(messages[0].contains("spawnery") && messages[0].contains("people"), "{}", messages[0]);
        ensure!(arena.uid(&server).await? == uid && crowd.by_server().get(&server) == Some(&3));
        crowd.leave(&server).await?;
        let left = Instant::now();
        let status = drain.wait(DONE_LIMIT).await?;
        ensure!(status.success(), "{status}\n{}", drain.tail(20));
        println!("the drain was done {:.1} s after the last player had left", left.elapsed().as_secs_f64());
        arena.network().wait_ready(arena.stack(), arena.namespace()).await?;
        for server in arena.servers().list(&ListParams::default()).await? {
            ensure!(arena.node_of(&server.name_any()).await? != node);
        }
        crowd.ensure_unharmed()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_empty_servers_does_not_wait() -> Result<()> {
    Arena::run("empty", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let node = arena.lobby_node()?;
        let drain = arena.drain(&node)?;
        let status = drain.wait(DONE_LIMIT).await?;
        ensure!(status.success(), "{status}\n{}", drain.tail(20));
        ensure!(refusals(&drain).is_empty(), "the hold should cover the close: {:#?}", refusals(&drain));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn players_are_moved_by_the_proxies_and_notice_nothing() -> Result<()> {
    Arena::run("moved", StackOptions::default(), async |arena| {
        let drain = json!({ "timeoutSeconds": 60 });
        let network = SmallNetwork { drain, proxies: 2, ..arena.network() };
        arena.start(&network).await?;
        let (crowd, server, node) = arena.players(6).await?;
        let drain = arena.drain(&node)?;
        let status = drain.wait(LIMIT).await?;
        ensure!(status.success(), "{status}\n{}", drain.tail(20));
        let on = crowd.by_server();
        ensure!(on.values().sum::<usize>() == 6 && !on.contains_key(&server), "{on:?}");
        ensure!(on.keys().all(|server| server.starts_with(LOBBY)), "{on:?}");
        crowd.ensure_unharmed()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing_and_ends_for_empty_servers() -> Result<()> {
    Arena::run("dry", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let node = arena.lobby_node()?;
        let before = settled(&arena).await?;
        let output = dry_run(&arena, &node, "20s").await?;
        ensure!(output.ok(), "{}", output.all());
        ensure!(versions(&arena).await? == before, "a dry run changed something");
        let (crowd, server, node) = arena.players(2).await?;
        let before = settled(&arena).await?;
        let output = dry_run(&arena, &node, "6s").await?;
        ensure!(!output.ok() && output.all().contains("people"), "{}", output.all());
        let after = versions(&arena).await?;
        ensure!(after == before, "a dry run changed something:\n{before:#?}\n{after:#?}");
        ensure!(crowd.by_server().get(&server) == Some(&2));
        crowd.ensure_unharmed()
    })
    .await
}

async fn dry_run(arena: &Arena, node: &str, timeout: &str) -> Result<Output> {
    let timeout = format!("--timeout={timeout}");
    let args = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--dry-run=server", &timeout];
    arena.stack().cluster().kubectl(args).await
}

/// [`versions`], once the counts that players bring about are written everywhere.
async fn settled(arena: &Arena) -> Result<BTreeMap<String, Value>> {
    eventually(LIMIT, "statuses that stay as they are", || async {
        let first = versions(arena).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        ensure!(versions(arena).await? == first, "they still change");
        Ok(first)
    })
    .await
}

/// Name and version of every pod, Server and budget; statuses of Servers apart from when players were counted.
async fn versions(arena: &Arena) -> Result<BTreeMap<String, Value>> {
    let args = ["get", "pods,mcsrv,mcgroup,mcproxy,pdb", "-n", arena.namespace(), "-o", "json"];
    let list: Value = serde_json::from_str(&arena.stack().cluster().kubectl(args).await?.stdout()?)?;
    let mut versions = BTreeMap::new();
    for item in list["items"].as_array().into_iter().flatten() {
        let mut item = item.clone();
        let key = format!("{}/{}", item["kind"], item["metadata"]["name"]);
        // A count that is written again every half a minute is no effect of the dry run.
        for volatile in ["resourceVersion", "managedFields"] {
            item["metadata"].as_object_mut().context("an object without metadata")?.remove(volatile);
        }
        if let Some(status) = item["status"].as_object_mut() {
            status.remove("playersUpdatedAt");
        }
        versions.insert(key, item);
    }
    Ok(versions)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_webhook_the_floor_holds() -> Result<()> {
    Arena::run("floor", StackOptions::default(), async |arena| {
        // Two lobbies: one with players, one empty.
        let network = SmallNetwork { lobbies: 2, max_players: 2, ..arena.network() };
        arena.start(&network).await?;
        let (crowd, server, node) = arena.players(1).await?;
        let killed = Instant::now();
        arena.stack().webhook(0)?.kill().await?;
        let window = wait_wide(&arena).await?.duration_since(killed);
        println!("the floor was widened {:.2} s after the webhook's death", window.as_secs_f64());
        // Before anything drains: then the leader would seal the empty one, and a sealed pod may go.
        for pod in arena.stack().runner().pods_in(arena.namespace(), Role::Server) {
            let answer = arena.evict(&pod.facts().name).await?;
            ensure!(matches!(&answer, Evicted::Later(_)), "{answer:?}");
        }
        let uid = arena.uid(&server).await?;
        let drain = arena.drain(&node)?;
        let messages = wait_refusals(&drain, 2).await?;
        ensure!(messages.iter().all(|message| message.contains(BUDGET)), "{messages:#?}");
        ensure!(arena.uid(&server).await? == uid);
        crowd.leave(&server).await?;
        arena.stack().webhook(0)?.start()?;
        let status = drain.wait(LIMIT).await?;
        ensure!(status.success(), "{status}\n{}", drain.tail(20));
        crowd.ensure_unharmed()
    })
    .await
}

/// Waits until the lobby's budget covers pods that are not occupied.
async fn wait_wide(arena: &Arena) -> Result<Instant> {
    eventually(LIMIT, "the wide budget", || async {
        let args = ["get", "pdb", "lobby-server-pdb", "-n", arena.namespace(), "-o", "json"];
        let budget: Value = serde_json::from_str(&arena.stack().cluster().kubectl(args).await?.stdout()?)?;
        let labels = &budget["spec"]["selector"]["matchLabels"];
        ensure!(labels.is_object() && labels.get(label::OCCUPIED).is_none(), "{labels}");
        Ok(Instant::now())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_frozen_webhook_the_floor_holds() -> Result<()> {
    Arena::run("frozen", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let (crowd, server, node) = arena.players(2).await?;
        arena.stack().webhook(0)?.freeze()?;
        let drain = arena.drain(&node)?;
        let messages = wait_refusals(&drain, 2).await?;
        ensure!(messages.iter().all(|message| message.contains(BUDGET)), "{messages:#?}");
        ensure!(crowd.by_server().get(&server) == Some(&2));
        arena.stack().webhook(0)?.thaw()?;
        crowd.leave(&server).await?;
        let status = drain.wait(LIMIT).await?;
        ensure!(status.success(), "{status}\n{}", drain.tail(20));
        crowd.ensure_unharmed()
    })
    .await
}

/// The control: with everything taken out that refuses, the same drain goes through and the players come to harm.
#[tokio::test(flavor = "multi_thread")]
async fn without_webhook_and_floor_players_are_lost() -> Result<()> {
    Arena::run("control", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let (crowd, server, node) = arena.players(2).await?;
        arena.stack().reconciler(0)?.kill().await?;
        arena.stack().webhook(0)?.kill().await?;
        let args = ["delete", "pdb", "--all", "-n", arena.namespace()];
        arena.stack().cluster().kubectl(args).await?.stdout()?;
        let drain = arena.drain(&node)?;
        let status = drain.wait(LIMIT).await?;
        ensure!(status.success(), "{status}\n{}", drain.tail(20));
        eventually(LIMIT, "the players to notice", || async {
            ensure!(crowd.harmed().len() == 2, "harmed: {:?}, on {:?}", crowd.harmed(), crowd.by_server());
            Ok(())
        })
        .await?;
        ensure!(!crowd.by_server().contains_key(&server));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_reconciler_everything_is_still_refused() -> Result<()> {
    Arena::run("headless", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let (crowd, server, node) = arena.players(2).await?;
        arena.stack().reconciler(0)?.kill().await?;
        let drain = arena.drain(&node)?;
        wait_refusals(&drain, 2).await?;
        // Also when it is empty: nobody is there who could close its door.
        crowd.leave(&server).await?;
        let before = refusals(&drain).len();
        wait_refusals(&drain, before + 2).await?;
        arena.stack().reconciler(0)?.start()?;
        let status = drain.wait(Duration::from_mins(1)).await?;
        ensure!(status.success(), "{status}\n{}", drain.tail(20));
        crowd.ensure_unharmed()?;
        what_an_orderly_end_leaves_behind_holds_without_anybody(&arena).await?;
        what_a_crash_of_everything_leaves_behind_does_not(&arena).await
    })
    .await
}

/// Somebody joins a lobby that was empty when the leader ended, so that nobody has labelled it since; then the lobby is
/// evicted.
async fn evict_after_a_join_that_nobody_saw(arena: &Arena) -> Result<(Crowd, Evicted)> {
    let mut crowd = Crowd::new();
    crowd.join(arena.stack().runner(), arena.namespace(), 2).await?;
    let server = crowd.fullest()?;
    ensure!(!arena.is_occupied(&server).await?, "who has labelled it?");
    let answer = arena.evict(&server).await?;
    Ok((crowd, answer))
}

/// Everything runs, the budgets are narrow, and the only lobby is known to be empty.
async fn all_is_quiet(arena: &Arena) -> Result<()> {
    let network = arena.network();
    arena.start(&network).await?;
    let lobbies = arena.registered().await?;
    arena.wait_occupied(lobbies.first().context("no lobby is open")?, false).await
}

async fn what_an_orderly_end_leaves_behind_holds_without_anybody(arena: &Arena) -> Result<()> {
    all_is_quiet(arena).await?;
    let begin = Instant::now();
    arena.stack().reconciler(0)?.stop().await?;
    println!("the leader ended within {:.2} s", begin.elapsed().as_secs_f64());
    arena.stack().webhook(0)?.stop().await?;
    let (crowd, answer) = evict_after_a_join_that_nobody_saw(arena).await?;
    ensure!(matches!(&answer, Evicted::Later(message) if message.contains(BUDGET)), "{answer:?}");
    crowd.ensure_unharmed()?;
    crowd.leave(&crowd.fullest()?).await?;
    arena.stack().reconciler(0)?.start()?;
    arena.stack().webhook(0)?.start()
}

/// The control, and a limit that docs/install.md names: whoever is killed widens nothing.
async fn what_a_crash_of_everything_leaves_behind_does_not(arena: &Arena) -> Result<()> {
    all_is_quiet(arena).await?;
    arena.stack().reconciler(0)?.kill().await?;
    arena.stack().webhook(0)?.kill().await?;
    let (crowd, answer) = evict_after_a_join_that_nobody_saw(arena).await?;
    ensure!(answer == Evicted::Yes, "{answer:?}");
    eventually(LIMIT, "the players to notice", || async {
        ensure!(crowd.harmed().len() == 2, "harmed: {:?}", crowd.harmed());
        Ok(())
    })
    .await
}
