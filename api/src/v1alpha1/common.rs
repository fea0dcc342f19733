//! Types that several kinds share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, ConfigMapVolumeSource, LocalObjectReference, ResourceRequirements, SecretVolumeSource, Toleration,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectRef {
    /// Name of the object, in the same namespace.
    #[schemars(length(min = 1))]
    pub name: String,
}

impl<T: Into<String>> From<T> for ObjectRef {
    fn from(name: T) -> Self {
        Self { name: name.into() }
    }
}

/// Where pods may run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Affinity and anti-affinity of the pods. When set it replaces the affinity that they get otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
}

/// What every group of a Network inherits unless it says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defaults {
    /// Minecraft version that the images are meant for. For people only: nothing reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minecraft_version: Option<String>,
    /// Secrets with credentials for the registries of the images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Resources of pods whose group sets none. A group that sets some inherits nothing of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Scheduling of pods whose group sets none. A group that sets some inherits nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
}

/// A ConfigMap or Secret that is mounted read-only into each server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("has(self.configMap) != has(self.secret)")
    .message("exactly one of configMap and secret is required"))]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Name of the mount, unique in the group. `data`, `tmp`, `spawnery-agent`, `spawnery-config` and
    /// `spawnery-config-overlay` are taken.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Absolute path in the container. Not `/data` or `/tmp` themselves, and nothing at, above or below
    /// `/var/run/spawnery` and `/etc/spawnery`.
    #[schemars(regex(pattern = r"^/.*"))]
    pub mount_path: String,
    /// The ConfigMap to mount. Exactly one of `configMap` and `secret` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolumeSource>,
    /// The Secret to mount. Exactly one of `configMap` and `secret` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolumeSource>,
}

/// What happens to players who are still there when a drain's deadline passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnDeadline {
    /// They are disconnected.
    #[default]
    Disconnect,
    /// The drain waits until they have left.
    Hold,
}
