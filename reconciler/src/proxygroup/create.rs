//! Makes proxy pods.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use spawnery_api::names::{generated_name, manager};
use spawnery_core::expectations::Kind;
use spawnery_core::ledger::Role;

use super::Shared;
use super::look::Scene;
use crate::failure::{self, Failure};
use crate::{bootstrap, render};

/// Whether the API server refuses the pods, for what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    No,
    /// The status has to say so.
    ForTheFirstTime,
    /// The status says so.
    Again,
}

/// Makes so many pods. A name that is taken by chance is no failure: the next pass makes what is missing.
pub(super) async fn create(shared: &Shared, scene: &Scene, count: u32) -> Result<Refused, Failure> {
    let ctx = &shared.ctx;
    let (Some(network), Some(inputs)) = (&scene.network, &scene.inputs) else { return Ok(Refused::No) };
    if count == 0 {
        accept(shared, scene);
        return Ok(Refused::No);
    }
    bootstrap::ensure(ctx, &scene.namespace).await.map_err(Failure::Bootstrap)?;
    let api: Api<Pod> = Api::namespaced(ctx.clients.api.clone(), &scene.namespace);
    let params = PostParams { field_manager: Some(manager::RECONCILER.to_owned()), ..PostParams::default() };
    for _ in 0..count {
        let name = generated_name(&scene.name, rand::random());
        let pod = render::proxy_pod(&render::ProxyPod {
            name: &name,
            group: &scene.observed.group,
            network,
            inputs,
            endpoint: &ctx.config.agent_endpoint,
        });
        let pod = ctx.config.placement.of(Role::Proxy, pod.map_err(Failure::Render)?);
        shared.expectations.lock().expect(scene.uid.clone(), &name, Kind::Create, ctx.now());
        match ctx.write(api.create(&params, &pod)).await {
            Ok(_) => accept(shared, scene),
            Err(error) => {
                if !error.retryable() || error.is_already_exists() {
                    shared.expectations.lock().retract(&scene.uid, &name);
                }
                if error.is_forbidden() || error.is_invalid() {
                    return Ok(refuse(shared, scene, failure::said(&error)));
                }
                if !error.is_already_exists() {
                    return Err(Failure::Call { what: "make a pod", source: error });
                }
            }
        }
    }
    Ok(Refused::No)
}

/// No pod is refused any more.
fn accept(shared: &Shared, scene: &Scene) {
    if scene.observed.memory.rejected.is_some() {
        shared.memories.update_group(&scene.uid, |memory| memory.rejected = None);
    }
}

fn refuse(shared: &Shared, scene: &Scene, message: String) -> Refused {
    tracing::warn!(
        namespace = scene.namespace,
        name = scene.name,
        error = message,
        "the API server refuses a proxy pod"
    );
    let generation = scene.observed.group.metadata.generation.unwrap_or_default();
    let known = scene.observed.memory.rejected.as_ref().is_some_and(|(of, _)| *of == generation);
    shared.memories.update_group(&scene.uid, |memory| memory.rejected = Some((generation, message)));
    if known { Refused::Again } else { Refused::ForTheFirstTime }
}
