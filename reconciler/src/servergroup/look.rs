//! Reads what a group's plan depends on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use spawnery_api::inputs;
use spawnery_api::names::condition::reason;
use spawnery_api::names::object;
use spawnery_api::v1alpha1::{Network, Server, ServerGroup, ServerGroupType};
use spawnery_api::view::{PodView, Role};
use spawnery_core::door::ServerView;
use spawnery_core::expectations::Seen;
use spawnery_core::ledger::PodUid;
use spawnery_core::member::Member;
use spawnery_core::phase::Phase;
use spawnery_core::pod_hash::PodHash;
use spawnery_core::sizing::Reservations;

use super::observed::{Observed, Refusal, Sight};
use super::{Key, Memory, Shared};
use crate::failure::Failure;
use crate::{network, render};

/// What was seen, and the objects behind it.
pub(super) struct Scene {
    pub(super) group: Arc<ServerGroup>,
    pub(super) key: Key,
    pub(super) uid: String,
    usable: Result<(), Refusal>,
    /// Hash of what a new server's pod is made from.
    pub(super) pod_hash: Option<PodHash>,
    /// Its Servers, by name.
    pub(super) servers: BTreeMap<String, Arc<Server>>,
    members: Vec<Member>,
    departing_nodes: BTreeSet<String>,
    foreign_budgets: BTreeSet<String>,
    reserved: Reservations,
    pub(super) memory: Memory,
    pub(super) now: Timestamp,
}

impl Scene {
    pub(super) fn observed(&self) -> Observed<'_> {
        Observed {
            group: &self.group,
            usable: self.usable.clone(),
            members: self.members.clone(),
            departing_nodes: self.departing_nodes.clone(),
            foreign_budgets: self.foreign_budgets.clone(),
            reserved: self.reserved.clone(),
            refused: self.memory.refused.message(),
            now: self.now,
        }
    }
}

#[cfg(test)]
impl Scene {
    /// A group that can be used and has one server, and nothing else going on.
    pub(super) fn of_parts(group: Arc<ServerGroup>, server: Arc<Server>, memory: Memory, now: Timestamp) -> Self {
        let sight = Sight { server: &server, pod: None, view: None, departing: false };
        Self {
            key: (group.namespace().unwrap_or_default(), group.name_any()),
            uid: group.uid().unwrap_or_default(),
            usable: Ok(()),
            pod_hash: None,
            members: vec![sight.member(group.spec.max_players, None)],
            servers: BTreeMap::from([(server.name_any(), server)]),
            departing_nodes: BTreeSet::new(),
            foreign_budgets: BTreeSet::new(),
            reserved: Reservations::default(),
            memory,
            now,
            group,
        }
    }
}

/// Looks at a group, its Servers, their pods and what agents say.
pub(super) async fn look(shared: &Shared, group: Arc<ServerGroup>) -> Result<Scene, Failure> {
    let ctx = &shared.ctx;
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let network = network::usable(&ctx.feeds, &namespace, &group.spec.network_ref.name);
    let overlay = shared.overlays.digest(ctx, &namespace, group.spec.config_overlay.as_ref()).await;
    let overlay = overlay.map_err(Failure::call("read the overlay"))?;
    let spec: Option<&Network> = network.as_deref().ok();
    let inputs = inputs::server(&group.spec, spec.map(|network| &network.spec), overlay);
    let pod_hash = spec.and_then(|_| inputs.as_ref().ok()).map(spawnery_core::pod_hash::PodInputs::hash);
    let usable = match (&network, inputs) {
        (Err(refusal), _) => Err(Refusal {
            reason: refusal.reason(),
            message: format!("Network {}: {}", group.spec.network_ref.name, describe(refusal.reason())),
        }),
        (Ok(_), Err(error)) => Err(Refusal { reason: reason::INVALID_SPEC, message: error.to_string() }),
        (Ok(_), Ok(_)) => implemented(&group),
    };
    let uid = group.uid().unwrap_or_default();
    let mut scene = Scene {
        key: (namespace, name),
        memory: shared.memory(&uid),
        uid,
        usable,
        pod_hash,
        servers: BTreeMap::new(),
        members: Vec::new(),
        departing_nodes: BTreeSet::new(),
        foreign_budgets: BTreeSet::new(),
        reserved: Reservations::default(),
        now: ctx.wall(),
        group,
    };
    members(shared, &mut scene);
    reservations(shared, &mut scene);
    Ok(scene)
}

fn describe(reason: &str) -> &'static str {
    if reason == reason::NETWORK_NOT_FOUND {
        "there is none of that name in this namespace"
    } else {
        "it is not accepted; its condition Accepted says why"
    }
}

/// What this version can do, and what no pod could be made from.
fn implemented(group: &ServerGroup) -> Result<(), Refusal> {
    if group.spec.kind == ServerGroupType::Persistent {
        let message = "groups of type Persistent are not implemented in this version; type Ephemeral is";
        return Err(Refusal { reason: reason::NOT_IMPLEMENTED_IN_THIS_VERSION, message: message.to_owned() });
    }
    let refused = render::refused_mounts(&group.spec.mounts);
    if refused.is_empty() {
        return Ok(());
    }
    let message = refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Err(Refusal { reason: reason::INVALID_SPEC, message })
}

fn members(shared: &Shared, scene: &mut Scene) {
    let ctx = &shared.ctx;
    let (namespace, name) = &scene.key;
    let group = scene.group.spec.max_players;
    let servers = ctx.feeds.servers.within(namespace, |server| server.spec.group_ref.name == *name);
    let mut pods: HashMap<String, Arc<PodView>> = HashMap::new();
    for pod in ctx.feeds.pods.within(namespace, |pod| pod.group() == Some(name) && pod.role() == Some(Role::Server)) {
        pods.insert(pod.name().to_owned(), pod);
    }
    for server in servers {
        let pod = pods.get(&server.name_any()).filter(|pod| is_of(pod, &server));
        let view: Option<ServerView> = pod.map(|pod| ctx.hub.server(&PodUid::from(pod.uid()), ctx.now()));
        let departing = pod.is_some_and(|pod| ctx.feeds.departing(pod, &ctx.config.drain_taints));
        let sight = Sight { server: &server, pod: pod.map(Arc::as_ref), view: view.as_ref(), departing };
        let member = sight.member(group, scene.pod_hash.as_ref().map(PodHash::as_str));
        if member.condemned {
            scene.departing_nodes.extend(pod.and_then(|pod| pod.spec.node_name.clone()));
        }
        scene.members.push(member);
        scene.servers.insert(server.name_any(), server);
    }
    let ours = object::server_pdb(name);
    let foreign = ctx
        .feeds
        .budgets
        .within(namespace, |budget| budget.name_any() != ours && pods.values().any(|pod| render::selects(budget, pod)));
    scene.foreign_budgets = foreign.iter().map(|budget| budget.name_any()).collect();
}

fn is_of(pod: &PodView, server: &Server) -> bool {
    pod.controller().is_some_and(|owner| Some(&owner.uid) == server.metadata.uid.as_ref())
}

fn reservations(shared: &Shared, scene: &mut Scene) {
    let servers = &scene.servers;
    let seen = |name: &str| {
        let server = servers.get(name)?;
        let phase = server.status.as_ref().and_then(|status| Phase::parse(&status.phase));
        let leaving = server.metadata.deletion_timestamp.is_some() || phase.is_some_and(Phase::leaving);
        Some(Seen { leaving, retire: server.spec.retire })
    };
    let mut expectations = shared.expectations.lock();
    scene.reserved = expectations.outstanding(&scene.key, shared.ctx.now(), seen);
}
