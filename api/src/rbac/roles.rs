//! Roles and bindings made from the table.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Component, Right, Scope};
use crate::names::label;

const API_GROUP: &str = "rbac.authorization.k8s.io";

/// Everything that gives a component its rights.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The account, in the operator's namespace.
    pub account: ServiceAccount,
    /// Rights everywhere.
    pub cluster_role: ClusterRole,
    /// Gives the account the rights everywhere.
    pub cluster_binding: ClusterRoleBinding,
    /// Rights in the operator's namespace.
    pub role: Role,
    /// Gives the account the rights in the operator's namespace.
    pub binding: RoleBinding,
}

/// The objects that give `component` the rights that it needs, with the operator in `namespace`.
pub fn objects(component: Component, namespace: &str) -> Bound {
    let name = component.account();
    let cluster = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels()), ..ObjectMeta::default() };
    let own = ObjectMeta { namespace: Some(namespace.to_owned()), ..cluster.clone() };
    let subjects = vec![Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
        api_group: None,
    }];
    let role_ref =
        |kind: &str| RoleRef { api_group: API_GROUP.to_owned(), kind: kind.to_owned(), name: name.to_owned() };
    Bound {
        account: ServiceAccount { metadata: own.clone(), ..ServiceAccount::default() },
        cluster_role: ClusterRole {
            metadata: cluster.clone(),
            rules: Some(rules(component.rights(), Scope::Cluster)),
            aggregation_rule: None,
        },
        cluster_binding: ClusterRoleBinding {
            metadata: cluster,
            role_ref: role_ref("ClusterRole"),
            subjects: Some(subjects.clone()),
        },
        role: Role { metadata: own.clone(), rules: Some(rules(component.rights(), Scope::Own)) },
        binding: RoleBinding { metadata: own, role_ref: role_ref("Role"), subjects: Some(subjects) },
    }
}

impl Bound {
    /// The objects as JSON documents with kind and version, in the order in which they can be applied.
    ///
    /// # Errors
    /// None in practice: these types always serialise.
    pub fn documents(&self) -> Result<Vec<serde_json::Value>, serde_json::Error> {
        Ok(vec![
            serde_json::to_value(&self.account)?,
            serde_json::to_value(&self.cluster_role)?,
            serde_json::to_value(&self.cluster_binding)?,
            serde_json::to_value(&self.role)?,
            serde_json::to_value(&self.binding)?,
        ])
    }
}

fn labels() -> std::collections::BTreeMap<String, String> {
    std::collections::BTreeMap::from([(label::APP_NAME.to_owned(), label::APP_NAME_VALUE.to_owned())])
}

/// The rows of a table that hold in `scope`, as roles have them.
pub fn rules(rights: &[Right], scope: Scope) -> Vec<PolicyRule> {
    rights.iter().filter(|right| right.scope == scope).map(rule).collect()
}

fn rule(right: &Right) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![right.group.to_owned()]),
        resources: Some(owned(right.resources)),
        resource_names: (!right.names.is_empty()).then(|| owned(right.names)),
        verbs: owned(right.verbs),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::GROUP;

    fn all(component: Component) -> impl Iterator<Item = &'static Right> {
        component.rights().iter().chain(component.compat())
    }

    fn grants(rights: &[Right], scope: Scope, group: &str, resource: &str, verb: &str) -> bool {
        rights.iter().any(|right| {
            (right.scope, right.group) == (scope, group)
                && right.names.is_empty()
                && right.resources.contains(&resource)
                && right.verbs.contains(&verb)
        })
    }

    /// The API server lets nobody `create` an object of a name that it does not know yet: such a row would grant nothing.
    #[test]
    fn no_right_to_create_is_limited_by_name() {
        for component in Component::ALL {
            for right in all(component) {
                assert!(right.names.is_empty() || !right.verbs.contains(&"create"), "{right:?}");
            }
        }
    }

    #[test]
    fn no_component_may_list_secrets_delete_nodes_or_make_roles() {
        for component in Component::ALL {
            for right in all(component) {
                let has = |resource: &str| right.resources.contains(&resource);
                if has("secrets") {
                    let sees_all =
                        right.names.is_empty() && ["list", "watch"].iter().any(|verb| right.verbs.contains(verb));
                    assert!(right.scope == Scope::Own && !sees_all, "{right:?}");
                }
                if has("nodes") {
                    assert!(right.verbs.iter().all(|verb| ["get", "list", "watch"].contains(verb)), "{right:?}");
                }
                if right.group == API_GROUP {
                    assert_eq!(right.verbs, ["get"], "{right:?}");
                }
                assert!(!right.verbs.contains(&"*") && !has("*"), "{right:?}");
                assert!(!right.why.is_empty(), "{right:?}");
            }
        }
    }

    /// Upstream's end-to-end suite asks the API server for each of these, whether or not we use it.
    #[test]
    fn what_upstream_may_do_the_reconciler_may() {
        let read = ["get", "list", "watch"].as_slice();
        let kinds = ["networks", "proxygroups", "servergroups", "servers"];
        let mut table = vec![
            (Scope::Cluster, "", "configmaps", ["create", "get", "list", "update", "watch"].as_slice()),
            (Scope::Cluster, "", "nodes", read),
            (Scope::Cluster, "", "persistentvolumeclaims", &["create", "get", "list", "patch", "watch"]),
            (Scope::Cluster, "", "pods", &["create", "delete", "get", "list", "patch", "watch"]),
            (Scope::Cluster, "", "serviceaccounts", &["create", "get", "list", "watch"]),
            (Scope::Cluster, "", "services", &["create", "delete", "get", "list", "update", "watch"]),
            (Scope::Cluster, "authentication.k8s.io", "tokenreviews", &["create"]),
            (Scope::Cluster, "events.k8s.io", "events", &["create", "patch"]),
            (Scope::Cluster, "networking.k8s.io", "networkpolicies", &["create", "get", "list", "update", "watch"]),
            (Scope::Cluster, "policy", "poddisruptionbudgets", &["create", "get", "list", "update", "watch"]),
            (Scope::Cluster, GROUP, "servers", &["create", "delete", "get", "list", "update", "watch"]),
            (Scope::Own, "", "secrets", &["create", "get", "update"]),
            (Scope::Own, "coordination.k8s.io", "leases", &["create", "get", "update"]),
            (Scope::Own, "", "events", &["create", "patch"]),
        ];
        table.extend(kinds.iter().take(3).map(|kind| (Scope::Cluster, GROUP, *kind, read)));
        let subresources: Vec<String> = kinds
            .iter()
            .map(|kind| format!("{kind}/status"))
            .chain(kinds.iter().skip(1).map(|kind| format!("{kind}/finalizers")))
            .collect();
        table.extend(subresources.iter().map(|name| (Scope::Cluster, GROUP, name.as_str(), ["update"].as_slice())));
        for (scope, group, resource, verbs) in table {
            for verb in verbs {
                let (needed, compat) = (Component::Reconciler.rights(), Component::Reconciler.compat());
                let granted = [needed, compat].iter().any(|table| grants(table, scope, group, resource, verb));
                assert!(granted, "{verb} {resource}.{group}");
            }
        }
    }

    #[test]
    fn what_is_needed_is_not_called_compatibility() {
        for component in Component::ALL {
            for right in component.compat() {
                for (resource, verb) in
                    right.resources.iter().flat_map(|r| right.verbs.iter().map(move |verb| (r, verb)))
                {
                    assert!(!grants(component.rights(), right.scope, right.group, resource, verb), "{verb} {resource}");
                }
            }
        }
    }

    #[test]
    fn only_the_status_of_pods_is_patched_by_the_webhook() {
        let writes: Vec<_> = Component::Webhook
            .rights()
            .iter()
            .filter(|right| right.verbs.iter().any(|verb| !["get", "list", "watch"].contains(verb)))
            .flat_map(|right| right.resources)
            .collect();
        assert_eq!(writes, [&"pods/status"]);
    }

    #[test]
    fn roles_hold_the_table_and_bindings_name_the_account() {
        let bound = objects(Component::Reconciler, "games-system");
        let cluster = bound.cluster_role.rules.as_ref().unwrap().len();
        let own = bound.role.rules.as_ref().unwrap().len();
        assert_eq!(cluster + own, Component::Reconciler.rights().len());
        let subject = &bound.cluster_binding.subjects.as_ref().unwrap()[0];
        assert_eq!((subject.name.as_str(), subject.namespace.as_deref()), ("spawnery-operator", Some("games-system")));
        assert_eq!(bound.role.metadata.namespace.as_deref(), Some("games-system"));
        let documents = bound.documents().unwrap();
        assert!(documents.iter().all(|document| document["kind"].is_string() && document["apiVersion"].is_string()));
    }
}
