//! Real nodes: what tests on them rely on.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use spawnery_tests::{
    Launch, eventually,
    nodes::{self, RealCluster, RealOptions, network},
};
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const SECOND: Duration = Duration::from_secs(1);

/// A pod that only waits, on this node; ends at once when asked to.
fn pod(name: &str, node: &str) -> Pod {
    pod_with(name, node, &json!({}))
}

fn pod_with(name: &str, node: &str, lifecycle: &Value) -> Pod {
    let pod = json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "containers": [{
                "name": "main", "image": "local.test/pause:1", "imagePullPolicy": "Never", "lifecycle": lifecycle,
            }],
            "terminationGracePeriodSeconds": 10,
        },
    });
    serde_json::from_value(pod).expect("a pod")
}

async fn running(pods: &Api<Pod>, name: &str) -> Result<Pod> {
    eventually(60 * SECOND, &format!("pod {name} to run"), || async {
        let pod = pods.get(name).await?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        ensure!(phase == Some("Running"), "{:?}", pod.status);
        Ok(pod)
    })
    .await
}

/// How long it takes a pod to go once it is deleted.
async fn time_to_go(pods: &Api<Pod>, name: &str) -> Result<Duration> {
    running(pods, name).await?;
    let start = Instant::now();
    pods.delete(name, &DeleteParams::default()).await?;
    eventually(30 * SECOND, &format!("pod {name} to go"), || async {
        ensure!(pods.get_opt(name).await?.is_none(), "still there");
        Ok(())
    })
    .await?;
    Ok(start.elapsed())
}

async fn wait_node(real: &RealCluster, name: &str, ready: bool) -> Result<()> {
    let nodes: Api<Node> = Api::all(real.cluster().client().await?);
    eventually(60 * SECOND, &format!("{name} to be Ready: {ready}"), || async {
        let conditions = nodes.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition.type_ == "Ready").context("no condition")?;
        ensure!((found.status == "True") == ready, "{found:?}");
        Ok(())
    })
    .await
}

/// A Service in front of the CoreDNS pods' health endpoint, with a node port.
async fn health_service(real: &RealCluster) -> Result<(Ipv4Addr, u16)> {
    let services: Api<Service> = Api::namespaced(real.cluster().client().await?, "kube-system");
    let service = json!({
        "metadata": { "name": "health" },
        "spec": {
            "type": "NodePort", "selector": { "k8s-app": "kube-dns" }, "ports": [{ "port": 80, "targetPort": 8080 }],
        },
    });
    let made = services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    let spec = made.spec.context("no spec")?;
    let port = spec.ports.and_then(|ports| ports.first()?.node_port).context("no node port")?;
    Ok((spec.cluster_ip.context("no address")?.parse()?, port.try_into()?))
}

async fn healthy(address: impl Into<IpAddr>, port: u16) -> Result<()> {
    let look = async {
        let mut stream = TcpStream::connect((address.into(), port)).await?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.contains("200 OK"), "{answer}");
        Ok(())
    };
    tokio::time::timeout(2 * SECOND, look).await.context("no answer in 2 s")?
}

#[test]
fn pods_are_found_by_name_and_through_services_and_end_in_their_own_time() -> Result<()> {
    nodes::run(RealOptions::default(), async |real| {
        let cluster = real.cluster();
        let address = nodes::resolve("kubernetes.default.svc.cluster.local").await?;
        ensure!(address == network::API_SERVICE, "{address}");
        ensure!(nodes::resolve("nobody.default.svc.cluster.local").await.is_err(), "a name of nobody");
        let (service, port) = health_service(real).await?;
        for (address, port) in [(service, 80), (real.nodes()[0].address(), port), (real.nodes()[1].address(), port)] {
            let what = format!("an answer at {address}:{port}");
            eventually(20 * SECOND, &what, || healthy(address, port)).await?;
        }

        // Through the kubelet: commands in containers, and what they print.
        let dns = ["--namespace", "kube-system", "deployment/coredns"];
        let said = cluster.kubectl(["exec"].into_iter().chain(dns).chain(["--", "/coredns", "-version"])).await?;
        ensure!(said.stdout()?.contains("CoreDNS-"), "kubectl exec");
        ensure!(cluster.kubectl(["logs"].into_iter().chain(dns)).await?.stdout()?.contains("CoreDNS-"), "kubectl logs");

        // preStop is waited for, within the grace period; without one a pod goes at once.
        let pods: Api<Pod> = Api::namespaced(cluster.client().await?, "default");
        let sleep = json!({ "preStop": { "sleep": { "seconds": 4 } } });
        pods.create(&PostParams::default(), &pod_with("patient", "node-a", &sleep)).await?;
        pods.create(&PostParams::default(), &pod("hasty", "node-a")).await?;
        let (patient, hasty) = (time_to_go(&pods, "patient").await?, time_to_go(&pods, "hasty").await?);
        ensure!(patient >= 4 * SECOND, "gone after {patient:?}");
        ensure!(patient < 10 * SECOND, "killed after {patient:?}, it did not hear SIGTERM");
        ensure!(hasty < 4 * SECOND, "gone only after {hasty:?}");

        // There is no way out.
        let out = tokio::time::timeout(2 * SECOND, TcpStream::connect(("192.0.2.1", 80))).await.context("silence")?;
        ensure!(out.is_err_and(|error| error.kind() == std::io::ErrorKind::NetworkUnreachable), "a way out");
        Ok(())
    })
}

#[test]
fn a_node_crashes_and_boots() -> Result<()> {
    nodes::run(RealOptions::default(), async |real| {
        let pods: Api<Pod> = Api::namespaced(real.cluster().client().await?, "default");
        for node in real.nodes() {
            pods.create(&PostParams::default(), &pod(&format!("on-{}", node.name()), node.name())).await?;
            running(&pods, &format!("on-{}", node.name())).await?;
        }
        let (service, _) = health_service(real).await?;
        eventually(20 * SECOND, "the Service to answer", || healthy(service, 80)).await?;
        let node = real.node("node-a")?;
        let start = Instant::now();
        node.crash().await?;
        ensure!(node.crash().await.is_err(), "it is off already");
        println!("crash: {:?}", start.elapsed());
        wait_node(real, "node-a", false).await?;
        println!("crash to NotReady: {:?}", start.elapsed());
        // The other one, and the way to Services through it.
        eventually(30 * SECOND, "the Service to answer without node-a", || async {
            for _ in 0..10 {
                healthy(service, 80).await?;
            }
            Ok(())
        })
        .await?;
        wait_node(real, "node-b", true).await?;
        eventually(60 * SECOND, "the pod of the dead node to be given up", || async {
            let pod = pods.get("on-node-a").await?;
            ensure!(pod.metadata.deletion_timestamp.is_some(), "{:?}", pod.status);
            Ok(())
        })
        .await?;
        let start = Instant::now();
        node.boot().await?;
        real.ready().await?;
        println!("boot to Ready: {:?}", start.elapsed());
        // The kubelet that is back ends what was given up, and runs what is new. Its images are still there.
        eventually(60 * SECOND, "the old pod to go", || async {
            ensure!(pods.get_opt("on-node-a").await?.is_none(), "still there");
            Ok(())
        })
        .await?;
        pods.create(&PostParams::default(), &pod("after", "node-a")).await?;
        running(&pods, "after").await?;
        let spared = pods.get("on-node-b").await?.status.unwrap_or_default();
        let restarts: i32 =
            spared.container_statuses.unwrap_or_default().iter().map(|status| status.restart_count).sum();
        ensure!(restarts == 0, "a pod of the other node was touched");
        Ok(())
    })
}

#[test]
fn containers_go_on_without_their_kubelet_and_without_a_network() -> Result<()> {
    nodes::run(RealOptions { dns: false, ..RealOptions::default() }, async |real| {
        let pods: Api<Pod> = Api::namespaced(real.cluster().client().await?, "default");
        pods.create(&PostParams::default(), &pod("steady", "node-b")).await?;
        running(&pods, "steady").await?;
        let node = real.node("node-b")?;
        let tasks = async || -> Result<BTreeSet<String>> {
            let listed = node.run("ctr", ["--namespace", "k8s.io", "tasks", "list", "--quiet"]).await?.stdout()?;
            Ok(listed.lines().map(str::to_owned).collect())
        };
        let before = tasks().await?;
        ensure!(before.len() == 2, "a sandbox and a container: {before:?}");

        node.stop_kubelet().await?;
        wait_node(real, "node-b", false).await?;
        let after = tasks().await?;
        ensure!(after == before, "containers ended with their kubelet: {before:?}, now {after:?}");
        node.start_kubelet().await?;
        real.ready().await?;

        node.disconnect().await?;
        wait_node(real, "node-b", false).await?;
        node.connect().await?;
        real.ready().await?;
        wait_node(real, "node-a", true).await
    })
}

/// What of a cluster is there: processes, control groups, mounts, its directory.
fn traces(directory: &Path) -> Vec<String> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
        for file in ["cmdline", "cgroup"] {
            let text = String::from_utf8_lossy(&read(file)).replace('\0', " ");
            if text.contains(&name) {
                found.push(format!("{} {file}: {text}", entry.path().display()));
            }
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    found.extend(mounts.lines().filter(|line| line.contains(&name)).map(str::to_owned));
    found.extend(groups(Path::new("/sys/fs/cgroup"), &name));
    found.extend(directory.exists().then(|| directory.display().to_string()));
    found
}

fn groups(folder: &Path, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    folders
        .flat_map(|path| if path.ends_with(name) { vec![path.display().to_string()] } else { groups(&path, name) })
        .collect()
}

/// Side by side with a cluster of ours, another one is started and its owner ends in each of these ways.
#[test]
fn clusters_do_not_meet_and_leave_nothing_behind() -> Result<()> {
    use rustix::process::Signal;
    let ours = nodes::run(RealOptions::default(), async |real| {
        let pods: Api<Pod> = Api::namespaced(real.cluster().client().await?, "default");
        pods.create(&PostParams::default(), &pod("ours", "node-a")).await?;
        running(&pods, "ours").await?;
        ensure!(!traces(real.cluster().directory()).is_empty(), "this finds nothing");
        for (end, signal) in
            [("panic", None), ("exit", None), ("wait", Some(Signal::INT)), ("wait", Some(Signal::KILL))]
        {
            let files = tempfile::tempdir()?;
            let (out, log) = (files.path().join("out"), files.path().join("log"));
            let doomed = Launch::new("doomed", env!("CARGO_BIN_EXE_doomed")).args([end, "real"]);
            let doomed = doomed.stdout(&out).log(&log).start()?;
            let directory: PathBuf = eventually(90 * SECOND, "the other cluster", || async {
                let text = std::fs::read_to_string(&out)?;
                let line = text.strip_suffix('\n').with_context(|| format!("not started\n{}", doomed.tail(20)))?;
                Ok(line.into())
            })
            .await?;
            if let Some(signal) = signal {
                ensure!(traces(&directory).len() > 10, "{:#?}", traces(&directory));
                // The process alone, as the kernel's OOM killer would.
                let pid = rustix::process::Pid::from_raw(doomed.pid()).context("no pid")?;
                rustix::process::kill_process(pid, signal)?;
            }
            doomed.wait(60 * SECOND).await?;
            eventually(20 * SECOND, &format!("everything to be gone after {end} {signal:?}"), || async {
                let left = traces(&directory);
                ensure!(left.is_empty(), "{left:#?}");
                Ok(())
            })
            .await?;
        }
        // Nobody of ours noticed.
        let restarts = |pod: &Pod| {
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            statuses.into_iter().flatten().map(|status| status.restart_count).sum::<i32>()
        };
        let pods = Api::<Pod>::all(real.cluster().client().await?).list(&ListParams::default()).await?;
        ensure!(pods.items.iter().map(restarts).sum::<i32>() == 0, "{:?}", pods.items);
        Ok(())
    });
    ours.context("beside another cluster")
}
