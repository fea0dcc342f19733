//! Server: one server of a group, and the pod that stands for it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::common::ObjectRef;
use super::schema::is_default;
use crate::conditions;

/// What a Server is to be. Written by the operator: only deleting a Server is for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "spawnery.cloud",
    version = "v1alpha1",
    kind = "Server",
    plural = "servers",
    shortname = "mcsrv",
    namespaced,
    status = "ServerStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "One server of a ServerGroup, made and removed by the group. Deleting one empties it first.",
    printcolumn(name = "Group", type_ = "string", json_path = ".spec.groupRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Players", type_ = "integer", json_path = ".status.players"),
    printcolumn(name = "Slots", type_ = "integer", json_path = ".status.slots"),
    printcolumn(name = "Registered", type_ = "boolean", json_path = ".status.registered"),
    printcolumn(name = "Door", type_ = "string", json_path = ".status.door", priority = 1),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ServerSpec {
    /// The ServerGroup that the Server belongs to.
    pub group_ref: ObjectRef,
    /// Number of the Server in a Persistent group, counted from 0. Unset in Ephemeral groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ordinal: Option<i32>,
    /// Generation of the group, a count of its edits, when the Server was made. 0 when it is not known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub group_generation: i64,
    /// Hash of what the pod is made from, 16 hex digits. Empty takes over whatever runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_hash: String,
    /// Whether the Server is to be replaced once its players have left. Set by the group only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retire: bool,
}

/// What was last seen of a Server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// `Pending`, `Starting`, `Ready`, `Retiring`, `Draining`, `Terminating` or `Failed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Name of the pod that stands for the Server; never reused for another pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_name: String,
    /// Node that the pod was placed on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Number of times that the game's process has ended, by the pod's status. Whoever was on it before an end that is not
    /// counted here yet is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub game_ends: Option<i32>,
    /// Address and port that proxies route to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Number of players, as last reported; 0 when their game has ended since.
    #[serde(default)]
    pub players: i32,
    /// Number of players that it takes, as last reported.
    #[serde(default)]
    pub slots: i32,
    /// When players and slots were last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub players_updated_at: Option<Time>,
    /// Whether proxies route newcomers to it.
    #[serde(default)]
    pub registered: bool,
    /// Whether proxies ever routed to its current pod. If so, nobody knowing who is on it means that somebody may be.
    #[serde(default)]
    pub was_registered: bool,
    /// State of the door: `Open`, `Closing`, `Closed`, `Empty` or `Sealed`. Only a sealed pod may go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// When the pod last began to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Since when it is Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Time>,
    /// When its players were told to move; the drain's deadline counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_started_at: Option<Time>,
    /// Since when it waits to be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retiring_since: Option<Time>,
    /// When it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Time>,
    /// Number of times that it lost its readiness; 3 make it Failed, 10 minutes of being Ready forgive them.
    #[serde(default)]
    pub readiness_losses: i32,
    /// Whether its volume has grown and the pod must start again for the file system to follow.
    #[serde(default, skip_serializing_if = "is_default")]
    pub storage_resize_pending: bool,
    /// Why its volume could not grow.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub storage_resize_error: String,
    /// State of the Server: `Accepted`, `Ready`, `Draining`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::schema")]
    pub conditions: Vec<Condition>,
}
