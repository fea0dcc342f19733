//! Rights that nothing of ours uses: upstream's end-to-end suite, and what people run beside it, ask the API server whether
//! the operator's account has them. With the rights that are needed they make up upstream's table.

use super::Right;
use super::Scope::{Cluster, Own};
use super::table::right;
use crate::names::GROUP;

const WHY: &str = "upstream's operator has it";

/// What upstream's operator may do and the reconciler does not need.
pub const RECONCILER_COMPAT: &[Right] = &[
    right(Cluster, GROUP, &["networks", "proxygroups", "servergroups"], &["get"], WHY),
    right(Cluster, GROUP, &["servers"], &["get", "update"], WHY),
    right(Cluster, GROUP, &["networks/status"], &["update"], WHY),
    right(Cluster, "", &["pods"], &["patch"], WHY),
    right(Cluster, "", &["nodes"], &["get"], WHY),
    right(Cluster, "", &["configmaps"], &["update"], WHY),
    right(Cluster, "", &["serviceaccounts"], &["get"], WHY),
    right(Cluster, "", &["services"], &["get", "update"], WHY),
    right(Cluster, "", &["persistentvolumeclaims"], &["create", "get", "list", "patch", "watch"], WHY),
    right(Cluster, "policy", &["poddisruptionbudgets"], &["get", "update"], WHY),
    right(Cluster, "networking.k8s.io", &["networkpolicies"], &["get", "update"], WHY),
    right(Own, "", &["secrets"], &["get", "update"], WHY),
    right(Own, "coordination.k8s.io", &["leases"], &["get", "update"], WHY),
    right(Own, "", &["events"], &["create", "patch"], WHY),
];
