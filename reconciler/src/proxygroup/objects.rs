//! The objects around a group's pods.
//!
//! What the API server refuses for what it is (a node port that another group has, a right that we lack) no repetition
//! mends: it is told, tried again now and then, and holds up nothing else.

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spawnery_api::names::{annotation, label, manager};
use spawnery_api::v1alpha1::ProxyGroup;

use super::Shared;
use super::create::LATER;
use super::look::Scene;
use crate::failure::Failure;
use crate::render;

/// An object as the API server refused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Generation of the group that it was made from.
    generation: i64,
    /// The width of the floor that it was made for.
    era: u64,
    at: Timestamp,
    /// For people.
    pub(super) message: String,
}

impl Refusal {
    /// Whether to try again is in vain for now: nothing that it was made from has changed.
    fn stands(&self, generation: i64, era: u64, now: Timestamp) -> bool {
        let age = now.duration_since(self.at);
        self.generation == generation
            && self.era == era
            && age < jiff::SignedDuration::try_from(LATER).unwrap_or_default()
    }
}

#[cfg(test)]
impl Refusal {
    /// As if it had been long ago.
    pub(super) fn grow_old(&mut self) {
        self.at = Timestamp::UNIX_EPOCH;
    }
}

/// What became of the objects.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The ConfigMap that pods mount, or the budget that protects them, is not as it should be: no pod is made.
    pub(super) incomplete: bool,
    /// One is refused.
    pub(super) refused: bool,
    /// What is refused has changed, which the status has to say.
    pub(super) news: bool,
    /// The first that went wrong in a way that may pass.
    pub(super) failure: Option<Failure>,
}

/// Brings each object to what it should be, whatever becomes of the others.
pub(super) async fn keep(shared: &Shared, scene: &Scene) -> Kept {
    let mut kept = Kept::default();
    let complete = [
        one(shared, scene, &mut kept, "ConfigMap", config(shared, scene)).await,
        one(shared, scene, &mut kept, "PodDisruptionBudget", budget(shared, scene)).await,
    ];
    kept.incomplete = complete.contains(&false);
    one(shared, scene, &mut kept, "Service", service(shared, scene)).await;
    kept
}

/// Says whether it is as it should be.
async fn one(
    shared: &Shared,
    scene: &Scene,
    kept: &mut Kept,
    what: &'static str,
    bring: impl Future<Output = Result<(), Failure>>,
) -> bool {
    let (group, now) = (&scene.observed.group, scene.observed.now);
    let (generation, era) = (group.metadata.generation.unwrap_or_default(), shared.ctx.era());
    let before = scene.observed.memory.refused.get(what);
    if before.is_some_and(|before| before.stands(generation, era, now)) {
        kept.refused = true;
        return false;
    }
    match bring.await {
        Ok(()) => {
            if before.is_some() {
                shared.memories.update_group(&scene.uid, |memory| drop(memory.refused.remove(what)));
                kept.news = true;
            }
            true
        }
        Err(Failure::Call { what: tried, source }) if source.is_forbidden() || source.is_invalid() => {
            let message = format!("could not {tried}: {source}");
            tracing::warn!(namespace = scene.namespace, name = scene.name, message, "the API server refuses an object");
            kept.refused = true;
            kept.news |= before.is_none_or(|before| before.message != message);
            let refusal = Refusal { generation, era, at: now, message };
            shared.memories.update_group(&scene.uid, |memory| drop(memory.refused.insert(what, refusal)));
            false
        }
        Err(failure) => {
            kept.failure.get_or_insert(failure);
            false
        }
    }
}

async fn config(shared: &Shared, scene: &Scene) -> Result<(), Failure> {
    let config = render::proxy_config(&scene.observed.group);
    let found = shared.ctx.feeds.config_maps.get(&scene.namespace, &config.name_any());
    if found.is_some_and(|found| render::same_config(&found, &config)) {
        return Ok(());
    }
    put::<ConfigMap>(shared, scene, &config, "apply the ConfigMap").await
}

async fn budget(shared: &Shared, scene: &Scene) -> Result<(), Failure> {
    let budget = render::proxy_budget(&scene.observed.group, shared.ctx.width());
    let found = shared.ctx.feeds.budgets.get(&scene.namespace, &budget.name_any());
    if found.is_some_and(|found| render::same_budget(&found, &budget)) {
        return Ok(());
    }
    put::<PodDisruptionBudget>(shared, scene, &budget, "apply the PodDisruptionBudget").await
}

async fn service(shared: &Shared, scene: &Scene) -> Result<(), Failure> {
    let (group, found) = (&scene.observed.group, scene.observed.service.as_deref());
    match render::service(group) {
        render::Service::Wanted(desired) => {
            if found.is_some_and(|found| render::same_service(found, &desired)) {
                return Ok(());
            }
            if let Some(found) = found {
                take_back_annotations(shared, scene, found, &desired).await?;
            }
            put::<Service>(shared, scene, &desired, "apply the Service").await
        }
        render::Service::Unwanted => match found {
            Some(found) if owned(found, group) => delete_service(shared, scene, found).await,
            Some(_) | None => Ok(()),
        },
    }
}

fn owned(found: &Service, group: &ProxyGroup) -> bool {
    let controlled = found
        .owner_references()
        .iter()
        .any(|owner| owner.controller == Some(true) && Some(&owner.uid) == group.metadata.uid.as_ref());
    controlled && found.labels().get(label::MANAGED_BY).is_some_and(|value| value == label::MANAGED_BY_VALUE)
}

/// Annotations that an earlier version, or an earlier writer, recorded as the group's and that are wanted no more. What
/// others put on the Service stays.
async fn take_back_annotations(
    shared: &Shared,
    scene: &Scene,
    found: &Service,
    desired: &Service,
) -> Result<(), Failure> {
    let recorded = found.annotations().get(annotation::EXPOSE_ANNOTATIONS).map(String::as_str).unwrap_or_default();
    let mut gone: serde_json::Map<String, Value> = recorded
        .split(',')
        .filter(|key| found.annotations().contains_key(*key) && !desired.annotations().contains_key(*key))
        .map(|key| (key.to_owned(), Value::Null))
        .collect();
    if !recorded.is_empty() && !desired.annotations().contains_key(annotation::EXPOSE_ANNOTATIONS) {
        gone.insert(annotation::EXPOSE_ANNOTATIONS.to_owned(), Value::Null);
    }
    if gone.is_empty() {
        return Ok(());
    }
    let api: Api<Service> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.namespace);
    let patch = json!({"metadata": {"uid": found.uid(), "annotations": gone}});
    let written = shared.ctx.write(api.patch(&scene.name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    written.map(drop).map_err(Failure::call("take back annotations of the Service"))
}

async fn delete_service(shared: &Shared, scene: &Scene, found: &Service) -> Result<(), Failure> {
    let api: Api<Service> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.namespace);
    let preconditions = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
    let params = DeleteParams::default().preconditions(preconditions);
    match shared.ctx.write(api.delete(&scene.name, &params)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(source) => Err(Failure::Call { what: "delete the Service", source }),
    }
}

/// Applies an object that is ours. Forced: somebody else's idea of these fields would be a proxy nobody reaches.
async fn put<K>(shared: &Shared, scene: &Scene, desired: &K, what: &'static str) -> Result<(), Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Serialize,
{
    let api: Api<K> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.namespace);
    let params = PatchParams::apply(manager::RECONCILER).force();
    let written = shared.ctx.write(api.patch(&desired.name_any(), &params, &Patch::Apply(desired))).await;
    written.map(drop).map_err(Failure::call(what))
}
