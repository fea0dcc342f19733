//! From a player's join to what the API shows of it.

use super::{Effort, Report, bare, figure::quantiles};
use crate::say;
use anyhow::{Context as _, Result};
use kube::ResourceExt;
use spawnery_api::names::label;
use spawnery_tests::{
    bench::{Samples, Sightings},
    eventually,
    game::player::Player,
    runner::Role,
    stack::{Arena, Crowd, SmallNetwork},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// From the join that takes the last spare place to the object of a new server.
const SERVER_GOAL: Duration = Duration::from_millis(200);
/// From a join to the label that says that people are on the pod.
const LABEL_GOAL: Duration = Duration::from_millis(100);
/// A server is up within a second or two; beside a build it takes longer.
const LIMIT: Duration = Duration::from_mins(1);

/// Servers for one player each, one of them spare: each join makes a new server necessary.
pub(super) async fn to_server(arena: Arc<Arena>, effort: Effort, report: Report) -> Result<()> {
    let count = effort.of(5, 30);
    let mut network = SmallNetwork { max_players: 1, spare_slots: 1, ..arena.network() };
    arena.start(&network).await?;
    let mut sightings = Sightings::begin(arena.servers()).await?;
    let (mut crowd, mut times) = (Crowd::new(), Vec::new());
    for n in 0..count {
        sightings.forget();
        let servers = arena.servers().list(&kube::api::ListParams::default()).await?;
        let known: Vec<String> = servers.iter().map(ResourceExt::name_any).collect();
        let begin = Instant::now();
        let player = join(&arena, n)?;
        let (at, _) = sightings.wait(LIMIT, "new server", |server| !known.contains(&server.name_any())).await?;
        times.push(at.saturating_duration_since(begin));
        player.wait_on(LIMIT).await?;
        crowd.add(player);
        // The next one finds the new server.
        network.lobbies = n + 2;
        network.wait_ready(arena.stack(), arena.namespace()).await?;
    }
    let client = arena.stack().cluster().client().await?;
    let baseline = bare::creates(&client, arena.namespace(), count).await?;
    report.extend(quantiles("join-to-server", &times.into_iter().collect(), &baseline, Some(SERVER_GOAL)));
    crowd.ensure_unharmed()
}

/// Players come and go, one at a time.
pub(super) async fn to_label(arena: Arc<Arena>, effort: Effort, report: Report) -> Result<()> {
    let count = effort.of(5, 50);
    arena.start(&SmallNetwork { lobbies: 2, proxies: 2, ..arena.network() }).await?;
    let mut sightings = Sightings::begin(arena.pods()).await?;
    let (mut joins, mut leaves) = (Vec::new(), Vec::new());
    for n in 0..count {
        sightings.forget();
        let occupied = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.labels().get(label::OCCUPIED).is_some_and(|value| value == label::TRUE)
        };
        let begin = Instant::now();
        let player = join(&arena, n)?;
        // Only a server's: the proxy that the player came by is occupied too.
        let server = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.labels().get(label::ROLE).is_some_and(|role| role == label::ROLE_SERVER)
        };
        let (at, pod) = sightings.wait(LIMIT, "occupied label", |pod| server(pod) && occupied(pod)).await?;
        joins.push(at.saturating_duration_since(begin));
        let name = player.wait_on(LIMIT).await?;
        anyhow::ensure!(name == pod.name_any(), "the player is on {name}, labelled is {}", pod.name_any());
        let begin = Instant::now();
        player.leave();
        let (at, _) = sightings.wait(LIMIT, "label gone", |pod| pod.name_any() == name && !occupied(pod)).await?;
        leaves.push(at.saturating_duration_since(begin));
        eventually(LIMIT, "everything to be empty", || async {
            for pod in arena.pods().list(&kube::api::ListParams::default()).await? {
                anyhow::ensure!(!occupied(&pod), "{} is occupied", pod.name_any());
            }
            Ok(())
        })
        .await?;
    }
    let client = arena.stack().cluster().client().await?;
    let baseline = bare::labels(&client, arena.namespace(), count).await?;
    let (joins, leaves): (Samples, Samples) = (joins.into_iter().collect(), leaves.into_iter().collect());
    report.extend(quantiles("join-to-label", &joins, &baseline, Some(LABEL_GOAL)));
    report.extend(quantiles("leave-to-label", &leaves, &baseline, None));
    say(&format!("{} joins and leaves", joins.count()));
    Ok(())
}

/// A player sets out to join at one of the proxies, in turn.
fn join(arena: &Arena, n: u32) -> Result<Player> {
    let proxies = arena.stack().runner().pods_in(arena.namespace(), Role::Proxy);
    let turn = usize::try_from(n)?.checked_rem(proxies.len()).context("there is no proxy")?;
    let proxy = proxies.get(turn).context("there is no proxy")?;
    Ok(Player::join(proxy.game_address(), format!("player{n}")))
}
