//! The test ground itself: what other tests rely on.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use rstest::rstest;
use serde_json::{Value, json};
use spawnery_tests::{Cluster, ClusterConfig, Component, Launch, Rule, eventually, fault::rule::Fault};
use std::{
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const SECOND: Duration = Duration::from_secs(1);

async fn with_node() -> Result<Cluster> {
    let cluster =
        Cluster::start(ClusterConfig { nodes: vec!["node-a".to_owned()], ..ClusterConfig::default() }).await?;
    Ok(cluster)
}

fn pod(name: &str, annotations: &Value, probe: &Value) -> Pod {
    let container = json!({ "name": "game", "image": "example.com/game", "readinessProbe": probe });
    let pod = json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "containers": [container], "terminationGracePeriodSeconds": 0 },
    });
    serde_json::from_value(pod).expect("a pod")
}

fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == name).map(|condition| condition.status.as_str())
}

async fn running(pods: &Api<Pod>, name: &str) -> Result<(Pod, Ipv4Addr)> {
    eventually(20 * SECOND, &format!("pod {name} to run"), || async {
        let pod = pods.get(name).await?;
        let status = pod.status.clone().unwrap_or_default();
        ensure!(status.phase.as_deref() == Some("Running"), "{status:?}");
        let ip = status.pod_ip.context("no address")?.parse()?;
        Ok((pod, ip))
    })
    .await
}

#[tokio::test]
async fn pods_run_at_addresses_that_can_be_dialled() -> Result<()> {
    let start = Instant::now();
    let cluster = with_node().await?;
    println!("start to a Ready node: {:?}", start.elapsed());
    let client = cluster.client().await?;
    cluster
        .with_namespace("pods", |ns| async move {
            let pods: Api<Pod> = Api::namespaced(client, ns.name());
            let create = PostParams::default();
            let probe = json!({ "tcpSocket": { "port": 8081 } });
            pods.create(&create, &pod("plain", &json!({}), &Value::Null)).await?;
            pods.create(&create, &pod("probed", &json!({}), &probe)).await?;
            pods.create(&create, &pod("held", &json!({ "tests.spawnery.cloud/stay": "pending" }), &Value::Null))
                .await?;
            let start = Instant::now();
            let (plain, plain_ip) = running(&pods, "plain").await?;
            println!("pod to Running: {:?}", start.elapsed());
            let (probed, probed_ip) = running(&pods, "probed").await?;
            ensure!(condition(&plain, "Ready") == Some("True"), "a pod without a probe is Ready at once");
            ensure!(condition(&probed, "Ready") == Some("False"), "a pod with a probe is not Ready by itself");
            for ip in [plain_ip, probed_ip] {
                ensure!(
                    ip.octets()[..2] == ns.cluster().address().octets()[..2],
                    "{ip} is not in the cluster's network"
                );
                TcpListener::bind((ip, 25565)).with_context(|| format!("{ip} is no address of this machine"))?;
            }
            ensure!(plain_ip != probed_ip, "two pods share {plain_ip}");
            let held = pods.get("held").await?.status.unwrap_or_default();
            ensure!(held.phase.as_deref() == Some("Pending") && held.pod_ip.is_none(), "{held:?}");
            pods.delete("plain", &DeleteParams::default()).await?;
            eventually(10 * SECOND, "the pod to go", || async {
                ensure!(pods.get_opt("plain").await?.is_none(), "still there");
                Ok(())
            })
            .await
        })
        .await
}

#[tokio::test]
async fn a_service_account_has_its_own_rights_and_its_requests_are_counted() -> Result<()> {
    let cluster = Cluster::shared().await?;
    cluster
        .with_namespace("audit", |ns| async move {
            let cluster = ns.cluster();
            let identity = cluster.service_account(ns.name(), "default").await?;
            let pods: Api<Pod> = Api::namespaced(identity.client().await?, ns.name());
            let mark = cluster.audit().mark()?;
            for _ in 0..3 {
                let refused = pods.list(&kube::api::ListParams::default()).await;
                ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "{refused:?}");
            }
            let said = cluster.kubectl_as(identity.kubeconfig(), ["auth", "whoami"]).await?.stdout()?;
            ensure!(said.contains(identity.user()), "{said}");
            let counts = eventually(5 * SECOND, "all requests in the log", || async {
                let counts = cluster.audit().requests(identity.user(), mark)?;
                ensure!(counts.of("list", "pods") >= 3, "{counts}");
                Ok(counts)
            })
            .await?;
            ensure!(counts.of("list", "pods") == 3, "{counts}");
            ensure!(counts.of("create", "selfsubjectreviews") == 1, "{counts}");
            let others = cluster.audit().requests("system:serviceaccount:nobody:nobody", mark)?;
            ensure!(others.total() == 0, "{others}");
            Ok(())
        })
        .await
}

#[tokio::test]
async fn kubectl_and_helm_are_of_the_pinned_versions() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let versions: Value = serde_json::from_str(&cluster.kubectl(["version", "-o", "json"]).await?.stdout()?)?;
    let wanted = format!("v{}", spawnery_tests::kubernetes::VERSION);
    for side in ["clientVersion", "serverVersion"] {
        ensure!(versions.pointer(&format!("/{side}/gitVersion")) == Some(&json!(wanted)), "{versions}");
    }
    cluster.helm(["version"]).await?.stdout()?;
    let releases = cluster.helm(["list", "--all-namespaces", "-o", "json"]).await?.stdout()?;
    ensure!(releases.trim() == "[]", "{releases}");
    Ok(())
}

#[tokio::test]
async fn a_test_that_fails_or_panics_still_loses_its_namespace() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let failed = cluster.with_namespace("fails", |_| async { anyhow::bail!("as it should") }).await;
    ensure!(failed.unwrap_err().to_string() == "as it should");
    let doomed = cluster.clone();
    let panicked = tokio::spawn(async move { doomed.with_namespace("panics", |_| async { panic!("as asked") }).await });
    ensure!(panicked.await.unwrap_err().is_panic(), "the panic is the test's");
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client().await?);
    eventually(30 * SECOND, "both namespaces to go", || async {
        let list = namespaces.list(&kube::api::ListParams::default()).await?;
        let names: Vec<_> = list.items.into_iter().filter_map(|namespace| namespace.metadata.name).collect();
        ensure!(!names.iter().any(|name| name.starts_with("fails-") || name.starts_with("panics-")), "{names:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn components_can_be_frozen_killed_and_restarted() -> Result<()> {
    let cluster = with_node().await?;
    let client = cluster.client().await?;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let all = kube::api::ListParams::default();
    let list = || tokio::time::timeout(SECOND, pods.list(&all));
    list().await.context("a running API server answers")??;
    cluster.freeze(Component::ApiServer)?;
    ensure!(list().await.is_err(), "a frozen API server does not answer");
    cluster.thaw(Component::ApiServer)?;
    eventually(10 * SECOND, "an answer after the thaw", || async { Ok(list().await.context("no answer")??) }).await?;

    // What a component was for does not happen while it is away, and happens when it is back.
    cluster.stop(Component::Scheduler).await?;
    pods.create(&PostParams::default(), &pod("waits", &json!({}), &Value::Null)).await?;
    for component in [Component::Etcd, Component::ApiServer, Component::ControllerManager, Component::Kwok] {
        let start = Instant::now();
        cluster.restart(component).await.with_context(|| format!("restart of {component}"))?;
        println!("restart of {component}: {:?}", start.elapsed());
    }
    let waits = pods.get("waits").await?;
    ensure!(waits.spec.unwrap_or_default().node_name.is_none(), "scheduled without a scheduler");
    cluster.restart(Component::Scheduler).await?;
    running(&pods, "waits").await?;
    for component in Component::ALL {
        let megabytes = cluster.on(component, |process| Ok(process.resident_bytes()? / 1_000_000))?;
        println!("{component}: {megabytes} MB resident");
        ensure!(megabytes > 20, "{component} has {megabytes} MB");
    }
    Ok(())
}

#[tokio::test]
async fn the_fault_proxy_does_what_its_rules_say() -> Result<()> {
    let cluster = Cluster::shared().await?;
    cluster
        .with_namespace("faults", |ns| async move {
            let proxy = ns.cluster().fault_proxy().await?;
            // kubectl: it does not try again by itself.
            let kubeconfig = proxy.kubeconfig(&ns.cluster().kubeconfig())?;
            let kubectl = async |command: &str| {
                let args = command.split(' ').chain(["--namespace", ns.name(), "--request-timeout=2s"]);
                ns.cluster().kubectl_as(&kubeconfig, args).await
            };
            let maps: Api<ConfigMap> = Api::namespaced(ns.cluster().client().await?, ns.name());
            kubectl("create configmap through").await?.stdout()?;

            let refused = proxy.add(Rule::on("create", "configmaps").namespace(ns.name()).status(500).times(1));
            let output = kubectl("create configmap refused").await?;
            ensure!(!output.ok() && output.stderr.contains("fault proxy"), "{output:?}");
            ensure!(proxy.hits(refused) == 1 && maps.get_opt("refused").await?.is_none());
            kubectl("create configmap refused").await?.stdout().context("the rule was for once")?;

            let late = proxy.add(Rule::on("get", "configmaps").delay(SECOND));
            let start = Instant::now();
            kubectl("get configmap through").await?.stdout()?;
            ensure!(start.elapsed() >= SECOND, "answered after {:?}", start.elapsed());
            proxy.remove(late);

            proxy.add(Rule::on("create", "configmaps").fault(Fault::Drop).times(1));
            ensure!(!kubectl("create configmap dropped").await?.ok() && maps.get_opt("dropped").await?.is_none());
            proxy.add(Rule::on("create", "configmaps").fault(Fault::DropAnswer).times(1));
            ensure!(!kubectl("create configmap unanswered").await?.ok());
            ensure!(maps.get_opt("unanswered").await?.is_some(), "only the answer is lost");
            proxy.add(Rule::on("create", "configmaps").fault(Fault::Hang).times(1));
            ensure!(!kubectl("create configmap hung").await?.ok() && maps.get_opt("hung").await?.is_none());
            watch_until_cut(&proxy, ns.name()).await
        })
        .await
}

/// A watch streams through the proxy, and ends when its connection is cut.
async fn watch_until_cut(proxy: &spawnery_tests::FaultProxy, namespace: &str) -> Result<()> {
    use futures::StreamExt as _;
    let maps: Api<ConfigMap> = Api::namespaced(proxy.client().await?, namespace);
    let mut watch = maps.watch(&kube::api::WatchParams::default(), "0").await?.boxed();
    let first = tokio::time::timeout(10 * SECOND, watch.next()).await.context("no event")?;
    ensure!(matches!(first, Some(Ok(_))), "{first:?}");
    proxy.cut();
    let end = async { while let Some(Ok(_)) = watch.next().await {} };
    tokio::time::timeout(10 * SECOND, end).await.context("the watch goes on")
}

/// The processes whose command line holds `text`.
fn processes_with(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(text) {
            found.push(line);
        }
    }
    found
}

#[rstest]
#[case::after_a_panic("panic", None)]
#[case::after_an_exit_that_drops_nothing("exit", None)]
#[case::after_ctrl_c("wait", Some(rustix::process::Signal::INT))]
#[case::after_a_kill("wait", Some(rustix::process::Signal::KILL))]
#[tokio::test]
async fn nothing_is_left_running(#[case] end: &str, #[case] signal: Option<rustix::process::Signal>) -> Result<()> {
    let output = tempfile::tempdir()?;
    let (out, log) = (output.path().join("out"), output.path().join("log"));
    let doomed = Launch::new("doomed", env!("CARGO_BIN_EXE_doomed")).arg(end).stdout(&out).log(&log).start()?;
    let directory: PathBuf = eventually(90 * SECOND, "the cluster", || async {
        let text = std::fs::read_to_string(&out)?;
        let line = text.strip_suffix('\n').with_context(|| format!("not started\n{}", doomed.tail(20)))?;
        Ok(line.into())
    })
    .await?;
    if let Some(signal) = signal {
        let name = directory.display().to_string();
        ensure!(processes_with(&name).len() > Component::ALL.len(), "{:?}", processes_with(&name));
        // The process alone, as the kernel's OOM killer would; its group would take the children with it.
        let pid = rustix::process::Pid::from_raw(doomed.pid()).context("no pid")?;
        rustix::process::kill_process(pid, signal)?;
    }
    doomed.wait(20 * SECOND).await?;
    gone(&directory).await
}

async fn gone(directory: &Path) -> Result<()> {
    eventually(10 * SECOND, "everything to be gone", || async {
        let left = processes_with(&directory.display().to_string());
        ensure!(left.is_empty(), "still running: {left:#?}");
        ensure!(!directory.exists(), "{} is still there", directory.display());
        Ok(())
    })
    .await
}
