//! What takes a leader: a pod that was never registered is sealed on request; the path of evictions is kept secret, and is
//! replaced with its token; what somebody adds to the registration does not stay.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use spawnery_api::names::{label, object};
use spawnery_api::v1alpha1::Server;
use spawnery_tests::stack::{Stack, StackOptions, eviction_path};
use spawnery_tests::{Cluster, ClusterConfig, Namespace, eventually};

use crate::lone::{LIMIT, evict, patient_client};

/// A group whose pods no node takes.
fn homeless(namespace: &Namespace) -> String {
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "spawnery.cloud/v1alpha1", "kind": kind,
            "metadata": { "name": name, "namespace": namespace.name() }, "spec": spec,
        })
    };
    let network = object("Network", "main", json!({ "forwardingSecretRef": { "name": "forwarding" } }));
    let group = json!({
        "networkRef": { "name": "main" }, "type": "Ephemeral", "image": "example.test/lobby:1", "maxPlayers": 20,
        "scaling": { "minReplicas": 1, "maxReplicas": 2, "spareSlots": 0 },
        "scheduling": { "nodeSelector": { "tests.spawnery.cloud/none": "such" } },
    });
    format!("---\n{network}\n---\n{}\n", object("ServerGroup", "lobby", group))
}

async fn only_pod(pods: &Api<Pod>) -> Result<Pod> {
    let selector = format!("{}={}", label::MANAGED_BY, label::MANAGED_BY_VALUE);
    eventually(LIMIT, "the group's pod", || async {
        let found = pods.list(&ListParams::default().labels(&selector)).await?;
        found.items.into_iter().next().context("no pod")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_a_leader() -> Result<()> {
    let config = ClusterConfig { nodes: vec!["node-a".to_owned()], ..ClusterConfig::default() };
    let cluster = Cluster::start(config).await?;
    let stack = Stack::start(&cluster, StackOptions::default()).await.with_context(|| cluster.log_tails(20))?;
    a_pod_that_was_never_registered_is_sealed_on_request(&cluster, &stack).await?;
    the_path_of_evictions_is_told_to_the_api_server_alone(&cluster, &stack).await?;
    what_somebody_adds_to_the_registration_is_taken_out_again(&cluster).await
}

async fn a_pod_that_was_never_registered_is_sealed_on_request(cluster: &Cluster, stack: &Stack) -> Result<()> {
    let result = cluster.with_namespace("never", async |namespace| {
        stack.cluster().apply(&homeless(&namespace)).await?;
        let client = patient_client(cluster).await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace.name());
        let servers: Api<Server> = Api::namespaced(client.clone(), namespace.name());
        let pod = only_pod(&pods).await?;
        let name = pod.name_any();
        let dry = json!({ "deleteOptions": { "dryRun": ["All"] } });
        eventually(LIMIT, "the webhook to judge the pod", || async {
            let answer = evict(&client, &namespace, &name, &dry, "").await?;
            ensure!(answer.code == 201 && !answer.warnings.is_empty(), "{answer:?}");
            Ok(())
        })
        .await?;
        eventually(LIMIT, "the eviction", || async {
            let answer = evict(&client, &namespace, &name, &Value::Null, "").await?;
            ensure!(answer.code == 201, "{answer:?}");
            Ok(())
        })
        .await?;
        eventually(LIMIT, "another pod in its place, never registered like it", || async {
            for server in servers.list(&ListParams::default()).await? {
                ensure!(server.status.as_ref().is_none_or(|status| !status.was_registered), "{server:?}");
            }
            let found = pods.list(&ListParams::default()).await?;
            let others = found.items.iter().filter(|other| other.uid() != pod.uid());
            ensure!(others.count() == 1 && found.items.len() == 1, "{} pods", found.items.len());
            Ok(())
        })
        .await
    });
    result.await
}

async fn the_path_of_evictions_is_told_to_the_api_server_alone(cluster: &Cluster, stack: &Stack) -> Result<()> {
    let story = async |namespace: Namespace| {
        stack.cluster().apply(&homeless(&namespace)).await?;
        let client = patient_client(cluster).await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace.name());
        let pod = only_pod(&pods).await?.name_any();
        let dry = json!({ "deleteOptions": { "dryRun": ["All"] } });
        let judged = async || {
            let answer = evict(&client, &namespace, &pod, &dry, "").await?;
            ensure!(answer.code == 201 && !answer.warnings.is_empty(), "{answer:?}");
            Ok(())
        };
        eventually(LIMIT, "the webhook to judge the pod", judged).await?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), object::OPERATOR_NAMESPACE);
        let stored = async || {
            let data = secrets.get(object::WEBHOOK_TLS_SECRET).await?.data.unwrap_or_default();
            let token = data.get(object::EVICTION_TOKEN_KEY).context("no token")?;
            anyhow::Ok(String::from_utf8(token.0.clone())?)
        };
        let first = stored().await?;
        ensure!(eviction_path(&client).await? == format!("/evictions/{first}"), "another path is registered");

        let patch = json!({ "data": { object::EVICTION_TOKEN_KEY: null } });
        secrets.patch(object::WEBHOOK_TLS_SECRET, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        // A leader looks after the Secrets when it begins, and then every minute.
        let reconciler = stack.reconciler(0)?;
        reconciler.stop().await?;
        reconciler.start()?;
        let second = eventually(LIMIT, "another token", stored).await?;
        ensure!(second != first, "the token that was deleted is back");
        eventually(LIMIT, "the other path to be registered", || async {
            ensure!(eviction_path(&client).await? == format!("/evictions/{second}"), "still the old one");
            Ok(())
        })
        .await?;
        eventually(LIMIT, "the webhook to judge the pod again", judged).await?;
        for replica in [reconciler, stack.webhook(0)?] {
            let log = replica.with(|process| Ok(std::fs::read_to_string(process.log_path().context("no log")?)?))?;
            let metrics = replica.metrics().await?;
            for token in [&first, &second] {
                ensure!(!log.contains(token), "{} logs the token", replica.name());
                ensure!(!metrics.contains(token), "{} shows the token", replica.name());
            }
        }
        Ok(())
    };
    cluster.with_namespace("told", story).await
}

/// A condition that is never true makes the API server ask us nothing, while everything about us looks well.
async fn what_somebody_adds_to_the_registration_is_taken_out_again(cluster: &Cluster) -> Result<()> {
    let registrations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client().await?);
    let conditions = async || {
        let registration = registrations.get(object::WEBHOOK_CONFIGURATION).await?;
        let hooks = registration.webhooks.context("no webhooks")?;
        let at =
            hooks.iter().position(|hook| hook.name == "evictions.spawnery.cloud").context("no hook for evictions")?;
        let conditions = hooks.into_iter().nth(at).and_then(|hook| hook.match_conditions).unwrap_or_default();
        anyhow::Ok((at, conditions))
    };
    let (at, before) = conditions().await?;
    ensure!(before.is_empty(), "{before:?}");
    let patch = json!([{
        "op": "add", "path": format!("/webhooks/{at}/matchConditions"),
        "value": [{ "name": "never", "expression": "false" }],
    }]);
    let patch = Patch::Json::<()>(serde_json::from_value(patch)?);
    let added = registrations.patch(object::WEBHOOK_CONFIGURATION, &PatchParams::default(), &patch).await?;
    ensure!(serde_json::to_string(&added)?.contains(r#""name":"never""#), "the API server did not take it");
    eventually(LIMIT, "the condition to go", || async {
        let (_, conditions) = conditions().await?;
        ensure!(conditions.is_empty(), "{conditions:?}");
        Ok(())
    })
    .await
}
