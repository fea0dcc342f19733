//! A hundred servers at once: how long, how many requests, and what they cost when nothing happens.

use super::{Effort, Report, bare, figure::Figure};
use crate::say;
use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kube::api::ListParams;
use spawnery_api::{names::object, v1alpha1::Server};
use spawnery_tests::{
    Process, binary,
    cluster::audit::{Mark, Requests},
    eventually,
    runner::Role,
    stack::{Arena, Replica, SmallNetwork},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// Most requests of ours for one server, from nothing to Ready.
const REQUESTS_GOAL: f64 = 8.0;
/// What was begun before everything was Ready is done, such as events and the last status of the group.
const SETTLE: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_mins(5);
/// Nodes beside those that every arena has.
const MORE_NODES: [&str; 2] = ["games-3", "games-4"];
const MEBIBYTE: f64 = 1024.0 * 1024.0;
const ACCOUNTS: [&str; 2] = [object::OPERATOR, object::WEBHOOK];

pub(super) async fn measure(arena: Arc<Arena>, effort: Effort, report: Report) -> Result<()> {
    let count = effort.of(10, 100);
    let (stack, namespace) = (arena.stack(), arena.namespace());
    let cluster = stack.cluster();
    try_join_all(MORE_NODES.map(|node| cluster.add_node(node))).await?;
    let client = cluster.client().await?;
    cluster.kubectl(["create", "namespace", "bare"]).await?.stdout()?;
    let bare = bare::pods(&client, "bare", count).await?;
    let mut network = SmallNetwork { lobbies: 1, proxies: 2, ..arena.network() };
    network.lobby_nodes.extend(MORE_NODES.map(str::to_owned));
    arena.start(&network).await?;
    sleep(SETTLE).await;
    let parts = [("reconciler", stack.reconciler(0)?), ("webhook", stack.webhook(0)?)];
    for (part, replica) in parts {
        report.add(Figure::new(format!("weight/{part}-rss-empty"), rss(replica)?, "MiB"));
    }
    let mark = cluster.audit().mark()?;
    let before = parts.map(|(_, replica)| replica.with(Process::cpu_time).unwrap_or_default());
    network.lobbies += count;
    let begin = Instant::now();
    cluster.apply(&network.manifests(namespace)).await?;
    all_ready(&arena, network.lobbies).await?;
    let took = begin.elapsed();
    sleep(SETTLE).await;
    report.add(Figure::new(format!("servers-{count}/all-ready"), took.as_secs_f64(), "s").baseline(bare.as_secs_f64()));
    let per_server = requests(&arena, mark, "to Ready")? / f64::from(count);
    report.add(Figure::new(format!("servers-{count}/requests-each"), per_server, "count").at_most(REQUESTS_GOAL));
    for ((part, replica), before) in parts.into_iter().zip(before) {
        let used = replica.with(Process::cpu_time)?.saturating_sub(before);
        report.add(Figure::new(format!("servers-{count}/{part}-cpu"), used.as_secs_f64(), "s"));
        report.add(Figure::new(format!("servers-{count}/{part}-rss"), rss(replica)?, "MiB"));
    }
    idle(&arena, effort, &report, count).await?;
    weights(&arena, &report).await
}

/// What is asked and used while nothing happens.
async fn idle(arena: &Arena, effort: Effort, report: &Report, count: u32) -> Result<()> {
    let time = effort.of(Duration::from_secs(5), Duration::from_mins(1));
    let parts = [("reconciler", arena.stack().reconciler(0)?), ("webhook", arena.stack().webhook(0)?)];
    let before = parts.map(|(_, replica)| replica.with(Process::cpu_time).unwrap_or_default());
    let mark = arena.stack().cluster().audit().mark()?;
    sleep(time).await;
    let per_minute = requests(arena, mark, "while idle")? * 60.0 / time.as_secs_f64();
    report.add(Figure::new(format!("servers-{count}/idle-requests"), per_minute, "/min"));
    for ((part, replica), before) in parts.into_iter().zip(before) {
        let used = replica.with(Process::cpu_time)?.saturating_sub(before);
        let percent = 100.0 * used.as_secs_f64() / time.as_secs_f64();
        report.add(Figure::new(format!("servers-{count}/{part}-idle-cpu"), percent, "% core"));
    }
    Ok(())
}

/// Binaries, and the agents as they are now.
async fn weights(arena: &Arena, report: &Report) -> Result<()> {
    let agents = arena.stack().runner().pods_in(arena.namespace(), Role::Server);
    let mut bytes = Vec::new();
    for agent in &agents {
        bytes.push(agent.with_agent(Process::resident_bytes)?);
    }
    bytes.sort_unstable();
    let median = bytes.get(bytes.len() / 2).copied().context("there is no agent")?;
    report.add(Figure::new("weight/agent-rss", mebibytes(median), "MiB"));
    for part in ["reconciler", "webhook", "agent"] {
        let path = binary(&format!("spawnery-{part}")).await?;
        let size = std::fs::metadata(&path).with_context(|| format!("no {}", path.display()))?.len();
        report.add(Figure::new(format!("weight/{part}-binary"), mebibytes(size), "MiB"));
    }
    Ok(())
}

/// Waits until so many servers are Ready and registered, and all proxies know it.
async fn all_ready(arena: &Arena, count: u32) -> Result<()> {
    eventually(LIMIT, "all servers to be Ready", || async {
        let servers = arena.servers().list(&ListParams::default()).await?;
        let is_ready = |server: &&Server| server.status.as_ref().is_some_and(|status| status.phase == "Ready");
        let ready = servers.iter().filter(is_ready).count();
        if ready < usize::try_from(count)? {
            // A look costs the API server something, which is busy enough.
            sleep(Duration::from_millis(100)).await;
        }
        ensure!(ready >= usize::try_from(count)?, "{ready} of {count} are Ready");
        Ok(())
    })
    .await
}

/// How many requests our accounts made since then; watches, which start again every few minutes, are told and not counted.
fn requests(arena: &Arena, since: Mark, when: &str) -> Result<f64> {
    let audit = arena.stack().cluster().audit();
    let mut total = 0.0;
    for account in ACCOUNTS {
        let user = format!("system:serviceaccount:{}:{account}", object::OPERATOR_NAMESPACE);
        let requests: Requests = audit.requests(&user, since)?;
        say(&format!("{account} {when}:\n{requests}"));
        total += f64::from(u32::try_from(requests.total_without_watches())?);
    }
    Ok(total)
}

fn rss(replica: &Replica) -> Result<f64> {
    replica.with(Process::resident_bytes).map(mebibytes)
}

#[expect(clippy::cast_precision_loss, reason = "sizes far below 2^52")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MEBIBYTE
}
