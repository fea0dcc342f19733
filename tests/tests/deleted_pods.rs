//! `kubectl delete pod` of a pod with people on it: no eviction, nobody is asked, and the pre-stop hook is all there is.
//!
//! The runner stands for the kubelet: it calls the hook the pod's object names, and ends the game when that returns.

use anyhow::{Context as _, Result, ensure};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use spawnery_api::v1alpha1::{Server, ServerGroup};
use spawnery_tests::{
    eventually,
    runner::{Role, RunningPod},
    stack::{Arena, Crowd, GATEWAY, LOBBY, SmallNetwork, StackOptions},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(30);
/// A leader that ends as asked gives its lease back; agents are back within 16 s.
const TAKEN_OVER: Duration = Duration::from_mins(1);
/// The grace of a server, as its group has it by default.
const GRACE: Duration = Duration::from_mins(1);

/// Two lobbies whose players may be moved, and players on one of them. Nothing is said about how long they may finish:
/// whoever deletes a pod has not asked.
async fn occupied(arena: &Arena, hooked: bool) -> Result<(Crowd, String)> {
    arena.stack().runner().keep_graces();
    let network = SmallNetwork { lobbies: 2, ..arena.network() };
    if hooked {
        arena.start(&network).await?;
    } else {
        let unhooked = network.manifests(arena.namespace()).replace(
            r#""metadata":{"name":"lobby""#,
            r#""metadata":{"annotations":{"spawnery.cloud/pre-stop":"false"},"name":"lobby""#,
        );
        arena.stack().cluster().apply(&unhooked).await?;
        let groups: Api<ServerGroup> = Api::namespaced(arena.stack().cluster().client().await?, arena.namespace());
        ensure!(groups.get(LOBBY).await?.annotations().contains_key("spawnery.cloud/pre-stop"));
        network.wait_ready(arena.stack(), arena.namespace()).await?;
    }
    let (crowd, server, _) = arena.players(4).await?;
    Ok((crowd, server))
}

async fn delete_pod(arena: &Arena, pod: &str) -> Result<()> {
    let args = ["delete", "pod", pod, "-n", arena.namespace(), "--wait=false"];
    arena.stack().cluster().kubectl(args).await?.stdout()?;
    Ok(())
}

async fn wait_gone(arena: &Arena, pod: &str, limit: Duration) -> Result<()> {
    eventually(limit, "the end of the pod", || async {
        ensure!(arena.pods().get_opt(pod).await?.is_none(), "pod {pod} is still there");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn players_are_moved_before_the_game_is_told_to_stop() -> Result<()> {
    Arena::run("deleted", StackOptions::default(), async |arena| {
        let (crowd, server) = occupied(&arena, true).await?;
        let begun = Instant::now();
        delete_pod(&arena, &server).await?;
        wait_gone(&arena, &server, LIMIT).await?;
        println!("the pod was gone {:.2} s after its deletion", begun.elapsed().as_secs_f64());
        ensure!(begun.elapsed() < GRACE / 2, "the hook waited for its grace, not for the players");
        let on = crowd.by_server();
        ensure!(on.values().sum::<usize>() == 4 && !on.contains_key(&server), "{on:?}");
        arena.network().wait_ready(arena.stack(), arena.namespace()).await?;
        crowd.ensure_unharmed()?;
        // Whoever was moved is not lost.
        ensure!(arena.losses().await?.is_empty(), "{:?}", arena.losses().await?);
        arena.wait_told(0).await?;
        crashes_are_counted_once(&arena, &crowd).await
    })
    .await
}

/// Games that end with people on them: told by a leader that sees it, and by one that was not there.
async fn crashes_are_counted_once(arena: &Arena, crowd: &Crowd) -> Result<()> {
    let reconciler = arena.stack().reconciler(0)?;
    // Else there is nowhere for a proxy to bring them.
    settled(arena, crowd).await?;
    let (server, there) = shown(arena, crowd).await?;
    running(arena, &server)?.restart().await?;
    arena.wait_lost("GameEnded", there).await?;
    let told = arena.wait_told(1).await?;
    let (first, node) = (told.first().context("told above")?, arena.node_of(&server).await?);
    let says = |part: &str| first.note.contains(part);
    ensure!(first.server == server && says(&format!("{there} players")) && says(&node), "{first:?}");
    // A proxy has found them another lobby: they are on, and were lost by their server all the same.
    settled(arena, crowd).await?;

    // Another leader knows that these are counted.
    reconciler.stop().await?;
    reconciler.start()?;
    looked(arena).await?;
    settled(arena, crowd).await?;
    ensure!(arena.losses().await?.is_empty(), "{:?}", arena.losses().await?);
    arena.wait_told(1).await?;

    // And that those are not who played on a game that ended while nobody led.
    let (server, there) = shown(arena, crowd).await?;
    reconciler.stop().await?;
    running(arena, &server)?.restart().await?;
    reconciler.start()?;
    arena.wait_lost("GameEnded", there).await?;
    arena.wait_told(2).await.map(drop)
}

fn running(arena: &Arena, pod: &str) -> Result<Arc<RunningPod>> {
    arena.stack().runner().pod(arena.namespace(), pod).context("it is not run")
}

/// The fullest lobby and how many are on it, once its status says so.
async fn shown(arena: &Arena, crowd: &Crowd) -> Result<(String, usize)> {
    let server = crowd.fullest()?;
    let there = crowd.by_server().get(&server).copied().context("nobody is on it")?;
    eventually(LIMIT, "the count in its status", || async {
        let players = arena.servers().get(&server).await?.status.map_or(0, |status| status.players);
        ensure!(usize::try_from(players)? == there, "it says {players} of {there}");
        Ok(())
    })
    .await?;
    Ok((server, there))
}

/// Waits until somebody leads who has looked at both lobbies.
async fn looked(arena: &Arena) -> Result<()> {
    eventually(TAKEN_OVER, "a leader's looks at Servers", || async {
        let metrics = arena.leader().await?.metrics().await?;
        let looks = metrics.lines().filter(|line| line.starts_with("spawnery_reconciles_total{controller=\"server\""));
        let looks: u64 = looks.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
        ensure!(looks > 4, "{looks} looks");
        Ok(())
    })
    .await
}

/// Waits until both lobbies take players and all four play.
async fn settled(arena: &Arena, crowd: &Crowd) -> Result<()> {
    eventually(TAKEN_OVER, "everybody to play", || async {
        let (registered, on) = (arena.registered().await?, crowd.by_server());
        ensure!(registered.len() == 2 && on.values().sum::<usize>() == 4, "{registered:?}, {on:?}");
        ensure!(on.keys().all(|server| registered.contains(server)), "{registered:?}, {on:?}");
        Ok(())
    })
    .await
}

/// The control: the same deletion of pods without the hook.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_hook_they_are_lost() -> Result<()> {
    Arena::run("unhooked", StackOptions::default(), async |arena| {
        let (crowd, server) = occupied(&arena, false).await?;
        let there = crowd.by_server().get(&server).copied().unwrap_or_default();
        delete_pod(&arena, &server).await?;
        eventually(LIMIT, "the players to notice", || async {
            ensure!(crowd.harmed().len() == there, "harmed: {:?}, on {:?}", crowd.harmed(), crowd.by_server());
            Ok(())
        })
        .await?;
        arena.wait_lost("PodDeleted", there).await?;
        arena.wait_told(1).await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_lobby_keeps_its_players_until_its_replacement_is_ready() -> Result<()> {
    Arena::run("last", StackOptions::default(), async |arena| {
        arena.stack().runner().keep_graces();
        arena.start(&arena.network()).await?;
        let (crowd, server, _) = arena.players(3).await?;
        delete_pod(&arena, &server).await?;
        eventually(LIMIT, "what the Server says", || async {
            let said = arena.servers().get_opt(&server).await?.and_then(|server| server.status).unwrap_or_default();
            ensure!(said.phase == "Draining", "it is {}", said.phase);
            let draining = said.conditions.iter().find(|condition| condition.type_ == "Draining");
            let reason = draining.map(|draining| draining.reason.as_str()).unwrap_or_default();
            ensure!(["PodTerminating", "NoFallbackAvailable"].contains(&reason), "{reason}");
            Ok(())
        })
        .await?;
        wait_gone(&arena, &server, LIMIT).await?;
        let on = crowd.by_server();
        ensure!(on.values().sum::<usize>() == 3 && !on.contains_key(&server), "{on:?}");
        crowd.ensure_unharmed()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_server_does_not_wait() -> Result<()> {
    Arena::run("nobody", StackOptions::default(), async |arena| {
        arena.stack().runner().keep_graces();
        arena.start(&arena.network()).await?;
        let server = arena.registered().await?.first().cloned().context("no server")?;
        let begun = Instant::now();
        delete_pod(&arena, &server).await?;
        wait_gone(&arena, &server, LIMIT).await?;
        println!("the empty pod was gone {:.2} s after its deletion", begun.elapsed().as_secs_f64());
        ensure!(begun.elapsed() < Duration::from_secs(10), "released after {:?}", begun.elapsed());
        arena.network().wait_ready(arena.stack(), arena.namespace()).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_reconciler_players_may_finish_within_the_grace() -> Result<()> {
    Arena::run("alone", StackOptions::default(), async |arena| {
        let (crowd, server) = occupied(&arena, true).await?;
        let there = crowd.by_server().get(&server).copied().unwrap_or_default();
        arena.stack().reconciler(0)?.kill().await?;
        delete_pod(&arena, &server).await?;
        // As long as the agent takes to notice that nobody leads, and longer.
        let watched = Instant::now();
        while watched.elapsed() < Duration::from_secs(5) {
            ensure!(crowd.by_server().get(&server) == Some(&there), "{:?}", crowd.by_server());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        crowd.leave(&server).await?;
        wait_gone(&arena, &server, Duration::from_secs(10)).await?;
        crowd.ensure_unharmed()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grace_that_ends_ends_the_wait_and_is_told() -> Result<()> {
    Arena::run("over", StackOptions::default(), async |arena| {
        arena.stack().runner().keep_graces();
        // One lobby, and no room for another: nobody can be moved.
        let network = SmallNetwork { lobby_nodes: vec!["games-1".to_owned()], ..arena.network() };
        arena.start(&network).await?;
        let (crowd, server, node) = arena.players(2).await?;
        arena.stack().cluster().kubectl(["cordon", &node]).await?.stdout()?;
        let args = ["delete", "pod", &server, "-n", arena.namespace(), "--wait=false", "--grace-period=12"];
        let begun = Instant::now();
        arena.stack().cluster().kubectl(args).await?.stdout()?;
        wait_gone(&arena, &server, LIMIT).await?;
        let took = begun.elapsed();
        ensure!(took > Duration::from_secs(5) && took < Duration::from_secs(12), "gone after {took:?}");
        eventually(LIMIT, "the players to notice", || async {
            ensure!(crowd.harmed().len() == 2, "{:?}", crowd.harmed());
            Ok(())
        })
        .await?;
        let events = ["get", "events", "-n", arena.namespace(), "-o", "json"];
        let told = arena.stack().cluster().kubectl(events).await?.stdout()?;
        ensure!(told.contains("DrainTimeout") && told.contains("Deadline"), "nobody says why they were lost");
        arena.wait_lost("PodDeleted", 2).await?;
        arena.wait_told(1).await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn players_of_a_deleted_proxy_may_finish() -> Result<()> {
    Arena::run("proxy", StackOptions::default(), async |arena| {
        arena.stack().runner().keep_graces();
        let network = SmallNetwork { proxies: 2, ..arena.network() };
        arena.start(&network).await?;
        let (crowd, server, _) = arena.players(4).await?;
        let proxies = arena.stack().runner().pods_in(arena.namespace(), Role::Proxy);
        let proxy = proxies.first().context("no proxy")?.facts().name.clone();
        ensure!(proxy.starts_with(GATEWAY));
        delete_pod(&arena, &proxy).await?;
        let watched = Instant::now();
        while watched.elapsed() < Duration::from_secs(3) {
            ensure!(crowd.by_server().values().sum::<usize>() == 4, "{:?}", crowd.by_server());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        crowd.leave(&server).await?;
        wait_gone(&arena, &proxy, LIMIT).await?;
        network.wait_ready(arena.stack(), arena.namespace()).await?;
        crowd.ensure_unharmed()
    })
    .await
}

/// What the rendered object says is what the agent serves.
#[tokio::test(flavor = "multi_thread")]
async fn the_hook_that_pods_name_is_there() -> Result<()> {
    Arena::run("named", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let server: Server =
            arena.servers().list(&kube::api::ListParams::default()).await?.items.pop().context("no server")?;
        let pod = arena.pods().get(&server.name_any()).await?;
        let pod = serde_json::to_value(&pod)?;
        let hook = pod.pointer("/spec/containers/0/lifecycle/preStop/httpGet").context("no hook")?;
        ensure!(hook == &json!({ "path": "/v1/pre-stop?graceSeconds=60", "port": 8091, "scheme": "HTTP" }), "{hook}");
        let running = arena.stack().runner().pod(arena.namespace(), &server.name_any()).context("it is not run")?;
        let (port, _) = running.facts().pre_stop.clone().context("no hook")?;
        tokio::net::TcpStream::connect(running.facts().at(port)).await.context("nobody listens")?;
        Ok(())
    })
    .await
}
