//! Tells the hub what the API server says about pods, and controllers what the hub says about agents.

use std::sync::Arc;

use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use spawnery_api::names::container;
use spawnery_api::v1alpha1::{ExposeType, ProxyGroup, Server};
use spawnery_api::view::{ContainerStatus, PodView, Role};
use spawnery_core::door::{ProxyFacts, ServerWant, WantDoor};
use spawnery_core::ledger::{self, PodUid};
use spawnery_runtime::keys::KeyStream;

use crate::feeds::{Feeds, HubKey, Wakes};
use crate::hub::{Changes, Hub};

/// Tells the hub of each pod that changes, for as long as the process lives, leader or not: a standby's hub is warm.
///
/// # Errors
/// When the queue ends, which only a defect does.
pub async fn run(feeds: Feeds, hub: Arc<Hub>, mut keys: KeyStream<HubKey>) -> anyhow::Result<()> {
    while let Some(key) = keys.next().await {
        match key {
            HubKey::Pod { namespace, name, uid } => match feeds.pods.get(&namespace, &name) {
                Some(pod) if pod.uid() == uid => observe(&feeds, &hub, &pod),
                Some(_) | None => hub.forget(&PodUid::from(uid)),
            },
            HubKey::ProxyGroup { namespace, name } => {
                let members = feeds.pods.within(&namespace, |pod| pod.group() == Some(&name));
                for pod in members {
                    observe(&feeds, &hub, &pod);
                }
            }
        }
    }
    anyhow::bail!("nobody tells the hub about pods any more")
}

/// Tells a hub that has just begun to lead everything that the stores know, so that it can send directories which are
/// complete from the first one on.
pub fn take_over(feeds: &Feeds, hub: &Hub) {
    for pod in feeds.pods.all() {
        observe(feeds, hub, &pod);
    }
    for server in feeds.servers.all() {
        let pod = feeds.pods.get(&server.namespace().unwrap_or_default(), &server.name_any());
        let Some(pod) = pod else { continue };
        let Some(want) = inherited(&server, &pod) else { continue };
        hub.want(want);
        // Only what was declared can be sealed.
        if pod.is_sealed() {
            hub.mark_sealed(&PodUid::from(pod.uid()));
        }
    }
}

/// Wakes the controllers of what the hub says has changed; never ends by itself.
///
/// # Errors
/// None; the type is that of supervised tasks.
pub async fn forward(mut changes: Changes, wakes: Wakes) -> anyhow::Result<()> {
    loop {
        let change = changes.next().await;
        match change.role {
            ledger::Role::Server => {
                wakes.servers.send(ObjectRef::new(&change.name).within(&change.namespace));
                wakes.server_groups.send(ObjectRef::new(&change.group).within(&change.namespace));
            }
            ledger::Role::Proxy => wakes.proxy_groups.send(ObjectRef::new(&change.group).within(&change.namespace)),
        }
    }
}

fn observe(feeds: &Feeds, hub: &Hub, pod: &PodView) {
    match pod.role() {
        Some(Role::Proxy) => {
            let group = pod.group().and_then(|group| feeds.proxy_groups.get(pod.namespace(), group));
            hub.observe_proxy(proxy_facts(pod, group.as_deref()));
        }
        // Servers are declared by their controller.
        Some(Role::Server) | None => {}
    }
    if pod.is_sealed() {
        hub.mark_sealed(&PodUid::from(pod.uid()));
    }
}

/// What the hub has to know of a proxy pod.
fn proxy_facts(pod: &PodView, group: Option<&ProxyGroup>) -> ProxyFacts {
    // A restart of another container says nothing about the process that routes players.
    let game = pod.container(container::PROXY);
    let containers = || match game {
        Some(game) => std::slice::from_ref(game).iter(),
        None => pod.status.container_statuses.iter(),
    };
    // A container that does not run has no process that was told anything before its end.
    let since = |status: &ContainerStatus| status.started_at.or(status.ended_at);
    let all_known = containers().all(|status| since(status).is_some());
    ProxyFacts {
        uid: PodUid::from(pod.uid()),
        namespace: pod.namespace().to_owned(),
        name: pod.name().to_owned(),
        group: pod.group().unwrap_or_default().to_owned(),
        fallback_groups: group.map(|group| group.spec.routing.fallback_groups.clone()).unwrap_or_default(),
        terminal: pod.is_terminal(),
        started: containers().any(|status| since(status).is_some() || status.restart_count > 0),
        container_since: containers().filter_map(since).min().filter(|_| all_known),
        routable: pod.is_ready(),
        host_port: group.is_some_and(|group| group.spec.expose.kind == ExposeType::HostPort),
    }
}

/// What an earlier leader wanted of a server's pod, as its status tells. Its controller says more at its first look.
fn inherited(server: &Server, pod: &PodView) -> Option<ServerWant> {
    let owned = pod.controller().is_some_and(|owner| Some(&owner.uid) == server.metadata.uid.as_ref());
    let status = server.status.as_ref()?;
    owned.then(|| ServerWant {
        uid: PodUid::from(pod.uid()),
        namespace: pod.namespace().to_owned(),
        name: server.name_any(),
        group: server.spec.group_ref.name.clone(),
        address: status.address.clone(),
        was_routable: status.was_registered,
        door: if status.registered { WantDoor::Open } else { WantDoor::Closed },
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn pod(containers: &Value, conditions: &Value) -> PodView {
        let labels = json!({
            "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": "proxy", "spawnery.cloud/group": "edge"
        });
        serde_json::from_value(json!({
            "metadata": {"name": "edge-a", "namespace": "ns", "uid": "u", "labels": labels},
            "status": {"phase": "Running", "containerStatuses": containers, "conditions": conditions}
        }))
        .expect("a pod")
    }

    fn running(name: &str, at: &str, restarts: i32) -> Value {
        json!({"name": name, "restartCount": restarts, "state": {"running": {"startedAt": at}}})
    }

    fn ended(name: &str, field: &str) -> Value {
        json!({"name": name, "restartCount": 0, field: {"terminated": {"exitCode": 137, "finishedAt": LATE}}})
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T01:00:00Z";

    #[rstest]
    #[case::not_started(json!([]), false, None)]
    #[case::waiting(json!([{"name": "velocity", "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]), false, None)]
    #[case::running(json!([running("velocity", EARLY, 0)]), true, Some(EARLY))]
    #[case::a_sidecar_restarted(json!([running("velocity", EARLY, 0), running("side", LATE, 3)]), true, Some(EARLY))]
    #[case::the_game_restarted(json!([running("velocity", LATE, 1), running("side", EARLY, 0)]), true, Some(LATE))]
    #[case::other_images_the_earliest(json!([running("a", EARLY, 0), running("b", LATE, 0)]), true, Some(EARLY))]
    #[case::ended(json!([ended("velocity", "state")]), true, Some(LATE))]
    #[case::ended_and_waits_for_its_restart(json!([ended("velocity", "lastState")]), true, Some(LATE))]
    #[case::one_ended_and_one_runs(json!([running("a", EARLY, 0), ended("b", "state")]), true, Some(EARLY))]
    #[case::one_of_them_unknown(json!([running("a", EARLY, 0), {"name": "b", "restartCount": 0, "state": {}}]), true, None)]
    fn since_when_a_proxy_routes(#[case] containers: Value, #[case] started: bool, #[case] since: Option<&str>) {
        let facts = proxy_facts(&pod(&containers, &json!([])), None);
        let since = since.map(|at| at.parse::<Timestamp>().expect("a timestamp"));
        assert_eq!((facts.started, facts.container_since), (started, since));
    }

    #[test]
    fn a_ready_pod_is_routable_and_its_group_says_where_players_go() {
        let group: ProxyGroup = serde_json::from_value(json!({
            "apiVersion": "spawnery.cloud/v1alpha1", "kind": "ProxyGroup", "metadata": {"name": "edge"},
            "spec": {"networkRef": {"name": "n"}, "replicas": 1, "image": "i", "expose": {"type": "HostPort", "hostPort": {"port": 25565}},
                     "routing": {"fallbackGroups": ["lobby"]}, "drain": {"timeoutSeconds": 60}}
        }))
        .expect("a group");
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let facts = proxy_facts(&pod(&json!([]), &ready), Some(&group));
        assert_eq!((facts.routable, facts.host_port, facts.fallback_groups), (true, true, vec!["lobby".to_owned()]));
    }

    #[rstest]
    #[case::registered("uid", true, Some(WantDoor::Open))]
    #[case::not_registered("uid", false, Some(WantDoor::Closed))]
    #[case::a_pod_of_somebody_else("other", true, None)]
    fn a_new_leader_goes_on_where_the_last_one_was(
        #[case] owner: &str,
        #[case] registered: bool,
        #[case] want: Option<WantDoor>,
    ) {
        let server: Server = serde_json::from_value(json!({
            "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server", "metadata": {"name": "s", "namespace": "ns", "uid": "uid"},
            "spec": {"groupRef": {"name": "lobby"}, "groupGeneration": 1, "podHash": "", "retire": false},
            "status": {"registered": registered, "wasRegistered": true, "address": "127.0.0.1:25565"}
        }))
        .expect("a server");
        let owners = json!([{"apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server", "name": "s", "uid": owner, "controller": true}]);
        let pod: PodView = serde_json::from_value(
            json!({"metadata": {"name": "s", "namespace": "ns", "uid": "p", "ownerReferences": owners}}),
        )
        .expect("a pod");
        let inherited = inherited(&server, &pod);
        assert_eq!(inherited.as_ref().map(|want| want.door), want);
        assert!(inherited.is_none_or(|want| want.was_routable));
    }
}
