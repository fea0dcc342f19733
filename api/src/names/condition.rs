//! Condition types and reasons, per behaviour of upstream, and ours.

/// The object is taken into account.
pub const ACCEPTED: &str = "Accepted";
/// The Server takes players.
pub const READY: &str = "Ready";
/// The forwarding secret of the Network could be read.
pub const FORWARDING_SECRET_RESOLVED: &str = "ForwardingSecretResolved";
/// Pods still run with another forwarding secret.
pub const FORWARDING_SECRET_ROTATION_PENDING: &str = "ForwardingSecretRotationPending";
/// A node with pods of the group is departing.
pub const NODE_DRAINING: &str = "NodeDraining";
/// The group would be larger without its ceiling.
pub const SCALING_LIMITED: &str = "ScalingLimited";
/// State of a volume's growth.
pub const STORAGE_RESIZE: &str = "StorageResize";
/// The group waits before it makes another Server.
pub const BACKING_OFF: &str = "BackingOff";
/// The group needs somebody.
pub const DEGRADED: &str = "Degraded";
/// A proxy pod was told to take nobody in, and somebody may still get in: the kubelet still says ready, or its agent,
/// which alone guards the port of its node, does not answer.
pub const READINESS_DIVERGED: &str = "ReadinessDiverged";
/// The Server is being emptied: why, since when, what it waits for.
pub const DRAINING: &str = "Draining";
/// Nothing keeps newcomers out of a pod that is being closed.
pub const DOOR_NOT_ENFORCED: &str = "DoorNotEnforced";
/// Another PodDisruptionBudget selects pods of the group, so evictions are answered 500.
pub const BUDGET_CONFLICT: &str = "BudgetConflict";
/// What pods were made from has changed without an edit of the group.
pub const CONFIG_CHANGED: &str = "ConfigChanged";

/// Reasons of conditions. Those of a Server's `Ready` are the phase decisions' reasons.
pub mod reason {
    /// Accepted: yes.
    pub const ACCEPTED: &str = "Accepted";
    /// Accepted: an older Network owns the namespace.
    pub const DUPLICATE_NETWORK: &str = "DuplicateNetwork";
    /// Accepted: the Network that is named does not exist.
    pub const NETWORK_NOT_FOUND: &str = "NetworkNotFound";
    /// Accepted: the Network that is named is not accepted itself.
    pub const NETWORK_NOT_ACCEPTED: &str = "NetworkNotAccepted";
    /// Accepted: the group that is named does not exist.
    pub const GROUP_NOT_FOUND: &str = "GroupNotFound";
    /// Accepted: another object owns the pod name.
    pub const POD_NAME_CONFLICT: &str = "PodNameConflict";
    /// Accepted: the predecessor's pod still holds the name.
    pub const POD_NAME_TERMINATING: &str = "PodNameTerminating";
    /// Accepted: the API server refuses the pod (pod security, quota, a value that cannot be).
    pub const POD_REJECTED: &str = "PodRejected";
    /// Accepted: this version does not do that yet.
    pub const NOT_IMPLEMENTED_IN_THIS_VERSION: &str = "NotImplementedInThisVersion";
    /// Accepted: the CA bundle or ServiceAccounts of the namespace are missing.
    pub const NAMESPACE_NOT_BOOTSTRAPPED: &str = "NamespaceNotBootstrapped";
    /// Accepted: the way to expose the group is not known to this version.
    pub const EXPOSE_STRATEGY_NOT_IMPLEMENTED: &str = "ExposeStrategyNotImplemented";
    /// Accepted: no pod can be made from this spec (a mount over a reserved path, a value that cannot be).
    pub const INVALID_SPEC: &str = "InvalidSpec";

    /// Secret resolved.
    pub const SECRET_RESOLVED: &str = "SecretResolved";
    /// No such Secret.
    pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
    /// The Secret has no key `secret`.
    pub const SECRET_KEY_MISSING: &str = "SecretKeyMissing";
    /// The operator may not read it.
    pub const SECRET_READ_FORBIDDEN: &str = "SecretReadForbidden";
    /// Reading failed.
    pub const SECRET_READ_FAILED: &str = "SecretReadFailed";
    /// Rotation unknown: the Secret is not resolved.
    pub const SECRET_UNRESOLVED: &str = "SecretUnresolved";
    /// Pods with another stamp run.
    pub const ROTATION_PENDING: &str = "RotationPending";
    /// Pods without a stamp run.
    pub const PODS_PREDATE_TRACKING: &str = "PodsPredateTracking";
    /// All pods carry the current stamp.
    pub const FORWARDING_SECRET_IN_SYNC: &str = "ForwardingSecretInSync";

    /// Some node with our pods is departing.
    pub const NODE_DRAINING: &str = "NodeDraining";
    /// None is.
    pub const NO_NODES_DRAINING: &str = "NoNodesDraining";
    /// The ceiling is in the way.
    pub const MAX_REPLICAS_REACHED: &str = "MaxReplicasReached";
    /// The ceiling is not in the way.
    pub const WITHIN_LIMITS: &str = "WithinLimits";
    /// Volumes have their size.
    pub const STORAGE_RESIZED: &str = "StorageResized";
    /// A volume could not grow.
    pub const STORAGE_RESIZE_REFUSED: &str = "StorageResizeRefused";
    /// Servers of the group fail one after the other.
    pub const CRASH_LOOP_BACKOFF: &str = "CrashLoopBackoff";
    /// They do not.
    pub const NO_RECENT_FAILURES: &str = "NoRecentFailures";
    /// The API server refuses the proxy pod.
    pub const PROXY_POD_REJECTED: &str = "ProxyPodRejected";
    /// The API server refuses another object of the group (its Service, budget or ConfigMap).
    pub const OBJECT_REJECTED: &str = "ObjectRejected";
    /// The scheduler has no node for the proxy pod.
    pub const PROXY_POD_UNSCHEDULABLE: &str = "ProxyPodUnschedulable";
    /// Nothing of that.
    pub const PROXY_PODS_ADMITTED: &str = "ProxyPodsAdmitted";
    /// Kubelet and operator disagree about a proxy.
    pub const READINESS_DIVERGED: &str = "ReadinessDiverged";
    /// They agree.
    pub const READINESS_AGREES: &str = "ReadinessAgrees";

    /// No server of a fallback group can take the players, so the drain holds.
    pub const NO_FALLBACK_AVAILABLE: &str = "NoFallbackAvailable";
    /// Draining: an eviction was asked for.
    pub const EVICTION_REQUESTED: &str = "EvictionRequested";
    /// Draining: the object was deleted.
    pub const DELETION_REQUESTED: &str = "DeletionRequested";
    /// Draining: replaced by an update.
    pub const RETIRING: &str = "Retiring";
    /// Draining: no cause any more.
    pub const NOT_DRAINING: &str = "NotDraining";
    /// The pod's agent cannot refuse newcomers, or there is no proxy that could.
    pub const AGENT_CANNOT_CLOSE: &str = "AgentCannotClose";
    /// Every door can be closed.
    pub const DOORS_ENFORCED: &str = "DoorsEnforced";
    /// A budget that is not ours selects our pods.
    pub const OVERLAPPING_BUDGET: &str = "OverlappingBudget";
    /// No other budget selects our pods.
    pub const NO_OVERLAP: &str = "NoOverlap";
    /// Running pods were made from other contents.
    pub const CONFIG_CHANGED: &str = "ConfigChanged";
    /// Running pods were made from what is there now.
    pub const CONFIG_CURRENT: &str = "ConfigCurrent";
}
