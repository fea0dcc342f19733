//! Where pods go.

use super::{
    GOING, LIMIT, apply, calls, fill, kubectl, lobbies, names, newcomers, spread_nothing, unplaced, with_extender,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use spawnery_core::placement::Refusal;
use spawnery_tests::{
    Rule, eventually,
    fault::rule::Fault,
    stack::{Arena, SmallNetwork},
};
use std::collections::BTreeMap;

/// One lobby with people on it, on a node that the scheduler by itself finds much too full; then three more lobbies: how
/// many of those are with the people.
async fn grow_beside_players(name: &str, asked: bool) -> Result<usize> {
    let (tell, told) = tokio::sync::oneshot::channel();
    Arena::run(name, with_extender(&[]), async move |arena| {
        let mut network = arena.network();
        arena.start(&network).await?;
        let (crowd, _, node) = arena.players(3).await?;
        let known = names(&arena).await?;
        fill(&arena, &node).await?;
        let extender = arena.stack().extender(0)?;
        ensure!(calls(extender, "filter", "decided").await? == 0, "asked before the scheduler was told to");
        if asked {
            arena.stack().ask_extenders().await?;
        }
        network.lobbies = 4;
        apply(&arena, &network).await?;
        let placed = newcomers(&arena, &known, 3).await?;
        let asks = [calls(extender, "filter", "decided").await?, calls(extender, "prioritize", "decided").await?];
        ensure!(asks.iter().all(|calls| (*calls >= 3) == asked), "calls: {asks:?}");
        let _ = tell.send(placed.iter().filter(|placed| **placed == node).count());
        crowd.ensure_unharmed()
    })
    .await?;
    told.await.context("the test did not come that far")
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_placed_where_people_are() -> Result<()> {
    let with_people = grow_beside_players("packed", true).await?;
    ensure!(with_people == 3, "only {with_people} of 3 new servers are where people are");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_does_not_ask_spreads_them() -> Result<()> {
    let with_people = grow_beside_players("spread", false).await?;
    ensure!(with_people == 0, "the control places {with_people} of 3 where people are");
    Ok(())
}

/// A lobby that tolerates everything; its node departs; then two more lobbies. Whether one of those went there.
async fn grow_beside_departing(name: &str, flags: &[&str]) -> Result<bool> {
    let (tell, told) = tokio::sync::oneshot::channel();
    Arena::run(name, with_extender(flags), async move |arena| {
        let mut network = SmallNetwork { tolerant: true, ..arena.network() };
        arena.start(&network).await?;
        let node = arena.lobby_node()?;
        let known = names(&arena).await?;
        kubectl(&arena, &["taint", "node", &node, &format!("{GOING}=:NoSchedule")]).await?;
        arena.stack().ask_extenders().await?;
        network.lobbies = 3;
        apply(&arena, &network).await?;
        let placed = newcomers(&arena, &known, 2).await?;
        let _ = tell.send(placed.contains(&node));
        Ok(())
    })
    .await?;
    told.await.context("the test did not come that far")
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_led_to_a_node_that_departs() -> Result<()> {
    let led_there = grow_beside_departing("departing", &["--drain-taint", GOING]).await?;
    ensure!(!led_there, "a server was placed on a node that departs");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taint_that_nobody_declared_keeps_nobody_away() -> Result<()> {
    let led_there = grow_beside_departing("undeclared", &[]).await?;
    ensure!(led_there, "the control keeps off the node too");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fits_nowhere_says_why_and_goes_when_it_may() -> Result<()> {
    Arena::run("nowhere", with_extender(&["--drain-taint", GOING]), async |arena| {
        let mut network = SmallNetwork { tolerant: true, ..arena.network() };
        arena.start(&network).await?;
        let known = names(&arena).await?;
        for node in &network.lobby_nodes {
            kubectl(&arena, &["taint", "node", node, &format!("{GOING}=:NoSchedule")]).await?;
        }
        arena.stack().ask_extenders().await?;
        network.lobbies = 2;
        apply(&arena, &network).await?;
        let message = unplaced(&arena, Refusal::Departing.message()).await?;
        let counted = format!("{} {}", network.lobby_nodes.len(), Refusal::Departing.message());
        ensure!(message.contains(&counted), "the nodes are not counted together: {message}");
        let back = network.lobby_nodes.first().context("no node")?;
        kubectl(&arena, &["taint", "node", back, &format!("{GOING}-")]).await?;
        let placed = newcomers(&arena, &known, 1).await?;
        ensure!(placed == [back.clone()], "{placed:?}");
        Ok(())
    })
    .await
}

/// Four lobbies made at once, on two nodes with a budget for two each, one of which the scheduler by itself prefers by
/// far. How many are on which.
async fn four_at_once(arena: &Arena) -> Result<BTreeMap<String, usize>> {
    let network = SmallNetwork { lobbies: 4, ..arena.network() };
    fill(arena, network.lobby_nodes.first().context("no node")?).await?;
    arena.stack().ask_extenders().await?;
    arena.start(&network).await?;
    let mut on: BTreeMap<String, usize> = BTreeMap::new();
    lobbies(arena).await?.into_values().flatten().for_each(|node| *on.entry(node).or_default() += 1);
    Ok(on)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extender_that_does_not_see_where_the_last_pod_went_exceeds_budgets() -> Result<()> {
    Arena::run("blind", with_extender(&["--node-player-budget=40"]), async |arena| {
        let faults = arena.stack().extender_faults()?;
        faults.add(Rule::on("watch", "pods").fault(Fault::Hang));
        faults.cut();
        // All are placed: what cannot be known is not waited for.
        let on = four_at_once(&arena).await?;
        ensure!(on.values().any(|servers| *servers > 2), "the control keeps the budget: {on:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_takes_as_many_slots_as_its_budget_says() -> Result<()> {
    // A server takes 20 players; two fit on each of two nodes.
    Arena::run("budget", with_extender(&["--node-player-budget=40"]), async |arena| {
        let on = four_at_once(&arena).await?;
        ensure!(on.values().all(|servers| *servers == 2), "servers by node: {on:?}");
        let known = names(&arena).await?;
        let network = SmallNetwork { lobbies: 5, ..arena.network() };
        apply(&arena, &network).await?;
        unplaced(&arena, &format!("2 {}", Refusal::OverBudget.message())).await?;
        let roomy = network.lobby_nodes.last().context("no node")?;
        kubectl(&arena, &["label", "node", roomy, "spawnery.cloud/player-budget=60"]).await?;
        let placed = newcomers(&arena, &known, 1).await?;
        ensure!(placed == [roomy.clone()], "{placed:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_budgets_one_node_takes_them_all() -> Result<()> {
    Arena::run("no-budget", with_extender(&[]), async |arena| {
        let mut network = arena.network();
        arena.stack().ask_extenders().await?;
        for lobbies in 1..=4 {
            network.lobbies = lobbies;
            arena.start(&network).await?;
        }
        let nodes: std::collections::BTreeSet<String> = lobbies(&arena).await?.into_values().flatten().collect();
        ensure!(nodes.len() == 1, "the control spreads servers: {nodes:?}");
        Ok(())
    })
    .await
}

/// Proxies on any node; how many nodes have one.
async fn proxies_on(name: &str, asked: bool) -> Result<usize> {
    let (tell, told) = tokio::sync::oneshot::channel();
    Arena::run(name, with_extender(&[]), async move |arena| {
        // Both times without what else keeps proxies apart: the scheduler's own spreading, and the pods' own wish.
        spread_nothing(&arena).await?;
        if asked {
            arena.stack().ask_extenders().await?;
        }
        // The scheduler by itself finds the third node by far the best.
        for node in &arena.network().lobby_nodes {
            fill(&arena, node).await?;
        }
        let affinity = Some(json!({}));
        let network = SmallNetwork { proxies: 3, proxy_node: None, affinity, ..arena.network() };
        apply(&arena, &network).await?;
        let nodes = eventually(LIMIT, "three proxies, placed", || async {
            let pods = arena.pods().list(&kube::api::ListParams::default().labels("spawnery.cloud/role=proxy")).await?;
            let nodes: Vec<String> = pods.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
            ensure!(nodes.len() == 3, "placed on {nodes:?}");
            Ok(nodes)
        })
        .await?;
        let nodes: std::collections::BTreeSet<String> = nodes.into_iter().collect();
        let _ = tell.send(nodes.len());
        Ok(())
    })
    .await?;
    told.await.context("the test did not come that far")
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_are_spread_over_nodes() -> Result<()> {
    let nodes = proxies_on("proxies", true).await?;
    ensure!(nodes == 3, "three proxies are on {nodes} nodes");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_does_not_ask_puts_proxies_together() -> Result<()> {
    let nodes = proxies_on("together", false).await?;
    ensure!(nodes == 1, "the control puts proxies on {nodes} nodes");
    Ok(())
}
