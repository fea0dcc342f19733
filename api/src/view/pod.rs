//! What we read of a Pod.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::{Deserialize, Deserializer};

use crate::names::{annotation, label};

/// Why a pod is not placed, where the scheduler has looked for a node.
const UNSCHEDULABLE: &str = "Unschedulable";

/// A Pod as far as decisions read it.
#[derive(Clone, Debug, Default, PartialEq, Resource, Deserialize)]
#[resource(inherit = "Pod")]
pub struct PodView {
    /// Name, namespace, UID, resource version, times, labels, owner references, and the annotations that are ours or
    /// an autoscaler's.
    #[serde(deserialize_with = "super::meta::lean")]
    pub metadata: ObjectMeta,
    /// What was asked for.
    #[serde(default)]
    pub spec: PodSpec,
    /// What the kubelet says.
    #[serde(default)]
    pub status: PodStatus,
}

/// Part of a Pod's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// The node that it was placed on.
    pub node_name: Option<String>,
}

/// Part of a Pod's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// Where the pod is in its life.
    #[serde(default)]
    pub phase: PodPhase,
    /// Address of the pod.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// Address of its node.
    #[serde(rename = "hostIP")]
    pub host_ip: Option<String>,
    /// When the kubelet took it; Karpenter counts its duration from here.
    #[serde(default, deserialize_with = "timestamp")]
    pub start_time: Option<Timestamp>,
    /// The two conditions that we read.
    #[serde(default, deserialize_with = "conditions")]
    pub conditions: PodConditions,
    /// One for each container, init containers left out.
    #[serde(default)]
    pub container_statuses: Vec<ContainerStatus>,
}

/// A Pod's phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum PodPhase {
    /// Not all containers have been started.
    #[default]
    Pending,
    /// It runs.
    Running,
    /// All containers ended well, for good.
    Succeeded,
    /// All containers ended, at least one badly, for good.
    Failed,
    /// The node cannot be asked, or a phase that this version does not know.
    #[serde(other)]
    Unknown,
}

/// The conditions that we read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodConditions {
    /// `Ready`, as the kubelet says it.
    pub ready: Option<Condition>,
    /// `PodScheduled`, as the scheduler says it.
    pub scheduled: Option<Condition>,
}

/// One condition of a pod or node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Whether the status is `True`.
    #[serde(rename = "status", deserialize_with = "is_true")]
    pub holds: bool,
    /// When it last flipped.
    #[serde(default, deserialize_with = "timestamp")]
    pub last_transition_time: Option<Timestamp>,
    /// Machine-readable cause.
    pub reason: Option<String>,
    /// Text for people.
    pub message: Option<String>,
}

/// Part of a container's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "RawContainerStatus")]
pub struct ContainerStatus {
    /// Name of the container.
    pub name: String,
    /// How often it was started again.
    pub restart_count: i32,
    /// Why it waits, if it waits.
    pub waiting_reason: Option<String>,
    /// Since when it runs, if it runs.
    pub started_at: Option<Timestamp>,
    /// When its last process ended, if none runs now.
    pub ended_at: Option<Timestamp>,
}

/// What a managed pod is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Holds players.
    Server,
    /// Routes players.
    Proxy,
}

impl Role {
    /// Value of the role label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => label::ROLE_SERVER,
            Self::Proxy => label::ROLE_PROXY,
        }
    }
}

impl PodView {
    /// Name, empty only in a review of a pod whose name is still to be generated.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// UID, empty only in a review of a pod that is being created.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Value of an annotation, if it is one that views keep.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether the operator made it, or somebody who says so.
    pub fn is_managed(&self) -> bool {
        self.label(label::MANAGED_BY) == Some(label::MANAGED_BY_VALUE)
    }

    /// What it is for; nothing for pods that are not managed, and for roles that this version does not know.
    pub fn role(&self) -> Option<Role> {
        if !self.is_managed() {
            return None;
        }
        match self.label(label::ROLE)? {
            label::ROLE_SERVER => Some(Role::Server),
            label::ROLE_PROXY => Some(Role::Proxy),
            _ => None,
        }
    }

    /// Group that it belongs to.
    pub fn group(&self) -> Option<&str> {
        self.label(label::GROUP)
    }

    /// Network that it belongs to.
    pub fn network(&self) -> Option<&str> {
        self.label(label::NETWORK)
    }

    /// Whether somebody is on it, or may be, as the label says.
    pub fn is_occupied(&self) -> bool {
        self.label(label::OCCUPIED) == Some(label::TRUE)
    }

    /// Whether it may go: nobody can come in any more.
    pub fn is_sealed(&self) -> bool {
        self.label(label::SEALED) == Some(label::TRUE)
    }

    /// The recorded eviction request, if one is open.
    pub fn eviction_requested(&self) -> Option<&str> {
        self.annotation(annotation::EVICTION_REQUESTED)
    }

    /// Whether somebody has asked for its deletion.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether its containers have ended for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether the kubelet says it is ready.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.ready.as_ref().is_some_and(|condition| condition.holds)
    }

    /// Whether the scheduler says that it finds no node. One that somebody holds back (`SchedulingGated`) was not looked
    /// at, nor was one on which the scheduler failed.
    pub fn is_unschedulable(&self) -> bool {
        let finds_none = |condition: &Condition| condition.reason.as_deref() == Some(UNSCHEDULABLE);
        self.status.conditions.scheduled.as_ref().is_some_and(|condition| !condition.holds && finds_none(condition))
    }

    /// When it was created; the epoch in a review of a pod that is being created.
    pub fn created(&self) -> Timestamp {
        self.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    }

    /// The reference to the object that controls it.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
    }

    /// Status of the container of that name.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.status.container_statuses.iter().find(|status| status.name == name)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawContainerStatus {
    name: String,
    #[serde(default)]
    restart_count: i32,
    #[serde(default)]
    state: RawState,
    /// The state before this one: how the process ended that a waiting container had.
    #[serde(default)]
    last_state: RawState,
}

#[derive(Default, Deserialize)]
struct RawState {
    waiting: Option<RawWaiting>,
    running: Option<RawRunning>,
    terminated: Option<RawTerminated>,
}

#[derive(Deserialize)]
struct RawWaiting {
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRunning {
    #[serde(default, deserialize_with = "timestamp")]
    started_at: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTerminated {
    #[serde(default, deserialize_with = "timestamp")]
    finished_at: Option<Timestamp>,
}

impl From<RawContainerStatus> for ContainerStatus {
    fn from(raw: RawContainerStatus) -> Self {
        let ended = raw.state.terminated.or(raw.last_state.terminated).filter(|_| raw.state.running.is_none());
        Self {
            name: raw.name,
            restart_count: raw.restart_count,
            waiting_reason: raw.state.waiting.and_then(|waiting| waiting.reason),
            started_at: raw.state.running.and_then(|running| running.started_at),
            ended_at: ended.and_then(|ended| ended.finished_at),
        }
    }
}

#[derive(Deserialize)]
struct TypedCondition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    condition: Condition,
}

fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PodConditions, D::Error> {
    let mut kept = PodConditions::default();
    for TypedCondition { kind, condition } in
        Option::<Vec<TypedCondition>>::deserialize(deserializer)?.unwrap_or_default()
    {
        match kind.as_str() {
            "Ready" => kept.ready = Some(condition),
            "PodScheduled" => kept.scheduled = Some(condition),
            _ => {}
        }
    }
    Ok(kept)
}

pub(super) fn is_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(std::borrow::Cow::<'de, str>::deserialize(deserializer)? == "True")
}

fn timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Option::<Timestamp>::deserialize(deserializer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn full_pod() -> serde_json::Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "lobby-abcd", "namespace": "minecraft", "uid": "u1", "resourceVersion": "7",
                "creationTimestamp": "2026-11-29T10:00:00Z",
                "labels": {"spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": "server",
                           "spawnery.cloud/group": "lobby", "spawnery.cloud/occupied": "true"},
                "annotations": {"spawnery.cloud/eviction-requested": "{}", "foreign/long": "x".repeat(4000)},
                "managedFields": [{"manager": "m", "operation": "Update"}],
                "ownerReferences": [{"apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server", "name": "lobby-abcd",
                                     "uid": "u0", "controller": true}]
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "minecraft", "image": "i"}]},
            "status": {
                "phase": "Running", "podIP": "10.0.0.1", "hostIP": "192.168.0.1", "startTime": "2026-11-29T10:00:01Z",
                "conditions": [
                    {"type": "Initialized", "status": "True", "lastTransitionTime": null},
                    {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-29T10:00:02Z", "reason": "R"},
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-29T10:00:01Z"}
                ],
                "containerStatuses": [{"name": "minecraft", "restartCount": 3, "ready": false, "image": "i",
                    "imageID": "", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-29T10:00:03Z"}}}]
            }
        })
    }

    #[test]
    fn a_view_keeps_what_decisions_read() {
        let pod: PodView = serde_json::from_value(full_pod()).unwrap();
        assert_eq!((pod.name(), pod.namespace(), pod.uid()), ("lobby-abcd", "minecraft", "u1"));
        assert_eq!(pod.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!((pod.role(), pod.group()), (Some(Role::Server), Some("lobby")));
        assert!(pod.is_occupied() && !pod.is_sealed() && !pod.is_terminating() && !pod.is_terminal());
        assert_eq!(pod.eviction_requested(), Some("{}"));
        assert_eq!(pod.spec.node_name.as_deref(), Some("n1"));
        assert_eq!(pod.status.phase, PodPhase::Running);
        assert_eq!(pod.status.pod_ip.as_deref(), Some("10.0.0.1"));
        assert_eq!(pod.status.host_ip.as_deref(), Some("192.168.0.1"));
        assert_eq!(pod.status.start_time, Some("2026-11-29T10:00:01Z".parse().unwrap()));
        let ready = pod.status.conditions.ready.clone().unwrap();
        assert!(!ready.holds && !pod.is_ready());
        assert_eq!(ready.last_transition_time, Some("2026-11-29T10:00:02Z".parse().unwrap()));
        assert!(pod.status.conditions.scheduled.as_ref().unwrap().holds);
        let container = pod.container("minecraft").unwrap();
        assert_eq!((container.restart_count, container.waiting_reason.as_deref()), (3, Some("CrashLoopBackOff")));
        assert_eq!((container.started_at, container.ended_at), (None, Some("2026-11-29T10:00:03Z".parse().unwrap())));
        assert_eq!(pod.controller().unwrap().kind, "Server");
    }

    #[test]
    fn only_a_search_without_a_node_is_unschedulable() {
        let pod = |status: &str, reason: Option<&str>| {
            let condition = json!({"type": "PodScheduled", "status": status, "reason": reason});
            serde_json::from_value::<PodView>(json!({"metadata": {}, "status": {"conditions": [condition]}})).unwrap()
        };
        assert!(pod("False", Some("Unschedulable")).is_unschedulable());
        for (status, reason) in
            [("False", Some("SchedulingGated")), ("False", Some("SchedulerError")), ("False", None), ("True", None)]
        {
            assert!(!pod(status, reason).is_unschedulable(), "{status} {reason:?}");
        }
    }

    #[test]
    fn what_ended_before_a_container_ran_again_is_over() {
        let status = json!({"name": "c", "restartCount": 1, "state": {"running": {"startedAt": "2026-11-29T10:00:04Z"}},
                            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-29T10:00:03Z"}}});
        let status: ContainerStatus = serde_json::from_value(status).unwrap();
        assert_eq!((status.started_at, status.ended_at), (Some("2026-11-29T10:00:04Z".parse().unwrap()), None));
    }

    #[test]
    fn a_view_drops_what_is_large_and_unread() {
        let pod: PodView = serde_json::from_value(full_pod()).unwrap();
        assert_eq!(pod.metadata.managed_fields, None);
        assert_eq!(pod.annotation("foreign/long"), None);
    }

    #[test]
    fn a_pod_that_is_being_created_decodes() {
        let pod: PodView =
            serde_json::from_value(json!({"metadata": {"generateName": "x-"}, "spec": {"containers": []}})).unwrap();
        assert_eq!((pod.name(), pod.uid(), pod.status.phase), ("", "", PodPhase::Pending));
    }

    #[test]
    fn a_phase_of_the_future_is_unknown() {
        let pod: PodView = serde_json::from_value(json!({"metadata": {}, "status": {"phase": "Paused"}})).unwrap();
        assert_eq!(pod.status.phase, PodPhase::Unknown);
    }

    #[test]
    fn a_pod_of_others_has_no_role() {
        let pod: PodView =
            serde_json::from_value(json!({"metadata": {"labels": {"spawnery.cloud/role": "server"}}})).unwrap();
        assert_eq!(pod.role(), None);
    }
}
