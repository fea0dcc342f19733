//! Reads what a Server's plan depends on.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kube::{Api, ResourceExt};
use spawnery_api::v1alpha1::{Server, ServerGroup};
use spawnery_api::view::PodView;
use spawnery_core::door::{ServerView, ServerWant, WantDoor};
use spawnery_core::ledger::PodUid;
use spawnery_core::phase::Phase;

use super::Shared;
use super::observed::{GroupRules, Memory, Observed, PodSight};
use crate::context::Context;
use crate::failure::Failure;

/// What was seen, and the objects behind it.
pub(super) struct Scene {
    pub(super) server: Arc<Server>,
    pub(super) group: Option<Arc<ServerGroup>>,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    network: bool,
    pub(super) pod: PodSight,
    pub(super) view: Option<ServerView>,
    node_departing: bool,
    node_down: bool,
    fallback_ready: bool,
    pub(super) memory: Memory,
    startup_deadline: std::time::Duration,
    pub(super) now: Timestamp,
}

impl Scene {
    pub(super) fn observed(&self) -> Observed<'_> {
        Observed {
            server: &self.server,
            group: self.group.as_deref().map(GroupRules::of),
            network: self.network,
            pod: self.pod.clone(),
            view: self.view.clone(),
            node_departing: self.node_departing,
            node_down: self.node_down,
            fallback_ready: self.fallback_ready,
            memory: self.memory.clone(),
            startup_deadline: self.startup_deadline,
            now: self.now,
        }
    }

    /// A scene with a group and a Network and nothing else going on.
    #[cfg(test)]
    pub(super) fn of_parts(server: Arc<Server>, pod: PodSight, now: Timestamp) -> Self {
        Self {
            namespace: server.namespace().unwrap_or_default(),
            name: server.name_any(),
            uid: server.uid().unwrap_or_default(),
            group: Some(Arc::default()),
            network: true,
            view: None,
            node_departing: false,
            node_down: false,
            fallback_ready: true,
            memory: Memory::default(),
            startup_deadline: std::time::Duration::from_mins(5),
            server,
            pod,
            now,
        }
    }

    /// What the hub is to be told of the pod.
    pub(super) fn want(&self, door: WantDoor, was_routable: bool) -> Option<ServerWant> {
        let pod = self.pod.ours()?;
        Some(ServerWant {
            uid: PodUid::from(pod.uid.as_str()),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            group: self.server.spec.group_ref.name.clone(),
            address: pod.address.clone().unwrap_or_default(),
            was_routable,
            door,
        })
    }
}

/// Looks at a Server, its pod, its group and what agents say.
pub(super) async fn look(shared: &Shared, server: Arc<Server>) -> Result<Scene, Failure> {
    let ctx = &shared.ctx;
    let now = ctx.wall();
    let (namespace, name) = (server.namespace().unwrap_or_default(), server.name_any());
    let uid = server.uid().unwrap_or_default();
    let mut pod = ctx.feeds.pods.get(&namespace, &name).map(|pod| shared.pods.of(pod));
    let memory = shared.memory(&uid);
    if pod.is_none() && (should_be_there(&server) || memory.declared.is_some()) {
        // Losing its pod ends a server, so that is not believed of a cache that may lag behind.
        let api: Api<PodView> = Api::namespaced(ctx.clients.api.clone(), &namespace);
        pod = ctx.read(api.get_opt(&name)).await.map_err(Failure::call("look for the pod"))?.map(Arc::new);
    }
    let group = ctx.feeds.server_groups.get(&namespace, &server.spec.group_ref.name);
    let network =
        group.as_ref().is_some_and(|group| ctx.feeds.networks.get(&namespace, &group.spec.network_ref.name).is_some());
    let mut scene = Scene {
        network,
        pod: PodSight::of(&server, pod.as_deref(), now),
        view: None,
        node_down: ctx.feeds.down(node(&server, pod.as_deref())),
        node_departing: pod.as_ref().is_some_and(|pod| ctx.feeds.departing(pod, &ctx.config.drain_taints)),
        fallback_ready: true,
        memory,
        startup_deadline: ctx.config.startup_deadline,
        server,
        group,
        namespace,
        name,
        uid,
        now,
    };
    declare(ctx, &mut scene);
    if closing(&scene) {
        scene.fallback_ready = fallback_ready(ctx, &scene);
    }
    Ok(scene)
}

/// The node that the pod is on, or was on.
fn node<'a>(server: &'a Server, pod: Option<&'a PodView>) -> &'a str {
    let there = pod.and_then(|pod| pod.spec.node_name.as_deref());
    there.or_else(|| server.status.as_ref().map(|status| status.node_name.as_str())).unwrap_or_default()
}

/// Whether the status says that there is a pod.
fn should_be_there(server: &Server) -> bool {
    server
        .status
        .as_ref()
        .is_some_and(|status| !status.pod_name.is_empty() && Phase::parse(&status.phase) != Some(Phase::Terminating))
}

/// Tells the hub of a pod before asking about it: what it was never told of counts as occupied.
fn declare(ctx: &Context, scene: &mut Scene) {
    let Some(pod) = scene.pod.ours() else { return };
    let uid = pod.uid.clone();
    if scene.memory.declared.as_ref() != Some(&uid) {
        let status = scene.server.status.as_ref();
        let registered = status.is_some_and(|status| status.registered);
        let door = if registered { WantDoor::Open } else { WantDoor::Closed };
        if let Some(want) = scene.want(door, status.is_some_and(|status| status.was_registered)) {
            ctx.hub.want(want);
        }
        scene.memory.declared = Some(uid.clone());
    }
    if scene.pod.ours().is_some_and(|pod| pod.sealed.is_some()) {
        ctx.hub.mark_sealed(&PodUid::from(uid.as_str()));
    }
    scene.view = Some(ctx.hub.server(&PodUid::from(uid.as_str()), ctx.now()));
}

/// Whether players may have to be moved, so that it matters whether there is somewhere to go.
fn closing(scene: &Scene) -> bool {
    let status = scene.server.status.as_ref();
    scene.node_departing
        || scene.pod.going().is_some()
        || scene.server.metadata.deletion_timestamp.is_some()
        || scene.pod.ours().is_some_and(|pod| pod.eviction_requested.is_some())
        || status.is_some_and(|status| {
            matches!(Phase::parse(&status.phase), Some(Phase::Draining | Phase::Failed | Phase::Retiring))
        })
}

/// Whether another server is open in some group that some proxy of the Network moves players to.
fn fallback_ready(ctx: &Context, scene: &Scene) -> bool {
    let network = scene.group.as_ref().map(|group| group.spec.network_ref.name.as_str());
    let proxies = ctx
        .feeds
        .proxy_groups
        .within(&scene.namespace, |group| network.is_none_or(|network| group.spec.network_ref.name == network));
    let groups: BTreeSet<&str> =
        proxies.iter().flat_map(|group| &group.spec.routing.fallback_groups).map(String::as_str).collect();
    let targets = ctx.feeds.servers.within(&scene.namespace, |server| {
        server.metadata.name.as_ref() != Some(&scene.name)
            && groups.contains(server.spec.group_ref.name.as_str())
            && server.metadata.deletion_timestamp.is_none()
            && server.status.as_ref().is_some_and(|status| status.registered)
    });
    !targets.is_empty()
}
