//! Spawnery as its users have it: our image on two real nodes, installed, used, upgraded and removed by the commands of
//! docs/getting-started.md, with real Minecraft servers and bots.
//!
//! Two clusters, two stories; each act checks what it promises and leaves what the next one needs.

mod apart;
mod beginning;
mod crashes;
mod deletes;
mod drains;
mod end;
mod first;
mod placed;
mod strangers;
mod upgrades;
mod world;

use anyhow::{Context as _, Result, ensure};
use spawnery_tests::{
    installed::{Images, Lobbies, Page},
    minecraft::Installation,
    nodes::{self, RealOptions},
};
use world::World;

/// Sections of the page that are followed here.
const SECTIONS: [&str; 9] = [
    "Install",
    "Look at it",
    "A first network",
    "Who is where",
    "Empty a node",
    "Place servers by people",
    "Upgrade",
    "Uninstall",
    "Remove what is left",
];
/// Tests run what cargo has built for them anyway.
const PROFILE: &str = "dev";

#[test]
fn every_command_of_the_page_is_run_by_a_test() -> Result<()> {
    let page = Page::read("getting-started.md")?;
    ensure!(page.titles() == SECTIONS, "the page has commands under {:?}", page.titles());
    Ok(())
}

#[test]
fn from_helm_install_to_helm_uninstall() -> Result<()> {
    let (images, minecraft) = build(async || Images::build(PROFILE).await?.with_upgrade(PROFILE).await)?;
    nodes::run(RealOptions { images: images.into_archives(), ..RealOptions::default() }, async |real| {
        let mut world = World::begin(real, &minecraft, Lobbies::One).await?;
        beginning::an_install_is_ready_and_takes_the_first_objects(&world).await?;
        beginning::five_players_are_counted_as_they_come(&mut world).await?;
        drains::a_drain_waits_for_the_last_player(&mut world).await?;
        beginning::webhooks_are_called_through_services_with_our_certificates(&world).await?;
        deletes::a_deleted_pod_keeps_its_players_until_they_are_moved(&mut world).await?;
        deletes::without_the_hook_a_deleted_pod_cuts_its_players(&mut world).await?;
        upgrades::nobody_notices_an_upgrade(&mut world).await?;
        strangers::a_registration_that_somebody_changes_is_put_right(&world).await?;
        strangers::whoever_is_registered_with_another_ca_is_not_called(&world).await?;
        end::with_our_processes_stopped_others_work_as_ever(&world).await?;
        end::an_uninstall_leaves_a_working_cluster(&world).await
    })
}

#[test]
fn a_crash_and_placement_by_people() -> Result<()> {
    let (images, minecraft) = build(async || Images::build(PROFILE).await?.with_scheduler().await)?;
    nodes::run(RealOptions { images: images.into_archives(), ..RealOptions::default() }, async |real| {
        let mut world = World::begin(real, &minecraft, Lobbies::OnePerNode).await?;
        world.ground.follow("Install").await?;
        world.ground.follow("A first network").await?;
        crashes::a_crash_takes_only_those_who_were_there(real, &mut world).await?;
        placed::a_server_is_placed_beside_people(&world).await?;
        placed::without_the_extender_it_is_placed_elsewhere(&world).await?;
        placed::a_stranger_is_not_asked(&world).await
    })
}

/// Everything that needs a network outside of the cluster's.
fn build(images: impl AsyncFnOnce() -> Result<Images>) -> Result<(Images, Installation)> {
    let runtime = tokio::runtime::Runtime::new().context("no runtime to build in")?;
    runtime.block_on(async { Ok((images().await?, Installation::ensure().await?)) })
}
