//! What the registration says, as server-side apply takes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use spawnery_api::names::{self, label, object, port};
use spawnery_certs::EvictionToken;

/// Where the API server reaches the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Our Service in this namespace.
    Service {
        /// Namespace of the operator.
        namespace: String,
    },
    /// A base URL without a slash at its end.
    Url(String),
}

/// Everything that the registration depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// PEM bundle that the webhook's leaf is verified against.
    pub ca_bundle: Arc<str>,
    /// Ends the path of evictions, and only theirs: a review of one begins a drain, so it must come from the API server. The
    /// other hooks change nothing, and the API server names the URL of one that fails to whoever applied an object.
    pub token: EvictionToken,
    /// Where to call.
    pub target: Target,
    /// Namespaces whose pods and evictions are ours to judge.
    pub namespaces: BTreeSet<String>,
    /// Who takes the registration along when it goes.
    pub owner: Option<OwnerReference>,
    /// Namespace of our own account, which validation leaves alone.
    pub operator_namespace: String,
}

/// Whether a namespace may ever match: not our own, whose pods must start while we are down, and not those in which
/// Kubernetes runs itself.
pub fn may_be_watched(namespace: &str, operator_namespace: &str) -> bool {
    namespace != operator_namespace && !namespace.starts_with("kube-")
}

/// The `ValidatingWebhookConfiguration`.
pub fn validating(registration: &Registration) -> Value {
    let evictions = (!registration.namespaces.is_empty()).then(|| {
        json!({
            "name": "evictions.spawnery.cloud",
            "clientConfig": client_config(registration, &format!("/evictions/{}", registration.token.reveal())),
            "rules": [rule("", "v1", &["pods/eviction"], &["CREATE"])],
            "namespaceSelector": namespace_selector(registration),
            // Said, so that nobody else's stands.
            "objectSelector": {},
            "matchPolicy": "Equivalent",
            // Fail would answer 500, which kubectl drain takes as final; the budgets stand under a dead webhook.
            "failurePolicy": "Ignore",
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": 3,
            "admissionReviewVersions": ["v1"],
        })
    });
    let kinds = ["networks", "proxygroups", "servergroups", "servers"];
    let object = |name: &str, operations: &[&str], failure_policy: &str| {
        json!({
            "name": name,
            "clientConfig": client_config(registration, "/validate"),
            "rules": [rule(names::GROUP, names::VERSION, &kinds, operations)],
            "namespaceSelector": {},
            "objectSelector": {},
            "matchConditions": [
                {
                    "name": "not-the-operator",
                    "expression": format!(
                        "request.userInfo.username != 'system:serviceaccount:{}:{}'",
                        registration.operator_namespace, object::OPERATOR
                    ),
                },
                {
                    // The garbage collector edits metadata, and must be able to while we are down.
                    "name": "not-kubernetes-itself",
                    "expression": "request.userInfo.username != 'system:kube-controller-manager' && \
                                   !request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
                },
            ],
            "matchPolicy": "Equivalent",
            "failurePolicy": failure_policy,
            "sideEffects": "None",
            "timeoutSeconds": 3,
            "admissionReviewVersions": ["v1"],
        })
    };
    // A delete is only ever warned about: it must go through while we are down, or namespaces could not be removed.
    let objects = object("objects.spawnery.cloud", &["CREATE", "UPDATE"], "Fail");
    let deletes = object("deletes.spawnery.cloud", &["DELETE"], "Ignore");
    let webhooks: Vec<Value> = evictions.into_iter().chain([objects, deletes]).collect();
    configuration("ValidatingWebhookConfiguration", registration, &webhooks)
}

/// The `MutatingWebhookConfiguration`.
pub fn mutating(registration: &Registration) -> Value {
    let pods = (!registration.namespaces.is_empty()).then(|| {
        json!({
            "name": "pods.spawnery.cloud",
            "clientConfig": client_config(registration, "/mutate-pods"),
            "rules": [rule("", "v1", &["pods"], &["CREATE"])],
            "namespaceSelector": namespace_selector(registration),
            "objectSelector": { "matchLabels": { label::MANAGED_BY: label::MANAGED_BY_VALUE } },
            "matchPolicy": "Equivalent",
            // The reconciler stamps with the same function; a dead webhook must not keep servers from starting.
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "timeoutSeconds": 2,
            "reinvocationPolicy": "Never",
            "admissionReviewVersions": ["v1"],
        })
    });
    let webhooks: Vec<Value> = pods.into_iter().collect();
    configuration("MutatingWebhookConfiguration", registration, &webhooks)
}

/// Webhooks and their conditions. Server-side apply merges these lists by name, so what somebody else has added stays in
/// them; every other field is ours as a whole.
pub fn merged(configuration: &Value) -> BTreeSet<(String, Option<String>)> {
    let list = |of: &Value, field: &str| of.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |of: &Value| of.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut found = BTreeSet::new();
    for webhook in list(configuration, "webhooks") {
        found.insert((name(&webhook), None));
        found.extend(list(&webhook, "matchConditions").iter().map(|it| (name(&webhook), Some(name(it)))));
    }
    found
}

fn configuration(kind: &str, registration: &Registration, webhooks: &[Value]) -> Value {
    let owners: Vec<&OwnerReference> = registration.owner.iter().collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": object::WEBHOOK_CONFIGURATION,
            "labels": {
                label::MANAGED_BY: label::MANAGED_BY_VALUE,
                // AKS would add to every namespaceSelector, and we would take it back, for ever.
                label::ADMISSIONS_ENFORCER_DISABLED: label::TRUE,
            },
            "annotations": { label::ADMISSIONS_ENFORCER_DISABLED: label::TRUE },
            "ownerReferences": owners,
        },
        "webhooks": webhooks,
    })
}

fn client_config(registration: &Registration, path: &str) -> Value {
    let ca_bundle = k8s_openapi::ByteString(registration.ca_bundle.as_bytes().to_vec());
    match &registration.target {
        Target::Url(base) => json!({ "url": format!("{base}{path}"), "caBundle": ca_bundle }),
        Target::Service { namespace } => json!({
            "service": { "namespace": namespace, "name": object::WEBHOOK, "path": path, "port": port::WEBHOOK_SERVICE },
            "caBundle": ca_bundle,
        }),
    }
}

fn rule(group: &str, version: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({
        "apiGroups": [group], "apiVersions": [version], "resources": resources, "operations": operations,
        "scope": "Namespaced",
    })
}

fn namespace_selector(registration: &Registration) -> Value {
    let names: Vec<&String> = registration.namespaces.iter().collect();
    json!({ "matchExpressions": [{ "key": label::NAMESPACE_NAME, "operator": "In", "values": names }] })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
    use rstest::rstest;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn registration(namespaces: &[&str], target: Target) -> Registration {
        Registration {
            ca_bundle: "PEM".into(),
            token: EvictionToken::parse(TOKEN.as_bytes()).expect("a token"),
            target,
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            owner: Some(OwnerReference { name: "spawnery-operator".into(), uid: "u".into(), ..Default::default() }),
            operator_namespace: "ops".into(),
        }
    }

    fn service() -> Target {
        Target::Service { namespace: "ops".into() }
    }

    fn typed(registration: &Registration) -> (ValidatingWebhookConfiguration, MutatingWebhookConfiguration) {
        let validating = serde_json::from_value(validating(registration)).expect("a configuration");
        (validating, serde_json::from_value(mutating(registration)).expect("a configuration"))
    }

    /// Name and failure policy of each webhook; what a wrong policy costs is in design §5.
    #[test]
    fn only_our_own_objects_fail_closed() {
        let (validating, mutating) = typed(&registration(&["game"], service()));
        let validating =
            validating.webhooks.unwrap_or_default().into_iter().map(|hook| (hook.name, hook.failure_policy));
        let mutating = mutating.webhooks.unwrap_or_default().into_iter().map(|hook| (hook.name, hook.failure_policy));
        let policies: Vec<_> =
            validating.chain(mutating).map(|(name, policy)| (name, policy.unwrap_or_default())).collect();
        let want = [
            ("evictions.spawnery.cloud", "Ignore"),
            ("objects.spawnery.cloud", "Fail"),
            ("deletes.spawnery.cloud", "Ignore"),
            ("pods.spawnery.cloud", "Ignore"),
        ];
        assert_eq!(policies, want.map(|(name, policy)| (name.to_owned(), policy.to_owned())));
    }

    #[test]
    fn evictions_and_pods_are_limited_to_the_namespaces_that_count() {
        let (validating, mutating) = typed(&registration(&["b", "a"], service()));
        let first = validating.webhooks.unwrap_or_default().into_iter().next().expect("evictions come first");
        let pods = mutating.webhooks.unwrap_or_default().into_iter().next().expect("pods");
        for selector in [first.namespace_selector, pods.namespace_selector] {
            let terms = selector.and_then(|selector| selector.match_expressions).unwrap_or_default();
            let terms: Vec<_> = terms.into_iter().map(|term| (term.key, term.operator, term.values)).collect();
            let values = Some(vec!["a".to_owned(), "b".to_owned()]);
            assert_eq!(terms, [("kubernetes.io/metadata.name".to_owned(), "In".to_owned(), values)]);
        }
    }

    #[test]
    fn without_networks_no_pod_or_eviction_matches() {
        let (validating, mutating) = typed(&registration(&[], service()));
        let names: Vec<_> = validating.webhooks.unwrap_or_default().into_iter().map(|hook| hook.name).collect();
        assert_eq!(names, ["objects.spawnery.cloud", "deletes.spawnery.cloud"], "an empty In is refused by Kubernetes");
        assert_eq!(mutating.webhooks.unwrap_or_default().len(), 0);
    }

    #[rstest]
    #[case::service(service(), None, Some(("ops", format!("/evictions/{TOKEN}"), 443)))]
    #[case::url(
        Target::Url("https://127.0.0.1:8443".into()), Some(format!("https://127.0.0.1:8443/evictions/{TOKEN}")), None
    )]
    fn is_called_where_it_is_reached(
        #[case] target: Target,
        #[case] url: Option<String>,
        #[case] service: Option<(&str, String, i32)>,
    ) {
        let (validating, _) = typed(&registration(&["a"], target));
        let config = validating.webhooks.unwrap_or_default().into_iter().next().expect("a webhook").client_config;
        assert_eq!(config.url, url);
        let found =
            config.service.map(|found| (found.namespace, found.path.unwrap_or_default(), found.port.unwrap_or(443)));
        assert_eq!(found, service.map(|(namespace, path, port)| (namespace.to_owned(), path, port)));
        assert_eq!(config.ca_bundle.map(|bundle| bundle.0), Some(b"PEM".to_vec()));
    }

    /// The API server tells whoever applies an object which URL it could not reach.
    #[test]
    fn the_token_is_in_the_path_of_evictions_alone() {
        let registration = registration(&["a"], service());
        assert!(!format!("{registration:?}").contains(TOKEN), "logs");
        let (validating, mutating) = typed(&registration);
        let validating =
            validating.webhooks.unwrap_or_default().into_iter().map(|hook| (hook.name, hook.client_config));
        let mutating = mutating.webhooks.unwrap_or_default().into_iter().map(|hook| (hook.name, hook.client_config));
        let with_token = validating.chain(mutating).filter(|(_, config)| format!("{config:?}").contains(TOKEN));
        assert_eq!(with_token.map(|(name, _)| name).collect::<Vec<_>>(), ["evictions.spawnery.cloud"]);
    }

    #[rstest]
    #[case::game("minecraft", true)]
    #[case::our_own("ops", false)]
    #[case::of_kubernetes("kube-system", false)]
    fn some_namespaces_never_match(#[case] namespace: &str, #[case] want: bool) {
        assert_eq!(may_be_watched(namespace, "ops"), want);
    }

    #[test]
    fn our_cluster_role_owns_it() {
        let (validating, mutating) = typed(&registration(&["a"], service()));
        for meta in [validating.metadata, mutating.metadata] {
            let owners: Vec<_> =
                meta.owner_references.unwrap_or_default().into_iter().map(|owner| owner.name).collect();
            assert_eq!(owners, ["spawnery-operator"]);
        }
    }
}
