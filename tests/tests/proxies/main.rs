//! ProxyGroups on a real control plane: kept whole, reached by a Service, emptied before they go.

mod one_per_node;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use spawnery_api::names::{annotation, condition, label};
use spawnery_api::v1alpha1::{ProxyGroup, ProxyGroupStatus};
use spawnery_tests::eventually;
use spawnery_tests::game::player::Player;
use spawnery_tests::stack::{Arena, Crowd, Evicted, GATEWAY, SmallNetwork, StackOptions, refusals};
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

const LIMIT: Duration = Duration::from_mins(1);
/// What kubelets, endpoint slices and proxies are given to hear of a closed door, and a beat for everything else.
const CLOSED_LIMIT: Duration = Duration::from_secs(30);
/// How long players of a leaving proxy may take, where a test waits for more than that.
const HURRIED: Duration = Duration::from_secs(5);
/// How long the last newcomer may be on the way to a proxy that Kubernetes calls unready.
const PROPAGATION: Duration = Duration::from_secs(5);
/// Longer than it takes to cut players off whom nothing protects.
const BY_THEN: Duration = Duration::from_secs(15);
const EDGES: [&str; 2] = ["edge", "edge-2"];

async fn groups(arena: &Arena) -> Result<Api<ProxyGroup>> {
    Ok(Api::namespaced(client(arena).await?, arena.namespace()))
}

async fn client(arena: &Arena) -> Result<Client> {
    arena.stack().cluster().client().await
}

async fn current(arena: &Arena) -> Result<ProxyGroupStatus> {
    groups(arena).await?.get(GATEWAY).await?.status.context("no status")
}

/// Name, node and hash of each proxy that is not being deleted, sorted by name.
async fn proxies(arena: &Arena) -> Result<Vec<(String, String, String)>> {
    let params =
        ListParams::default().labels(&format!("{}={},{}={GATEWAY}", label::ROLE, label::ROLE_PROXY, label::GROUP));
    let pods = arena.pods().list(&params).await?;
    let mut found: Vec<_> = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .map(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            (pod.name_any(), node, pod.labels().get(label::POD_HASH).cloned().unwrap_or_default())
        })
        .collect();
    found.sort();
    Ok(found)
}

async fn edit(arena: &Arena, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    groups(arena).await?.patch(GATEWAY, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Edits how proxies are emptied, and waits until that is known.
async fn players_may_take(arena: &Arena, time: Duration) -> Result<()> {
    edit(arena, json!({ "drain": { "timeoutSeconds": time.as_secs() } })).await?;
    let generation = groups(arena).await?.get(GATEWAY).await?.metadata.generation;
    eventually(LIMIT, "the edit to be seen", || async {
        ensure!(Some(current(arena).await?.observed_generation) == generation);
        Ok(())
    })
    .await
}

/// Waits until a proxy is told to close, or is not any more.
async fn wait_told_to_close(arena: &Arena, proxy: &str, told: bool) -> Result<()> {
    eventually(CLOSED_LIMIT, "the proxy to be told about its door", || async {
        let pod = arena.pods().get(proxy).await?;
        ensure!(pod.annotations().contains_key(annotation::DRAINING_SINCE) == told, "{:?}", pod.annotations());
        Ok(())
    })
    .await
}

/// A proxy keeps its players: it is not sealed, and nobody removes it.
async fn ensure_kept(arena: &Arena, proxy: &str) -> Result<()> {
    let pod = arena.pods().get(proxy).await?;
    ensure!(pod.metadata.deletion_timestamp.is_none(), "{proxy} is being deleted");
    ensure!(!pod.labels().contains_key(label::SEALED), "{proxy} is sealed: {:?}", pod.annotations());
    Ok(())
}

async fn wait_whole(arena: &Arena, count: i32) -> Result<ProxyGroupStatus> {
    eventually(LIMIT, "a whole group", || async {
        let status = current(arena).await?;
        ensure!(status.phase == "Ready" && status.ready_replicas == count, "{status:?}");
        Ok(status)
    })
    .await
}

fn condition_of<'a>(status: &'a ProxyGroupStatus, kind: &str) -> Option<(&'a str, &'a str)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status.as_str(), found.reason.as_str()))
}

/// Proxies on two nodes of their own.
async fn spread(arena: &Arena, count: u32) -> Result<()> {
    arena.stack().cluster().add_node(EDGES[1]).await?;
    let network = SmallNetwork { proxies: count, ..arena.network() };
    let both = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": EDGES });
    let affinity = json!({ "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [both] }] } });
    arena.start(&network).await?;
    edit(arena, json!({ "scheduling": { "affinity": { "nodeAffinity": affinity } } })).await
}

/// Takes more than two minutes, nearly all of them waiting: named so that it begins first, beside the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_update_makes_room_after_a_minute_and_one_that_fits_nowhere_costs_no_proxy() -> Result<()> {
    Arena::run("blocked", StackOptions::default(), async |arena| one_per_node::updates(&arena).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_kept_whole_and_its_service_follows_the_spec() -> Result<()> {
    Arena::run("proxies", StackOptions::default(), async |arena| {
        arena.start(&SmallNetwork { proxies: 2, ..arena.network() }).await?;
        let status = wait_whole(&arena, 2).await?;
        ensure!(status.address == "play.example.test", "{status:?}");
        ensure!(condition_of(&status, condition::ACCEPTED) == Some(("True", "Accepted")), "{status:?}");
        ensure!(condition_of(&status, condition::DEGRADED) == Some(("False", "ProxyPodsAdmitted")), "{status:?}");

        let services: Api<Service> = Api::namespaced(client(&arena).await?, arena.namespace());
        edit(&arena, json!({ "expose": { "type": "NodePort", "clusterIP": null, "nodePort": { "port": 30765 } } }))
            .await?;
        eventually(LIMIT, "a NodePort Service", || async {
            let spec = services.get(GATEWAY).await?.spec.unwrap_or_default();
            let port = spec.ports.unwrap_or_default().first().and_then(|port| port.node_port);
            ensure!((spec.type_.as_deref(), port) == (Some("NodePort"), Some(30765)), "{:?} {port:?}", spec.type_);
            Ok(())
        })
        .await?;
        let before = proxies(&arena).await?;
        let address = eventually(LIMIT, "an address with the node's port", || async {
            let address = current(&arena).await?.address;
            ensure!(address.ends_with(":30765"), "{address:?}");
            Ok(address)
        })
        .await?;
        println!("players connect to {address}");
        ensure!(proxies(&arena).await? == before, "another kind of Service rolls nothing");

        // A port that no Service can have: the schema knows no better, and the API server's range is its own business.
        edit(&arena, json!({ "expose": { "nodePort": { "port": 25565 } } })).await?;
        eventually(LIMIT, "the refusal to be told", || async {
            let status = current(&arena).await?;
            let found = condition_of(&status, condition::DEGRADED);
            ensure!(found == Some(("True", condition::reason::OBJECT_REJECTED)), "{status:?}");
            Ok(())
        })
        .await?;

        // Pods that go come back, whatever becomes of the Service.
        arena.pods().delete(&before[0].0, &DeleteParams::default()).await?;
        eventually(LIMIT, "another proxy", || async {
            let now = proxies(&arena).await?;
            ensure!(now.len() == 2 && !now.contains(&before[0]), "{now:?}");
            Ok(())
        })
        .await?;
        edit(&arena, json!({ "expose": { "nodePort": { "port": 30765 } } })).await?;
        wait_whole(&arena, 2).await?;

        edit(&arena, json!({ "replicas": 1 })).await?;
        eventually(LIMIT, "one proxy", || async {
            let now = proxies(&arena).await?;
            ensure!(now.len() == 1, "{now:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_rolls_one_proxy_after_the_other_and_routing_rolls_none() -> Result<()> {
    Arena::run("rollout", StackOptions::default(), async |arena| {
        arena.start(&SmallNetwork { proxies: 2, ..arena.network() }).await?;
        wait_whole(&arena, 2).await?;
        let before = proxies(&arena).await?;
        edit(&arena, json!({ "routing": { "fallbackGroups": ["lobby", "limbo"] }, "drain": { "timeoutSeconds": 30 } }))
            .await?;
        let generation = groups(&arena).await?.get(GATEWAY).await?.metadata.generation;
        eventually(LIMIT, "the edit to be seen", || async {
            ensure!(Some(current(&arena).await?.observed_generation) == generation);
            Ok(())
        })
        .await?;
        ensure!(proxies(&arena).await? == before, "live settings roll nothing");

        edit(&arena, json!({ "image": "example.test/gateway:2" })).await?;
        eventually(2 * LIMIT, "both proxies to be replaced", || async {
            let status = current(&arena).await?;
            let now = proxies(&arena).await?;
            ensure!(now.len() == 2 && now.iter().all(|proxy| !before.contains(proxy)), "{now:?}");
            ensure!(status.ready_replicas == 2, "{status:?}");
            Ok(())
        })
        .await?;
        a_proxy_that_hears_nothing_cuts_nobody(&arena).await
    })
    .await
}

/// Two proxies with players, one of which is to go and whose agent is frozen: players come in as before, so the deadline
/// of those who are on begins when it hears that its door is to close.
async fn a_proxy_that_hears_nothing_cuts_nobody(arena: &Arena) -> Result<()> {
    players_may_take(arena, HURRIED).await?;
    let [deaf, _] = proxies(arena).await?.try_into().map_err(|found| anyhow::anyhow!("{found:?}"))?;
    let deaf = deaf.0;
    let pod = arena.stack().runner().pod(arena.namespace(), &deaf).context("it does not run")?;
    let mut crowd = Crowd::new();
    crowd.join(arena.stack().runner(), arena.namespace(), 2).await?;
    crowd.add(Player::join(pod.game_address(), "on the deaf one".to_owned()));
    arena.wait_occupied(&deaf, true).await?;
    pod.freeze_agent()?;
    let answer = arena.evict(&deaf).await?;
    ensure!(matches!(answer, Evicted::Later(_)), "{answer:?}");
    wait_told_to_close(arena, &deaf, true).await?;
    let told = Instant::now();
    let newcomer = Player::join(pod.game_address(), "the one who comes in all the same".to_owned());
    newcomer.wait_on(LIMIT).await?;
    crowd.add(newcomer);
    sleep_until((told + BY_THEN).into()).await;
    ensure_kept(arena, &deaf).await?;
    crowd.ensure_unharmed()?;

    // The control: it hears, and from then on the time that its owner gave runs out.
    pod.thaw_agent()?;
    let heard = Instant::now();
    eventually(LIMIT, "the deadline to pass", || async {
        let harmed = crowd.harmed().len();
        ensure!(harmed == 3 || harmed == 2, "{harmed} came to harm");
        Ok(())
    })
    .await?;
    let after = heard.elapsed();
    ensure!(after + Duration::from_secs(1) >= PROPAGATION + HURRIED, "cut {after:?} after it heard");
    println!("players were cut off {:.1} s after their proxy heard that it is to go", after.as_secs_f64());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_proxy_is_replaced_first_and_waits_for_its_players() -> Result<()> {
    Arena::run("edge", StackOptions::default(), async |arena| {
        spread(&arena, 1).await?;
        eventually(LIMIT, "one proxy of the new spec", || async {
            let (status, now) = (current(&arena).await?, proxies(&arena).await?);
            ensure!(status.ready_replicas == 1 && now.len() == 1, "{now:?}");
            let group = groups(&arena).await?.get(GATEWAY).await?;
            ensure!(Some(status.observed_generation) == group.metadata.generation);
            Ok(())
        })
        .await?;
        let (crowd, _, _) = arena.players(2).await?;
        let [(proxy, node, _)] = proxies(&arena).await?.try_into().map_err(|found| anyhow::anyhow!("{found:?}"))?;
        arena.wait_occupied(&proxy, true).await?;
        a_called_off_drain_costs_nobody(&arena, &crowd, &proxy, &node).await?;
        let drain = arena.drain(&node)?;
        let begun = Instant::now();
        let replacement = eventually(LIMIT, "a replacement on the other node", || async {
            let now = proxies(&arena).await?;
            ensure!(now.iter().any(|(name, _, _)| *name == proxy), "the proxy went with its players: {now:?}");
            let other = |(name, on, _): &(String, String, String)| *name != proxy && !on.is_empty() && *on != node;
            now.into_iter().find(other).context("none yet")
        })
        .await?;
        eventually(CLOSED_LIMIT, "the old proxy to be told to close", || async {
            let pod = arena.pods().get(&proxy).await?;
            ensure!(pod.annotations().contains_key("spawnery.cloud/draining-since"), "{:?}", pod.annotations());
            Ok(())
        })
        .await?;
        println!("the door was told to close {:.1} s after the drain began", begun.elapsed().as_secs_f64());
        ensure!(drain.is_running(), "the drain did not wait: {}", drain.tail(20));
        ensure!(!refusals(&drain).is_empty(), "{}", drain.tail(20));
        crowd.ensure_unharmed()?;
        for player in crowd.players() {
            player.leave();
        }
        let left_at = Instant::now();
        let ended = drain.wait(CLOSED_LIMIT).await?;
        ensure!(ended.success(), "{ended}\n{}", drain.tail(20));
        println!("the drain was done {:.1} s after the last player had left", left_at.elapsed().as_secs_f64());
        let left = wait_whole(&arena, 1).await.and(proxies(&arena).await)?;
        ensure!(left == [replacement], "{left:?}");
        crowd.ensure_unharmed()
    })
    .await
}

/// A drain that is refused and called off: its players stay, and the proxy that came for theirs goes.
async fn a_called_off_drain_costs_nobody(arena: &Arena, crowd: &Crowd, proxy: &str, node: &str) -> Result<()> {
    players_may_take(arena, HURRIED).await?;
    let drain = arena.drain(node)?;
    wait_told_to_close(arena, proxy, true).await?;
    let told = Instant::now();
    drop(drain);
    let pod = arena.pods().get(proxy).await?;
    ensure!(pod.annotations().contains_key(annotation::EVICTION_REQUESTED), "{:?}", pod.annotations());
    arena.stack().cluster().kubectl(["uncordon", node]).await?.stdout()?;
    wait_told_to_close(arena, proxy, false).await?;
    eventually(CLOSED_LIMIT, "the proxy that came for its players to go", || async {
        let now = proxies(arena).await?;
        ensure!(now.iter().map(|(name, _, _)| name.as_str()).eq([proxy]), "{now:?}");
        Ok(())
    })
    .await?;
    sleep_until((told + BY_THEN).into()).await;
    ensure_kept(arena, proxy).await?;
    let pod = arena.pods().get(proxy).await?;
    ensure!(!pod.annotations().contains_key(annotation::EVICTION_REQUESTED), "{:?}", pod.annotations());
    wait_whole(arena, 1).await?;
    crowd.ensure_unharmed()?;
    players_may_take(arena, Duration::from_mins(5)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_group_waits_for_its_players() -> Result<()> {
    Arena::run("goodbye", StackOptions::default(), async |arena| {
        arena.start(&SmallNetwork { proxies: 1, ..arena.network() }).await?;
        let (crowd, _, _) = arena.players(1).await?;
        let [(proxy, _, _)] = proxies(&arena).await?.try_into().map_err(|found| anyhow::anyhow!("{found:?}"))?;
        arena.wait_occupied(&proxy, true).await?;
        let groups = groups(&arena).await?;
        groups.delete(GATEWAY, &DeleteParams::default()).await?;
        eventually(CLOSED_LIMIT, "the proxy to be told to close", || async {
            let pod = arena.pods().get(&proxy).await?;
            ensure!(pod.metadata.deletion_timestamp.is_none(), "deleted with its player");
            ensure!(pod.annotations().contains_key("spawnery.cloud/draining-since"));
            Ok(())
        })
        .await?;
        groups.get(GATEWAY).await.context("the group went before its proxy")?;
        crowd.ensure_unharmed()?;
        for player in crowd.players() {
            player.leave();
        }
        eventually(CLOSED_LIMIT, "pod and group to be gone", || async {
            ensure!(arena.pods().get_opt(&proxy).await?.is_none(), "the pod is there");
            ensure!(groups.get_opt(GATEWAY).await?.is_none(), "the group is there");
            Ok(())
        })
        .await?;
        crowd.ensure_unharmed()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_host_port_is_told_in_the_api_servers_words() -> Result<()> {
    Arena::run("hostport", StackOptions::default(), async |arena| {
        let cluster = arena.stack().cluster();
        let level = "pod-security.kubernetes.io/enforce=baseline";
        cluster.kubectl(["label", "namespace", arena.namespace(), level]).await?.stdout()?;
        arena.start(&SmallNetwork { proxies: 1, ..arena.network() }).await?;
        edit(&arena, json!({ "expose": { "type": "HostPort", "clusterIP": null, "hostPort": { "port": 25566 } } }))
            .await?;
        eventually(LIMIT, "the refusal", || async {
            let status = current(&arena).await?;
            let degraded = status.conditions.iter().find(|found| found.type_ == condition::DEGRADED).context("none")?;
            ensure!(
                (degraded.status.as_str(), degraded.reason.as_str()) == ("True", "ProxyPodRejected"),
                "{degraded:?}"
            );
            ensure!(degraded.message.contains("PodSecurity") && degraded.message.contains("hostPort"), "{degraded:?}");
            ensure!(status.phase == "Degraded", "{status:?}");
            Ok(())
        })
        .await?;
        let services: Api<Service> = Api::namespaced(client(&arena).await?, arena.namespace());
        eventually(LIMIT, "the Service to be gone", || async {
            ensure!(services.get_opt(GATEWAY).await?.is_none());
            Ok(())
        })
        .await?;
        ensure!(proxies(&arena).await?.len() == 1, "the old proxy stays until a new one can be made");
        Ok(())
    })
    .await
}
