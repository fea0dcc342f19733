//! The chart on a real API server: installed by helm, at work under the rights that it gives, and gone without a trace.
//!
//! kwok runs no images, so the parts run as processes beside their pods, under the accounts that the chart made.

use crate::{docs::finalizers_command, helm::chart};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::{
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        coordination::v1::Lease,
        core::v1::{Namespace, Pod, Secret},
        flowcontrol::v1::FlowSchema,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use spawnery_api::names::{label, object};
use spawnery_tests::{
    Cluster, ClusterConfig, Launch,
    command::run,
    eventually,
    stack::{SmallNetwork, Stack, StackOptions},
};
use std::{collections::BTreeSet, time::Duration};

const LIMIT: Duration = Duration::from_mins(1);
const OPERATOR: &str = object::OPERATOR_NAMESPACE;
const GAMES: &str = "games";
/// Where upstream's user and the leader's label meet.
const LEADERS: &str = "app.kubernetes.io/name=spawnery,app.kubernetes.io/component=operator";

async fn install(cluster: &Cluster, values: &str) -> Result<()> {
    let chart = chart().display().to_string();
    let args = ["install", "spawnery", &chart, "--namespace", OPERATOR, "--create-namespace", "--set", values];
    cluster.helm(args).await?.stdout().map(drop)
}

async fn uninstall(cluster: &Cluster) -> Result<()> {
    cluster.helm(["uninstall", "spawnery", "--namespace", OPERATOR, "--wait"]).await?.stdout().map(drop)
}

/// Everything that the API server holds, but what comes and goes by itself; a line each.
async fn snapshot(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let kinds = cluster.kubectl(["api-resources", "--verbs=list", "-o", "name"]).await?.stdout()?;
    let passing = ["events", "events.events.k8s.io", "componentstatuses"];
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !passing.contains(kind)).collect();
    let columns = "-o=custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
    let args = ["get", &kinds.join(","), "--all-namespaces", "--no-headers", "--ignore-not-found", columns];
    let lines = cluster.kubectl(args).await?.stdout()?;
    Ok(lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect())
}

/// Starts our parts beside the pods that helm made.
async fn start(cluster: &Cluster) -> Result<Stack> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, OPERATOR);
    let reconcilers = ListParams::default().labels(&format!("{}=reconciler", label::PART));
    let pod = eventually(LIMIT, "a pod of the operator", || async {
        let found = pods.list(&reconcilers).await?;
        found.items.first().map(kube::ResourceExt::name_any).context("none yet")
    });
    let flags = vec![format!("--pod-name={}", pod.await?)];
    Stack::start(cluster, StackOptions { installed: true, reconciler_flags: flags, ..StackOptions::default() }).await
}

async fn cluster() -> Result<Cluster> {
    let nodes = ["node-1", "node-2"].map(str::to_owned).to_vec();
    Cluster::start(ClusterConfig { nodes, ..ClusterConfig::default() }).await
}

fn owner_of(owners: &[OwnerReference]) -> Option<(&str, &str)> {
    owners.first().map(|owner| (owner.kind.as_str(), owner.name.as_str()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn works_under_the_charts_rights_and_leaves_nothing() -> Result<()> {
    let cluster = cluster().await?;
    let before = snapshot(&cluster).await?;
    // Nothing but what is needed: what runs here runs everywhere.
    install(&cluster, "rbac.upstreamCompatibility=false").await?;
    let stack = start(&cluster).await?;

    leads(&cluster).await?;
    let first = epoch(&cluster).await?;
    registered(&cluster).await?;
    belongs(&cluster).await?;
    is_not_queued(&cluster).await?;

    cluster.kubectl(["create", "namespace", GAMES]).await?.stdout()?;
    SmallNetwork::default().start(&stack, GAMES).await?;
    judges(&cluster).await?;

    // The leader goes on for a while, as a pod does that is being terminated: it must bring nothing back.
    uninstall(&cluster).await?;
    gone(&cluster, &before).await?;
    stack.reconciler(0)?.stop().await?;
    drop(stack);
    gone(&cluster, &before).await?;
    clears_finalizers(&cluster).await?;
    cluster.kubectl(["delete", "namespace", OPERATOR, "--timeout=60s"]).await?.stdout()?;

    // What stayed is no obstacle to the next installation.
    install(&cluster, "operator.leaderElect=true").await?;
    let _again = start(&cluster).await?;
    leads(&cluster).await?;
    let again = epoch(&cluster).await?;
    ensure!(first > 1 && again >= first, "agents would not listen to the second installation: {again} after {first}");
    Ok(())
}

/// One pod carries the leader's label, and its ReplicaSet keeps it.
async fn leads(cluster: &Cluster) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, OPERATOR);
    eventually(LIMIT, "one leading pod", || async {
        let leaders = pods.list(&ListParams::default().labels(LEADERS)).await?.items;
        let [leader] = leaders.as_slice() else { bail!("{} pods carry the leader's label", leaders.len()) };
        ensure!(owner_of(leader.owner_references()).is_some_and(|(kind, _)| kind == "ReplicaSet"), "lost");
        Ok(())
    })
    .await?;
    let all = pods.list(&ListParams::default().labels(&format!("{}=reconciler", label::PART))).await?.items.len();
    ensure!(all == 2, "{all} reconciler pods, not 2");
    Ok(())
}

/// How often the lease has changed hands: the epoch of messages to agents, which outlive an installation.
async fn epoch(cluster: &Cluster) -> Result<i32> {
    let leases: Api<Lease> = Api::namespaced(cluster.client().await?, OPERATOR);
    let lease = leases.get(object::LEASE).await?;
    lease.spec.and_then(|spec| spec.lease_transitions).context("nobody holds the lease")
}

/// The leader registers the webhook, and its ClusterRole owns the registration.
async fn registered(cluster: &Cluster) -> Result<()> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client().await?);
    let name = object::WEBHOOK_CONFIGURATION;
    let found = eventually(LIMIT, "the registration", || async { Ok(configurations.get(name).await?) }).await?;
    ensure!(owner_of(found.owner_references()) == Some(("ClusterRole", object::OPERATOR)), "its owner is another");
    Ok(())
}

/// Certificates belong to the installation.
async fn belongs(cluster: &Cluster) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client().await?, OPERATOR);
    for name in [object::AGENT_TLS_SECRET, object::WEBHOOK_TLS_SECRET] {
        let secret = secrets.get(name).await.with_context(|| format!("no Secret {name}"))?;
        let owner = owner_of(secret.owner_references());
        ensure!(owner == Some(("Role", object::OPERATOR)), "{name} belongs to {owner:?}");
    }
    Ok(())
}

/// The API server puts requests of our accounts, and of ours alone, where the chart says.
async fn is_not_queued(cluster: &Cluster) -> Result<()> {
    let schemas: Api<FlowSchema> = Api::all(cluster.client().await?);
    let ours = schemas.get("spawnery").await?.uid().unwrap_or_default();
    let account = cluster.service_account(OPERATOR, object::OPERATOR).await?;
    let admin = cluster.client().await?;
    for (client, expected) in [(account.client().await?, true), (admin, false)] {
        eventually(LIMIT, "requests to be classified", || async {
            let request = http::Request::get("/api/v1/nodes?limit=1").body(kube::client::Body::empty())?;
            let response = client.clone().send(request).await?;
            let schema = response.headers().get("x-kubernetes-pf-flowschema-uid").context("no schema")?.to_str()?;
            ensure!((schema == ours) == expected, "by schema {schema}, ours is {ours}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The API server asks the webhook, and takes its answer.
async fn judges(cluster: &Cluster) -> Result<()> {
    let twice = format!(
        "apiVersion: spawnery.cloud/v1alpha1\nkind: ProxyGroup\nmetadata: {{name: twice, namespace: {GAMES}}}\nspec: \
         {{networkRef: {{name: main}}, replicas: 1, image: example.test/a:1, expose: {{type: LoadBalancer}}, \
         routing: {{fallbackGroups: [lobby, lobby]}}}}\n"
    );
    let output = cluster.try_apply(&twice).await?;
    ensure!(!output.ok() && output.all().contains("name each group once"), "{}", output.all());
    Ok(())
}

/// Nothing is left outside of the game's own namespace but definitions, and a namespace that holds what every one holds.
async fn gone(cluster: &Cluster, before: &BTreeSet<String>) -> Result<()> {
    let stays = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, namespace, name] = words.as_slice() else { return false };
        match *namespace {
            GAMES => true,
            OPERATOR => matches!((*kind, *name), ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default")),
            _ => match *kind {
                "CustomResourceDefinition" => name.ends_with(".spawnery.cloud"),
                "APIService" => *name == "v1alpha1.spawnery.cloud",
                "Namespace" => [GAMES, OPERATOR].contains(name),
                // Of the game's own Services.
                "IPAddress" => true,
                _ => false,
            },
        }
    };
    eventually(LIMIT, "everything to be gone", || async {
        let now = snapshot(cluster).await?;
        let left: Vec<&String> = now.difference(before).filter(|line| !stays(line)).collect();
        ensure!(left.is_empty(), "{left:#?} are left");
        Ok(())
    })
    .await
}

/// With nobody there to drain, finalizers hold a namespace for ever; the documented command lets it go.
async fn clears_finalizers(cluster: &Cluster) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(cluster.client().await?);
    namespaces.delete(GAMES, &DeleteParams::default()).await?;
    eventually(LIMIT, "the namespace to wait for finalizers", || async {
        let status = namespaces.get(GAMES).await.context("it is gone without the command")?.status.unwrap_or_default();
        let waits = status.conditions.iter().flatten().find(|c| c.type_ == "NamespaceFinalizersRemaining");
        ensure!(waits.is_some_and(|condition| condition.status == "True"), "not yet");
        Ok(())
    })
    .await?;
    let path = std::env::join_paths([cluster.binaries().directory(), "/usr/bin".as_ref(), "/bin".as_ref()])?;
    let shell = Launch::new("sh", "/bin/sh").args(["-euc", &finalizers_command()?]);
    let shell = shell.env("PATH", path).env("KUBECONFIG", cluster.kubeconfig()).env("KUBERC", "off");
    run(&shell, None, LIMIT).await?.stdout()?;
    eventually(LIMIT, "the namespace to be gone", || async {
        ensure!(namespaces.get_opt(GAMES).await?.is_none(), "it is still there");
        Ok(())
    })
    .await
}
