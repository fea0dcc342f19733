//! Groups and their servers on a real control plane: size, updates, doors that open again, deadlines, the end of a group.

mod crash;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use spawnery_api::{
    conditions,
    names::{condition, object},
    v1alpha1::{Server, ServerGroup},
};
use spawnery_tests::{
    cluster::audit::Requests,
    eventually,
    stack::{Arena, GATEWAY, LOBBY, SmallNetwork, StackOptions, Vigil, What},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::sleep;

const LIMIT: Duration = Duration::from_secs(30);
/// Kubernetes' garbage collector learns of new kinds every 30 s only; the kinds of this cluster are seconds old.
const COLLECTED_LIMIT: Duration = Duration::from_mins(2);
/// A status is written at most a second after what it tells.
const SETTLED: Duration = Duration::from_millis(1500);
/// Long enough for ten resyncs of upstream.
const IDLE: Duration = Duration::from_secs(20);
/// How often a leader looks for orphans where a test waits for it.
const SWEEPS: &str = "--orphan-interval=1s";
/// Long enough for two looks, and for a door to show.
const SWEPT: Duration = Duration::from_secs(5);
/// The shortest deadline; players must outlive it where its clock stands still.
const DEADLINE_SECONDS: u64 = 3;
/// A group one of whose objects is refused.
const BLOCKED: &str = "blocked";

fn groups(arena: &Arena, client: kube::Client) -> Api<ServerGroup> {
    Api::namespaced(client, arena.namespace())
}

async fn edit(arena: &Arena, spec: Value) -> Result<()> {
    let groups = groups(arena, arena.stack().cluster().client().await?);
    groups.patch(LOBBY, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await?;
    Ok(())
}

async fn server(arena: &Arena, name: &str) -> Result<Server> {
    arena.servers().get(name).await.context("the Server is gone")
}

/// Waits until the Server's status is as wanted.
async fn wait_server(arena: &Arena, name: &str, what: &str, want: impl Fn(&Server) -> bool) -> Result<()> {
    eventually(LIMIT, what, || async {
        let server = server(arena, name).await?;
        ensure!(want(&server), "{}", serde_json::to_string(&server.status)?);
        Ok(())
    })
    .await
}

fn draining_reason(server: &Server) -> Option<String> {
    let status = server.status.as_ref()?;
    conditions::get(&status.conditions, condition::DRAINING).map(|draining| draining.reason.clone())
}

fn is_registered(server: &Server) -> bool {
    server.status.as_ref().is_some_and(|status| status.registered)
}

/// The servers of a group, and whether they take players.
async fn servers_of(arena: &Arena, group: &str) -> Result<BTreeMap<String, bool>> {
    let servers = arena.servers().list(&ListParams::default()).await?;
    let of = servers.iter().filter(|server| server.spec.group_ref.name == group);
    Ok(of.map(|server| (server.name_any(), is_registered(server))).collect())
}

fn operator() -> String {
    format!("system:serviceaccount:{}:{}", object::OPERATOR_NAMESPACE, object::OPERATOR)
}

/// What was asked about single objects of a group, watches and lists left out.
fn requests_about_us(requests: &Requests) -> Vec<String> {
    let about_us = ["servers", "servers/status", "servergroups/status", "pods", "pods/status", "poddisruptionbudgets"];
    let idle =
        |(verb, resource, _): &(&str, &str, u64)| !["watch", "list"].contains(verb) && about_us.contains(resource);
    requests.iter().filter(idle).map(|(verb, resource, times)| format!("{verb} {resource}: {times}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_follows_its_players_and_is_silent_when_they_are() -> Result<()> {
    Arena::run("follows", StackOptions::default(), async |arena| {
        let network = SmallNetwork { max_players: 4, spare_slots: 2, ..arena.network() };
        arena.start(&network).await?;
        let (crowd, first, _) = arena.players(3).await?;
        eventually(LIMIT, "a second lobby", || async {
            let open = arena.registered().await?;
            ensure!(open.len() == 2, "open are {open:?}");
            Ok(())
        })
        .await?;
        wait_server(&arena, &first, "the count in its status", |server| {
            server.status.as_ref().is_some_and(|status| status.players == 3)
        })
        .await?;
        let audit = arena.stack().cluster().audit();
        let requests_in = async |time| {
            let mark = audit.mark()?;
            sleep(time).await;
            let idle = requests_about_us(&audit.requests(&operator(), mark)?);
            ensure!(idle.is_empty(), "in {time:?}: {idle:?}");
            anyhow::Ok(())
        };
        eventually(LIMIT, "what has changed to be written", || requests_in(SETTLED)).await?;
        requests_in(IDLE).await.context("nothing changed any more, and yet")?;
        a_group_waits_for_what_is_refused(&arena).await?;
        crowd.ensure_unharmed()
    })
    .await
}

/// A group that meets somebody's ConfigMap under its own one's name, which nobody can change, says so and makes no server.
/// The control is the same edit of it once that ConfigMap is gone.
async fn a_group_waits_for_what_is_refused(arena: &Arena) -> Result<()> {
    let client = arena.stack().cluster().client().await?;
    let (groups, settings) = (groups(arena, client.clone()), Api::namespaced(client, arena.namespace()));
    let theirs = ConfigMap {
        metadata: ObjectMeta { name: Some(object::server_config(BLOCKED)), ..ObjectMeta::default() },
        immutable: Some(true),
        ..ConfigMap::default()
    };
    settings.create(&PostParams::default(), &theirs).await?;
    let blocked = ServerGroup::new(BLOCKED, groups.get(LOBBY).await?.spec);
    groups.create(&PostParams::default(), &blocked).await?;
    let grown_to = async |servers: u32, what, degraded| {
        let patch = Patch::Merge(json!({ "spec": { "scaling": { "minReplicas": servers } } }));
        let edited = groups.patch(BLOCKED, &PatchParams::default(), &patch).await?;
        eventually(LIMIT, what, || async {
            let status = groups.get(BLOCKED).await?.status.context("no status")?;
            let found = conditions::get(&status.conditions, condition::DEGRADED).context("nothing is told")?;
            ensure!((found.status.as_str(), found.reason.as_str()) == degraded, "{found:?}");
            ensure!(found.observed_generation == edited.metadata.generation, "{found:?}");
            Ok(status)
        })
        .await
    };
    let status = grown_to(2, "the refusal to be told", ("True", condition::reason::OBJECT_REJECTED)).await?;
    ensure!(status.phase == "Degraded", "{status:?}");
    sleep(SETTLED).await;
    ensure!(servers_of(arena, BLOCKED).await?.is_empty(), "{:?}", servers_of(arena, BLOCKED).await?);
    settings.delete(&object::server_config(BLOCKED), &DeleteParams::default()).await?;
    grown_to(1, "the refusal to be over", ("False", condition::reason::NO_RECENT_FAILURES)).await?;
    eventually(LIMIT, "servers", || async {
        ensure!(!servers_of(arena, BLOCKED).await?.is_empty(), "there are none");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_the_image_replaces_servers_as_players_leave_and_an_edit_of_the_size_replaces_none() -> Result<()> {
    Arena::run("updates", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let (crowd, old, _) = arena.players(2).await?;
        let before = arena.servers().list(&ListParams::default()).await?.items.len();
        edit(&arena, json!({ "scaling": { "minReplicas": before + 1 } })).await?;
        eventually(LIMIT, "one more lobby", || async {
            let open = arena.registered().await?;
            ensure!(open.len() == before + 1 && open.contains(&old), "open are {open:?}");
            Ok(())
        })
        .await?;
        ensure!(!server(&arena, &old).await?.spec.retire);

        edit(&arena, json!({ "image": "example.test/lobby:2" })).await?;
        wait_server(&arena, &old, "the occupied lobby to retire", |server| {
            server.status.as_ref().is_some_and(|status| status.phase == "Retiring" && !status.registered)
        })
        .await?;
        ensure!(crowd.by_server().get(&old) == Some(&2), "its players may stay");
        crowd.leave(&old).await?;
        eventually(LIMIT, "new lobbies only", || async {
            let servers = arena.servers().list(&ListParams::default()).await?.items;
            let hashes: BTreeSet<_> = servers.iter().map(|server| server.spec.pod_hash.clone()).collect();
            ensure!(hashes.len() == 1 && servers.iter().all(|server| server.name_any() != old), "{hashes:?}");
            ensure!(servers.iter().all(is_registered));
            Ok(())
        })
        .await?;
        a_drain_moves_who_stayed_on_a_retiring_server(&arena).await?;
        crowd.ensure_unharmed()
    })
    .await
}

/// Whose players may stay for as long as they like, until somebody wants its node.
async fn a_drain_moves_who_stayed_on_a_retiring_server(arena: &Arena) -> Result<()> {
    // One, because there are two lobbies by now, and the proxy fills them in turn.
    let (crowd, old, node) = arena.players(1).await?;
    edit(arena, json!({ "image": "example.test/lobby:3", "drain": { "moveAfterSeconds": 0 } })).await?;
    wait_server(arena, &old, "the occupied lobby to retire", |server| {
        draining_reason(server).as_deref() == Some("Retiring")
    })
    .await?;
    ensure!(crowd.by_server().get(&old) == Some(&1), "its player may stay");
    let drain = arena.drain(&node)?;
    let status = drain.wait(LIMIT).await?;
    ensure!(status.success(), "{status}\n{}", drain.tail(20));
    let on = crowd.by_server();
    ensure!(on.values().sum::<usize>() == 1 && !on.contains_key(&old), "{on:?}");
    crowd.ensure_unharmed()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncordoned_node_gives_its_servers_back() -> Result<()> {
    let options = StackOptions { reconciler_flags: vec![SWEEPS.to_owned()], ..StackOptions::default() };
    Arena::run("reopens", options, async |arena| {
        arena.start(&arena.network()).await?;
        let (crowd, name, node) = arena.players(2).await?;
        let uid = arena.uid(&name).await?;
        let vigil = Vigil::begin(&arena).await?;
        arena.stack().cluster().kubectl(["cordon", &node]).await?.stdout()?;
        wait_server(&arena, &name, "the door to close", |server| !is_registered(server)).await?;
        ensure!(draining_reason(&server(&arena, &name).await?).is_some());
        eventually(LIMIT, "a lobby elsewhere", || async {
            let open = arena.registered().await?;
            ensure!(!open.is_empty(), "none is open");
            Ok(())
        })
        .await?;
        arena.stack().cluster().kubectl(["uncordon", &node]).await?.stdout()?;
        wait_server(&arena, &name, "the door to open again", is_registered).await?;
        ensure!(arena.uid(&name).await? == uid && crowd.by_server().get(&name) == Some(&2));
        ensure!(
            !vigil.happened_to(&name).iter().any(|happened| matches!(happened.what, What::Unlabelled | What::PodGone))
        );
        ensure!(server(&arena, &name).await?.status.unwrap_or_default().drain_started_at.is_none());
        groups_that_a_new_leader_cannot_read_keep_what_they_have(&arena, &name).await?;
        ensure!(arena.uid(&name).await? == uid && crowd.by_server().get(&name) == Some(&2));
        crowd.ensure_unharmed()
    })
    .await
}

/// Somebody takes the spec away that the schema does not require; then a leader begins that has never seen it.
async fn groups_that_a_new_leader_cannot_read_keep_what_they_have(arena: &Arena, name: &str) -> Result<()> {
    let cluster = arena.stack().cluster();
    arena.stack().reconciler(0)?.stop().await?;
    // It would refuse such an edit.
    cluster.kubectl(["delete", "validatingwebhookconfiguration", object::WEBHOOK_CONFIGURATION]).await?.stdout()?;
    for (kind, group) in [("mcgroup", LOBBY), ("mcproxy", GATEWAY)] {
        let patch = r#"--patch=[{"op": "remove", "path": "/spec"}]"#;
        let args = ["patch", kind, group, "-n", arena.namespace(), "--type=json", patch];
        cluster.kubectl(args).await?.stdout()?;
    }
    arena.stack().reconciler(0)?.start()?;
    wait_server(arena, name, "the leader to miss the group", |server| {
        let conditions = server.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        conditions::get(conditions, condition::ACCEPTED).is_some_and(|accepted| accepted.reason == "GroupNotFound")
    })
    .await?;
    sleep(SWEPT).await;
    let server = server(arena, name).await?;
    ensure!(server.metadata.deletion_timestamp.is_none() && is_registered(&server), "{server:?}");
    for pod in arena.pods().list(&ListParams::default()).await? {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        ensure!(ready && pod.metadata.deletion_timestamp.is_none(), "{} closes: {:?}", pod.name_any(), pod.status);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_disconnected_while_there_is_nowhere_to_go_but_an_explicit_delete_has_its_deadline() -> Result<()> {
    Arena::run("nowhere", StackOptions::default(), async |arena| {
        let network = SmallNetwork { drain: json!({ "timeoutSeconds": DEADLINE_SECONDS }), ..arena.network() };
        arena.start(&network).await?;
        let (crowd, name, _) = arena.players(2).await?;
        // No other lobby: the only server of the only fallback group is the one that is to go.
        arena.stack().cluster().kubectl(["cordon", "games-1", "games-2"]).await?.stdout()?;
        wait_server(&arena, &name, "NoFallbackAvailable", |server| {
            draining_reason(server).as_deref() == Some("NoFallbackAvailable")
        })
        .await?;
        sleep(Duration::from_secs(2 * DEADLINE_SECONDS)).await;
        ensure!(crowd.by_server().get(&name) == Some(&2), "{:?}", crowd.by_server());
        crowd.ensure_unharmed()?;
        ensure!(arena.losses().await?.is_empty(), "lost: {:?}", arena.losses().await?);
        let uid = arena.uid(&name).await?;
        arena.servers().delete(&name, &DeleteParams::default()).await?;
        eventually(LIMIT, "the pod to go at its deadline", || async {
            let pod = arena.pods().get_opt(&name).await?;
            ensure!(pod.is_none_or(|pod| pod.uid().as_ref() != Some(&uid)), "it is still there");
            Ok(())
        })
        .await?;
        arena.wait_lost("Deadline", 2).await?;
        arena.wait_told(1).await.map(drop)
    })
    .await
}

/// Most of it is waiting: named so that it begins first, beside the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_node_costs_no_replacement_but_servers_that_never_came_up_make_their_group_wait() -> Result<()> {
    let options = StackOptions { reconciler_flags: vec![crash::STARTUP.to_owned()], ..StackOptions::default() };
    Arena::run("crash", options, async |arena| crash::of_a_whole_group(&arena).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_group_waits_for_its_players_and_its_budget_goes_last() -> Result<()> {
    Arena::run("ends", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let (crowd, name, _) = arena.players(2).await?;
        let client = arena.stack().cluster().client().await?;
        let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
            Api::namespaced(client.clone(), arena.namespace());
        groups(&arena, client.clone()).delete(LOBBY, &DeleteParams::default()).await?;
        wait_server(&arena, &name, "the server to drain", |server| {
            server.status.as_ref().is_some_and(|status| status.phase == "Draining")
        })
        .await?;
        // All that comes before the seal is done: only the players are in its way now.
        wait_server(&arena, &name, "the door to wait for the players", |server| {
            server.status.as_ref().and_then(|status| status.door.as_deref()) == Some("Closed: waits for its players")
        })
        .await?;
        ensure!(crowd.by_server().get(&name) == Some(&2));
        ensure!(budgets.get_opt(&object::server_pdb(LOBBY)).await?.is_some(), "the budget went before the players");
        ensure!(groups(&arena, client.clone()).get_opt(LOBBY).await?.is_some(), "the group went before its servers");
        crowd.leave(&name).await?;
        eventually(LIMIT, "the group to go", || async {
            ensure!(arena.servers().get_opt(&name).await?.is_none(), "the server is still there");
            ensure!(groups(&arena, client.clone()).get_opt(LOBBY).await?.is_none(), "the group is still there");
            Ok(())
        })
        .await?;
        eventually(COLLECTED_LIMIT, "the budget to be collected", || async {
            ensure!(budgets.get_opt(&object::server_pdb(LOBBY)).await?.is_none(), "the budget is still there");
            Ok(())
        })
        .await?;
        crowd.ensure_unharmed()
    })
    .await
}
