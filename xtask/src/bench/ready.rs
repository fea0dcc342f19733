//! From a new server's "ready" to its place in the directory of every proxy.

use super::{Effort, Report, bare, figure::quantiles};
use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use spawnery_tests::{
    bench::Samples,
    eventually,
    game::local_api::LocalApi,
    runner::{Role, RunningPod},
    stack::{Arena, SmallNetwork},
};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};

/// From ready to registered at every proxy.
const GOAL: Duration = Duration::from_millis(100);
const PROXIES: u32 = 3;
/// Servers are up within seconds; beside a build it takes longer.
const LIMIT: Duration = Duration::from_mins(2);
/// Between two servers: what followed from the one before, such as the status of its group, is done.
const PAUSE: Duration = Duration::from_millis(300);

/// Servers whose agents are connected and whose games have not said yet that they have loaded; then one after another
/// does.
pub(super) async fn measure(arena: Arc<Arena>, effort: Effort, report: Report) -> Result<()> {
    let count = effort.of(5, 30);
    let mut network = SmallNetwork { proxies: PROXIES, ..arena.network() };
    arena.start(&network).await?;
    let runner = arena.stack().runner();
    let old: BTreeSet<String> = names(&arena);
    runner.silence_new_servers(true);
    network.lobbies += count;
    arena.stack().cluster().apply(&network.manifests(arena.namespace())).await?;
    let silent = eventually(LIMIT, "servers that have not loaded yet", || async {
        let mut pods = runner.pods_in(arena.namespace(), Role::Server);
        pods.retain(|pod| !old.contains(&pod.facts().name));
        ensure!(pods.len() >= usize::try_from(count)?, "only {} pods", pods.len());
        for pod in &pods {
            ensure!(pod.game().is_some(), "{} has no game yet", pod.facts().name);
            let state = pod.local_api().state().await?;
            ensure!(
                state.get("connected").and_then(serde_json::Value::as_bool) == Some(true),
                "{}: {state}",
                pod.facts().name
            );
        }
        Ok(pods)
    })
    .await?;
    let proxies: Vec<LocalApi> =
        runner.pods_in(arena.namespace(), Role::Proxy).iter().map(|pod| pod.local_api()).collect();
    let mut times = Vec::new();
    for pod in &silent {
        sleep(PAUSE).await;
        times.push(registered(pod, &proxies).await?);
    }
    runner.silence_new_servers(false);
    let times: Samples = times.into_iter().collect();
    // Before a server is registered for the first time its status says so: one write lies in the time.
    let client = arena.stack().cluster().client().await?;
    let baseline = bare::labels(&client, arena.namespace(), count).await?;
    report.extend(quantiles("ready-to-registered", &times, &baseline, Some(GOAL)));
    Ok(())
}

fn names(arena: &Arena) -> BTreeSet<String> {
    let pods = arena.stack().runner().pods_in(arena.namespace(), Role::Server);
    pods.iter().map(|pod| pod.facts().name.clone()).collect()
}

/// Lets a game say that it has loaded; the time until all proxies may send players there.
async fn registered(pod: &RunningPod, proxies: &[LocalApi]) -> Result<Duration> {
    let name = &pod.facts().name;
    let befores = try_join_all(proxies.iter().map(async |proxy| {
        let directory = proxy.directory(0).await?.context("a proxy without a directory")?;
        ensure!(!directory.servers.iter().any(|server| server.name == *name), "{name} is registered already");
        Ok(directory.seq)
    }))
    .await?;
    let game = pod.game().context("the game is gone")?;
    let begin = Instant::now();
    game.mini_server().context("not a mini server")?.reports().open();
    let all = try_join_all(proxies.iter().zip(befores).map(async |(proxy, mut seq)| {
        loop {
            let Some(directory) = proxy.directory(seq).await? else { continue };
            if directory.servers.iter().any(|server| server.name == *name) {
                return anyhow::Ok(Instant::now());
            }
            seq = directory.seq;
        }
    }));
    let all = timeout(LIMIT, all).await.with_context(|| format!("{name} is not registered everywhere"))??;
    let last = all.into_iter().max().context("there is no proxy")?;
    Ok(last.saturating_duration_since(begin))
}
