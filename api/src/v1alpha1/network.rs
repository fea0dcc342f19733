//! Network: one game network in a namespace.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::common::{Defaults, ObjectRef};
use crate::conditions;

/// What a Network is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "spawnery.cloud",
    version = "v1alpha1",
    kind = "Network",
    plural = "networks",
    shortname = "mcnet",
    namespaced,
    status = "NetworkStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A game network: proxies and servers that trust each other through one forwarding secret. One per namespace.",
    printcolumn(name = "Server Groups", type_ = "integer", json_path = ".status.serverGroups"),
    printcolumn(name = "Players", type_ = "integer", json_path = ".status.onlinePlayers"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSpec {
    /// The Secret whose key `secret` proxies and servers share to recognise each other (Velocity modern forwarding).
    pub forwarding_secret_ref: ObjectRef,
    /// What every group of the Network inherits unless it says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Defaults>,
}

/// What was last seen of a Network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Number of ProxyGroups that reference the Network.
    #[serde(default)]
    pub proxy_groups: i32,
    /// Number of ServerGroups that reference the Network.
    #[serde(default)]
    pub server_groups: i32,
    /// Number of players on all its servers.
    #[serde(default)]
    pub online_players: i32,
    /// First 16 hex digits of a digest of the forwarding secret, empty while it was never read. Pods carry the one that
    /// they started with as a label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = r"^([a-f0-9]{16})?$"))]
    pub forwarding_secret_hash: String,
    /// State of the Network: `Accepted`, `ForwardingSecretResolved`, `ForwardingSecretRotationPending`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::schema")]
    pub conditions: Vec<Condition>,
}
