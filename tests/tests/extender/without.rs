//! What is left when the extender does not answer, or somebody else does.

use super::{LIMIT, apply, calls, names, newcomers, unplaced, with_extender};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use spawnery_api::scheduler::{Extender, Trust};
use spawnery_certs::Authority;
use spawnery_tests::{
    Component, eventually,
    stack::{Arena, SmallNetwork},
};
use std::time::{Duration, Instant};

/// The scheduler's log.
fn log(arena: &Arena) -> Result<String> {
    arena.stack().cluster().on(Component::Scheduler, |scheduler| Ok(scheduler.tail(200)))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_placed_while_the_extender_is_down_and_it_is_asked_again_afterwards() -> Result<()> {
    Arena::run("down", with_extender(&[]), async |arena| {
        let mut network = arena.network();
        // As users have it: what a dead extender costs is the time that it is waited for.
        let entry = Extender { timeout: Duration::from_millis(500), ..arena.stack().extender_entry().await? };
        arena.stack().cluster().configure_scheduler(&entry.snippet()).await?;
        arena.start(&network).await?;
        let extender = arena.stack().extender(0)?;
        ensure!(calls(extender, "filter", "decided").await? >= 2, "the extender was not asked");

        extender.kill().await?;
        grow(&arena, &mut network, "down").await?;
        ensure!(log(&arena)?.contains("Skipping extender"), "the scheduler did not miss the extender");

        extender.start()?;
        extender.wait_ready(LIMIT).await?;
        grow(&arena, &mut network, "back").await?;
        ensure!(calls(extender, "filter", "decided").await? >= 1, "the extender is not asked any more");

        extender.freeze()?;
        grow(&arena, &mut network, "frozen").await?;
        extender.thaw()
    })
    .await
}

/// One more server, which must be placed.
async fn grow(arena: &Arena, network: &mut SmallNetwork, extender: &str) -> Result<()> {
    let known = names(arena).await?;
    network.lobbies += 1;
    let begin = Instant::now();
    apply(arena, network).await?;
    newcomers(arena, &known, 1).await?;
    println!("extender {extender}: a new server is placed {} ms after it was asked for", begin.elapsed().as_millis());
    Ok(())
}

/// Shows that the scheduler really depends on the extender for an answer, and that `ignorable` is what saves it.
#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_may_not_ignore_it_places_nothing_while_it_is_down() -> Result<()> {
    Arena::run("needed", with_extender(&[]), async |arena| {
        let mut network = arena.network();
        arena.start(&network).await?;
        let mut snippet = arena.stack().extender_entry().await?.snippet();
        snippet["extenders"][0]["ignorable"] = json!(false);
        arena.stack().cluster().configure_scheduler(&snippet).await?;
        arena.stack().extender(0)?.kill().await?;
        network.lobbies = 2;
        apply(&arena, &network).await?;
        eventually(LIMIT, "the scheduler to fail", || async {
            let log = log(&arena)?;
            ensure!(log.contains("/filter"), "the scheduler says\n{log}");
            Ok(())
        })
        .await?;
        let placed = super::lobbies(&arena).await?.into_values().flatten().count();
        ensure!(placed == 1, "{placed} servers are placed");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_certificate_is_refused() -> Result<()> {
    Arena::run("foreign-ca", with_extender(&[]), async |arena| {
        let mut network = arena.network();
        let now = "2026-01-01T00:00:00Z".parse().context("a moment")?;
        let foreign = Authority::generate(now)?.cert_pem().to_owned();
        let right = arena.stack().extender_entry().await?;
        let wrong = Extender { trust: Trust::Data(foreign), ..right.clone() };
        arena.stack().cluster().configure_scheduler(&wrong.snippet()).await?;
        arena.start(&network).await?;
        let extender = arena.stack().extender(0)?;
        ensure!(calls(extender, "filter", "decided").await? == 0, "the scheduler spoke to whom it does not trust");
        let log = log(&arena)?;
        ensure!(log.contains("certificate signed by unknown authority"), "the scheduler says\n{log}");

        let named = Extender { server_name: "spawnery-extender.elsewhere.svc".to_owned(), ..right.clone() };
        arena.stack().cluster().configure_scheduler(&named.snippet()).await?;
        grow(&arena, &mut network, "of another name").await?;
        ensure!(calls(extender, "filter", "decided").await? == 0, "the scheduler spoke to whom it did not mean");

        // The control: nothing else was in the way.
        arena.stack().cluster().configure_scheduler(&right.snippet()).await?;
        grow(&arena, &mut network, "trusted").await?;
        ensure!(calls(extender, "filter", "decided").await? >= 1, "the extender was not asked");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_nodes_are_refused_with_what_to_set() -> Result<()> {
    Arena::run("whole-nodes", with_extender(&[]), async |arena| {
        let mut snippet = arena.stack().extender_entry().await?.snippet();
        snippet["extenders"][0]["nodeCacheCapable"] = json!(false);
        snippet["extenders"][0]["ignorable"] = json!(false);
        arena.stack().cluster().configure_scheduler(&snippet).await?;
        apply(&arena, &arena.network()).await?;
        unplaced(&arena, "nodeCacheCapable: true").await.map(drop)
    })
    .await
}
