//! Gathers what a pass depends on.

use std::sync::Arc;

use kube::ResourceExt;
use spawnery_api::inputs;
use spawnery_api::names::object;
use spawnery_api::v1alpha1::{Network, ProxyGroup};
use spawnery_api::view::{PodView, Role};
use spawnery_core::door::DoorView;
use spawnery_core::expectations::Seen;
use spawnery_core::ledger::PodUid;
use spawnery_core::pod_hash::PodInputs;

use super::Shared;
use super::memory::Fact;
use super::observed::{Observed, Sight, causes, marked, one_per_node};
use crate::failure::Failure;
use crate::{network, render};

/// What is decided from, and what is needed to carry it out.
pub(super) struct Scene {
    pub(super) observed: Observed,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// The group's Network, if it can be used.
    pub(super) network: Option<Arc<Network>>,
    /// What a new pod would be made from.
    pub(super) inputs: Option<PodInputs>,
}

/// Looks at a group.
pub(super) async fn look(shared: &Shared, group: Arc<ProxyGroup>) -> Result<Scene, Failure> {
    let ctx = &shared.ctx;
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let uid = group.uid().unwrap_or_default();
    let network = network::usable(&ctx.feeds, &namespace, &group.spec.network_ref.name);
    let inputs = match &network {
        Ok(network) => {
            let overlay = shared.overlays.digest(ctx, &namespace, group.spec.config_overlay.as_ref()).await;
            let overlay = overlay.map_err(Failure::call("read the overlay"))?;
            Some(inputs::proxy(&group.spec, Some(&network.spec), overlay).map_err(Failure::Inputs)?)
        }
        Err(_) => None,
    };
    let pods = sights(shared, &group, &namespace);
    let creating = creating(shared, &uid, &pods);
    let observed = Observed {
        one_per_node: one_per_node(&group.spec, network.as_ref().ok().map(|network| &network.spec)),
        network: network.as_ref().map(|_| ()).map_err(|problem| *problem),
        desired_hash: inputs.as_ref().map(|inputs| inputs.hash().to_string()),
        service: ctx.feeds.services.get(&namespace, &name),
        foreign_budgets: foreign_budgets(shared, &namespace, &name, &pods),
        memory: shared.memories.group(&uid),
        now: ctx.wall(),
        creating,
        pods,
        group,
    };
    Ok(Scene { observed, namespace, name, uid, network: network.ok(), inputs })
}

fn sights(shared: &Shared, group: &ProxyGroup, namespace: &str) -> Vec<Sight> {
    let ctx = &shared.ctx;
    let (wall, now) = (ctx.wall(), ctx.now());
    let deleting = group.metadata.deletion_timestamp.is_some();
    let ours = |pod: &PodView| {
        pod.role() == Some(Role::Proxy)
            && pod.controller().is_some_and(|owner| Some(&owner.uid) == group.metadata.uid.as_ref())
    };
    let mut pods = ctx.feeds.pods.within(namespace, ours);
    pods.sort_by(|a, b| a.created().cmp(&b.created()).then_with(|| a.name().cmp(b.name())));
    let sight = |pod: Arc<PodView>| {
        let pod = shared.pods.of(pod);
        let uid = PodUid::from(pod.uid());
        if pod.is_sealed() {
            ctx.hub.mark_sealed(&uid);
        }
        let view = ctx.hub.proxy(&uid, now);
        let departing = ctx.feeds.departing(&pod, &ctx.config.drain_taints);
        // Whether an earlier leader closed its door for a drain, or chose it, is nowhere written.
        let may_have = marked(&pod) && !shared.memories.knows(pod.uid());
        let departure = shared.memories.departure(pod.uid(), departing, wall);
        let caused = causes(&pod, departure, deleting, wall).strongest(wall).is_some();
        let diverged = view.door != DoorView::Open && view.shut_for.is_zero();
        let lasting = |fact, holds| shared.memories.lasting(pod.uid(), fact, holds, now);
        let back = pod.is_ready() && !marked(&pod);
        Sight {
            released_for: shared.memories.released(pod.uid(), caused, may_have, back, now),
            caused_for: lasting(Fact::Caused, caused),
            unschedulable_for: lasting(Fact::Unschedulable, pod.is_unschedulable()),
            sealed_for: lasting(Fact::Sealed, pod.is_sealed()),
            diverged_for: lasting(Fact::Diverged, diverged),
            view,
            departure,
            pod,
        }
    };
    pods.into_iter().map(sight).collect()
}

/// Two budgets that select one pod make the API server refuse its eviction with an error that drains take as final.
fn foreign_budgets(shared: &Shared, namespace: &str, group: &str, pods: &[Sight]) -> Vec<String> {
    let ours = object::proxy_pdb(group);
    let foreign = shared.ctx.feeds.budgets.within(namespace, |budget| {
        budget.name_any() != ours && pods.iter().any(|sight| render::selects(budget, &sight.pod))
    });
    let mut names: Vec<_> = foreign.iter().map(|budget| budget.name_any()).collect();
    names.sort();
    names
}

/// Pods whose creation was asked for and that no watch has shown yet.
fn creating(shared: &Shared, uid: &str, pods: &[Sight]) -> u32 {
    let seen = |name: &str| {
        let sight = pods.iter().find(|sight| sight.pod.name() == name)?;
        Some(Seen { leaving: sight.pod.is_terminating(), retire: false })
    };
    shared.expectations.lock().outstanding(&uid.to_owned(), shared.ctx.now(), seen).creates
}
