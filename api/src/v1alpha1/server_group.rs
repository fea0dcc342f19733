//! ServerGroup: equal servers that hold players.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Mount, ObjectRef, OnDeadline, Scheduling};
use crate::conditions;

/// What a ServerGroup is to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "spawnery.cloud",
    version = "v1alpha1",
    kind = "ServerGroup",
    plural = "servergroups",
    shortname = "mcgroup",
    namespaced,
    status = "ServerGroupStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A group of equal servers. Ephemeral groups follow the number of players; Persistent groups keep numbered \
           servers with a volume each.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Players", type_ = "integer", json_path = ".status.onlinePlayers"),
    printcolumn(name = "Free Slots", type_ = "integer", json_path = ".status.freeSlots"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new("self.type == oldSelf.type")
        .message(Message::Expression(
            "'spec.type is immutable: it is ' + oldSelf.type + ' and cannot become ' + self.type".into()))
        .field_path(".type"),
    validation = Rule::new("self.type != 'Ephemeral' || !has(self.storage)")
        .message("spec.storage is only allowed for type Persistent")
        .field_path(".storage")
        .reason(Reason::FieldValueForbidden),
    validation = Rule::new("self.type != 'Ephemeral' || !has(self.replicas)")
        .message("spec.replicas is only allowed for type Persistent; an Ephemeral group is sized by spec.scaling")
        .field_path(".replicas")
        .reason(Reason::FieldValueForbidden),
    validation = Rule::new("self.type != 'Ephemeral' || has(self.scaling)")
        .message("spec.scaling is required for type Ephemeral")
        .field_path(".scaling")
        .reason(Reason::FieldValueRequired),
    validation = Rule::new("self.type != 'Persistent' || !has(self.scaling)")
        .message("spec.scaling is only allowed for type Ephemeral; a Persistent group is sized by spec.replicas")
        .field_path(".scaling")
        .reason(Reason::FieldValueForbidden),
    validation = Rule::new("self.type != 'Persistent' || !has(self.update)")
        .message("spec.update is only allowed for type Ephemeral")
        .field_path(".update")
        .reason(Reason::FieldValueForbidden),
    validation = Rule::new("self.type != 'Persistent' || has(self.storage)")
        .message("spec.storage is required for type Persistent")
        .field_path(".storage")
        .reason(Reason::FieldValueRequired),
    validation = Rule::new("self.type != 'Persistent' || has(self.replicas)")
        .message("spec.replicas is required for type Persistent")
        .field_path(".replicas")
        .reason(Reason::FieldValueRequired),
)]
#[serde(rename_all = "camelCase")]
pub struct ServerGroupSpec {
    /// The Network that the group belongs to.
    pub network_ref: ObjectRef,
    /// `Ephemeral`: servers come and go with the players. `Persistent`: numbered servers, each with its own volume.
    /// Cannot be changed.
    #[serde(rename = "type")]
    pub kind: ServerGroupType,
    /// Image of the server.
    #[schemars(length(min = 1))]
    pub image: String,
    /// Number of players that one server takes, at least 1.
    #[schemars(range(min = 1))]
    pub max_players: i32,
    /// Number of servers to keep, at least 0. Required for type Persistent, not allowed otherwise. 0 parks the group:
    /// its volumes stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Resources of each server. When set, the Network's default resources do not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Where the pods may run. When set, the Network's default scheduling does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// ConfigMaps and Secrets that are mounted read-only into each server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub mounts: Vec<Mount>,
    /// A ConfigMap whose keys are names of config files, which are laid over the generated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_overlay: Option<ObjectRef>,
    /// How many servers an Ephemeral group has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// How an Ephemeral group replaces servers after an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Update>,
    /// The volume of each server of a Persistent group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// How servers are emptied before they go.
    #[serde(default)]
    pub drain: ServerDrain,
    /// Seconds that a server has to shut down after it was told to, at least 1. Default 60. Then it is killed.
    #[serde(default = "termination_grace")]
    #[schemars(range(min = 1))]
    pub termination_grace_period_seconds: i64,
    /// Seconds that a Failed server is kept as evidence, at least 0. Default 3600. Then it is removed.
    #[serde(default = "failed_retention")]
    #[schemars(range(min = 0))]
    pub failed_retention_seconds: i32,
}

/// The two kinds of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ServerGroupType {
    /// Servers come and go with the players.
    #[default]
    Ephemeral,
    /// Numbered servers, each with its own volume.
    Persistent,
}

/// How many servers an Ephemeral group has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("self.minReplicas <= self.maxReplicas")
    .message("scaling.minReplicas must not be larger than scaling.maxReplicas")
    .field_path(".minReplicas"))]
#[serde(rename_all = "camelCase")]
pub struct Scaling {
    /// Number of servers to keep even when nobody plays, at least 0.
    #[schemars(range(min = 0))]
    pub min_replicas: i32,
    /// Number of servers never to exceed, at least 1 and not below `minReplicas`.
    #[schemars(range(min = 1))]
    pub max_replicas: i32,
    /// Number of free slots to keep ahead of the players, at least 0. A server is added whenever fewer are free.
    #[schemars(range(min = 0))]
    pub spare_slots: i32,
    /// Seconds that a server must have been empty before it is removed as surplus, at least 0. Default 300.
    #[serde(default = "scale_down_stabilization")]
    #[schemars(range(min = 0))]
    pub scale_down_stabilization_seconds: i32,
}

/// How an Ephemeral group replaces servers after an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// Number of servers that may be on their way out because of an update, at least 1. Default 1.
    #[serde(default = "max_unavailable")]
    #[schemars(range(min = 1))]
    pub max_unavailable: i32,
    /// Seconds after which players are moved off a server that waits to be replaced, at least 0. Default 0: they may
    /// finish, however long it takes.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub max_stale_seconds: i32,
}

impl Default for Update {
    fn default() -> Self {
        Self { max_unavailable: max_unavailable(), max_stale_seconds: 0 }
    }
}

/// The volume of each server of a Persistent group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0")
        .message(Message::Expression(
            "'storage.size must not shrink: it is ' + string(oldSelf.size) + ', and ' + string(self.size) + ' is less'"
                .into()))
        .field_path(".size"),
    validation = Rule::new("has(self.storageClassName) == has(oldSelf.storageClassName) && \
        (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)")
        .message("storage.storageClassName is immutable: it can be neither changed, set later nor removed")
        .field_path(".storageClassName"),
    validation = Rule::new("self.accessModes == oldSelf.accessModes")
        .message("storage.accessModes is immutable")
        .field_path(".accessModes"),
)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of the volume in bytes, such as `10Gi`. It can grow, not shrink.
    #[schemars(schema_with = "super::schema::quantity")]
    pub size: Quantity,
    /// Storage class of the volume. Unset means the cluster's default. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Access modes of the volume, `ReadWriteOnce` unless set. Cannot be changed.
    #[serde(default = "access_modes")]
    pub access_modes: Vec<String>,
}

impl Default for Storage {
    fn default() -> Self {
        Self { size: Quantity::default(), storage_class_name: None, access_modes: access_modes() }
    }
}

/// How servers are emptied before they go: closed to newcomers at once, then players are moved to a fallback group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerDrain {
    /// Seconds that players have to be gone, counted from when they are told to move, at least 1. Default 60. The clock
    /// stands still while no fallback server could take them. Then `onDeadline` decides.
    #[schemars(range(min = 1))]
    pub timeout_seconds: i32,
    /// Seconds that players may go on playing before they are told to move, at least 0. Default 0: at once.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub move_after_seconds: i32,
    /// What happens to players who are left after `timeoutSeconds`: `Disconnect` them (default), or `Hold` the server
    /// until they have left.
    #[serde(default)]
    pub on_deadline: OnDeadline,
}

impl Default for ServerDrain {
    fn default() -> Self {
        Self { timeout_seconds: 60, move_after_seconds: 0, on_deadline: OnDeadline::Disconnect }
    }
}

impl Default for ServerGroupSpec {
    fn default() -> Self {
        Self {
            network_ref: ObjectRef::default(),
            kind: ServerGroupType::Ephemeral,
            image: String::new(),
            max_players: 1,
            replicas: None,
            resources: None,
            scheduling: None,
            mounts: Vec::new(),
            config_overlay: None,
            scaling: None,
            update: None,
            storage: None,
            drain: ServerDrain::default(),
            termination_grace_period_seconds: termination_grace(),
            failed_retention_seconds: failed_retention(),
        }
    }
}

/// What was last seen of a ServerGroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerGroupStatus {
    /// `Pending`, `Ready` (as many servers are ready as wanted) or `Degraded` (somebody is needed).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Number of Servers of the group.
    #[serde(default)]
    pub replicas: i32,
    /// Number of Servers that are Ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Number of players on all servers of the group.
    #[serde(default)]
    pub online_players: i32,
    /// Number of slots that are free on Ready servers of the current generation.
    #[serde(default)]
    pub free_slots: i32,
    /// Generation of the spec that this status belongs to, a count of edits.
    #[serde(default, skip_serializing_if = "super::schema::is_default")]
    pub observed_generation: i64,
    /// Number of attempts to start servers that failed one after the other, before any server took players; an edit sets it
    /// to zero.
    #[serde(default, skip_serializing_if = "super::schema::is_default")]
    pub consecutive_failures: i32,
    /// When the last of them failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure_at: Option<Time>,
    /// State of the group: `Accepted`, `NodeDraining`, `ScalingLimited`, `BackingOff`, `Degraded` and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::schema")]
    pub conditions: Vec<Condition>,
}

fn termination_grace() -> i64 {
    60
}

fn failed_retention() -> i32 {
    3600
}

fn scale_down_stabilization() -> i32 {
    300
}

fn max_unavailable() -> i32 {
    1
}

fn access_modes() -> Vec<String> {
    vec!["ReadWriteOnce".to_owned()]
}
