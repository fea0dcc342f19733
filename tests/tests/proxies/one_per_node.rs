//! A rolling update where each node takes one proxy of the group only: a newcomer finds no node until one makes room.

use crate::{CLOSED_LIMIT, EDGES, LIMIT, PROPAGATION, edit, ensure_kept, players_may_take, proxies, wait_whole};
use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;
use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;
use spawnery_api::names::annotation;
use spawnery_core::rollout::PATIENCE;
use spawnery_tests::{
    eventually,
    game::player::{Player, PlayerState},
    stack::{Arena, SmallNetwork},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// How long players of a leaving proxy may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Seconds that moments lose on the API, which keeps them whole.
const ROUNDED: f64 = 1.0;
/// How much longer than the patience the control is watched.
const BEYOND: Duration = Duration::from_secs(20);
/// Between two looks at what is not to change.
const LOOK: Duration = Duration::from_millis(200);

/// The update that ends, and beside it the one that cannot.
pub(crate) async fn updates(arena: &Arena) -> Result<()> {
    arena.stack().cluster().add_node(EDGES[1]).await?;
    let edges = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": EDGES });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [edges] }] } } });
    let network = SmallNetwork { proxies: 2, proxy_node: None, affinity: Some(affinity), ..arena.network() };
    let expose = json!({ "type": "HostPort", "hostPort": { "port": 25565 } });
    let one_per_node = SmallNetwork { expose, ..network.clone() };
    let control = arena.beside("nowhere", async |beside| an_update_that_fits_nowhere(&beside, &network).await);
    tokio::try_join!(an_update_that_ends(arena, &one_per_node), control).map(drop)
}

async fn an_update_that_ends(arena: &Arena, network: &SmallNetwork) -> Result<()> {
    arena.start(network).await?;
    wait_whole(arena, 2).await?;
    let old = proxies(arena).await?;
    ensure!(old.iter().map(|(_, node, _)| node.as_str()).collect::<BTreeSet<_>>() == BTreeSet::from(EDGES), "{old:?}");
    let mut players = BTreeMap::new();
    for (proxy, _, _) in &old {
        let pod = arena.stack().runner().pod(arena.namespace(), proxy).context("it does not run")?;
        let player = Player::join(pod.game_address(), format!("on {proxy}"));
        player.wait_on(LIMIT).await?;
        arena.wait_occupied(proxy, true).await?;
        players.insert(proxy.clone(), player);
    }
    let unharmed = |proxy: &str| {
        let player = players.get(proxy).context("nobody was on it")?;
        ensure!(!player.was_harmed(), "{} is {}", player.name(), player.state());
        anyhow::Ok(player)
    };
    players_may_take(arena, DEADLINE).await?;
    edit(arena, json!({ "image": "example.test/gateway:2" })).await?;

    // The first goes as soon as its player has left.
    let first = room_is_made(arena, &names(&old)).await?;
    let other: BTreeSet<String> = names(&old).into_iter().filter(|name| *name != first).collect();
    let stays = other.first().context("there were two")?;
    unharmed(&first)?.leave();
    replaced(arena, &first, &old).await?;
    ensure_kept(arena, stays).await?;

    // Whoever stays on the second is cut off at the deadline, and not before.
    let second = room_is_made(arena, &other).await?;
    let told = Instant::now();
    let player = unharmed(&second)?;
    player.wait_for(LIMIT, "cut off", PlayerState::is_final).await?;
    let after = told.elapsed();
    ensure!(after + Duration::from_secs(1) >= PROPAGATION + DEADLINE, "cut off {after:?} after it was told to close");
    println!("the player who stayed was cut off {:.1} s after the proxy was told to close", after.as_secs_f64());
    replaced(arena, &second, &old).await?;
    wait_whole(arena, 2).await?;
    let new = proxies(arena).await?;
    ensure!(new.len() == 2 && new.iter().all(|(name, _, _)| !names(&old).contains(name)), "{new:?}");
    unharmed(&first).map(drop)
}

/// The control: the newcomer finds no node either, and nobody who went would help it.
async fn an_update_that_fits_nowhere(arena: &Arena, network: &SmallNetwork) -> Result<()> {
    arena.start(network).await?;
    wait_whole(arena, 2).await?;
    let old = names(&proxies(arena).await?);
    edit(arena, json!({ "image": "example.test/gateway:2", "resources": { "requests": { "memory": "1Ti" } } })).await?;
    wait_without_node(arena, &old).await?;
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE + BEYOND {
        let now = names(&proxies(arena).await?);
        ensure!(now.is_superset(&old) && now.len() == 3, "{now:?} of {old:?}, after {:?}", begin.elapsed());
        let told = told_to_close(arena, &old).await?;
        ensure!(told.is_empty(), "{told:?} goes, after {:?}", begin.elapsed());
        sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until one of the `old` proxies is told to close, which is when a newcomer has waited for a node for long enough.
async fn room_is_made(arena: &Arena, old: &BTreeSet<String>) -> Result<String> {
    let waits_since = wait_without_node(arena, old).await?;
    let told = eventually(PATIENCE + LIMIT, "one to make room", || async {
        let told = told_to_close(arena, old).await?;
        ensure!(!told.is_empty(), "none is told to close");
        Ok(told)
    })
    .await?;
    let [(told, at)] = <[_; 1]>::try_from(told).map_err(|all| anyhow::anyhow!("all go at once: {all:?}"))?;
    let after = at.duration_since(waits_since).as_secs_f64();
    ensure!(after + ROUNDED >= PATIENCE.as_secs_f64(), "after {after:.1} s");
    println!("{told} made room {after:.0} s after a newcomer found no node");
    ensure_kept(arena, &told).await?;
    Ok(told)
}

/// Waits until a proxy beside the `old` ones finds no node, and says since when.
async fn wait_without_node(arena: &Arena, old: &BTreeSet<String>) -> Result<Timestamp> {
    eventually(LIMIT, "a newcomer that finds no node", || async {
        for (name, _, _) in
            proxies(arena).await?.iter().filter(|(name, node, _)| !old.contains(name) && node.is_empty())
        {
            let conditions = arena.pods().get(name).await?.status.and_then(|status| status.conditions);
            let refused = |condition: &&PodCondition| condition.reason.as_deref() == Some("Unschedulable");
            if let Some(refused) = conditions.iter().flatten().find(refused) {
                return Ok(refused.last_transition_time.as_ref().context("no time")?.0);
            }
        }
        anyhow::bail!("all have one: {:?}", proxies(arena).await?)
    })
    .await
}

/// Waits until a proxy is gone, and a new one is on its node.
async fn replaced(arena: &Arena, gone: &str, old: &[(String, String, String)]) -> Result<()> {
    let (_, node, _) = old.iter().find(|(name, _, _)| name == gone).context("never heard of")?;
    eventually(CLOSED_LIMIT, "a new one in its place", || async {
        let now = proxies(arena).await?;
        ensure!(now.iter().any(|(name, on, _)| on == node && !old.iter().any(|(was, _, _)| was == name)), "{now:?}");
        Ok(())
    })
    .await
}

/// Who is told to close, and since when.
async fn told_to_close(arena: &Arena, among: &BTreeSet<String>) -> Result<Vec<(String, Timestamp)>> {
    let mut told = Vec::new();
    for pod in arena.pods().list(&ListParams::default()).await? {
        let since = pod.annotations().get(annotation::DRAINING_SINCE);
        if let Some(since) = since.filter(|_| among.contains(&pod.name_any())) {
            told.push((pod.name_any(), since.parse()?));
        }
    }
    Ok(told)
}

fn names(proxies: &[(String, String, String)]) -> BTreeSet<String> {
    proxies.iter().map(|(name, _, _)| name.clone()).collect()
}
