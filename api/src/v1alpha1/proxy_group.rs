//! ProxyGroup: pods that players connect to and that route them to servers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ObjectRef, OnDeadline, Scheduling};
use crate::conditions;

/// Players that one proxy takes when the group does not say.
pub const DEFAULT_PLAYER_LIMIT: i32 = 500;

/// What a ProxyGroup is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "spawnery.cloud",
    version = "v1alpha1",
    kind = "ProxyGroup",
    plural = "proxygroups",
    shortname = "mcproxy",
    namespaced,
    status = "ProxyGroupStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A group of equal proxy pods, their Service and the servers that they route to.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Players", type_ = "integer", json_path = ".status.connectedPlayers"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("self.networkRef == oldSelf.networkRef")
    .message(Message::Expression(
        "'spec.networkRef is immutable: it is ' + oldSelf.networkRef.name + ' and cannot become ' + self.networkRef.name"
            .into()))
    .field_path(".networkRef"))]
#[serde(rename_all = "camelCase")]
pub struct ProxyGroupSpec {
    /// The Network that the group belongs to. Cannot be changed.
    pub network_ref: ObjectRef,
    /// Number of proxy pods to keep, at least 1. A changed number rolls nothing.
    #[schemars(range(min = 1))]
    pub replicas: i32,
    /// Image of the proxy.
    #[schemars(length(min = 1))]
    pub image: String,
    /// Resources of each proxy. When set, the Network's default resources do not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Where the pods may run. When set, the Network's default scheduling does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// How players reach the proxies.
    pub expose: Expose,
    /// Where players go.
    pub routing: Routing,
    /// How proxies are emptied before they go.
    #[serde(default)]
    pub drain: ProxyDrain,
    /// Settings of the proxy software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ProxyConfig>,
    /// A ConfigMap whose keys are names of config files, which are laid over the generated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_overlay: Option<ObjectRef>,
}

/// How players reach the proxies. The block of the chosen type is allowed, and required where it has no defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("self.type != 'NodePort' || has(self.nodePort)")
        .message("expose.nodePort is required for type NodePort")
        .field_path(".nodePort")
        .reason(Reason::FieldValueRequired),
    validation = Rule::new("self.type != 'HostPort' || has(self.hostPort)")
        .message("expose.hostPort is required for type HostPort")
        .field_path(".hostPort")
        .reason(Reason::FieldValueRequired),
    validation = Rule::new("self.type != 'ClusterIP' || has(self.clusterIP)")
        .message("expose.clusterIP is required for type ClusterIP")
        .field_path(".clusterIP")
        .reason(Reason::FieldValueRequired),
    validation = Rule::new("self.type == 'LoadBalancer' || !has(self.loadBalancer)")
        .message(Message::Expression("'expose.loadBalancer is only allowed for type LoadBalancer, not ' + self.type".into()))
        .field_path(".loadBalancer")
        .reason(Reason::FieldValueForbidden),
    validation = Rule::new("self.type == 'NodePort' || !has(self.nodePort)")
        .message(Message::Expression("'expose.nodePort is only allowed for type NodePort, not ' + self.type".into()))
        .field_path(".nodePort")
        .reason(Reason::FieldValueForbidden),
    validation = Rule::new("self.type == 'HostPort' || !has(self.hostPort)")
        .message(Message::Expression("'expose.hostPort is only allowed for type HostPort, not ' + self.type".into()))
        .field_path(".hostPort")
        .reason(Reason::FieldValueForbidden),
    validation = Rule::new("self.type == 'ClusterIP' || !has(self.clusterIP)")
        .message(Message::Expression("'expose.clusterIP is only allowed for type ClusterIP, not ' + self.type".into()))
        .field_path(".clusterIP")
        .reason(Reason::FieldValueForbidden),
)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// `LoadBalancer`, `NodePort` and `ClusterIP` make a Service of that type; `HostPort` opens the port on the nodes.
    #[serde(rename = "type")]
    pub kind: ExposeType,
    /// Settings for type LoadBalancer; may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerExpose>,
    /// Settings for type NodePort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<NodePortExpose>,
    /// Settings for type HostPort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<HostPortExpose>,
    /// Settings for type ClusterIP.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<ClusterIpExpose>,
}

/// The ways to expose proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ExposeType {
    /// A load balancer of the cloud or cluster.
    LoadBalancer,
    /// A port on every node, through a Service.
    NodePort,
    /// A port on the nodes that run a proxy, without a Service.
    HostPort,
    /// Inside the cluster only; something else leads players there.
    #[default]
    ClusterIP,
}

/// Settings for type LoadBalancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerExpose {
    /// Annotations that are copied to the Service. A key that is dropped here is removed there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// `Local` keeps the players' addresses and sends them only to nodes with a ready proxy; `Cluster` does neither.
    #[serde(default = "local")]
    pub external_traffic_policy: String,
}

impl Default for LoadBalancerExpose {
    fn default() -> Self {
        Self { annotations: BTreeMap::new(), external_traffic_policy: local() }
    }
}

/// Settings for type NodePort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePortExpose {
    /// Port number on every node, 1 to 65535; the cluster accepts its node port range only. One group alone can have it.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// Settings for type HostPort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostPortExpose {
    /// Port number on each node that runs a proxy, 1 to 65535. A node takes one proxy with that port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// Settings for type ClusterIP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ClusterIpExpose {
    /// The address that players use, shown in status as it is. A host name or IP with an optional port: not a URL, and
    /// without spaces.
    #[schemars(length(min = 1))]
    #[x_kube(validation = Rule::new("!self.contains(' ') && !self.contains('://')")
        .message("expose.clusterIP.address is a host name or address with an optional port: not a URL, and no spaces"))]
    pub address: String,
}

/// Where players go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Routing {
    /// ServerGroups that players join first and are moved to when their server goes, in order of preference.
    #[schemars(length(min = 1))]
    pub fallback_groups: Vec<String>,
}

/// How proxies are emptied before they go. Players cannot be moved from one proxy to another: they are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyDrain {
    /// Seconds that a leaving proxy waits for its players, at least 1. Default 300. Then `onDeadline` decides.
    #[schemars(range(min = 1))]
    pub timeout_seconds: i32,
    /// What happens to players who are left after `timeoutSeconds`: `Disconnect` them (default), or `Hold` the pod until
    /// they have left.
    #[serde(default)]
    pub on_deadline: OnDeadline,
}

impl Default for ProxyDrain {
    fn default() -> Self {
        Self { timeout_seconds: 300, on_deadline: OnDeadline::Disconnect }
    }
}

/// Settings of the proxy software.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfig {
    /// Number of players that one proxy takes, at least 1. Unset means 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub player_limit: Option<i32>,
    /// Text that the server list shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub motd: Option<String>,
    /// Whether players must be logged in with Mojang. `false` lets anybody use any name.
    #[serde(default = "yes")]
    pub online_mode: bool,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self { player_limit: None, motd: None, online_mode: true }
    }
}

/// What was last seen of a ProxyGroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyGroupStatus {
    /// `Pending`, `Ready` (as many pods are ready as wanted) or `Degraded` (somebody is needed).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Number of proxy pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Where players connect. Empty until a proxy is ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Number of players on all proxies of the group, as last reported.
    #[serde(default)]
    pub connected_players: i32,
    /// Generation of the spec that this status belongs to, a count of edits.
    #[serde(default, skip_serializing_if = "super::schema::is_default")]
    pub observed_generation: i64,
    /// State of the group: `Accepted`, `NodeDraining`, `Degraded`, `ReadinessDiverged`, `DoorNotEnforced` and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::schema")]
    pub conditions: Vec<Condition>,
}

impl ProxyGroupSpec {
    /// Players that one proxy takes.
    pub fn player_limit(&self) -> i32 {
        self.config.as_ref().and_then(|config| config.player_limit).unwrap_or(DEFAULT_PLAYER_LIMIT)
    }

    /// Whether players must be logged in with Mojang.
    pub fn online_mode(&self) -> bool {
        self.config.as_ref().is_none_or(|config| config.online_mode)
    }
}

fn local() -> String {
    "Local".to_owned()
}

fn yes() -> bool {
    true
}
