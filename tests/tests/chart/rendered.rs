//! What the chart renders, where the API server would not complain but somebody would.

use crate::helm::{NAMESPACE, find, names, render};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use spawnery_api::names::{label, object, port};
use spawnery_api::scheduler::{Extender, Trust, second};
use spawnery_api::v1alpha1::crds;

const EVERYTHING: [&str; 2] = ["extender.enabled=true", "scheduler.enabled=true"];

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn selects(selector: &Value, labels: &Value) -> bool {
    selector.as_object().is_some_and(|pairs| pairs.iter().all(|(key, value)| labels[key] == *value))
}

/// With numbers as they are meant: 1 and 1.0 are the same to the API server.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

fn deployments(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects.iter().filter(|object| object["kind"] == "Deployment")
}

/// Upstream's names, and none of its objects missing.
#[tokio::test]
async fn objects_have_upstreams_names() -> Result<()> {
    let names = names(&render(&[]).await?);
    for name in [
        "ClusterRole spawnery-operator",
        "ClusterRoleBinding spawnery-operator",
        "CustomResourceDefinition networks.spawnery.cloud",
        "CustomResourceDefinition proxygroups.spawnery.cloud",
        "CustomResourceDefinition servergroups.spawnery.cloud",
        "CustomResourceDefinition servers.spawnery.cloud",
        "Deployment spawnery-operator",
        "NetworkPolicy spawnery-operator-agent",
        "Role spawnery-operator",
        "RoleBinding spawnery-operator",
        "Service spawnery-operator",
        "ServiceAccount spawnery-operator",
    ] {
        assert!(names.iter().any(|found| found == name), "no {name} in {names:#?}");
    }
    // The leader's, once there is somebody to call; a chart that brought it would lock itself out.
    assert!(!names.iter().any(|name| name.contains("WebhookConfiguration") || name.starts_with("Namespace ")));
    Ok(())
}

/// Helm never upgrades what is in its folder for definitions, so ours are templates; uninstalling must leave them.
#[tokio::test]
async fn definitions_are_whole_and_stay() -> Result<()> {
    let objects = render(&[]).await?;
    for definition in crds()? {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let rendered = find(&objects, "CustomResourceDefinition", &name)?;
        assert_eq!(plain(&rendered["spec"]), plain(&serde_json::to_value(&definition.spec)?), "{name}");
        assert_eq!(rendered["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
    let without = render(&["crds.install=false"]).await?;
    assert!(without.iter().all(|object| object["kind"] != "CustomResourceDefinition"));
    Ok(())
}

/// The leader writes the component of its own pod. Were it in the selector, its ReplicaSet would lose the pod.
#[tokio::test]
async fn a_pod_that_becomes_the_leader_stays_its_deployments() -> Result<()> {
    let objects = render(&EVERYTHING).await?;
    let operator = find(&objects, "Deployment", object::OPERATOR)?;
    let selector = &operator["spec"]["selector"]["matchLabels"];
    assert!(selector.get(label::APP_COMPONENT).is_none(), "{selector}");
    let labels = &operator["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels[label::APP_COMPONENT], label::COMPONENT_STANDBY);
    let mut leading = labels.clone();
    leading[label::APP_COMPONENT] = json!(label::COMPONENT_OPERATOR);
    let service = &find(&objects, "Service", object::OPERATOR)?["spec"];
    assert!(selects(&service["selector"], &leading) && !selects(&service["selector"], labels));
    assert_eq!(service["ports"][0]["port"], port::AGENT);
    let policy = &find(&objects, "NetworkPolicy", object::OPERATOR_POLICY)?["spec"]["podSelector"]["matchLabels"];
    assert!(selects(policy, &leading) && !selects(policy, labels));
    // Upstream's suite counts the pods with that pair of labels; no other part may carry it.
    for deployment in deployments(&objects) {
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert!(!selects(&service["selector"], labels), "{}", deployment["metadata"]["name"]);
    }
    Ok(())
}

/// Selectors of Deployments, Services, budgets and policies fit the pods that they are about, and no others.
#[tokio::test]
async fn selectors_select_their_own_part_alone() -> Result<()> {
    let objects = render(&EVERYTHING).await?;
    for deployment in deployments(&objects) {
        let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let budget = find(&objects, "PodDisruptionBudget", name)?;
        let policy = find(&objects, "NetworkPolicy", name)?;
        let selectors = [
            &deployment["spec"]["selector"]["matchLabels"],
            &budget["spec"]["selector"]["matchLabels"],
            &policy["spec"]["podSelector"]["matchLabels"],
        ];
        for selector in selectors {
            assert!(selects(selector, labels), "{name}: {selector}");
            for other in deployments(&objects).filter(|other| other["metadata"]["name"] != name) {
                assert!(!selects(selector, &other["spec"]["template"]["metadata"]["labels"]), "{name}: {selector}");
            }
        }
        let preferred = &deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][PREFERRED];
        let terms: Vec<&Value> =
            preferred.as_array().into_iter().flatten().map(|term| &term["podAffinityTerm"]).collect();
        let keys: Vec<&Value> = terms.iter().map(|term| &term["topologyKey"]).collect();
        assert_eq!(keys, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"], "{name}: replicas are kept apart");
        for term in terms {
            assert!(selects(&term["labelSelector"]["matchLabels"], labels), "{name}: {term}");
        }
    }
    Ok(())
}

/// The strictest of Kubernetes' pod security standards.
#[tokio::test]
async fn pods_are_restricted() -> Result<()> {
    for deployment in deployments(&render(&EVERYTHING).await?) {
        let name = &deployment["metadata"]["name"];
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        let context = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
        });
        let mut found = pod["containers"][0]["securityContext"].clone();
        if let Some(fields) = found.as_object_mut() {
            // kube-scheduler's image does not say who it runs as.
            fields.remove("runAsUser");
        }
        assert_eq!(found, context, "{name}");
        assert_eq!(pod["priorityClassName"], "spawnery", "{name}");
    }
    Ok(())
}

/// A pod of ours that finds no room must not throw out a server with people on it.
#[tokio::test]
async fn we_preempt_nobody() -> Result<()> {
    let objects = render(&[]).await?;
    assert_eq!(find(&objects, "PriorityClass", "spawnery")?["preemptionPolicy"], "Never");
    Ok(())
}

/// A webhook that is told to end serves on for its delay, then finishes; the kubelet must not kill it before.
#[tokio::test]
async fn a_webhook_may_finish() -> Result<()> {
    let objects = render(&["webhook.shutdownDelaySeconds=30"]).await?;
    let spec = &find(&objects, "Deployment", object::WEBHOOK)?["spec"];
    let pod = &spec["template"]["spec"];
    let args = pod["containers"][0]["args"].to_string();
    assert!(args.contains("--shutdown-delay=30s"), "{args}");
    let grace = pod["terminationGracePeriodSeconds"].as_i64().unwrap_or_default();
    // Delay, the default grace of 5 s, and the second that the process adds.
    ensure!(grace > 30 + 5 + 1, "killed after {grace} s");
    assert_eq!(spec["strategy"]["rollingUpdate"], json!({ "maxUnavailable": 0, "maxSurge": 1 }));
    Ok(())
}

/// The programs take the flags that the chart gives them.
#[tokio::test]
async fn programs_take_their_flags() -> Result<()> {
    use spawnery_tests::{Launch, command::run, target::binary};
    let placed = ["extender.enabled=true", "placement.managedResource=true", "operator.drainTaints={a/b,c}"];
    for values in [EVERYTHING.as_slice(), &placed, &["operator.extraArgs={--unconfirmed-grace=5s}"]] {
        let objects = render(values).await?;
        let tests = objects.iter().filter(|object| object["kind"] == "Pod").map(|pod| &pod["spec"]);
        let pods = deployments(&objects).map(|deployment| &deployment["spec"]["template"]["spec"]).chain(tests);
        for pod in pods {
            let container = &pod["containers"][0];
            let command = container["command"][0].as_str().unwrap_or_default();
            let Some(program) = command.strip_prefix("/usr/local/bin/") else {
                assert_eq!(command, "kube-scheduler");
                continue;
            };
            let args = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
            // Flags are read before anything else is done; --help then ends the program.
            let launch = Launch::new(program, binary(program).await?).args(args.chain(["--help"]));
            run(&launch, None, std::time::Duration::from_secs(10)).await?.stdout()?;
        }
    }
    Ok(())
}

/// What the chart's scheduler is told is what the product's own code would tell one.
#[tokio::test]
async fn the_schedulers_configuration_verifies_the_extender() -> Result<()> {
    let objects = render(&EVERYTHING).await?;
    let text = find(&objects, "ConfigMap", "spawnery-scheduler")?["data"]["config.yaml"].as_str().unwrap_or_default();
    let config: Value = serde_saphyr::from_str(text)?;
    let trust = Trust::File("/etc/kubernetes/extender/ca.crt".to_owned());
    assert_eq!(config, second(NAMESPACE, &Extender::in_namespace(NAMESPACE, trust)));
    // The file is there, and the private key beside it is not.
    let pod = &find(&objects, "Deployment", object::SCHEDULER)?["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["volumeMounts"][1]["mountPath"], "/etc/kubernetes/extender");
    let items = json!([{ "key": "ca.crt", "path": "ca.crt" }]);
    assert_eq!(pod["volumes"][1]["secret"], json!({ "secretName": object::EXTENDER_TLS_SECRET, "items": items }));
    Ok(())
}

/// Secrets by name, in the namespaces that were named.
#[tokio::test]
async fn forwarding_secrets_are_read_by_name() -> Result<()> {
    let objects = render(&["forwardingSecrets[0].namespace=games", "forwardingSecrets[0].names={forwarding}"]).await?;
    let reader = find(&objects, "Role", object::FORWARDING_READER)?;
    assert_eq!(reader["metadata"]["namespace"], "games");
    let rules =
        json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["forwarding"], "verbs": ["get"] }]);
    assert_eq!(reader["rules"], rules);
    let binding = find(&objects, "RoleBinding", object::FORWARDING_READER)?;
    assert_eq!(binding["subjects"][0]["namespace"], NAMESPACE);
    Ok(())
}
