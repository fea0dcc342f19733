//! The rights, row by row.

use super::Scope::{Cluster, Own};
use super::{Right, Scope};
use crate::names::{GROUP, object};

/// A right on all objects of the resources.
const fn right(
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

const READ: &[&str] = &["get", "list", "watch"];
const CORE: &str = "";
const ADMISSION: &str = "admissionregistration.k8s.io";
const WEBHOOK_CONFIGURATIONS: &[&str] = &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];

/// What the reconciler may do.
pub const RECONCILER: &[Right] = &[
    right(Cluster, GROUP, &["networks", "proxygroups", "servergroups", "servers"], READ, "see what is wanted"),
    right(Cluster, GROUP, &["servers"], &["create", "delete", "patch", "update"], "size groups, finalizers"),
    right(Cluster, GROUP, &["proxygroups", "servergroups"], &["patch", "update"], "finalizers of groups"),
    right(
        Cluster,
        GROUP,
        &["networks/status", "proxygroups/status", "servergroups/status", "servers/status"],
        &["get", "patch", "update"],
        "say what was seen",
    ),
    right(
        Cluster,
        GROUP,
        &["networks/finalizers", "proxygroups/finalizers", "servergroups/finalizers", "servers/finalizers"],
        &["update"],
        "own objects with blockOwnerDeletion",
    ),
    right(Cluster, CORE, &["pods"], &["create", "delete", "get", "list", "patch", "watch"], "servers and proxies"),
    right(Cluster, CORE, &["pods/status"], &["patch"], "occupied and sealed, without a right to change specs"),
    right(Cluster, CORE, &["nodes"], READ, "see nodes that depart"),
    right(Cluster, CORE, &["namespaces"], READ, "see which namespaces are there"),
    right(
        Cluster,
        CORE,
        &["configmaps"],
        &["create", "get", "list", "patch", "update", "watch"],
        "group settings, CA bundle",
    ),
    right(Cluster, CORE, &["serviceaccounts"], &["create", "get", "list", "patch", "watch"], "accounts of game pods"),
    right(
        Cluster,
        CORE,
        &["services"],
        &["create", "delete", "get", "list", "patch", "update", "watch"],
        "how players reach proxies",
    ),
    right(
        Cluster,
        CORE,
        &["persistentvolumeclaims"],
        &["create", "get", "list", "patch", "watch"],
        "volumes of persistent servers; never deleted",
    ),
    right(
        Cluster,
        "policy",
        &["poddisruptionbudgets"],
        &["create", "delete", "get", "list", "patch", "update", "watch"],
        "the floor under a dead webhook",
    ),
    right(
        Cluster,
        "networking.k8s.io",
        &["networkpolicies"],
        &["create", "get", "list", "patch", "update", "watch"],
        "who may talk to servers",
    ),
    right(Cluster, "authentication.k8s.io", &["tokenreviews"], &["create"], "recognise agents"),
    right(Cluster, "events.k8s.io", &["events"], &["create", "patch"], "tell people"),
    right(Cluster, ADMISSION, WEBHOOK_CONFIGURATIONS, &["create", "list", "watch"], "register the webhook"),
    named(
        Cluster,
        ADMISSION,
        WEBHOOK_CONFIGURATIONS,
        &[object::WEBHOOK_CONFIGURATION],
        &["get", "patch", "update"],
        "keep the registration current",
    ),
    named(
        Cluster,
        "rbac.authorization.k8s.io",
        &["clusterroles"],
        &[object::OPERATOR],
        &["get"],
        "own the registration, so that uninstalling collects it",
    ),
    // Upstream's permission table asks for these without names; reading by name alone is enough for neither of them.
    right(Own, CORE, &["secrets"], &["create", "get", "update"], "certificates"),
    named(
        Own,
        CORE,
        &["secrets"],
        &[object::AGENT_TLS_SECRET, object::WEBHOOK_TLS_SECRET],
        &["list", "patch", "watch"],
        "certificates",
    ),
    right(Own, "coordination.k8s.io", &["leases"], &["create", "get", "update"], "leadership"),
    named(Own, "coordination.k8s.io", &["leases"], &[object::LEASE], &["patch"], "leadership"),
    right(Own, CORE, &["endpoints"], &["get", "list", "watch"], "whether a webhook replica is ready"),
    right(Own, "discovery.k8s.io", &["endpointslices"], READ, "whether a webhook replica is ready"),
    right(Own, CORE, &["events"], &["create", "patch"], "tell people about leadership"),
];

/// What the webhook may do.
pub const WEBHOOK: &[Right] = &[
    right(Cluster, GROUP, &["networks", "proxygroups", "servergroups"], READ, "judge edits"),
    right(Cluster, CORE, &["pods"], READ, "judge evictions from its own cache"),
    right(Cluster, CORE, &["pods/status"], &["patch"], "record refused evictions, without a right to change specs"),
    right(Cluster, CORE, &["namespaces"], READ, "know which namespaces are managed"),
    right(Cluster, CORE, &["configmaps"], READ, "warn about references to what is not there"),
    named(Own, CORE, &["secrets"], &[object::WEBHOOK_TLS_SECRET], READ, "its own certificate"),
];
