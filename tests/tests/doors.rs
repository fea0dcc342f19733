//! Doors: nobody gets onto a server whose pod is being removed, whatever happens in between.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::json;
use spawnery_api::names::object;
use spawnery_tests::{
    args::settings,
    eventually,
    game::{
        local_api::Serials,
        player::Player,
        proxy::{MiniProxy, ProxyConfig},
    },
    runner::{Role, RunningPod},
    stack::{Arena, Crowd, Evicted, SmallNetwork, StackOptions, Vigil, What},
};
use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::time::sleep;

const LIMIT: Duration = Duration::from_secs(30);
/// Within this an eviction begins, and what disturbs it.
const SPREAD: Duration = Duration::from_millis(60);
/// Within this a join begins: a close, and the way to the pod's end, take about as long.
const JOIN_SPREAD: Duration = Duration::from_millis(160);
/// In how many rounds something of a proxy is restarted: in half of them its container, in half its agent alone.
const RESTARTS: f64 = 0.2;
/// In how many of these it is the proxy that is joined at.
const AT_THE_JOIN: f64 = 0.75;
/// With a container's restart everything of a round begins within this: about as long as that takes.
const CONTAINER_SPREAD: Duration = Duration::from_millis(1200);
/// With an agent's everything else does, and the agent is away for up to twice as long while the proxy routes on.
const AGENT_SPREAD: Duration = Duration::from_millis(250);
/// Long enough for players to hear of the end of the server that they are on.
const HEARD: Duration = Duration::from_millis(50);
/// How long a door that must not close is watched.
const WATCH: Duration = Duration::from_secs(6);
/// A restarted container counts only when it began safely after the last that was told to the one before: the node's
/// clock may be off by half a minute.
const CLOCK_SKEW: Duration = Duration::from_secs(32);
/// What an agent writes down about a message that it does not obey.
const DROPPED: &str = "dropped a message of an earlier leader";

/// How the proxies keep to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proxies {
    /// As they should.
    Honest,
    /// They confirm each directory before they route by it, which takes the close out of the protocol.
    Lying,
    /// Whoever is joined at has just been restarted, but the old process lives on: cut off, it routes by what it knew, and
    /// the new one confirms in its place.
    Outlived,
}

/// What became of one join beside one eviction.
struct Round {
    player: Player,
    /// The pod whose eviction was let through.
    removed: Option<String>,
    restarted: bool,
    /// The player was on the way through a proxy, or through it on a server, when that was restarted: what it lost, it lost
    /// to that.
    cut: bool,
}

/// One join at a random proxy and one eviction of the server that it would choose, at random moments; some proxies are
/// held up, deafened or restarted meanwhile.
async fn interleave(
    arena: &Arena,
    proxies: &[Arc<RunningPod>],
    proxy: &Arc<RunningPod>,
    random: &mut StdRng,
    n: u32,
) -> Result<Round> {
    let target = arena.registered().await?.into_iter().next().context("no lobby takes players")?;
    let restarted = random
        .random_bool(RESTARTS)
        .then(|| if random.random_bool(AT_THE_JOIN) { Some(proxy) } else { proxies.choose(random) });
    let (restarted, whole) = (restarted.flatten(), random.random_bool(0.5));
    let (slow, deaf) = (random.random_bool(0.3), random.random_bool(if restarted.is_some() { 0.5 } else { 0.2 }));
    let wide = restarted.map(|_| if whole { CONTAINER_SPREAD } else { AGENT_SPREAD });
    let mut moment = |spread| random.random_range(Duration::ZERO..wide.unwrap_or(spread));
    let (join_at, evict_at) = (moment(JOIN_SPREAD), moment(SPREAD));
    let (dial_after, deaf_for) = (moment(SPREAD), moment(SPREAD));
    let away = random.random_range(Duration::ZERO..2 * AGENT_SPREAD);
    let restart_at = random.random_range(Duration::ZERO..if whole { CONTAINER_SPREAD } else { SPREAD });
    let game = proxy.game().context("the proxy has no game")?;
    let faults = game.mini_proxy().context("not a mini proxy")?.faults();
    let joined = OnceLock::new();
    let join = async {
        sleep(join_at).await;
        if slow {
            faults.dialing.shut();
        }
        joined.get_or_init(|| Player::join(proxy.game_address(), format!("p{n}")));
        sleep(dial_after).await;
        faults.dialing.open();
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
    let restart = async {
        let Some(restarted) = restarted else { return anyhow::Ok(false) };
        sleep(restart_at).await;
        if !whole {
            restarted.kill_agent()?;
            sleep(away).await;
            restarted.start_agent()?;
            return Ok(false);
        }
        let cut = Arc::ptr_eq(restarted, proxy) && joined.get().is_some_and(|player: &Player| !player.was_harmed());
        restarted.restart().await?;
        Ok(cut)
    };
    let ((), evicted, (), cut) = tokio::join!(join, evict, deafness, restart);
    let removed = matches!(evicted?, Evicted::Yes | Evicted::Gone).then_some(target);
    let player = joined.into_inner().context("nobody joined")?;
    Ok(Round { player, removed, restarted: restarted.is_some(), cut: cut? })
}

/// Starts a proxy's agent and a new process anew, and leaves the old process to its players and to newcomers.
async fn outlive(pod: &RunningPod) -> Result<MiniProxy> {
    let old = pod.game().context("the proxy has no game")?;
    old.mini_proxy().context("not a mini proxy")?.faults().control.shut();
    pod.start_agent()?;
    let config = ProxyConfig {
        name: format!("the new {}", pod.facts().name),
        address: SocketAddr::new(pod.facts().address, 0),
        slots: 1,
        fallback_groups: pod.facts().fallback_groups(),
        agent: pod.local_api(),
        serials: Serials::default(),
    };
    let new = MiniProxy::start(config).await?;
    eventually(LIMIT, "the new process to route", || async {
        ensure!(!new.servers().is_empty(), "it knows no server");
        Ok(())
    })
    .await?;
    Ok(new)
}

/// Rounds of [`interleave`] until somebody comes to harm or all were played; says who did, and in which.
async fn rounds(arena: &Arena, network: &SmallNetwork, how: Proxies, seed: u64) -> Result<(Vec<String>, u32)> {
    let mut random = StdRng::seed_from_u64(seed);
    let proxies = arena.stack().runner().pods_in(arena.namespace(), Role::Proxy);
    let (mut restarted, mut cut, mut inside) = (0, 0, 0);
    let most = settings().rounds;
    for n in 0..most {
        for proxy in &proxies {
            // Each round anew: a process that was restarted is honest.
            let game = proxy.game().context("the proxy has no game")?;
            let faults = game.mini_proxy().context("not a mini proxy")?.faults();
            faults.lies.store(how == Proxies::Lying, Ordering::Relaxed);
            faults.control.open();
        }
        network.wait_ready(arena.stack(), arena.namespace()).await?;
        let proxy = proxies.choose(&mut random).context("no proxy")?;
        let _new = if how == Proxies::Outlived { Some(outlive(proxy).await?) } else { None };
        let round = interleave(arena, &proxies, proxy, &mut random, n).await?;
        restarted += u32::from(round.restarted);
        cut += u32::from(round.cut);
        if round.cut {
            continue;
        }
        if round.player.wait_on(LIMIT).await.is_ok() {
            inside += 1;
            if let Some(removed) = round.removed {
                wait_ended(arena, &removed).await?;
            }
        }
        let mut crowd = Crowd::new();
        crowd.add(round.player);
        if !crowd.harmed().is_empty() {
            return Ok((crowd.harmed(), n + 1));
        }
        let on = crowd.by_server().into_keys().next();
        if let Some(server) = on {
            crowd.leave(&server).await?;
        }
    }
    println!(
        "{most} rounds: {inside} players got in, {restarted} proxies or agents were restarted, {cut} players lost theirs to that"
    );
    Ok((Vec::new(), most))
}

/// Waits until an eviction that was let through has ended the game, and whoever was on it knows.
async fn wait_ended(arena: &Arena, pod: &str) -> Result<()> {
    eventually(LIMIT, "the end of an evicted pod", || async {
        ensure!(arena.stack().runner().pod(arena.namespace(), pod).is_none(), "{pod} runs");
        Ok(())
    })
    .await?;
    sleep(HEARD).await;
    Ok(())
}

/// What a round needs: a server to go, and others for those who cannot get in there.
fn interleaved_network(arena: &Arena) -> SmallNetwork {
    SmallNetwork { lobbies: 3, proxies: 2, ..arena.network() }
}

/// As many more as are still starting in the place of those that went, so that rounds need not wait for them.
fn with_successors(network: &SmallNetwork) -> SmallNetwork {
    SmallNetwork { lobbies: 2 * network.lobbies, ..network.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_beside_an_eviction_never_ends_on_a_server_that_goes() -> Result<()> {
    Arena::run("interleaved", StackOptions::default(), async |arena| {
        let network = interleaved_network(&arena);
        arena.start(&with_successors(&network)).await?;
        let seed = rand::random();
        let (harmed, rounds) = rounds(&arena, &network, Proxies::Honest, seed).await?;
        ensure!(harmed.is_empty(), "round {rounds} with seed {seed}: {harmed:#?}");
        println!("{rounds} interleavings with seed {seed}: nobody was lost");
        Ok(())
    })
    .await
}

/// The same harness must see somebody come to harm.
async fn loses_somebody(name: &str, how: Proxies) -> Result<()> {
    Arena::run(name, StackOptions::default(), async |arena| {
        let network = interleaved_network(&arena);
        arena.start(&with_successors(&network)).await?;
        let (harmed, rounds) = rounds(&arena, &network, how, 1).await?;
        ensure!(!harmed.is_empty(), "nobody came to harm in {rounds} rounds with proxies that are {how:?}");
        println!("round {rounds} with proxies that are {how:?}: {harmed:?}");
        Ok(())
    })
    .await
}

/// The control for the close.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_close_somebody_is_lost() -> Result<()> {
    loses_somebody("control", Proxies::Lying).await
}

/// The control for restarts: a container whose old process is not gone when the new one confirms.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_old_process_outlives_a_restart_somebody_is_lost() -> Result<()> {
    loses_somebody("outlived", Proxies::Outlived).await
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

/// Waits until the agents have dropped messages of all these kinds because of their term, by their logs.
async fn wait_dropped(pods: &[Arc<RunningPod>], kinds: &[&str]) -> Result<()> {
    eventually(LIMIT, "agents that drop what an earlier term says", || async {
        for pod in pods {
            let log = pod.with_agent(|agent| Ok(agent.log_path().map(ToOwned::to_owned)))?.context("no log")?;
            let log = fs::read_to_string(&log).with_context(|| format!("could not read {}", log.display()))?;
            let dropped: String = log.lines().filter(|line| line.contains(DROPPED)).collect();
            let missing: Vec<_> = kinds.iter().filter(|kind| !dropped.contains(**kind)).collect();
            ensure!(missing.is_empty(), "{} has not dropped {missing:?}", pod.facts().name);
        }
        Ok(())
    })
    .await
}

/// Makes the reconciler lead in an earlier term than the one that agents have heard.
async fn turn_back_the_term(arena: &Arena) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(arena.stack().cluster().client().await?, object::OPERATOR_NAMESPACE);
    let reconciler = arena.stack().reconciler(0)?;
    reconciler.kill().await?;
    let earlier = Patch::Merge(json!({ "spec": { "holderIdentity": null, "leaseTransitions": 0 } }));
    leases.patch(object::LEASE, &PatchParams::default(), &earlier).await?;
    reconciler.start()?;
    reconciler.wait_ready(LIMIT).await
}

/// A leader of an earlier term that does not know it: nothing that it says is done, so no door that it closes lets go.
/// The control is the second half: agents that have heard of no other term do all of it at once.
#[tokio::test(flavor = "multi_thread")]
async fn orders_of_an_earlier_term_are_dropped() -> Result<()> {
    Arena::run("earlier-term", StackOptions::default(), async |arena| {
        let drain = json!({ "moveAfterSeconds": 0, "timeoutSeconds": 3600 });
        arena.start(&SmallNetwork { lobbies: 2, proxies: 2, drain, ..arena.network() }).await?;
        let (crowd, server, _) = arena.players(2).await?;
        let (on_it, runner) = (crowd.on(&server).count(), arena.stack().runner());
        let proxies = runner.pods_in(arena.namespace(), Role::Proxy);
        let vigil = Vigil::begin(&arena).await?;
        turn_back_the_term(&arena).await?;
        wait_dropped(&proxies, &["FullSync", "SetReady"]).await?;
        let asked = async || {
            let answer = arena.evict(&server).await?;
            ensure!(matches!(answer, Evicted::Later(_)), "{answer:?}");
            anyhow::Ok(())
        };
        asked().await?;
        wait_dropped(&proxies, &["Unregister", "Drain"]).await?;
        asked().await?;
        let routes = |proxy: &RunningPod| {
            let game = proxy.game().context("no game")?;
            anyhow::Ok(game.mini_proxy().context("not a mini proxy")?.servers().contains(&server))
        };
        for proxy in &proxies {
            ensure!(routes(proxy)?, "{} does not route to {server} any more", proxy.facts().name);
        }
        ensure!(crowd.on(&server).count() == on_it, "they were moved: {:?}", crowd.by_server());
        let happened = vigil.happened_to(&server);
        ensure!(!happened.iter().any(|it| matches!(it.what, What::DroppedBy(_) | What::Unlabelled)), "{happened:#?}");

        for pod in runner.pods().iter().filter(|pod| pod.facts().namespace == arena.namespace()) {
            pod.start_agent()?;
        }
        eventually(LIMIT, "the orders to be carried out", || async {
            let answer = arena.evict(&server).await?;
            ensure!(matches!(answer, Evicted::Yes | Evicted::Gone), "{answer:?}");
            Ok(())
        })
        .await?;
        ensure!(crowd.on(&server).count() == 0 && crowd.by_server().values().sum::<usize>() == 2);
        crowd.ensure_unharmed()
    })
    .await
}
