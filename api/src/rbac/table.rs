//! The rights that the parts need, row by row.

use super::Scope::{Cluster, Own};
use super::{Right, Scope};
use crate::names::{GROUP, object};

/// A right on all objects of the resources.
pub(super) const fn right(
    scope: Scope,
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { scope, group, resources, names: &[], verbs, why }
}

/// A right on objects of these names alone.
const fn named(
    scope: Scope,
    group: &'static str,
    resources: &'static [&'static str],
    names: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { scope, group, resources, names, verbs, why }
}

/// Watching begins with a list.
const FOLLOW: &[&str] = &["list", "watch"];
const CORE: &str = "";
const ADMISSION: &str = "admissionregistration.k8s.io";
const LEASES: &str = "coordination.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const WEBHOOK_CONFIGURATIONS: &[&str] = &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];

/// Our own certificates, each in a Secret of its own.
const CERTIFICATES: &[&str] = &[object::AGENT_TLS_SECRET, object::WEBHOOK_TLS_SECRET, object::EXTENDER_TLS_SECRET];

/// What the reconciler needs.
pub const RECONCILER: &[Right] = &[
    right(Cluster, GROUP, &["networks", "proxygroups", "servergroups"], FOLLOW, "see what is wanted"),
    right(Cluster, GROUP, &["servers"], &["create", "delete", "list", "patch", "watch"], "size groups, finalizers"),
    right(Cluster, GROUP, &["proxygroups", "servergroups"], &["patch"], "finalizers of groups"),
    right(Cluster, GROUP, &["networks/status"], &["patch"], "say what was seen"),
    right(
        Cluster,
        GROUP,
        &["proxygroups/status", "servergroups/status", "servers/status"],
        &["patch", "update"],
        "say what was seen",
    ),
    right(
        Cluster,
        GROUP,
        &["networks/finalizers", "proxygroups/finalizers", "servergroups/finalizers", "servers/finalizers"],
        &["update"],
        "own objects with blockOwnerDeletion",
    ),
    right(Cluster, CORE, &["pods"], &["create", "delete", "get", "list", "watch"], "servers and proxies"),
    right(Cluster, CORE, &["pods/status"], &["patch"], "occupied and sealed, without a right to change specs"),
    right(Own, CORE, &["pods"], &["patch"], "put the leader's label on our own pod"),
    right(Cluster, CORE, &["nodes"], FOLLOW, "see nodes that depart"),
    right(
        Cluster,
        CORE,
        &["configmaps"],
        &["create", "get", "list", "patch", "watch"],
        "group settings, overlays, CA bundle",
    ),
    right(Cluster, CORE, &["serviceaccounts"], &["create", "list", "watch"], "accounts of game pods"),
    right(Cluster, CORE, &["services"], &["create", "delete", "list", "patch", "watch"], "how players reach proxies"),
    right(
        Cluster,
        "policy",
        &["poddisruptionbudgets"],
        &["create", "list", "patch", "watch"],
        "the floor under a dead webhook",
    ),
    right(
        Cluster,
        "networking.k8s.io",
        &["networkpolicies"],
        &["create", "list", "patch", "watch"],
        "who may talk to servers",
    ),
    right(Cluster, "authentication.k8s.io", &["tokenreviews"], &["create"], "recognise agents"),
    right(Cluster, "events.k8s.io", &["events"], &["create", "patch"], "tell people"),
    right(Cluster, ADMISSION, WEBHOOK_CONFIGURATIONS, &["create"], "register the webhook"),
    named(
        Cluster,
        ADMISSION,
        WEBHOOK_CONFIGURATIONS,
        &[object::WEBHOOK_CONFIGURATION],
        &["get", "list", "patch", "watch"],
        "keep the registration current, and notice who changes it",
    ),
    named(
        Cluster,
        RBAC,
        &["clusterroles"],
        &[object::OPERATOR],
        &["get"],
        "own the registration, so that uninstalling collects it",
    ),
    named(Own, RBAC, &["roles"], &[object::OPERATOR], &["get"], "own certificates, so that uninstalling collects them"),
    right(Own, CORE, &["secrets"], &["create"], "certificates"),
    named(Own, CORE, &["secrets"], CERTIFICATES, &["get", "update"], "certificates"),
    right(Own, LEASES, &["leases"], &["create"], "leadership"),
    named(Own, LEASES, &["leases"], &[object::LEASE], &["get", "update"], "leadership"),
];

/// What the webhook needs.
pub const WEBHOOK: &[Right] = &[
    right(Cluster, GROUP, &["networks", "proxygroups", "servergroups"], FOLLOW, "judge edits"),
    right(Cluster, CORE, &["pods"], FOLLOW, "judge evictions from its own cache"),
    right(Cluster, CORE, &["pods/status"], &["patch"], "record refused evictions, without a right to change specs"),
    right(Cluster, CORE, &["namespaces"], FOLLOW, "know which namespaces are managed"),
    right(Cluster, CORE, &["configmaps"], FOLLOW, "warn about references to what is not there"),
    named(Own, CORE, &["secrets"], &[object::WEBHOOK_TLS_SECRET], FOLLOW, "its own certificate"),
];

/// What the extender needs.
pub const EXTENDER: &[Right] = &[
    right(Cluster, CORE, &["nodes"], FOLLOW, "see nodes that depart, and how many players each may have"),
    right(Cluster, CORE, &["pods"], FOLLOW, "see where servers and proxies are"),
    right(Cluster, GROUP, &["servers"], FOLLOW, "see how many people are where"),
    named(Own, CORE, &["secrets"], &[object::EXTENDER_TLS_SECRET], FOLLOW, "its own certificate"),
];
