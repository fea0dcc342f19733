//! Pods of servers.

use k8s_openapi::api::core::v1::{
    Container, ExecAction, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, Probe, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use spawnery_api::inputs;
use spawnery_api::names::{container, env, label, object, volume};
use spawnery_api::v1alpha1::{Network, Server, ServerGroup, ServerGroupType};
use spawnery_api::view::Role;
use spawnery_core::pod_hash::PodInputs;

use super::{RenderError, mounts, parts};

/// Group that owns the files of the game in its image.
const GAME_GROUP: i64 = 10001;
/// Asks the game for its server list entry, exits 0 when it answers.
const PING: [&str; 5] = ["/usr/local/bin/spawnery-slp", "--host", "127.0.0.1", "--port", "25565"];

/// What a server pod is made from.
#[derive(Clone, Copy, Debug)]
pub struct ServerPod<'a> {
    /// The Server that the pod stands for; the pod has its name.
    pub server: &'a Server,
    /// Its group.
    pub group: &'a ServerGroup,
    /// The group's Network.
    pub network: &'a Network,
    /// What the group's pods are made from, by [`spawnery_api::inputs::server`] of these specs.
    pub inputs: &'a PodInputs,
    /// `HOST:PORT` of the agent channel.
    pub endpoint: &'a str,
}

/// The pod of a Server.
///
/// # Errors
/// When no pod can be made from the spec.
pub fn server_pod(request: &ServerPod<'_>) -> Result<Pod, RenderError> {
    let ServerPod { server, group, network, inputs, endpoint } = *request;
    if group.spec.image.is_empty() {
        return Err(RenderError::NoImage);
    }
    if endpoint.is_empty() {
        return Err(RenderError::NoEndpoint);
    }
    let refused = mounts::refused_mounts(&group.spec.mounts);
    if !refused.is_empty() {
        return Err(RenderError::Mounts(refused));
    }
    let name = server.name_any();
    let mut metadata = ObjectMeta {
        labels: Some(parts::selector(&parts::network_name(network), &group.name_any(), Role::Server)),
        ..parts::owned_by(server, name.clone())
    };
    metadata.labels.get_or_insert_default().insert(label::SERVER.to_owned(), name);
    parts::stamp(&mut metadata, network, inputs);
    Ok(Pod { metadata, spec: Some(spec(server, group, network, endpoint)), status: None })
}

fn spec(server: &Server, group: &ServerGroup, network: &Network, endpoint: &str) -> PodSpec {
    let overlay = group.spec.config_overlay.as_ref().map(|overlay| overlay.name.as_str());
    let config = object::server_config(&group.name_any());
    let mut volumes = parts::volumes(data(server, group), &config, network, overlay);
    volumes.extend(group.spec.mounts.iter().map(|mount| Volume {
        name: mount.name.clone(),
        config_map: mount.config_map.clone(),
        secret: mount.secret.clone(),
        ..Volume::default()
    }));
    let mut volume_mounts = parts::volume_mounts(overlay.is_some());
    volume_mounts.extend(group.spec.mounts.iter().map(|mount| parts::mount(&mount.name, &mount.mount_path, true)));
    let container = Container {
        name: container::SERVER.to_owned(),
        image: Some(group.spec.image.clone()),
        env: Some(vec![
            parts::env(env::NETWORK, parts::network_name(network)),
            parts::env(env::GROUP, group.name_any()),
            parts::env(env::SERVER, server.name_any()),
            parts::env(env::OPERATOR_ENDPOINT, endpoint),
        ]),
        ports: Some(vec![parts::minecraft_port(None)]),
        readiness_probe: Some(Probe {
            exec: Some(ExecAction { command: Some(PING.map(str::to_owned).to_vec()) }),
            initial_delay_seconds: Some(parts::FIRST_PROBE_SECONDS),
            period_seconds: Some(5),
            timeout_seconds: Some(5),
            failure_threshold: Some(3),
            ..Probe::default()
        }),
        lifecycle: parts::pre_stop(group, group.spec.termination_grace_period_seconds),
        resources: inputs::effective_resources(group.spec.resources.as_ref(), Some(&network.spec)).cloned(),
        security_context: Some(parts::confined()),
        volume_mounts: Some(volume_mounts),
        ..Container::default()
    };
    let mut spec = PodSpec {
        containers: vec![container],
        volumes: Some(volumes),
        service_account_name: Some(object::SERVER_SERVICE_ACCOUNT.to_owned()),
        automount_service_account_token: Some(false),
        restart_policy: Some("Always".to_owned()),
        termination_grace_period_seconds: Some(group.spec.termination_grace_period_seconds),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(parts::runtime_default()),
            fs_group: Some(GAME_GROUP),
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    };
    parts::place(&mut spec, group.spec.scheduling.as_ref(), network);
    spec
}

/// Where the world lives: with the pod, or on the Server's own claim, which outlives it.
fn data(server: &Server, group: &ServerGroup) -> Volume {
    match group.spec.kind {
        ServerGroupType::Ephemeral => parts::scratch(volume::DATA),
        ServerGroupType::Persistent => Volume {
            name: volume::DATA.to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: object::claim(&server.name_any()),
                read_only: None,
            }),
            ..Volume::default()
        },
    }
}

#[cfg(test)]
mod tests;
