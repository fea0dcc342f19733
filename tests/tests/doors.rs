//! Doors: nobody gets onto a server whose pod is being removed, whatever happens in between.

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use spawnery_tests::{
    args::settings,
    eventually,
    game::player::Player,
    runner::{Role, RunningPod},
    stack::{Arena, Crowd, Evicted, SmallNetwork, StackOptions},
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::time::sleep;

const LIMIT: Duration = Duration::from_secs(30);
/// Joins and evictions begin at most this far apart: about as long as a close takes.
const SPREAD: Duration = Duration::from_millis(60);
/// How long a door that must not close is watched.
const WATCH: Duration = Duration::from_secs(6);
/// A restarted container counts only when it began safely after the last that was told to the one before: the node's
/// clock may be off by half a minute.
const CLOCK_SKEW: Duration = Duration::from_secs(32);

/// One join at a random proxy and one eviction of the server that it would choose, at random moments. Returns the player.
async fn interleave(arena: &Arena, proxies: &[Arc<RunningPod>], random: &mut StdRng, n: u32) -> Result<Player> {
    let target = arena.registered().await?.into_iter().next().context("no lobby takes players")?;
    let proxy = proxies.choose(random).context("no proxy")?;
    let moment = |random: &mut StdRng| random.random_range(Duration::ZERO..SPREAD);
    let (join_at, evict_at, dial_after, deaf_for) = (moment(random), moment(random), moment(random), moment(random));
    let (slow, deaf) = (random.random_bool(0.3), random.random_bool(0.2));
    let game = proxy.game().context("the proxy has no game")?;
    let faults = game.mini_proxy().context("not a mini proxy")?.faults();
    let join = async {
        sleep(join_at).await;
        if slow {
            faults.dialing.shut();
        }
        let player = Player::join(proxy.game_address(), format!("p{n}"));
        sleep(dial_after).await;
        faults.dialing.open();
        player
    };
    let evict = async {
        sleep(evict_at).await;
        arena.evict(&target).await
    };
    let deafness = async {
        if deaf {
            faults.control.shut();
            sleep(deaf_for).await;
            faults.control.open();
        }
    };
    let (player, evicted, ()) = tokio::join!(join, evict, deafness);
    evicted?;
    Ok(player)
}

/// Rounds of [`interleave`] until `enough` says so; returns how many players came to harm in how many rounds.
async fn rounds(arena: &Arena, network: &SmallNetwork, lies: bool, seed: u64) -> Result<(Vec<String>, u32)> {
    let mut random = StdRng::seed_from_u64(seed);
    let proxies = arena.stack().runner().pods_in(arena.namespace(), Role::Proxy);
    for proxy in &proxies {
        let game = proxy.game().context("the proxy has no game")?;
        game.mini_proxy().context("not a mini proxy")?.faults().lies.store(lies, Ordering::Relaxed);
    }
    let most = settings().rounds;
    for n in 0..most {
        let player = interleave(arena, &proxies, &mut random, n).await?;
        if player.wait_on(LIMIT).await.is_ok() {
            // Long enough for an eviction that was let through to reach the pod.
            sleep(Duration::from_millis(150)).await;
        }
        let mut crowd = Crowd::new();
        crowd.add(player);
        if !crowd.harmed().is_empty() {
            return Ok((crowd.harmed(), n + 1));
        }
        let on = crowd.by_server().into_keys().next();
        if let Some(server) = on {
            crowd.leave(&server).await?;
        }
        if !lies {
            network.wait_ready(arena.stack(), arena.namespace()).await?;
        }
    }
    Ok((Vec::new(), most))
}

fn interleaved_network(arena: &Arena) -> SmallNetwork {
    SmallNetwork { lobbies: 3, proxies: 2, ..arena.network() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_beside_an_eviction_never_ends_on_a_server_that_goes() -> Result<()> {
    Arena::run("interleaved", StackOptions::default(), async |arena| {
        let network = interleaved_network(&arena);
        arena.start(&network).await?;
        let seed = rand::random();
        let (harmed, rounds) = rounds(&arena, &network, false, seed).await?;
        ensure!(harmed.is_empty(), "round {rounds} with seed {seed}: {harmed:#?}");
        println!("{rounds} interleavings with seed {seed}: nobody was lost");
        Ok(())
    })
    .await
}

/// The control: proxies that confirm a directory without routing by it take the close out of the protocol, and the same
/// harness must see somebody come to harm.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_close_somebody_is_lost() -> Result<()> {
    Arena::run("control", StackOptions::default(), async |arena| {
        let network = interleaved_network(&arena);
        arena.start(&network).await?;
        let (harmed, rounds) = rounds(&arena, &network, true, 1).await?;
        ensure!(!harmed.is_empty(), "nobody came to harm in {rounds} rounds without a close");
        println!("round {rounds} without a close: {harmed:?}");
        Ok(())
    })
    .await
}

/// A proxy that cannot confirm, in one of the ways in which it cannot.
async fn holds_the_door(
    name: &str,
    watch: Duration,
    break_it: impl AsyncFn(&RunningPod) -> Result<()>,
    mend_it: impl AsyncFn(&RunningPod) -> Result<()>,
) -> Result<()> {
    Arena::run(name, StackOptions::default(), async |arena| {
        arena.start(&SmallNetwork { lobbies: 2, proxies: 2, ..arena.network() }).await?;
        let target = arena.registered().await?.into_iter().next().context("no lobby")?;
        let uid = arena.uid(&target).await?;
        let proxies = arena.stack().runner().pods_in(arena.namespace(), Role::Proxy);
        let broken = proxies.first().context("no proxy")?;
        break_it(broken).await?;
        let begin = Instant::now();
        while begin.elapsed() < watch {
            let answer = arena.evict(&target).await?;
            ensure!(matches!(answer, Evicted::Later(_)), "{answer:?} after {:?}", begin.elapsed());
            sleep(Duration::from_millis(500)).await;
        }
        ensure!(arena.uid(&target).await? == uid);
        mend_it(broken).await?;
        eventually(LIMIT, "the eviction to go through", || async {
            let answer = arena.evict(&target).await?;
            ensure!(matches!(answer, Evicted::Yes | Evicted::Gone), "{answer:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_whose_game_hangs_holds_the_door() -> Result<()> {
    let faults = |pod: &RunningPod, shut: bool| -> Result<()> {
        let game = pod.game().context("no game")?;
        let control = &game.mini_proxy().context("not a mini proxy")?.faults().control;
        if shut {
            control.shut();
        } else {
            control.open();
        }
        Ok(())
    };
    holds_the_door("hangs", WATCH, async |pod| faults(pod, true), async |pod| faults(pod, false)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_whose_agent_is_frozen_holds_the_door() -> Result<()> {
    holds_the_door("frozen-agent", WATCH, async |pod| pod.freeze_agent(), async |pod| pod.thaw_agent()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_is_cut_off_holds_the_door() -> Result<()> {
    holds_the_door("cut-off", WATCH, async |pod| pod.kill_agent(), async |pod| pod.start_agent()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_is_cut_off_lets_go_once_its_container_was_restarted() -> Result<()> {
    holds_the_door("restarted", CLOCK_SKEW, async |pod| pod.kill_agent(), async |pod| pod.restart_game().await).await
}
