//! Another reconciler takes over, with a hundred servers that people are on: nothing is taken from anybody.
//!
//! In each take-over some agents stay silent until long after a clock that ran against them would have run out: a leader
//! that has just begun must not charge anybody for time in which it could not have heard them.

use anyhow::{Context as _, Result, ensure};
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt, api::ListParams};
use spawnery_api::names::{label, object};
use spawnery_tests::{
    cluster::audit::Mark,
    eventually,
    runner::{Role, RunningPod},
    stack::{Arena, Crowd, Evicted, Replica, SmallNetwork, StackOptions, Vigil},
};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{sleep, sleep_until};

/// Servers, each with two players.
const LOBBIES: u32 = 100;
/// Nodes for servers beside those that every arena has.
const MORE_NODES: [&str; 2] = ["games-3", "games-4"];
/// Agents that are silent during one take-over.
const SILENT: usize = 10;
/// How long they stay silent after it: past the 15 s after which a server whose agent is silent leaves the directory.
const SILENT_FOR: Duration = Duration::from_secs(20);
/// How long everything is watched after the last take-over: upstream's losses came 17 to 20 s after it. After others it is
/// watched on through the next.
const WATCHED: Duration = Duration::from_secs(26);
/// Restarts in a row: upstream lost its pods at the third.
const RESTARTS: usize = 3;
/// The lease of a leader that was killed runs out after 15 s; agents come back within 16 s more.
const LIMIT: Duration = Duration::from_mins(1);
/// A leader that finds its lease gone ends.
const EXIT_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at a hundred agents.
const PAUSE: Duration = Duration::from_millis(500);

/// A hundred lobbies with two players each, all known to be occupied.
async fn hundred(arena: &Arena) -> Result<Crowd> {
    try_join_all(MORE_NODES.map(|node| arena.stack().cluster().add_node(node))).await?;
    let begin = Instant::now();
    let mut network = SmallNetwork { lobbies: LOBBIES, proxies: 2, ..arena.network() };
    network.lobby_nodes.extend(MORE_NODES.map(str::to_owned));
    arena.start(&network).await?;
    println!("{LOBBIES} lobbies and 2 proxies after {:.1} s", begin.elapsed().as_secs_f64());
    let mut crowd = Crowd::new();
    crowd.join(arena.stack().runner(), arena.namespace(), 2 * usize::try_from(LOBBIES)?).await?;
    ensure!(crowd.by_server().len() == usize::try_from(LOBBIES)?, "players are on {} lobbies", crowd.by_server().len());
    eventually(LIMIT, "all lobbies to be labelled", || async {
        let occupied = ListParams::default().labels(&format!("{}={}", label::OCCUPIED, label::TRUE));
        let labelled: BTreeSet<String> =
            arena.pods().list(&occupied).await?.iter().map(ResourceExt::name_any).collect();
        let missing: Vec<String> = crowd.by_server().into_keys().filter(|name| !labelled.contains(name)).collect();
        ensure!(missing.is_empty(), "not labelled: {missing:?}");
        Ok(())
    })
    .await?;
    let nodes: BTreeSet<String> = arena
        .stack()
        .runner()
        .pods_in(arena.namespace(), Role::Server)
        .iter()
        .map(|pod| pod.facts().node.clone())
        .collect();
    println!("players on {LOBBIES} lobbies on {} nodes after {:.1} s", nodes.len(), begin.elapsed().as_secs_f64());
    Ok(crowd)
}

/// The term in which somebody leads, as agents are told it.
async fn epoch(arena: &Arena) -> Result<u64> {
    let leases: Api<Lease> = Api::namespaced(arena.stack().cluster().client().await?, object::OPERATOR_NAMESPACE);
    let spec = leases.get(object::LEASE).await?.spec.context("an empty lease")?;
    Ok(u64::try_from(spec.lease_transitions.unwrap_or_default())?)
}

/// Waits until somebody leads in a later term than `before`.
async fn wait_leader(arena: &Arena, before: u64) -> Result<&Replica> {
    eventually(LIMIT, "a leader", || async {
        let epoch = epoch(arena).await?;
        ensure!(epoch > before, "still in term {epoch}");
        arena.leader().await
    })
    .await
}

/// Waits until all these agents have heard the leader of a later term than `before`.
async fn wait_connected(pods: &[Arc<RunningPod>], before: u64) -> Result<()> {
    eventually(LIMIT, "all agents to be back", || async {
        sleep(PAUSE).await;
        let states = join_all(pods.iter().map(|pod| async move { (pod, pod.local_api().state().await) })).await;
        let back = |state: &serde_json::Value| {
            state["connected"].as_bool() == Some(true) && state["epoch"].as_u64().is_some_and(|epoch| epoch > before)
        };
        let away: Vec<String> = states
            .iter()
            .filter(|(_, state)| !state.as_ref().is_ok_and(back))
            .map(|(pod, state)| format!("{}: {state:?}", pod.facts().name))
            .collect();
        ensure!(away.is_empty(), "{} of {} are away, such as {:?}", away.len(), pods.len(), away.first());
        Ok(())
    })
    .await
}

/// Watches what follows a take-over that began with `silent` frozen, and thaws those: nothing may happen to anybody.
async fn nothing_follows(
    arena: &Arena,
    vigil: &Vigil,
    crowd: &Crowd,
    silent: &[Arc<RunningPod>],
    before: u64,
    last: bool,
) -> Result<()> {
    let led = tokio::time::Instant::now();
    let names: BTreeSet<&str> = silent.iter().map(|pod| pod.facts().name.as_str()).collect();
    let (quiet, loud): (Vec<_>, Vec<_>) =
        all(arena).into_iter().partition(|pod| names.contains(pod.facts().name.as_str()));
    wait_connected(&loud, before).await?;
    println!("{} agents are back {:.1} s after the take-over", loud.len(), led.elapsed().as_secs_f64());
    sleep_until(led + SILENT_FOR).await;
    vigil.ensure_quiet()?;
    for pod in &quiet {
        let answer = arena.evict_dry(&pod.facts().name).await?;
        ensure!(matches!(answer, Evicted::Later(_)), "{answer:?} for {}, which nobody has heard", pod.facts().name);
        pod.thaw_agent()?;
    }
    wait_connected(&quiet, before).await?;
    if last {
        sleep_until(led + WATCHED).await;
    }
    vigil.ensure_quiet()?;
    crowd.ensure_unharmed()
}

fn all(arena: &Arena) -> Vec<Arc<RunningPod>> {
    let runner = arena.stack().runner();
    [Role::Server, Role::Proxy].into_iter().flat_map(|role| runner.pods_in(arena.namespace(), role)).collect()
}

/// Freezes the agents of the `n`th ten servers.
fn silence(arena: &Arena, n: usize) -> Result<Vec<Arc<RunningPod>>> {
    let servers = arena.stack().runner().pods_in(arena.namespace(), Role::Server);
    let silent: Vec<_> = servers.into_iter().skip(n * SILENT).take(SILENT).collect();
    ensure!(silent.len() == SILENT, "only {} servers are left to silence", silent.len());
    silent.iter().try_for_each(|pod| pod.freeze_agent())?;
    Ok(silent)
}

/// The leader does not only hold still: a server whose players leave can be evicted, and is replaced.
async fn life_goes_on(arena: &Arena, crowd: &Crowd) -> Result<()> {
    let server = crowd.fullest()?;
    let uid = arena.uid(&server).await?;
    crowd.leave(&server).await?;
    arena.wait_occupied(&server, false).await?;
    eventually(LIMIT, "the eviction to go through", || async {
        let answer = arena.evict(&server).await?;
        ensure!(matches!(answer, Evicted::Yes | Evicted::Gone), "{answer:?}");
        Ok(())
    })
    .await?;
    eventually(LIMIT, "another server in its place", || async {
        let registered = arena.registered().await?;
        ensure!(registered.len() == usize::try_from(LOBBIES)?, "{} are registered", registered.len());
        let pods = arena.pods().list(&ListParams::default()).await?;
        ensure!(pods.iter().all(|pod| pod.uid().as_deref() != Some(&uid)), "the old pod is still there");
        Ok(())
    })
    .await?;
    crowd.ensure_unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconciler_that_is_killed_and_restarted_costs_nobody_anything() -> Result<()> {
    Arena::run("restarted", StackOptions::default(), async |arena| {
        let crowd = hundred(&arena).await?;
        let vigil = Vigil::begin(&arena).await?;
        let reconciler = arena.stack().reconciler(0)?;
        for n in 0..RESTARTS {
            let (before, silent) = (epoch(&arena).await?, silence(&arena, n)?);
            let killed = Instant::now();
            reconciler.kill().await?;
            reconciler.start()?;
            wait_leader(&arena, before).await?;
            println!("restart {}: leads again after {:.1} s", n + 1, killed.elapsed().as_secs_f64());
            nothing_follows(&arena, &vigil, &crowd, &silent, before, n + 1 == RESTARTS).await?;
        }
        drop(vigil);
        life_goes_on(&arena, &crowd).await
    })
    .await
}

/// What one process has written since `since`, by its token. A lease that it could not get is not written.
fn written_by(arena: &Arena, credential: &str, since: Mark) -> Result<Vec<String>> {
    let events = arena.stack().cluster().audit().events(since)?;
    let written = events.iter().filter(|event| {
        let reads = matches!(event.verb.as_str(), "get" | "list" | "watch");
        let refused = event.code().is_some_and(|code| code >= 400);
        event.credential() == Some(credential) && !reads && !refused
    });
    Ok(written
        .map(|event| format!("{} {} {:?} ({:?})", event.verb, event.resource(), event.name(), event.code()))
        .collect())
}

/// The token of whoever holds the lease: nobody else renews it.
async fn leaders_credential(arena: &Arena, since: Mark) -> Result<String> {
    eventually(LIMIT, "a renewal of the lease", || async {
        let events = arena.stack().cluster().audit().events(since)?;
        let renewed = |event: &&spawnery_tests::cluster::audit::Event| {
            event.resource() == "leases"
                && event.name() == Some(object::LEASE)
                && event.verb == "update"
                && event.code() == Some(200)
        };
        let renewal = events.iter().find(renewed).context("none yet")?;
        renewal.credential().map(str::to_owned).context("the API server does not tell tokens apart")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_by_lease_expiry_costs_nobody_anything() -> Result<()> {
    let options = StackOptions { reconcilers: 2, ..StackOptions::default() };
    Arena::run("take-over", options, async |arena| {
        let crowd = hundred(&arena).await?;
        let vigil = Vigil::begin(&arena).await?;
        let audit = arena.stack().cluster().audit();
        let credential = leaders_credential(&arena, audit.mark()?).await?;
        let before = epoch(&arena).await?;
        let (old, silent) = (arena.leader().await?, silence(&arena, 0)?);
        let frozen = Instant::now();
        old.freeze()?;
        let new = wait_leader(&arena, before).await?;
        ensure!(new.name() != old.name());
        println!("{} leads {:.1} s after {} froze", new.name(), frozen.elapsed().as_secs_f64(), old.name());

        // It wakes up with a hundred agents that it has not heard for as long as it slept, and with messages to send.
        let mark = audit.mark()?;
        old.thaw()?;
        let thawed = Instant::now();
        let status = eventually(EXIT_LIMIT, "the old leader to end", || async {
            old.with(|process| process.exit_status().context("it goes on"))
        })
        .await?;
        println!("the old leader ended {:.2} s after it was thawed ({status})", thawed.elapsed().as_secs_f64());
        ensure!(!status.success(), "it ended as if it had been asked to");
        let written = written_by(&arena, &credential, mark)?;
        ensure!(written.is_empty(), "the old leader has written: {written:#?}");
        old.start()?;
        nothing_follows(&arena, &vigil, &crowd, &silent, before, true).await?;
        let written = written_by(&arena, &credential, mark)?;
        ensure!(written.is_empty(), "the standby has written: {written:#?}");
        drop(vigil);
        life_goes_on(&arena, &crowd).await
    })
    .await
}
