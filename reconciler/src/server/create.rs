//! Makes a Server's pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use spawnery_api::conditions::{self, Desired};
use spawnery_api::inputs;
use spawnery_api::names::condition::{self, reason};
use spawnery_api::names::event::{self, action};
use spawnery_api::names::manager;
use spawnery_api::view::PodView;
use spawnery_core::ledger::Role;

use super::Shared;
use super::apply::{tell, write};
use super::look::Scene;
use super::observed::{Memory, PodSight};
use super::plan::{Plan, Told, stamp};
use crate::failure::Failure;
use crate::pass::{Done, SHORTLY};
use crate::{bootstrap, render};

/// How soon to try again what somebody has to set right.
const LATER: Duration = Duration::from_secs(30);

/// Makes the pod, or says on the Server why it could not be.
pub(super) async fn create(shared: &Shared, scene: &Scene, plan: &Plan) -> Result<Done, Failure> {
    let ctx = &shared.ctx;
    let Some(group) = &scene.group else { return Ok(Done::Until(None)) };
    let Some(network) = ctx.feeds.networks.get(&scene.namespace, &group.spec.network_ref.name) else {
        return Ok(Done::Until(None));
    };
    if let Err(error) = bootstrap::ensure(ctx, &scene.namespace).await {
        let message = format!("the namespace is not ready for pods: {error}");
        refuse(shared, scene, plan, reason::NAMESPACE_NOT_BOOTSTRAPPED, &message).await?;
        return Err(Failure::Bootstrap(error));
    }
    let overlay = shared.overlays.digest(ctx, &scene.namespace, group.spec.config_overlay.as_ref()).await;
    let overlay = overlay.map_err(Failure::call("read the overlay"))?;
    let inputs = inputs::server(&group.spec, Some(&network.spec), overlay).map_err(Failure::Inputs)?;
    let request = render::ServerPod {
        server: &scene.server,
        group,
        network: &network,
        inputs: &inputs,
        endpoint: &ctx.config.agent_endpoint,
    };
    let pod = match render::server_pod(&request) {
        Ok(pod) => ctx.config.placement.of(Role::Server, pod),
        Err(error) => {
            refuse(shared, scene, plan, reason::INVALID_SPEC, &error.to_string()).await?;
            return Err(Failure::Render(error));
        }
    };
    let api: Api<Pod> = Api::namespaced(ctx.clients.api.clone(), &scene.namespace);
    let params = PostParams { field_manager: Some(manager::RECONCILER.to_owned()), ..PostParams::default() };
    match ctx.write(api.create(&params, &pod)).await {
        Ok(_) => {
            shared.remember(&scene.uid, Memory { pod_made: Some(scene.now), ..plan.memory.clone() });
            let note = format!("made pod {}", scene.name);
            tell(shared, &scene.server, &[Told::normal(event::POD_CREATED, action::CREATE_POD, note)]);
            Ok(Done::Until(None))
        }
        Err(error) if error.is_already_exists() => occupied_name(shared, scene, plan).await,
        Err(error) if error.is_forbidden() || error.is_invalid() => {
            let message = format!("the API server refuses the pod: {error}");
            refuse(shared, scene, plan, reason::POD_REJECTED, &message).await?;
            tracing::warn!(
                namespace = scene.namespace,
                name = scene.name,
                error = &error as &dyn std::error::Error,
                "the API server refuses the pod"
            );
            Ok(Done::Until(Some(LATER)))
        }
        Err(source) => Err(Failure::Call { what: "make the pod", source }),
    }
}

/// There is a pod of that name which our cache does not show: it lags, or the pod is not labelled as ours.
async fn occupied_name(shared: &Shared, scene: &Scene, plan: &Plan) -> Result<Done, Failure> {
    let api: Api<PodView> = Api::namespaced(shared.ctx.clients.api.clone(), &scene.namespace);
    let found =
        shared.ctx.read(api.get_opt(&scene.name)).await.map_err(Failure::call("look at the pod of that name"))?;
    let reason = match PodSight::of(&scene.server, found.as_ref(), scene.now) {
        PodSight::Absent | PodSight::Here(_) => return Ok(Done::Until(Some(SHORTLY))),
        PodSight::Going(_) | PodSight::Foreign { going: true } => reason::POD_NAME_TERMINATING,
        PodSight::Foreign { going: false } => reason::POD_NAME_CONFLICT,
    };
    refuse(shared, scene, plan, reason, &format!("pod {} belongs to somebody else", scene.name)).await?;
    Ok(Done::Until(Some(Duration::from_secs(5))))
}

/// Writes on the Server why it has no pod, and tells of it once.
async fn refuse(
    shared: &Shared,
    scene: &Scene,
    plan: &Plan,
    reason: &'static str,
    message: &str,
) -> Result<(), Failure> {
    let mut plan = plan.clone();
    plan.status = scene.server.status.clone().unwrap_or_default();
    let desired =
        Desired::new(condition::ACCEPTED, false, reason).message(message).generation(scene.server.metadata.generation);
    if conditions::set(&mut plan.status.conditions, desired, stamp(scene.now)).changed() {
        let action = if reason == reason::POD_NAME_CONFLICT { action::ADOPT_POD } else { action::CREATE_POD };
        plan.events = vec![Told::warning(reason, action, message)];
        write(shared, scene, &plan).await?;
        tell(shared, &scene.server, &plan.events);
    }
    Ok(())
}
