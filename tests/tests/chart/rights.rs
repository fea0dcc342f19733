//! The chart grants what the tables say, no more and no less.

use crate::helm::{NAMESPACE, find, render};
use anyhow::Result;
use rstest::rstest;
use serde_json::{Value, json};
use spawnery_api::rbac::{Component, Right, Scope, rules};

const ALL: [&str; 1] = ["extender.enabled=true"];
const NEEDED: [&str; 2] = ["extender.enabled=true", "rbac.upstreamCompatibility=false"];

#[rstest]
#[case::needed_and_compatible(&ALL, true)]
#[case::needed_alone(&NEEDED, false)]
#[tokio::test]
async fn roles_hold_the_tables(#[case] values: &[&str], #[case] compat: bool) -> Result<()> {
    let objects = render(values).await?;
    for component in Component::ALL {
        let both: Vec<Right> =
            component.rights().iter().chain(component.compat().iter().filter(|_| compat)).copied().collect();
        for (kind, scope) in [("ClusterRole", Scope::Cluster), ("Role", Scope::Own)] {
            let role = find(&objects, kind, component.account())?;
            assert_eq!(role["rules"], serde_json::to_value(rules(&both, scope))?, "{kind} {}", component.account());
        }
    }
    Ok(())
}

#[tokio::test]
async fn bindings_bind_our_accounts_and_nobody_else() -> Result<()> {
    let objects = render(&ALL).await?;
    for component in Component::ALL {
        let name = component.account();
        for (kind, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
            let binding = find(&objects, kind, name)?;
            let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name });
            assert_eq!(binding["roleRef"], reference);
            let subject = json!([{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }]);
            assert_eq!(binding["subjects"], subject);
        }
    }
    let others: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")))
        .filter(|role| Component::ALL.iter().all(|component| role["metadata"]["name"] != component.account()))
        .collect();
    assert!(others.is_empty(), "roles that no table knows: {others:?}");
    Ok(())
}
