//! Reasons, actions and reporting controllers of events (`events.k8s.io/v1`).
//!
//! A Server's phase change is an event whose reason is the decision's; flanks of conditions are events whose reason is
//! the condition's (see [`super::condition::reason`]). Here is the rest.

/// Who reports.
pub mod reporter {
    /// Server controller.
    pub const SERVER: &str = "server";
    /// ServerGroup controller.
    pub const SERVER_GROUP: &str = "servergroup";
    /// ProxyGroup controller.
    pub const PROXY_GROUP: &str = "proxygroup";
    /// Network controller.
    pub const NETWORK: &str = "network";
    /// Certificates.
    pub const CERTS: &str = "certs";
}

/// What was being done.
pub mod action {
    /// Making a server pod.
    pub const CREATE_POD: &str = "CreatePod";
    /// Taking over a server pod that is there.
    pub const ADOPT_POD: &str = "AdoptPod";
    /// Removing a server pod.
    pub const DELETE_POD: &str = "DeletePod";
    /// Making a Server.
    pub const CREATE_SERVER: &str = "CreateServer";
    /// Removing a Server.
    pub const DELETE_SERVER: &str = "DeleteServer";
    /// Marking a Server for replacement.
    pub const RETIRE_SERVER: &str = "RetireServer";
    /// Emptying a server.
    pub const DRAIN_SERVER: &str = "DrainServer";
    /// Sealing a pod.
    pub const SEAL_POD: &str = "SealPod";
    /// Making a proxy pod.
    pub const CREATE_PROXY_POD: &str = "CreateProxyPod";
    /// Emptying a proxy.
    pub const DRAIN_PROXY: &str = "DrainProxy";
    /// Writing status.
    pub const SYNC_STATUS: &str = "SyncStatus";
    /// Preparing a game namespace.
    pub const BOOTSTRAP_NAMESPACE: &str = "BootstrapNamespace";
    /// Rotating the CA.
    pub const START_ROTATION: &str = "StartRotation";
}

/// A server pod was made.
pub const POD_CREATED: &str = "PodCreated";
/// A server pod that was there is ours now.
pub const POD_ADOPTED: &str = "PodAdopted";
/// A server pod was removed.
pub const POD_DELETED: &str = "PodDeleted";
/// Another object owns the pod name.
pub const POD_NAME_CONFLICT: &str = "PodNameConflict";
/// The namespace could not be prepared.
pub const NAMESPACE_NOT_BOOTSTRAPPED: &str = "NamespaceNotBootstrapped";
/// A Ready server lost its readiness.
pub const READINESS_LOST: &str = "ReadinessLost";
/// A Server was made.
pub const SERVER_CREATED: &str = "ServerCreated";
/// A Server was removed because the group is too large.
pub const SERVER_REMOVED: &str = "ServerRemoved";
/// A persistent Server was removed: its ordinal is no longer wanted.
pub const SURPLUS_ORDINAL: &str = "SurplusOrdinal";
/// A persistent Server was removed: its pod was made from other inputs.
pub const STALE_SPEC: &str = "StaleSpec";
/// A persistent Server was removed so that its volume can grow.
pub const RESIZE_PENDING: &str = "ResizePending";
/// A node is departing.
pub const NODE_DRAINING: &str = "NodeDraining";
/// A Failed Server was removed, another one is kept as evidence.
pub const FAILED_SERVER_PRUNED: &str = "FailedServerPruned";
/// A Server was marked for replacement.
pub const SERVER_RETIRING: &str = "ServerRetiring";
/// A proxy's deadline passed with players on it.
pub const PROXY_DRAIN_TIMEOUT: &str = "ProxyDrainTimeout";
/// A proxy pod cannot be made or placed.
pub const PROXY_POD_BLOCKED: &str = "ProxyPodBlocked";
/// Proxy pods can be made and placed again.
pub const PROXY_PODS_ADMITTED: &str = "ProxyPodsAdmitted";
/// The kubelet ignores a withdrawn readiness.
pub const READINESS_DIVERGED: &str = "ReadinessDiverged";
/// It no longer does.
pub const READINESS_AGREES: &str = "ReadinessAgrees";
/// The forwarding secret changed.
pub const FORWARDING_SECRET_ROTATED: &str = "ForwardingSecretRotated";
/// The forwarding secret is missing.
pub const FORWARDING_SECRET_NOT_FOUND: &str = "ForwardingSecretNotFound";
/// A door is being closed.
pub const DOOR_CLOSING: &str = "DoorClosing";
/// A door was opened again.
pub const DOOR_REOPENED: &str = "DoorReopened";
/// A pod was sealed.
pub const POD_SEALED: &str = "PodSealed";
/// A server ended, or was removed, with players on it.
pub const PLAYERS_LOST: &str = "PlayersLost";
/// The drain waits: no fallback server can take the players.
pub const NO_FALLBACK_AVAILABLE: &str = "NoFallbackAvailable";
