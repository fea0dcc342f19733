//! A node that crashes with all servers of a group, and one group whose servers never came up.

use crate::{LIMIT, groups, servers_of};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use spawnery_api::{
    conditions,
    names::condition,
    v1alpha1::{ServerGroup, ServerGroupStatus},
};
use spawnery_tests::{
    eventually,
    runner::Role,
    stack::{Arena, LOBBY, SmallNetwork},
};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// How long servers have to come up, or to come back, where a test waits for those that do not.
pub(crate) const STARTUP: &str = "--startup-deadline=20s";
/// An agent is waited for before that begins.
const FAILED_LIMIT: Duration = Duration::from_mins(1);
/// As many failures as a group gives up after.
const CRASHED: u32 = spawnery_core::backoff::GIVE_UP;
/// A group whose servers never come up.
const MUTE: &str = "mute";

/// Six lobbies that players could reach fail with their node and are made anew elsewhere at once. The control: six that
/// nobody ever could.
pub(crate) async fn of_a_whole_group(arena: &Arena) -> Result<()> {
    let cluster = arena.stack().cluster();
    let [crashing, other] = ["games-1", "games-2"];
    cluster.kubectl(["cordon", other]).await?.stdout()?;
    arena.start(&SmallNetwork { lobbies: CRASHED, ..arena.network() }).await?;
    let lost = servers_of(arena, LOBBY).await?;
    // The control: as many of the same spec on the same node, whose games never say that they are up.
    let groups = groups(arena, cluster.client().await?);
    arena.stack().runner().silence_new_servers(true);
    let mute = ServerGroup::new(MUTE, groups.get(LOBBY).await?.spec);
    groups.create(&PostParams::default(), &mute).await?;
    let silent = eventually(LIMIT, "silent servers", || async {
        let pods = arena.stack().runner().pods_in(arena.namespace(), Role::Server);
        let started = pods.iter().filter(|pod| pod.facts().group == MUTE && pod.game().is_some()).count();
        ensure!(started == usize::try_from(CRASHED)?, "{started} have started");
        servers_of(arena, MUTE).await
    })
    .await?;
    for server in lost.keys().chain(silent.keys()) {
        ensure!(arena.node_of(server).await? == crashing, "{server} is elsewhere");
    }
    arena.stack().runner().silence_new_servers(false);
    cluster.kubectl(["uncordon", other]).await?.stdout()?;
    let begin = Instant::now();
    arena.crash(crashing).await?;

    eventually(FAILED_LIMIT, "the group whose servers never came up to wait", || async {
        let status = groups.get(MUTE).await?.status.context("no status")?;
        ensure!(status.consecutive_failures == 1, "{status:?}");
        ensure!(is_waiting(&status) == Some(true), "{status:?}");
        let now = servers_of(arena, MUTE).await?;
        ensure!(now.keys().all(|name| silent.contains_key(name)), "{now:?}");
        Ok(())
    })
    .await?;
    eventually(FAILED_LIMIT, "as many lobbies elsewhere", || async {
        let now = servers_of(arena, LOBBY).await?;
        let new: Vec<_> = now.iter().filter(|(name, open)| **open && !lost.contains_key(*name)).collect();
        ensure!(new.len() == lost.len(), "{now:?}");
        for (server, _) in new {
            ensure!(arena.node_of(server).await? == other, "{server} is where nothing runs");
        }
        Ok(())
    })
    .await?;
    println!("the group was whole {:.1} s after the crash", begin.elapsed().as_secs_f64());
    let status = groups.get(LOBBY).await?.status.context("no status")?;
    ensure!(status.consecutive_failures == 0 && status.last_failure_at.is_none(), "{status:?}");
    ensure!(is_waiting(&status) == Some(false) && status.phase == "Ready", "{status:?}");
    ensure!(told_to_wait(arena).await? == BTreeSet::from([MUTE.to_owned()]), "{:?}", told_to_wait(arena).await?);
    Ok(())
}

/// Whether a group waits before it makes more servers, or has given up.
fn is_waiting(status: &ServerGroupStatus) -> Option<bool> {
    let holds = |kind| conditions::get(&status.conditions, kind).map(|found| found.status == "True");
    Some(holds(condition::BACKING_OFF)? || holds(condition::DEGRADED)?)
}

/// The groups of which an event says that they wait.
async fn told_to_wait(arena: &Arena) -> Result<BTreeSet<String>> {
    let events: Api<Event> = Api::namespaced(arena.stack().cluster().client().await?, arena.namespace());
    let told = events.list(&ListParams::default()).await?.items.into_iter();
    let told = told.filter(|told| told.reason.as_deref() == Some(condition::reason::CRASH_LOOP_BACKOFF));
    Ok(told.filter_map(|told| told.regarding?.name).collect())
}
