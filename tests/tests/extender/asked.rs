//! The two ways in which a scheduler comes to ask.

use super::{LIMIT, apply, calls, kubectl, lobbies, unplaced, with_extender};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use spawnery_api::{
    names::{object, resource},
    scheduler,
};
use spawnery_tests::{
    Launch, binary, eventually,
    stack::{Arena, StackOptions},
};

/// A pod that is nobody's.
fn foreign(namespace: &str, name: &str, scheduler: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{ "name": "sleep", "image": "example.test/sleep:1" }],
        },
    })
    .to_string()
}

async fn placed(arena: &Arena, pod: &str) -> Result<Pod> {
    eventually(LIMIT, &format!("pod {pod} to be placed"), || async {
        let found = arena.pods().get(pod).await?;
        ensure!(found.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()), "it is not");
        Ok(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clusters_own_scheduler_asks_about_marked_pods_alone() -> Result<()> {
    let options = StackOptions { reconciler_flags: vec!["--placement-resource".to_owned()], ..with_extender(&[]) };
    Arena::run("marked", options, async |arena| {
        // The control: no node has any of the resource, so without the configuration nothing of ours is placed.
        apply(&arena, &arena.network()).await?;
        unplaced(&arena, &format!("Insufficient {}", resource::PLACEMENT)).await?;

        let cluster = arena.stack().cluster();
        let url = arena.stack().extender_entry().await?.url;
        let xtask = Launch::new("xtask", binary("xtask").await?)
            .args(["scheduler-config", "--url", &url, "--timeout-ms", "5000", "--kubeconfig"])
            .arg(cluster.kubeconfig());
        let printed = spawnery_tests::command::run(&xtask, None, LIMIT).await?.stdout()?;
        let mut snippet: Value = serde_saphyr::from_str(&printed).context("what was printed is no YAML")?;
        snippet.as_object_mut().context("no object")?.retain(|key, _| key == "extenders");
        cluster.configure_scheduler(&snippet).await?;
        arena.network().wait_ready(arena.stack(), arena.namespace()).await?;

        let extender = arena.stack().extender(0)?;
        ensure!(calls(extender, "filter", "decided").await? >= 2, "the scheduler does not ask");
        cluster.apply(&foreign(arena.namespace(), "foreign", "default-scheduler")).await?;
        placed(&arena, "foreign").await?;
        ensure!(calls(extender, "filter", "foreign").await? == 0, "other people's pods are asked about");
        Ok(())
    })
    .await
}

/// The rights that the chart gives the second scheduler.
fn second_schedulers_rights() -> String {
    let namespace = object::OPERATOR_NAMESPACE;
    let subject = json!([{ "kind": "ServiceAccount", "name": object::SCHEDULER, "namespace": namespace }]);
    let rbac = "rbac.authorization.k8s.io";
    let binding = |kind: &str, meta: Value, role: Value| {
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": kind, "metadata": meta, "subjects": subject,
            "roleRef": { "apiGroup": rbac, "kind": role["kind"], "name": role["name"] },
        })
    };
    let cluster = |role: &str| {
        let meta = json!({ "name": format!("{}:{role}", object::SCHEDULER) });
        binding("ClusterRoleBinding", meta, json!({ "kind": "ClusterRole", "name": role }))
    };
    let own = || json!({ "name": object::SCHEDULER, "namespace": namespace });
    let reader = json!({ "kind": "Role", "name": "extension-apiserver-authentication-reader" });
    let documents = [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": own() }),
        cluster("system:kube-scheduler"),
        cluster("system:volume-scheduler"),
        binding("RoleBinding", json!({ "name": object::SCHEDULER, "namespace": "kube-system" }), reader),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": own(),
            "rules": [
                { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
                { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                  "resourceNames": [object::SCHEDULER], "verbs": ["get", "update"] },
            ],
        }),
        binding("RoleBinding", own(), json!({ "kind": "Role", "name": object::SCHEDULER })),
    ];
    let documents = documents.iter().map(|document| format!("---\n{document}\n"));
    documents.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_scheduler_places_what_asks_for_it() -> Result<()> {
    let named = format!("--scheduler-name={}", object::SCHEDULER_NAME);
    let options = StackOptions { reconciler_flags: vec![named], ..with_extender(&[]) };
    Arena::run("second", options, async |arena| {
        let cluster = arena.stack().cluster();
        let extender = arena.stack().extender(0)?;
        // The control: the cluster's own scheduler leaves our pods alone.
        apply(&arena, &arena.network()).await?;
        cluster.apply(&foreign(arena.namespace(), "foreign", "default-scheduler")).await?;
        placed(&arena, "foreign").await?;
        eventually(LIMIT, "a server's pod", || async {
            ensure!(!lobbies(&arena).await?.is_empty(), "there is none");
            Ok(())
        })
        .await?;
        ensure!(lobbies(&arena).await?.into_values().flatten().next().is_none(), "somebody placed our pods");

        cluster.apply(&second_schedulers_rights()).await?;
        let account = cluster.service_account(object::OPERATOR_NAMESPACE, object::SCHEDULER).await?;
        let mut config = scheduler::second(object::OPERATOR_NAMESPACE, &arena.stack().extender_entry().await?);
        config["clientConnection"] = json!({ "kubeconfig": account.kubeconfig() });
        let file = cluster.directory().join("second-scheduler.json");
        std::fs::write(&file, config.to_string()).context("could not write the configuration")?;
        let second = cluster
            .binaries()
            .component("kube-scheduler")
            .arg(format!("--config={}", file.display()))
            .arg("--secure-port=0")
            .log(cluster.log_dir().join("second-scheduler.log"))
            .start()?;
        arena.network().wait_ready(arena.stack(), arena.namespace()).await?;
        ensure!(calls(extender, "filter", "decided").await? >= 2, "the second scheduler does not ask");

        let ours = arena.pods().list(&ListParams::default().labels("spawnery.cloud/managed-by")).await?;
        for pod in &ours {
            let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
            ensure!(scheduler == Some(object::SCHEDULER_NAME), "{} is for {scheduler:?}", pod.name_any());
        }
        kubectl(&arena, &["get", "lease", object::SCHEDULER, "--namespace", object::OPERATOR_NAMESPACE]).await?;
        let log = second.tail(500);
        let lacks: Vec<&str> = log.lines().filter(|line| line.contains("forbidden")).collect();
        ensure!(lacks.is_empty(), "the second scheduler lacks rights: {lacks:#?}");
        Ok(())
    })
    .await
}
