//! What server and proxy pods share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapProjection, ConfigMapVolumeSource, ContainerPort, EmptyDirVolumeSource, EnvVar,
    HTTPGetAction, KeyToPath, Lifecycle, LifecycleHandler, PodSpec, ProjectedVolumeSource, SeccompProfile,
    SecretProjection, SecurityContext, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Resource, ResourceExt};
use spawnery_api::inputs;
use spawnery_api::names::{annotation, label, object, port, volume};
use spawnery_api::v1alpha1::{Network, Scheduling};
use spawnery_api::view::Role;
use spawnery_core::pod_hash::PodInputs;

/// When the kubelet first asks whether a game is ready. A probe that fails before the first success costs nothing, and a
/// game that loads in a second need not wait for the twenty that a slow one takes.
pub(super) const FIRST_PROBE_SECONDS: i32 = 2;

/// Labels that every pod of a group carries for its whole life, and that select them.
pub fn selector(network: &str, group: &str, role: Role) -> BTreeMap<String, String> {
    [
        (label::MANAGED_BY, label::MANAGED_BY_VALUE),
        (label::NETWORK, network),
        (label::GROUP, group),
        (label::ROLE, role.as_str()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// The reference that makes `object` the controller of what it owns; none while it has no UID.
pub fn owner<K: Resource<DynamicType = ()>>(object: &K) -> Option<OwnerReference> {
    let mut owner = object.controller_owner_ref(&())?;
    owner.block_owner_deletion = Some(true);
    Some(owner)
}

/// Name, namespace, labels and owner of an object that belongs to `owner`, for server-side apply.
pub(super) fn owned_by<K: Resource<DynamicType = ()>>(of: &K, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: of.meta().namespace.clone(),
        owner_references: owner(of).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The one label of objects that are ours but no pods.
pub(super) fn managed() -> BTreeMap<String, String> {
    BTreeMap::from([(label::MANAGED_BY.to_owned(), label::MANAGED_BY_VALUE.to_owned())])
}

/// Adds to the labels of a pod what it was made from, and says the same in its annotations.
///
/// A new pod is empty until somebody joins, so autoscalers may have it; that saves a write for each pod.
pub(super) fn stamp(meta: &mut ObjectMeta, network: &Network, inputs: &PodInputs) {
    let labels = meta.labels.get_or_insert_default();
    labels.insert(label::POD_HASH.to_owned(), inputs.hash().to_string());
    let secret = network.status.as_ref().map(|status| status.forwarding_secret_hash.as_str()).unwrap_or_default();
    if !secret.is_empty() {
        labels.insert(label::FORWARDING_HASH.to_owned(), secret.to_owned());
    }
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(annotation::SAFE_TO_EVICT.to_owned(), annotation::TRUE.to_owned());
    annotations.insert(annotation::POD_INPUTS.to_owned(), inputs.annotation());
}

pub(super) fn env(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.into()), ..EnvVar::default() }
}

pub(super) fn minecraft_port(host_port: Option<i32>) -> ContainerPort {
    ContainerPort {
        name: Some(port::MINECRAFT_NAME.to_owned()),
        container_port: port::MINECRAFT,
        host_port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// The container may do nothing but run.
pub(super) fn confined() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        ..SecurityContext::default()
    }
}

pub(super) fn runtime_default() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }
}

/// The hook that holds the pod's end up while its players are moved: the agent's, unless the group says that its image has
/// none. Without an agent behind it the connection is refused, and the kubelet goes on at once.
///
/// Not an input of the pod's hash: what is asked of the agent is our business, and no running pod is replaced for it.
pub(super) fn pre_stop<K: Resource>(group: &K, grace_seconds: i64) -> Option<Lifecycle> {
    if group.annotations().get(annotation::PRE_STOP).is_some_and(|value| value == annotation::FALSE) {
        return None;
    }
    let http_get = HTTPGetAction {
        path: Some(format!("{}?graceSeconds={grace_seconds}", port::PRE_STOP_PATH)),
        port: IntOrString::Int(port::PRE_STOP),
        ..HTTPGetAction::default()
    };
    let handler = LifecycleHandler { http_get: Some(http_get), ..LifecycleHandler::default() };
    Some(Lifecycle { pre_stop: Some(handler), ..Lifecycle::default() })
}

/// The volumes that are ours: data, scratch, the agent's credentials, the settings, and the user's overlay.
pub(super) fn volumes(data: Volume, config_map: &str, network: &Network, overlay: Option<&str>) -> Vec<Volume> {
    let agent = vec![
        VolumeProjection {
            service_account_token: Some(ServiceAccountTokenProjection {
                audience: Some(volume::TOKEN_AUDIENCE.to_owned()),
                expiration_seconds: Some(volume::TOKEN_EXPIRATION_SECONDS),
                path: volume::TOKEN_FILE.to_owned(),
            }),
            ..VolumeProjection::default()
        },
        from_config_map(object::CA_CONFIG_MAP, object::CA_KEY),
    ];
    let config = vec![
        from_config_map(config_map, object::CONFIG_KEY),
        VolumeProjection {
            secret: Some(SecretProjection {
                name: network.spec.forwarding_secret_ref.name.clone(),
                items: Some(vec![item(object::FORWARDING_KEY, volume::FORWARDING_FILE)]),
                optional: None,
            }),
            ..VolumeProjection::default()
        },
    ];
    let mut volumes =
        vec![data, scratch(volume::TMP), projected(volume::AGENT, agent), projected(volume::CONFIG, config)];
    volumes.extend(overlay.map(|name| Volume {
        name: volume::OVERLAY.to_owned(),
        config_map: Some(ConfigMapVolumeSource { name: name.to_owned(), ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    }));
    volumes
}

/// Where the volumes that are ours are mounted.
pub(super) fn volume_mounts(overlay: bool) -> Vec<VolumeMount> {
    let mut mounts = vec![
        mount(volume::DATA, volume::DATA_PATH, false),
        mount(volume::TMP, volume::TMP_PATH, false),
        mount(volume::AGENT, volume::AGENT_PATH, true),
        mount(volume::CONFIG, volume::CONFIG_PATH, true),
    ];
    mounts.extend(overlay.then(|| mount(volume::OVERLAY, volume::OVERLAY_PATH, true)));
    mounts
}

pub(super) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// An empty directory that lives as long as the pod.
pub(super) fn scratch(name: &str) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

fn projected(name: &str, sources: Vec<VolumeProjection>) -> Volume {
    let projected = ProjectedVolumeSource { sources: Some(sources), default_mode: None };
    Volume { name: name.to_owned(), projected: Some(projected), ..Volume::default() }
}

fn from_config_map(name: &str, key: &str) -> VolumeProjection {
    let items = Some(vec![item(key, key)]);
    let config_map = Some(ConfigMapProjection { name: name.to_owned(), items, optional: None });
    VolumeProjection { config_map, ..VolumeProjection::default() }
}

fn item(key: &str, path: &str) -> KeyToPath {
    KeyToPath { key: key.to_owned(), path: path.to_owned(), mode: None }
}

/// Fills in where the pod may run and with which credentials it pulls; both can come from the Network.
pub(super) fn place(spec: &mut PodSpec, own: Option<&Scheduling>, network: &Network) {
    if let Some(scheduling) = inputs::effective_scheduling(own, Some(&network.spec)) {
        let Scheduling { node_selector, tolerations, affinity } = scheduling;
        spec.node_selector = (!node_selector.is_empty()).then(|| node_selector.clone());
        spec.tolerations = (!tolerations.is_empty()).then(|| tolerations.clone());
        spec.affinity.clone_from(affinity);
    }
    let secrets: Vec<_> = inputs::pull_secrets(Some(&network.spec)).cloned().collect();
    spec.image_pull_secrets = (!secrets.is_empty()).then_some(secrets);
}

/// The Network's name, for labels and environment.
pub(super) fn network_name(network: &Network) -> String {
    network.name_any()
}
