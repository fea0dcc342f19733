//! `kubectl drain` of the node that people play on.

use crate::world::{LIMIT, World, tell};
use anyhow::{Result, ensure};
use spawnery_tests::{
    eventually,
    installed::{PROXY_NODE, SERVER_NODE},
};
use std::time::Duration;

/// The promise: kubectl's next try, which comes within 5 s, succeeds. What else is on the node is evicted with it.
const DONE_LIMIT: Duration = Duration::from_secs(30);

/// More than a drain says.
const LINES: usize = 200;

pub(crate) async fn a_drain_waits_for_the_last_player(world: &mut World<'_>) -> Result<()> {
    let server = world.the_lobby().await?;
    ensure!(world.node_of(&server).await? == SERVER_NODE, "the lobby is not where it should be");
    let drain = world.ground.begin("Empty a node")?;
    // Others on the node are refused too, such as a webhook of ours whose peer is not ready: this is about the server.
    let of_server = format!("error when evicting pods/\"{server}\" ");
    eventually(LIMIT, "a refusal of the server", || async {
        let said = drain.tail(LINES);
        let refused: Vec<&str> = said.lines().filter(|line| line.starts_with(&of_server)).collect();
        ensure!(refused.iter().all(|line| line.contains("people are on this pod")), "{refused:#?}");
        ensure!(!refused.is_empty(), "{said}");
        Ok(())
    })
    .await?;
    // One quits, the others are moved as soon as there is another lobby: until then all play, and nothing ends.
    let player = world.crowd.players().iter().find(|player| player.state().is_on(&server));
    if let Some(player) = player {
        player.leave();
    }
    eventually(LIMIT, "everybody to be off the server", || async {
        let on = world.crowd.on(&server).count();
        let status = drain.exit_status();
        ensure!(status.is_none() || on == 0, "the drain ended ({status:?}) with {on} people on the server");
        ensure!(on == 0, "{on} are still on {server}");
        Ok(())
    })
    .await?;
    let begin = std::time::Instant::now();
    let status = drain.wait(DONE_LIMIT).await?;
    ensure!(status.success(), "kubectl drain ended with {status}\n{}", drain.tail(30));
    tell(&format!("the drain ended {:.1} s after the last player", begin.elapsed().as_secs_f64()));
    world.crowd.ensure_unharmed()?;
    let other = world.the_lobby().await?;
    ensure!(other != server && world.node_of(&other).await? == PROXY_NODE, "the group is not whole elsewhere");
    ensure!(world.crowd.on(&other).count() == 2, "they play on {:?}", world.crowd.by_server());
    world.ground.all_ready().await?;
    Ok(())
}
