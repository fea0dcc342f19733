//! Carries a Server's plan out.
//!
//! The order is what keeps players safe: a door is closed before anything is written about it, and opened only after it
//! is written that it will have been open; a pod is deleted only after its seal and its phase are written.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource};
use serde_json::Value;
use spawnery_api::conditions;
use spawnery_api::names::condition::{self, reason};
use spawnery_api::names::event::{self, action};
use spawnery_api::names::{finalizer, manager};
use spawnery_api::v1alpha1::{Server, ServerStatus};
use spawnery_api::view::PodView;
use spawnery_core::door::WantDoor;
use spawnery_core::ledger::PodUid;
use spawnery_core::occupancy::SealReason;

use super::look::Scene;
use super::observed::Memory;
use super::plan::{Finalizer, Plan, PodStep, Told};
use super::status::{self, History, Write};
use super::{Shared, create, loss};
use crate::failure::Failure;
use crate::pass::{Done, SHORTLY};
use crate::{finalizers, seal};

/// Carries a plan out, or a first part of it.
pub(super) async fn apply(shared: &Shared, scene: &Scene, plan: Plan) -> Result<Done, Failure> {
    match plan.finalizer {
        Finalizer::Keep => {}
        Finalizer::Add => return add_finalizer(shared, scene).await,
        Finalizer::Release => return release(shared, scene).await,
    }
    shared.remember(&scene.uid, Memory { written: scene.memory.written, ..plan.memory.clone() });
    if plan.pod == PodStep::Create {
        return Box::pin(create::create(shared, scene, &plan)).await;
    }
    if close(shared, scene, &plan) {
        return Ok(Done::Again);
    }
    mark(shared, scene, &plan).await?;
    if let Some(reason) = plan.seal {
        return seal(shared, scene, &plan, reason).await;
    }
    let due = write(shared, scene, &plan).await?;
    tell(shared, &scene.server, &plan.events);
    lose(shared, scene, &plan);
    open(shared, scene, &plan);
    if plan.pod == PodStep::Delete {
        delete_pod(shared, scene).await?;
        return Ok(Done::Again);
    }
    if plan.delete_server && delete_server(shared, scene).await? {
        return Ok(Done::Again);
    }
    if plan.lost.is_some() {
        return Ok(Done::Again);
    }
    let now = shared.ctx.wall();
    let wake = [plan.wake, due].into_iter().flatten().min();
    Ok(Done::Until(
        wake.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default().max(Duration::from_millis(1))),
    ))
}

/// Closes the door where it is open; says whether it was. What is written must tell of the door as it is after that.
fn close(shared: &Shared, scene: &Scene, plan: &Plan) -> bool {
    let hub = &shared.ctx.hub;
    if plan.door.is_none() {
        return false;
    }
    if plan.moving {
        hub.drain(&scene.namespace, &scene.name);
    } else {
        hub.stop_drain(&scene.namespace, &scene.name);
    }
    if plan.door != Some(WantDoor::Closed) {
        return false;
    }
    let was_routable = scene.server.status.as_ref().is_some_and(|status| status.was_registered);
    if let Some(want) = scene.want(WantDoor::Closed, was_routable) {
        hub.want(want);
    }
    scene.view.as_ref().is_some_and(|view| view.door.is_open())
}

/// Opens the door, once it is written that it was open.
fn open(shared: &Shared, scene: &Scene, plan: &Plan) {
    if plan.door != Some(WantDoor::Open) {
        return;
    }
    let opens = scene.view.as_ref().is_some_and(|view| !view.door.is_open());
    if let Some(want) = scene.want(WantDoor::Open, true) {
        shared.ctx.hub.want(want);
    }
    if opens {
        wake_stranded(shared, scene);
    }
}

/// Drains that had nowhere to move players to look again when a server opens.
fn wake_stranded(shared: &Shared, scene: &Scene) {
    let stranded = shared.ctx.feeds.servers.within(&scene.namespace, |server| {
        let said = server.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        conditions::get(said, condition::DRAINING)
            .is_some_and(|draining| draining.reason == reason::NO_FALLBACK_AVAILABLE)
    });
    shared.ctx.wake.servers.send_all(stranded.iter().map(|server| ObjectRef::from_obj(server.as_ref())));
}

/// Counts players who were lost, once that is written: a leader that ends in between leaves them out, none counts them
/// twice.
fn lose(shared: &Shared, scene: &Scene, plan: &Plan) {
    let Some(lost) = plan.lost else { return };
    shared.ctx.metrics.lost(lost);
    tracing::warn!(
        namespace = scene.namespace,
        name = scene.name,
        group = scene.server.spec.group_ref.name,
        node = plan.status.node_name,
        players = lost.players,
        cause = lost.cause.as_str(),
        "players were lost"
    );
}

/// Writes the marks on the pod. A pod that went meanwhile needs none.
async fn mark(shared: &Shared, scene: &Scene, plan: &Plan) -> Result<(), Failure> {
    let Some(pod) = scene.pod.here() else { return Ok(()) };
    if let Some(marks) = &plan.marks {
        patch_pod(shared, scene, manager::OCCUPANCY, &seal::marks_patch(marks, &pod.uid), "mark the pod").await?;
    }
    if plan.clear_request {
        patch_pod(shared, scene, manager::SEAL, &seal::clear_request_patch(&pod.uid), "clear the eviction request")
            .await?;
    }
    Ok(())
}

/// `false` when the pod went, or is another one by now.
async fn patch_pod(
    shared: &Shared,
    scene: &Scene,
    writer: &str,
    patch: &Value,
    what: &'static str,
) -> Result<bool, Failure> {
    seal::write(&shared.ctx, &shared.pods, (&scene.namespace, &scene.name), writer, patch, what).await
}

/// Seals the pod. The claim takes the way back away before the API server is asked, and is given up only when it surely
/// refused: after a timeout the seal may have been written, and the door stays shut.
async fn seal(shared: &Shared, scene: &Scene, plan: &Plan, reason: SealReason) -> Result<Done, Failure> {
    let Some(pod) = scene.pod.ours() else { return Ok(Done::Again) };
    let hub = &shared.ctx.hub;
    let uid = PodUid::from(pod.uid.as_str());
    // A pod whose game is dead cannot report that nobody is on it.
    if !hub.claim_seal(&uid, reason != SealReason::Empty || pod.terminal) {
        return Ok(Done::Until(Some(SHORTLY)));
    }
    match patch_pod(shared, scene, manager::SEAL, &seal::seal_patch(reason, &pod.uid), "seal the pod").await {
        Ok(true) => {
            hub.mark_sealed(&uid);
            let cause = plan.memory.cause.map(|cause| format!(" ({})", cause.as_str())).unwrap_or_default();
            let note = format!("nobody gets in any more and the pod may go: {}{cause}", reason.as_str());
            tell(shared, &scene.server, &[Told::normal(event::POD_SEALED, action::SEAL_POD, note)]);
            Ok(Done::Again)
        }
        Ok(false) => {
            hub.abandon_seal(&uid);
            Ok(Done::Until(Some(SHORTLY)))
        }
        Err(error) => {
            if matches!(&error, Failure::Call { source, .. } if !source.retryable()) {
                hub.abandon_seal(&uid);
            }
            Err(error)
        }
    }
}

/// Writes the status where it differs. Where what differs may wait, says until when.
pub(super) async fn write(shared: &Shared, scene: &Scene, plan: &Plan) -> Result<Option<Timestamp>, Failure> {
    let differs_since = scene.memory.unwritten_since.unwrap_or(scene.now);
    let history = History { written: scene.memory.written.or(scene.memory.pod_made), differs_since };
    let keep = |unwritten_since, written| {
        shared.remember(&scene.uid, Memory { written, unwritten_since, ..plan.memory.clone() });
    };
    match status::when(scene.server.status.as_ref(), &plan.status, history, scene.now) {
        Write::Never => {
            keep(None, scene.memory.written);
            return Ok(None);
        }
        Write::At(due) if plan.events.is_empty() => {
            keep(Some(differs_since), scene.memory.written);
            return Ok(Some(due));
        }
        Write::At(_) | Write::Now => {}
    }
    put_status(shared, scene, plan.status.clone()).await?;
    keep(None, Some(scene.now));
    if plan.lost.is_some() {
        shared.remember(&scene.uid, loss::settled(shared.memory(&scene.uid), scene.now));
    }
    Ok(None)
}

/// Writes a status over the state that was looked at: a conflict says that somebody wrote in between.
async fn put_status(shared: &Shared, scene: &Scene, status: ServerStatus) -> Result<(), Failure> {
    let mut server = Server::clone(&scene.server);
    server.metadata.managed_fields = None;
    server.status = Some(status);
    let api: Api<Server> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.namespace);
    let params = PostParams { field_manager: Some(manager::STATUS.to_owned()), ..PostParams::default() };
    match shared.ctx.write(api.replace_status(&scene.name, &params, &server)).await {
        Ok(written) => {
            shared.servers.wrote(written);
            Ok(())
        }
        Err(source) => Err(Failure::Call { what: "write the status", source }),
    }
}

async fn add_finalizer(shared: &Shared, scene: &Scene) -> Result<Done, Failure> {
    let put = finalizers::put_on(&shared.ctx, &shared.servers, scene.server.as_ref(), finalizer::DRAIN).await;
    put.map_err(Failure::call("put the finalizer on"))?;
    Ok(Done::Again)
}

/// Lets the Server go: its pod is gone or going, and nobody is on it.
async fn release(shared: &Shared, scene: &Scene) -> Result<Done, Failure> {
    let ctx = &shared.ctx;
    ctx.hub.stop_drain(&scene.namespace, &scene.name);
    if let Some(want) = scene.want(WantDoor::Closed, true) {
        ctx.hub.want(want);
    }
    let taken = finalizers::take_off(ctx, &shared.servers, scene.server.as_ref(), finalizer::DRAIN).await;
    taken.map_err(Failure::call("take the finalizer off"))?;
    shared.forget(&scene.uid);
    Ok(Done::Until(None))
}

/// Deletes exactly the pod that was judged.
async fn delete_pod(shared: &Shared, scene: &Scene) -> Result<(), Failure> {
    let Some(pod) = scene.pod.here() else { return Ok(()) };
    let api: Api<PodView> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.namespace);
    match shared.ctx.write(api.delete(&scene.name, &exactly(&pod.uid))).await {
        Ok(answer) => {
            // With a grace period the pod is still there, marked.
            answer.map_left(|pod| shared.pods.wrote(pod));
            let note = format!("deleted pod {}", scene.name);
            tell(shared, &scene.server, &[Told::normal(event::POD_DELETED, action::DELETE_POD, note)]);
            Ok(())
        }
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(source) => Err(Failure::Call { what: "delete the pod", source }),
    }
}

/// `true` when the Server is marked now, so that its end can go on at once.
async fn delete_server(shared: &Shared, scene: &Scene) -> Result<bool, Failure> {
    if scene.server.metadata.deletion_timestamp.is_some() {
        return Ok(false);
    }
    let api: Api<Server> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.namespace);
    match shared.ctx.write(api.delete(&scene.name, &exactly(&scene.uid))).await {
        Ok(answer) => Ok(answer.left().map(|server| shared.servers.wrote(server)).is_some()),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(false),
        Err(source) => Err(Failure::Call { what: "delete the Server", source }),
    }
}

fn exactly(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    }
}

/// Reports events of the Server.
pub(super) fn tell(shared: &Shared, server: &Server, events: &[Told]) {
    let regarding: ObjectReference = server.object_ref(&());
    for event in events {
        if event.warning {
            shared.recorder.warning(&regarding, &event.reason, event.action, event.note.as_str());
        } else {
            shared.recorder.normal(&regarding, &event.reason, event.action, event.note.as_str());
        }
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
