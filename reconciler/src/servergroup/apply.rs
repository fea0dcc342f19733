//! Carries a group's plan out.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use spawnery_api::names::event::{self, action};
use spawnery_api::names::{finalizer, generated_name, label, manager};
use spawnery_api::v1alpha1::{Server, ServerGroup, ServerSpec};
use spawnery_core::expectations::Kind;

use super::look::Scene;
use super::plan::{Finalizer, Plan, Removal, only_counts_differ};
use super::{Shared, objects};
use crate::failure::Failure;
use crate::objects::LATER;
use crate::pass::Done;
use crate::{finalizers, render};

/// How far apart status writes are that carry only counts.
const COUNTS_APART: Duration = Duration::from_secs(1);

/// Requests about servers under way at once for one group.
const AT_ONCE: usize = 16;

/// Carries a plan out.
pub(super) async fn apply(shared: &Shared, scene: &Scene, plan: &Plan) -> Result<Done, Failure> {
    match plan.finalizer {
        Finalizer::Keep => {}
        Finalizer::Add => {
            let put = finalizers::put_on(&shared.ctx, &shared.groups, scene.group.as_ref(), finalizer::GROUP).await;
            put.map_err(Failure::call("put the finalizer on"))?;
            return Ok(Done::Again);
        }
        Finalizer::Release => {
            let taken = finalizers::take_off(&shared.ctx, &shared.groups, scene.group.as_ref(), finalizer::GROUP).await;
            taken.map_err(Failure::call("take the finalizer off"))?;
            shared.expectations.lock().forget(&scene.key);
            shared.forget(&scene.uid);
            return Ok(Done::Until(None));
        }
    }
    let kept = objects::keep(shared, scene).await;
    if kept.news {
        // The plan knows nothing of it.
        return Ok(Done::Again);
    }
    let due = status(shared, scene, plan).await?;
    for told in &plan.events {
        let regarding: ObjectReference = scene.group.object_ref(&());
        if told.warning {
            shared.recorder.warning(&regarding, told.reason, action::SYNC_STATUS, told.note.as_str());
        } else {
            shared.recorder.normal(&regarding, told.reason, action::SYNC_STATUS, told.note.as_str());
        }
    }
    // Without a floor nobody is let in, and nothing is taken away. What is to go goes all the same.
    if kept.failure.is_none() || scene.group.metadata.deletion_timestamp.is_some() {
        create(shared, scene, plan.create).await?;
        delete(shared, scene, &plan.delete).await?;
        if let Some(name) = &plan.retire {
            retire(shared, scene, name).await?;
        }
    }
    if let Some(failure) = kept.failure {
        return Err(failure);
    }
    let now = shared.ctx.wall();
    let wait = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
    let wake = [plan.wake, due].into_iter().flatten().min().map(|at| wait(at).max(Duration::from_millis(1)));
    Ok(Done::Until([wake, kept.refused.then_some(LATER)].into_iter().flatten().min()))
}

/// Writes the status where it differs. Where only counts do and the last write was a moment ago, says until when that may
/// wait.
async fn status(shared: &Shared, scene: &Scene, plan: &Plan) -> Result<Option<Timestamp>, Failure> {
    let current = scene.group.status.clone().unwrap_or_default();
    if current == plan.status {
        return Ok(None);
    }
    let due = scene.memory.written.and_then(|last| last.checked_add(COUNTS_APART).ok()).filter(|due| *due > scene.now);
    if due.is_some() && only_counts_differ(&current, &plan.status) {
        return Ok(due);
    }
    let (namespace, name) = &scene.key;
    let mut group = ServerGroup::clone(&scene.group);
    group.metadata.managed_fields = None;
    group.status = Some(plan.status.clone());
    let api: Api<ServerGroup> = Api::namespaced(shared.ctx.clients.api.clone(), namespace);
    let params = PostParams { field_manager: Some(manager::STATUS.to_owned()), ..PostParams::default() };
    let written = shared.ctx.write(api.replace_status(name, &params, &group)).await;
    shared.groups.wrote(written.map_err(Failure::call("write the status"))?);
    shared.remember(&scene.uid, |memory| memory.written = Some(scene.now));
    Ok(None)
}

/// Makes `n` servers, several at once, and tells of them in one event.
async fn create(shared: &Shared, scene: &Scene, n: u32) -> Result<(), Failure> {
    let (made, error) = in_parallel((0..n).map(|_| create_one(shared, scene))).await;
    if !made.is_empty() {
        let note = format!("made {}", made.join(", "));
        shared.recorder.normal(&scene.group.object_ref(&()), event::SERVER_CREATED, action::CREATE_SERVER, note);
    }
    error.map_or(Ok(()), Err)
}

/// Runs requests, so many at once; returns what succeeded and the first error.
async fn in_parallel<T>(
    requests: impl Iterator<Item = impl Future<Output = Result<T, Failure>>>,
) -> (Vec<T>, Option<Failure>) {
    let mut running = futures::stream::iter(requests).buffer_unordered(AT_ONCE);
    let (mut done, mut first_error) = (Vec::new(), None);
    while let Some(result) = running.next().await {
        match result {
            Ok(value) => done.push(value),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    (done, first_error)
}

async fn create_one(shared: &Shared, scene: &Scene) -> Result<String, Failure> {
    let (namespace, group) = &scene.key;
    let api: Api<Server> = Api::namespaced(shared.ctx.clients.api.clone(), namespace);
    let params = PostParams { field_manager: Some(manager::RECONCILER.to_owned()), ..PostParams::default() };
    loop {
        let server = new_server(scene, &generated_name(group, rand::random()));
        let name = server.name_any();
        shared.expectations.lock().expect(scene.key.clone(), &name, Kind::Create, shared.ctx.now());
        match shared.ctx.write(api.create(&params, &server)).await {
            Ok(_) => return Ok(name),
            // Nobody knows whether it was made; if it was, it shows, and if it was not, it is asked for again later.
            Err(source) if source.retryable() && !source.is_already_exists() => {
                return Err(Failure::Call { what: "make a Server", source });
            }
            Err(error) if error.is_already_exists() => shared.expectations.lock().retract(&scene.key, &name),
            Err(source) => {
                shared.expectations.lock().retract(&scene.key, &name);
                return Err(Failure::Call { what: "make a Server", source });
            }
        }
    }
}

/// A Server of the group. The finalizer is there from the start, so that its pod is never without.
fn new_server(scene: &Scene, name: &str) -> Server {
    let group = &scene.group;
    let spec = ServerSpec {
        group_ref: scene.key.1.as_str().into(),
        ordinal: None,
        group_generation: group.metadata.generation.unwrap_or_default(),
        pod_hash: scene.pod_hash.as_ref().map(|hash| hash.as_str().to_owned()).unwrap_or_default(),
        retire: false,
    };
    let mut server = Server::new(name, spec);
    server.metadata.namespace = Some(scene.key.0.clone());
    server.metadata.finalizers = Some(vec![finalizer::DRAIN.to_owned()]);
    server.metadata.owner_references = render::owner(group.as_ref()).map(|owner| vec![owner]);
    let labels = [
        (label::MANAGED_BY, label::MANAGED_BY_VALUE),
        (label::NETWORK, group.spec.network_ref.name.as_str()),
        (label::GROUP, scene.key.1.as_str()),
    ];
    server.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    server
}

async fn delete(shared: &Shared, scene: &Scene, removals: &[Removal]) -> Result<(), Failure> {
    let requests: Vec<_> = removals.iter().map(|removal| delete_one(shared, scene, removal)).collect();
    let (done, error) = in_parallel(requests.into_iter()).await;
    for removal in done {
        let note = format!("removes {}", removal.name);
        shared.recorder.normal(&scene.group.object_ref(&()), removal.reason, action::DELETE_SERVER, note);
    }
    error.map_or(Ok(()), Err)
}

async fn delete_one<'a>(shared: &Shared, scene: &Scene, removal: &'a Removal) -> Result<&'a Removal, Failure> {
    let api: Api<Server> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.key.0);
    let uid = scene.servers.get(&removal.name).and_then(|server| server.uid());
    let params =
        DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() };
    shared.expectations.lock().expect(scene.key.clone(), &removal.name, Kind::Delete, shared.ctx.now());
    match shared.ctx.write(api.delete(&removal.name, &params)).await {
        Ok(_) => Ok(removal),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(removal),
        Err(source) => {
            if !source.retryable() {
                shared.expectations.lock().retract(&scene.key, &removal.name);
            }
            Err(Failure::Call { what: "delete a Server", source })
        }
    }
}

async fn retire(shared: &Shared, scene: &Scene, name: &str) -> Result<(), Failure> {
    let api: Api<Server> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.key.0);
    let params = PatchParams { field_manager: Some(manager::RECONCILER.to_owned()), ..PatchParams::default() };
    let uid = scene.servers.get(name).and_then(|server| server.uid());
    let patch = json!({ "metadata": { "uid": uid }, "spec": { "retire": true } });
    shared.expectations.lock().expect(scene.key.clone(), name, Kind::Retire, shared.ctx.now());
    match shared.ctx.write(api.patch(name, &params, &Patch::Merge(&patch))).await {
        Ok(_) => {
            let note = format!("replaces {name}, which was made from an earlier state of the group");
            shared.recorder.normal(&scene.group.object_ref(&()), event::SERVER_RETIRING, action::RETIRE_SERVER, note);
            Ok(())
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(source) => {
            if !source.retryable() {
                shared.expectations.lock().retract(&scene.key, name);
            }
            Err(Failure::Call { what: "retire a Server", source })
        }
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
