//! What a scheduler asks about one pod, with 5,000 names in each of the two calls, against an empty handler that reads
//! the same bodies.

use super::{
    Effort, Report,
    eviction::{EMPTY_PORT, empty},
    figure::{Figure, millis},
};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use spawnery_api::v1alpha1::Server;
use spawnery_tests::{
    Cluster, ClusterConfig, Component, Process,
    bench::{Load, Samples, Target},
    eventually,
    stack::LoneExtender,
};
use std::{net::SocketAddr, time::Duration};
use tokio::net::TcpStream;

/// Names in a call. In a cluster of that size a scheduler sends 500; this is the most that it could.
const NAMES: u32 = 5000;
/// Calls a second: a scheduler makes two for each pod, one after another.
const RATE: u32 = 50;
const WARM_UP: Duration = Duration::from_secs(1);
/// The two are loaded in turn, so that whatever else the machine does meets both.
const TURNS: u32 = 3;
/// For both calls together, at the extender itself.
const GOAL_MS: f64 = 2.0;
const LIMIT: Duration = Duration::from_mins(2);
/// Requests to the API server at once while the cluster is being filled.
const HANDS: usize = 16;
const NAMESPACE: &str = "default";
const BUCKETS: &str = "spawnery_extender_call_duration_seconds_bucket{";

pub(super) async fn measure(effort: Effort, report: Report) -> Result<()> {
    let cluster = Cluster::start(ClusterConfig::default()).await?;
    // Nodes and pods are to be as many, not to live.
    for component in [Component::Kwok, Component::Scheduler, Component::ControllerManager] {
        cluster.stop(component).await?;
    }
    let lone = LoneExtender::start(&cluster).await?;
    let nodes = effort.of(50, NAMES);
    fill(&cluster, nodes).await?;
    let extender = lone.replica()?;
    let address = SocketAddr::from((cluster.free_address(), EMPTY_PORT));
    let _process = empty(cluster.directory(), &cluster.log_dir(), address, &lone.leaf.cert_pem, &lone.leaf.key_pem)?;
    eventually(LIMIT, "the empty handler", || async { Ok(TcpStream::connect(address).await?) }).await?;

    let filter = Target {
        address: extender.address(),
        host: "spawnery-extender".to_owned(),
        ca_pem: lone.ca_pem.clone(),
        path: "/filter".to_owned(),
        bodies: vec![call()],
        expect: format!("\"{}\"", name(NAMES - 1)),
    };
    let fullest = format!("{{\"Host\":\"{}\",\"Score\":10}}", name(nodes - 1));
    let prioritize = Target { path: "/prioritize".to_owned(), expect: fullest, ..filter.clone() };
    let empty = Target { address, expect: String::new(), ..filter.clone() };
    let once = Load { rate: 1, duration: Duration::from_secs(1) };
    eventually(LIMIT, "the extender to know everything", || async { once.put(&prioritize).await.map(drop) }).await?;
    for target in [&empty, &filter, &prioritize] {
        Load { rate: RATE, duration: WARM_UP }.put(target).await?;
    }

    let turn = Load { rate: RATE, duration: effort.of(Duration::from_millis(500), Duration::from_secs(5)) };
    let before = extender.metrics().await?;
    let cpu = extender.with(Process::cpu_time)?;
    let (mut filters, mut prioritizes, mut empties) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.of(1, TURNS) {
        empties.push(turn.put(&empty).await.context("the empty handler")?);
        filters.push(turn.put(&filter).await.context("filter")?);
        prioritizes.push(turn.put(&prioritize).await.context("prioritize")?);
    }
    let cpu = extender.with(Process::cpu_time)?.saturating_sub(cpu);
    let after = extender.metrics().await?;
    let empties = Samples::merge(empties);
    let mut inside = 0.0;
    let mut count = 0;
    for (verb, samples) in [("filter", Samples::merge(filters)), ("prioritize", Samples::merge(prioritizes))] {
        let figure = |percent| {
            let figure = Figure::new(format!("extender/{verb}/p{percent}"), millis(&samples, percent), "ms");
            figure.baseline(millis(&empties, percent))
        };
        report.extend([figure(50), figure(99)]);
        let bound = inside_p99_ms(&before, &after, verb)?;
        report.add(Figure::new(format!("extender/{verb}/inside-p99-below"), bound, "ms"));
        inside += bound;
        count += u32::try_from(samples.count())?;
    }
    report.add(Figure::new("extender/inside-p99-below", inside, "ms").at_most(GOAL_MS));
    report.add(Figure::new("extender/cpu", (cpu / count.max(1)).as_secs_f64() * 1e6, "us/req"));
    let kib = u32::try_from(extender.with(Process::resident_bytes)? / 1024)?;
    report.add(Figure::new("extender/resident", f64::from(kib) / 1024.0, "MiB"));
    report.add(Figure::new("extender/nodes", f64::from(nodes), "count"));
    Ok(())
}

/// As long as the names that clouds give.
fn name(n: u32) -> String {
    format!("ip-10-{:03}-{:03}-games.eu-central-1.compute.internal", n / 256, n % 256)
}

/// A pod of ours.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "labels": {
                "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": "server",
                "spawnery.cloud/group": "lobby", "spawnery.cloud/network": "main", "spawnery.cloud/server": name,
            },
            "annotations": { "spawnery.cloud/pod-inputs": json!({ "role": "server", "maxPlayers": 100 }).to_string() },
        },
        "spec": {
            // Without a namespace controller there is no account to mount.
            "automountServiceAccountToken": false,
            "containers": [{ "name": "minecraft", "image": "example.test/lobby:1" }],
        },
    })
}

fn call() -> Bytes {
    let names: Vec<String> = (0..NAMES).map(name).collect();
    Bytes::from(json!({ "Pod": pod("new"), "Nodes": null, "NodeNames": names }).to_string())
}

/// Nodes, each with a server, the last one with the most people on it.
async fn fill(cluster: &Cluster, nodes: u32) -> Result<()> {
    let client = cluster.client().await?;
    let all: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let servers: Api<Server> = Api::namespaced(client, NAMESPACE);
    let one = |n: u32| {
        let (all, pods, servers) = (all.clone(), pods.clone(), servers.clone());
        async move {
            let params = PostParams::default();
            let labels = json!({ "spawnery.cloud/player-budget": "400" });
            let node = json!({ "metadata": { "name": name(n), "labels": labels } });
            all.create(&params, &serde_json::from_value(node)?).await.context("could not create a node")?;
            let lobby = format!("lobby-{n}");
            let mut pod = pod(&lobby);
            pod.pointer_mut("/spec")
                .and_then(Value::as_object_mut)
                .context("a pod without a spec")?
                .insert("nodeName".to_owned(), json!(name(n)));
            pods.create(&params, &serde_json::from_value(pod)?).await.context("could not create a pod")?;
            let server = json!({
                "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server",
                "metadata": { "name": lobby }, "spec": { "groupRef": { "name": "lobby" } },
            });
            servers.create(&params, &serde_json::from_value(server)?).await.context("could not create a Server")?;
            let players = if n + 1 == nodes { 100 } else { n % 80 };
            let status = Patch::Merge(json!({ "status": { "players": players, "slots": 100 } }));
            let written = servers.patch_status(&lobby, &PatchParams::default(), &status).await;
            written.map(drop).context("could not write a status")
        }
    };
    stream::iter((0..nodes).map(one)).buffer_unordered(HANDS).try_collect::<()>().await
}

/// By the extender's own histogram: the least of its bounds within which 99 of 100 calls between two looks were answered.
fn inside_p99_ms(before: &str, after: &str, verb: &str) -> Result<f64> {
    let (before, after) = (buckets(before, verb), buckets(after, verb));
    let counts: Vec<(f64, u64)> = after
        .iter()
        .map(|(bound, count)| {
            let known = before.iter().find(|(other, _)| other.total_cmp(bound).is_eq()).map_or(0, |(_, count)| *count);
            (*bound, count.saturating_sub(known))
        })
        .collect();
    let all = counts.iter().map(|(_, count)| *count).max().unwrap_or_default();
    ensure!(all > 0, "the extender has counted no call of {verb}");
    let enough = counts.iter().find(|(_, count)| count * 100 >= all * 99);
    Ok(enough.map_or(f64::INFINITY, |(bound, _)| bound * 1000.0))
}

/// The histogram of one verb: bounds in seconds, rising, with how many calls took no longer.
fn buckets(metrics: &str, verb: &str) -> Vec<(f64, u64)> {
    let of = format!("verb=\"{verb}\"");
    let line = |line: &str| {
        let (labels, count) = line.strip_prefix(BUCKETS)?.split_once("} ")?;
        let bound = labels.split(',').find_map(|label| label.strip_prefix("le=\"")?.strip_suffix('"'))?;
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        labels.contains(&of).then_some((bound, count.parse().ok()?))
    };
    let mut buckets: Vec<(f64, u64)> = metrics.lines().filter_map(line).collect();
    buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(counts: [u64; 3]) -> String {
        let [fast, slow, all] = counts;
        format!(
            "{BUCKETS}le=\"0.001\",verb=\"filter\"}} {fast}\n{BUCKETS}le=\"0.002\",verb=\"filter\"}} {slow}\n\
             {BUCKETS}le=\"+Inf\",verb=\"filter\"}} {all}\n{BUCKETS}le=\"0.001\",verb=\"prioritize\"}} 7\n"
        )
    }

    #[test]
    fn reads_what_happened_between_two_looks() {
        let bound = |before, after| inside_p99_ms(&metrics(before), &metrics(after), "filter").unwrap();
        assert!((bound([0, 0, 5], [99, 100, 105]) - 1.0).abs() < 1e-9);
        assert!((bound([0, 0, 0], [98, 100, 100]) - 2.0).abs() < 1e-9);
        assert!(bound([0, 0, 0], [0, 0, 100]).is_infinite());
        assert!(inside_p99_ms(&metrics([1, 1, 1]), &metrics([1, 1, 1]), "filter").is_err());
    }
}
