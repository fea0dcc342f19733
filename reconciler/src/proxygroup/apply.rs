//! Carries a ProxyGroup's plan out.
//!
//! Marks come first, because others read them before they remove a pod. A door is closed before anything is written about
//! it; a pod is deleted only when its seal is written.

use std::time::Duration;

use futures::future::try_join_all;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Resource};
use serde_json::{Value, json};
use spawnery_api::names::event::{self, action};
use spawnery_api::names::{annotation, finalizer, manager};
use spawnery_api::v1alpha1::ProxyGroup;
use spawnery_api::view::PodView;
use spawnery_core::expectations::Kind;
use spawnery_core::ledger::PodUid;
use spawnery_core::occupancy::SealReason;

use super::look::Scene;
use super::objects;
use super::plan::{Door, Finalizer, Plan, PodId, Since, Told};
use super::status::{self, Write};
use super::{Shared, create};
use crate::failure::Failure;
use crate::objects::{Kept, LATER};
use crate::pass::Done;
use crate::{finalizers, seal};

/// Carries a plan out, or a first part of it.
pub(super) async fn apply(shared: &Shared, scene: &Scene, plan: Plan) -> Result<Done, Failure> {
    match plan.finalizer {
        Finalizer::Keep => {}
        Finalizer::Add => return add_finalizer(shared, scene).await,
        Finalizer::Release => return release(shared, scene).await,
    }
    let marked = plan.marks.iter().map(|(pod, marks)| async move {
        patch_pod(shared, scene, pod, manager::OCCUPANCY, &seal::marks_patch(marks, &pod.uid), "mark a pod").await
    });
    try_join_all(marked).await?;
    doors(shared, scene, &plan.doors).await?;
    for pod in &plan.expired {
        let patch = seal::clear_request_patch(&pod.uid);
        patch_pod(shared, scene, pod, manager::SEAL, &patch, "clear an eviction request").await?;
    }
    // Nothing of what follows may wait for an object that somebody refuses: players leave, and pods go, all the same.
    let deleting = scene.observed.deleting();
    let (whole, kept) = if deleting { (false, Kept::default()) } else { objects::keep(shared, scene).await };
    let mut sealed = false;
    for (pod, reason) in &plan.seals {
        sealed |= seal_pod(shared, scene, pod, *reason).await?;
    }
    for pod in &plan.removals {
        remove(shared, scene, pod).await?;
    }
    let created = create::create(shared, scene, if whole { plan.create } else { 0 }).await;
    let due = write(shared, scene, &plan).await?;
    tell(shared, scene, &plan.events);
    // Only now, so that a pod that cannot be made hides nothing.
    let refused = created?;
    if sealed || kept.news || refused == create::Refused::ForTheFirstTime {
        return Ok(Done::Again);
    }
    if let Some(failure) = kept.failure {
        return Err(failure);
    }
    let later = (kept.refused || refused == create::Refused::Again).then_some(LATER);
    Ok(Done::Until([plan.wake, due, later].into_iter().flatten().min()))
}

/// Closing comes before its annotation, opening after it: what is written is never more open than the door.
async fn doors(shared: &Shared, scene: &Scene, doors: &[Door]) -> Result<(), Failure> {
    for Door { pod, open, since } in doors {
        let uid = PodUid::from(pod.uid.as_str());
        if !*open {
            shared.ctx.hub.set_ready(&uid, false);
        }
        if let Some(since) = since {
            let value = match since {
                Since::Written(at) => json!(status::second(*at).to_string()),
                Since::Removed => Value::Null,
            };
            let patch = json!({"metadata": {"uid": pod.uid, "annotations": {annotation::DRAINING_SINCE: value}}});
            patch_pod(shared, scene, pod, manager::SEAL, &patch, "note since when a door closes").await?;
        }
        if *open {
            shared.ctx.hub.set_ready(&uid, true);
        }
    }
    Ok(())
}

/// Seals a pod; says whether it is sealed. The claim takes the way back away before the API server is asked, and is given
/// up only when it surely refused: after a timeout the seal may have been written, and the door stays shut.
async fn seal_pod(shared: &Shared, scene: &Scene, pod: &PodId, reason: SealReason) -> Result<bool, Failure> {
    let hub = &shared.ctx.hub;
    let uid = PodUid::from(pod.uid.as_str());
    if !hub.claim_seal(&uid, reason != SealReason::Empty) {
        return Ok(false);
    }
    match patch_pod(shared, scene, pod, manager::SEAL, &seal::seal_patch(reason, &pod.uid), "seal a pod").await {
        Ok(true) => {
            hub.mark_sealed(&uid);
            let note = format!("proxy {} takes nobody in any more and may go: {}", pod.name, reason.as_str());
            tell(shared, scene, &[Told { warning: false, reason: event::POD_SEALED, action: action::SEAL_POD, note }]);
            Ok(true)
        }
        Ok(false) => {
            hub.abandon_seal(&uid);
            Ok(false)
        }
        Err(error) => {
            if matches!(&error, Failure::Call { source, .. } if !source.retryable()) {
                hub.abandon_seal(&uid);
            }
            Err(error)
        }
    }
}

/// Deletes a pod with the grace that the spec gives it now.
async fn remove(shared: &Shared, scene: &Scene, pod: &PodId) -> Result<(), Failure> {
    let api: Api<PodView> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.namespace);
    let grace = u32::try_from(scene.observed.group.spec.drain.timeout_seconds).unwrap_or_default();
    let params = DeleteParams::default()
        .grace_period(grace)
        .preconditions(Preconditions { uid: Some(pod.uid.clone()), resource_version: None });
    shared.expectations.lock().expect(scene.uid.clone(), &pod.name, Kind::Delete, shared.ctx.now());
    match shared.ctx.write(api.delete(&pod.name, &params)).await {
        Ok(_) => {
            shared.memories.forget_pod(&pod.uid);
            Ok(())
        }
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(source) => Err(Failure::Call { what: "delete a pod", source }),
    }
}

/// `false` when the pod went, or is another one by now.
async fn patch_pod(
    shared: &Shared,
    scene: &Scene,
    pod: &PodId,
    writer: &str,
    patch: &Value,
    what: &'static str,
) -> Result<bool, Failure> {
    seal::write(&shared.ctx, &shared.pods, (&scene.namespace, &pod.name), writer, patch, what).await
}

/// Writes the status where it differs. Where what differs may wait, says how long.
async fn write(shared: &Shared, scene: &Scene, plan: &Plan) -> Result<Option<Duration>, Failure> {
    let (group, now) = (&scene.observed.group, scene.observed.now);
    let due = status::when(group.status.as_ref(), &plan.status, scene.observed.memory.written, now);
    match due {
        Write::Never => return Ok(None),
        Write::After(wait) => return Ok(Some(wait)),
        Write::Now => {}
    }
    let mut next = ProxyGroup::clone(group);
    next.metadata.managed_fields = None;
    next.status = Some(plan.status.clone());
    let api: Api<ProxyGroup> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.namespace);
    let params = PostParams { field_manager: Some(manager::STATUS.to_owned()), ..PostParams::default() };
    let written = shared.ctx.write(api.replace_status(&scene.name, &params, &next)).await;
    shared.groups.wrote(written.map_err(Failure::call("write the status"))?);
    shared.memories.update_group(&scene.uid, |memory| memory.written = Some(now));
    Ok(None)
}

fn tell(shared: &Shared, scene: &Scene, events: &[Told]) {
    let regarding = scene.observed.group.object_ref(&());
    for Told { warning, reason, action, note } in events {
        if *warning {
            shared.recorder.warning(&regarding, reason, action, note.clone());
        } else {
            shared.recorder.normal(&regarding, reason, action, note.clone());
        }
    }
}

async fn add_finalizer(shared: &Shared, scene: &Scene) -> Result<Done, Failure> {
    let group = scene.observed.group.as_ref();
    let put = finalizers::put_on(&shared.ctx, &shared.groups, group, finalizer::GROUP).await;
    put.map_err(Failure::call("put the finalizer on"))?;
    Ok(Done::Again)
}

/// Lets the group go: its pods are gone.
async fn release(shared: &Shared, scene: &Scene) -> Result<Done, Failure> {
    let group = scene.observed.group.as_ref();
    let taken = finalizers::take_off(&shared.ctx, &shared.groups, group, finalizer::GROUP).await;
    taken.map_err(Failure::call("take the finalizer off"))?;
    shared.expectations.lock().forget(&scene.uid);
    shared.memories.forget_group(&scene.uid);
    shared.groups.forget(&scene.uid);
    Ok(Done::Until(None))
}

#[cfg(test)]
mod tests;
