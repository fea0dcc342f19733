//! Pods of proxies.

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodSecurityContext, PodSpec, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use spawnery_api::inputs;
use spawnery_api::names::{container, env, object, port, volume};
use spawnery_api::v1alpha1::{ExposeType, Network, ProxyGroup};
use spawnery_api::view::Role;
use spawnery_core::pod_hash::PodInputs;

use super::{RenderError, parts};

/// What a proxy pod is made from.
#[derive(Clone, Copy, Debug)]
pub struct ProxyPod<'a> {
    /// Name of the pod.
    pub name: &'a str,
    /// Its group.
    pub group: &'a ProxyGroup,
    /// The group's Network.
    pub network: &'a Network,
    /// What the group's pods are made from, by [`spawnery_api::inputs::proxy`] of these specs.
    pub inputs: &'a PodInputs,
    /// `HOST:PORT` of the agent channel.
    pub endpoint: &'a str,
}

/// A pod of a ProxyGroup.
///
/// # Errors
/// When no pod can be made from the spec.
pub fn proxy_pod(request: &ProxyPod<'_>) -> Result<Pod, RenderError> {
    let ProxyPod { name, group, network, inputs, endpoint } = *request;
    if group.spec.image.is_empty() {
        return Err(RenderError::NoImage);
    }
    if endpoint.is_empty() {
        return Err(RenderError::NoEndpoint);
    }
    let mut metadata = ObjectMeta {
        labels: Some(parts::selector(&parts::network_name(network), &group.name_any(), Role::Proxy)),
        ..parts::owned_by(group, name.to_owned())
    };
    parts::stamp(&mut metadata, network, inputs);
    Ok(Pod { metadata, spec: Some(spec(name, group, network, endpoint)), status: None })
}

fn spec(name: &str, group: &ProxyGroup, network: &Network, endpoint: &str) -> PodSpec {
    let overlay = group.spec.config_overlay.as_ref().map(|overlay| overlay.name.as_str());
    let config = object::proxy_config(&group.name_any());
    let expose = &group.spec.expose;
    let host_port =
        (expose.kind == ExposeType::HostPort).then(|| expose.host_port.as_ref().map(|block| block.port)).flatten();
    let ready = ContainerPort {
        name: Some(port::READY_NAME.to_owned()),
        container_port: port::READY,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let container = Container {
        name: container::PROXY.to_owned(),
        image: Some(group.spec.image.clone()),
        env: Some(vec![
            parts::env(env::NETWORK, parts::network_name(network)),
            parts::env(env::GROUP, group.name_any()),
            parts::env(env::PROXY, name),
            parts::env(env::PLAYER_LIMIT, group.spec.player_limit().to_string()),
            parts::env(env::FALLBACK_GROUPS, group.spec.routing.fallback_groups.join(",")),
            parts::env(env::OPERATOR_ENDPOINT, endpoint),
        ]),
        ports: Some(vec![parts::minecraft_port(host_port), ready]),
        readiness_probe: Some(Probe {
            tcp_socket: Some(TCPSocketAction { port: IntOrString::Int(port::READY), host: None }),
            initial_delay_seconds: Some(parts::FIRST_PROBE_SECONDS),
            period_seconds: Some(5),
            timeout_seconds: Some(3),
            failure_threshold: Some(3),
            ..Probe::default()
        }),
        lifecycle: parts::pre_stop(group, i64::from(group.spec.drain.timeout_seconds)),
        resources: inputs::effective_resources(group.spec.resources.as_ref(), Some(&network.spec)).cloned(),
        security_context: Some(parts::confined()),
        volume_mounts: Some(parts::volume_mounts(overlay.is_some())),
        ..Container::default()
    };
    let mut spec = PodSpec {
        containers: vec![container],
        volumes: Some(parts::volumes(parts::scratch(volume::DATA), &config, network, overlay)),
        service_account_name: Some(object::PROXY_SERVICE_ACCOUNT.to_owned()),
        automount_service_account_token: Some(false),
        restart_policy: Some("Always".to_owned()),
        termination_grace_period_seconds: Some(i64::from(group.spec.drain.timeout_seconds)),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(parts::runtime_default()),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    };
    parts::place(&mut spec, group.spec.scheduling.as_ref(), network);
    spec
}

#[cfg(test)]
mod tests;
