//! The objects around a group's pods: what they read, what protects them, and the Service that leads to them.

use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use spawnery_api::names::{annotation, label};
use spawnery_api::v1alpha1::ProxyGroup;

use super::Shared;
use super::look::Scene;
use crate::failure::Failure;
use crate::objects::{self, Kept, Upkeep};
use crate::render;

/// Brings each object to what it should be, whatever becomes of the others. Also says whether those are that a pod cannot
/// do without: the ConfigMap that it mounts, and the budget that protects it.
pub(super) async fn keep(shared: &Shared, scene: &Scene) -> (bool, Kept) {
    let (group, before) = (&scene.observed.group, &scene.observed.memory.refused);
    let key = (scene.namespace.as_str(), scene.name.as_str());
    let mut upkeep = Upkeep::new(&shared.ctx, key, group.metadata.generation, before, scene.observed.now);
    let configured = upkeep.config(&render::proxy_config(group)).await;
    let protected = upkeep.budget(&render::proxy_budget(group, shared.ctx.width())).await;
    upkeep.bring("Service", service(shared, scene)).await;
    let mut kept = upkeep.end();
    if let Some(refused) = kept.remember.take() {
        shared.memories.update_group(&scene.uid, |memory| memory.refused = refused);
    }
    (configured && protected, kept)
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
            objects::put(&shared.ctx, &scene.namespace, &*desired, "apply the Service").await
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
