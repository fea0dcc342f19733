//! A node that dies with people on it.

use crate::world::{LIMIT, World, tell};
use anyhow::{Context as _, Result, ensure};
use kube::{ResourceExt, api::ListParams};
use spawnery_tests::{
    eventually,
    game::player::{Player, Visit},
    installed::{NAMESPACE, PROXY_NODE, SERVER_NODE},
    nodes::RealCluster,
    stack::{losses, told_losses},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// A client of the game gives up after 30 s without a word.
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) async fn a_crash_takes_only_those_who_were_there(real: &RealCluster, world: &mut World<'_>) -> Result<()> {
    let lobbies = lobbies_by_node(world).await?;
    let lost = lobbies.get(SERVER_NODE).context("no lobby where the crash will be")?.clone();
    let kept = lobbies.get(PROXY_NODE).context("no lobby on the other node")?.clone();
    world.crowd.join_bots(&world.bots, world.door, 5).await?;
    world.shown(5).await?;
    let there: BTreeSet<String> = world.crowd.on(&lost).map(|player| player.name().to_owned()).collect();
    ensure!(!there.is_empty() && there.len() < 5, "they play on {:?}", world.crowd.by_server());
    let others: Vec<(&Player, Vec<Visit>)> = (world.crowd.on(&kept)).map(|player| (player, player.visits())).collect();
    ensure!(there.len() + others.len() == 5, "they play on {:?}", world.crowd.by_server());
    ensure!(losses(&world.ground.metrics("reconciler").await?).is_empty(), "nobody has been lost yet");
    let begin = Instant::now();
    real.node(SERVER_NODE)?.crash().await?;
    // Whole means: as many lobbies as before, none of them the lost one, all on the node that is left.
    eventually(LIMIT, "the group to be whole on the other node", || async {
        let servers = world.servers().list(&ListParams::default()).await?;
        let ready: BTreeSet<String> = servers
            .iter()
            .filter(|server| server.status.as_ref().is_some_and(|status| status.registered))
            .map(ResourceExt::name_any)
            .collect();
        ensure!(ready.len() == 2 && !ready.contains(&lost), "registered: {ready:?}");
        Ok(())
    })
    .await?;
    tell(&format!("a crash: the group is whole elsewhere after {:.1} s", begin.elapsed().as_secs_f64()));
    // Their server has ended without a word: they hear of it when their game's own patience ends, or are found another.
    eventually(PATIENCE, "those who were there to know", || async {
        let stuck: Vec<&str> = world.crowd.on(&lost).map(Player::name).collect();
        ensure!(stuck.is_empty(), "{stuck:?} still believe to be on {lost}");
        Ok(())
    })
    .await?;
    for (player, visits) in others {
        let now = player.visits();
        ensure!(
            now == visits && player.state().is_on(&kept),
            "{} is {}: {visits:?}, then {now:?}",
            player.name(),
            player.state()
        );
    }
    let cut = world.crowd.players().iter().filter(|player| player.state().is_final()).count();
    ensure!(cut <= there.len(), "{:#?}", world.crowd.harmed());
    tell(&format!(
        "{} were on the node, of whom {cut} were cut and the others found another lobby; nobody else was touched",
        there.len()
    ));
    real.node(SERVER_NODE)?.boot().await?;
    real.ready().await?;
    world.ground.all_ready().await?;
    the_loss_is_counted_and_told(world, &lost, there.len()).await
}

/// Until the node is back, or given up, nobody knows that its games have ended: it may only have been cut off.
async fn the_loss_is_counted_and_told(world: &World<'_>, server: &str, players: usize) -> Result<()> {
    let back = Instant::now();
    let want = BTreeMap::from([("NodeLost".to_owned(), u64::try_from(players)?)]);
    eventually(LIMIT, "those who were there to be counted as lost to the crash, and nobody else", || async {
        let counted = losses(&world.ground.metrics("reconciler").await?);
        ensure!(counted == want, "counted: {counted:?}, wanted: {want:?}");
        let told = told_losses(world.client.clone(), NAMESPACE).await?;
        let [loss] = told.as_slice() else { anyhow::bail!("told: {told:?}") };
        let says = |part: &str| loss.note.contains(part);
        let right = loss.server == server && loss.times == 1 && says(&players.to_string()) && says(SERVER_NODE);
        ensure!(right, "told: {loss:?}");
        Ok(())
    })
    .await?;
    tell(&format!("they are counted as lost to it {:.1} s after the node was back", back.elapsed().as_secs_f64()));
    Ok(())
}

/// Waits until there is one lobby on each node.
async fn lobbies_by_node(world: &World<'_>) -> Result<BTreeMap<String, String>> {
    eventually(LIMIT, "a lobby on each node", || async {
        let mut found = BTreeMap::new();
        for server in world.servers().list(&ListParams::default()).await? {
            if server.status.as_ref().is_some_and(|status| status.registered) {
                let name = server.name_any();
                found.insert(world.node_of(&name).await?, name);
            }
        }
        ensure!(found.len() == 2, "registered: {found:?}");
        Ok(found)
    })
    .await
}
