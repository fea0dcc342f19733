//! Outages of ours and of agents: they never make anybody less careful, and cost nobody a server.

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use kube::{
    ResourceExt as _,
    api::ListParams,
    runtime::{WatchStreamExt as _, watcher},
};
use spawnery_tests::{
    eventually,
    stack::{Arena, Crowd, Evicted, SmallNetwork, StackOptions},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

const LIMIT: Duration = Duration::from_mins(1);
/// A stream that is down for this long costs a server its registration.
const STREAM_GRACE: Duration = Duration::from_secs(15);
/// How long an agent is frozen.
const FROZEN: Duration = Duration::from_mins(1);

/// Everything that was seen to happen to Servers.
struct Watch {
    deregistered: Arc<Mutex<Vec<(String, Instant)>>>,
    _stop: DropGuard,
}

impl Watch {
    fn start(arena: &Arena) -> Self {
        let (deregistered, stop) = (Arc::new(Mutex::new(Vec::new())), CancellationToken::new());
        let (servers, seen) = (arena.servers(), Arc::clone(&deregistered));
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let mut registered: BTreeMap<String, bool> = BTreeMap::new();
            let watch = watcher(servers, watcher::Config::default()).default_backoff().applied_objects();
            let mut watch = std::pin::pin!(watch);
            loop {
                // The watch goes on after an error, such as that of an API server that was stopped.
                let Ok(Some(server)) = watch.try_next().await else { continue };
                let now = server.status.as_ref().is_some_and(|status| status.registered);
                if registered.insert(server.name_any(), now) == Some(true) && !now {
                    seen.lock().push((server.name_any(), Instant::now()));
                }
            }
        }));
        Self { deregistered, _stop: stop.drop_guard() }
    }

    /// How long after `begin` a server was taken out of the directory, each time.
    fn deregistered_since(&self, server: &str, begin: Instant) -> Vec<Duration> {
        let of = |(name, at): &(String, Instant)| (name == server).then(|| at.saturating_duration_since(begin));
        self.deregistered.lock().iter().filter_map(of).collect()
    }

    fn deregistered(&self) -> Vec<(String, Instant)> {
        self.deregistered.lock().clone()
    }
}

/// Readiness losses and pod UIDs of all servers.
async fn servers(arena: &Arena) -> Result<BTreeMap<String, (i32, Option<String>)>> {
    let pods = arena.pods().list(&ListParams::default()).await?;
    let uids: BTreeMap<String, Option<String>> = pods.iter().map(|pod| (pod.name_any(), pod.uid())).collect();
    let servers = arena.servers().list(&ListParams::default()).await?;
    let facts = servers.iter().map(|server| {
        let losses = server.status.as_ref().map_or(0, |status| status.readiness_losses);
        (server.name_any(), (losses, uids.get(&server.name_any()).cloned().flatten()))
    });
    Ok(facts.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_agent_costs_one_registration_and_no_player() -> Result<()> {
    Arena::run("frozen-agent", StackOptions::default(), async |arena| {
        arena.start(&SmallNetwork { lobbies: 2, ..arena.network() }).await?;
        let mut crowd = Crowd::new();
        crowd.join(arena.stack().runner(), arena.namespace(), 4).await?;
        let lobbies: Vec<String> = crowd.by_server().into_keys().collect();
        let [quiet, asked] = lobbies.as_slice() else { bail!("players are on {lobbies:?}") };
        let mut frozen = Vec::new();
        for server in &lobbies {
            arena.wait_occupied(server, true).await?;
            let pod = arena.stack().runner().pod(arena.namespace(), server).context("the lobby does not run")?;
            frozen.push((pod, arena.uid(server).await?));
        }
        let watch = Watch::start(&arena);
        let begin = Instant::now();
        for (pod, _) in &frozen {
            pod.freeze_agent()?;
        }
        while begin.elapsed() < FROZEN {
            // Asking in earnest closes the door, which takes a server out of the directory too: so only one is asked so.
            for answer in [arena.evict_dry(quiet).await?, arena.evict(asked).await?] {
                ensure!(matches!(answer, Evicted::Later(_)), "{answer:?} after {:?}", begin.elapsed());
            }
            for server in &lobbies {
                ensure!(arena.is_occupied(server).await?, "{server} is not labelled after {:?}", begin.elapsed());
            }
            sleep(Duration::from_secs(2)).await;
        }
        let seen: Vec<Duration> = watch.deregistered_since(quiet, begin);
        ensure!(seen.len() == 1, "deregistered: {seen:?}");
        ensure!(seen.iter().all(|after| *after > STREAM_GRACE - Duration::from_secs(6)), "deregistered after {seen:?}");
        ensure!(seen.iter().all(|after| *after < STREAM_GRACE + Duration::from_secs(3)), "deregistered after {seen:?}");
        println!("deregistered {seen:.1?} after the agent froze");
        for (pod, _) in &frozen {
            pod.thaw_agent()?;
        }
        eventually(LIMIT, "the agent to be heard again", || async {
            let status = arena.servers().get(quiet).await?.status.unwrap_or_default();
            ensure!(status.registered && status.phase == "Ready" && status.readiness_losses == 1, "{status:?}");
            Ok(())
        })
        .await?;
        for (pod, uid) in &frozen {
            ensure!(arena.uid(&pod.facts().name).await? == *uid);
        }
        crowd.ensure_unharmed()
    })
    .await
}

/// A hundred lobbies with one player each.
async fn hundred(arena: &Arena) -> Result<Crowd> {
    arena.start(&SmallNetwork { lobbies: 100, max_players: 2, proxies: 2, ..arena.network() }).await?;
    let mut crowd = Crowd::new();
    crowd.join(arena.stack().runner(), arena.namespace(), 200).await?;
    ensure!(crowd.by_server().len() == 100, "players are on {} lobbies", crowd.by_server().len());
    for server in crowd.by_server().keys() {
        arena.wait_occupied(server, true).await?;
    }
    Ok(crowd)
}

/// Nothing was taken from anybody since `before`.
async fn nothing_happened(
    arena: &Arena,
    watch: &Watch,
    crowd: &Crowd,
    before: &BTreeMap<String, (i32, Option<String>)>,
) -> Result<()> {
    ensure!(watch.deregistered().is_empty(), "deregistered: {:?}", watch.deregistered());
    let after = servers(arena).await?;
    ensure!(after == *before, "servers, losses or pods have changed:\n{before:?}\n{after:?}");
    ensure!(arena.registered().await?.len() == before.len());
    crowd.ensure_unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_that_is_killed_and_restarted_costs_nobody_anything() -> Result<()> {
    Arena::run("restarted", StackOptions::default(), async |arena| {
        let crowd = hundred(&arena).await?;
        let (watch, before) = (Watch::start(&arena), servers(&arena).await?);
        for _ in 0..3 {
            arena.stack().reconciler(0)?.kill().await?;
            sleep(Duration::from_secs(5)).await;
            arena.stack().reconciler(0)?.start()?;
            arena.stack().reconciler(0)?.wait_ready(LIMIT).await?;
            // Past the time that a silent agent is given, so that a clock that ran against it would show.
            sleep(STREAM_GRACE + Duration::from_secs(15)).await;
        }
        nothing_happened(&arena, &watch, &crowd, &before).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_by_lease_expiry_costs_nobody_anything() -> Result<()> {
    let options = StackOptions { reconcilers: 2, ..StackOptions::default() };
    Arena::run("take-over", options, async |arena| {
        let crowd = hundred(&arena).await?;
        let (watch, before) = (Watch::start(&arena), servers(&arena).await?);
        let begin = Instant::now();
        arena.leader().await?.kill().await?;
        let leads = eventually(LIMIT, "the other to lead", || async { Ok(arena.leader().await?.name().to_owned()) }).await?;
        println!("{leads} leads {:.1} s after the other was killed", begin.elapsed().as_secs_f64());
        sleep(STREAM_GRACE + Duration::from_secs(30)).await;
        nothing_happened(&arena, &watch, &crowd, &before).await
    })
    .await
}
