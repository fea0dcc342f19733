//! The verdict on an eviction of an occupied pod, from the webhook's cache, against an empty handler.

use super::{
    Effort, Report,
    figure::{Figure, millis},
};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;
use spawnery_api::names::object;
use spawnery_certs::webhook_names;
use spawnery_tests::{
    Launch, Process,
    bench::{Load, Samples, Target},
    eventually,
    stack::{Arena, Crowd, SmallNetwork, eviction_path},
};
use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tokio::net::TcpStream;

/// Requests a second.
const RATE: u32 = 1000;
/// Before the first measurement: connections, allocators and branch predictors get going.
const WARM_UP: Duration = Duration::from_secs(1);
/// The two are loaded in turn, so that whatever else the machine does meets both.
const TURNS: u32 = 3;
/// How many times the empty handler's time the verdict may take.
const FACTOR: f64 = 3.0;
const LOBBIES: u32 = 8;
pub(super) const EMPTY_PORT: u16 = 8443;
const LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn measure(arena: Arc<Arena>, effort: Effort, report: Report) -> Result<()> {
    arena.start(&SmallNetwork { lobbies: LOBBIES, ..arena.network() }).await?;
    let mut crowd = Crowd::new();
    crowd.join(arena.stack().runner(), arena.namespace(), usize::try_from(2 * LOBBIES)?).await?;
    let servers: Vec<String> = crowd.by_server().into_keys().collect();
    for server in &servers {
        arena.wait_occupied(server, true).await?;
    }
    let webhook = arena.stack().webhook(0)?;
    // From here on the webhook is alone: what a leader does about so many requests is not what is measured.
    for reconciler in arena.stack().reconcilers() {
        reconciler.stop().await?;
    }
    let (target, empty, _process) = targets(&arena, webhook.address(), &servers).await?;
    let turn = Load { rate: RATE, duration: effort.of(Duration::from_millis(500), Duration::from_secs(5)) };
    for target in [&empty, &target] {
        Load { duration: WARM_UP, ..turn }.put(target).await?;
    }
    let cpu = webhook.with(Process::cpu_time)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..effort.of(1, TURNS) {
        theirs.push(turn.put(&empty).await.context("the empty handler")?);
        ours.push(turn.put(&target).await.context("the webhook")?);
    }
    let cpu = webhook.with(Process::cpu_time)?.saturating_sub(cpu);
    let (ours, theirs) = (Samples::merge(ours), Samples::merge(theirs));
    let count = u32::try_from(ours.count())?;
    let figure = |percent| {
        let name = format!("eviction-verdict/p{percent}");
        Figure::new(name, millis(&ours, percent), "ms").baseline(millis(&theirs, percent))
    };
    let bound = FACTOR * millis(&theirs, 99);
    report.add(figure(50));
    report.add(figure(99).at_most(bound));
    report.add(Figure::new("eviction-verdict/cpu", (cpu / count.max(1)).as_secs_f64() * 1e6, "us/req"));
    report.add(Figure::new("eviction-verdict/requests", f64::from(count), "count"));
    crowd.ensure_unharmed()
}

/// The webhook, asked about these servers, and an empty handler with the same certificate in a process of its own.
async fn targets(arena: &Arena, webhook: SocketAddr, servers: &[String]) -> Result<(Target, Target, Process)> {
    let cluster = arena.stack().cluster();
    let secrets: Api<Secret> = Api::namespaced(cluster.client().await?, object::OPERATOR_NAMESPACE);
    let mut data = secrets.get(object::WEBHOOK_TLS_SECRET).await?.data.unwrap_or_default();
    let mut pem = |key: &str| {
        let bytes = data.remove(key).with_context(|| format!("the webhook's Secret has no {key}"))?;
        String::from_utf8(bytes.0).with_context(|| format!("{key} is no text"))
    };
    let (ca_pem, cert, key) = (pem(object::CA_KEY)?, pem(object::LEAF_KEY)?, pem(object::LEAF_PRIVATE_KEY)?);
    let address = SocketAddr::from((cluster.free_address(), EMPTY_PORT));
    let process = empty(cluster.directory(), &cluster.log_dir(), address, &cert, &key)?;
    eventually(LIMIT, "the empty handler", || async { Ok(TcpStream::connect(address).await?) }).await?;
    let names = webhook_names(object::OPERATOR_NAMESPACE);
    let host = names.first().context("the webhook has no name")?.clone();
    let bodies = servers.iter().map(|server| review(arena.namespace(), server)).collect();
    let path = format!("{}?timeout=3s", eviction_path(&cluster.client().await?).await?);
    let target = Target { address: webhook, host, ca_pem, path, bodies, expect: "\"code\":429".to_owned() };
    let empty = Target { address, expect: String::new(), ..target.clone() };
    Ok((target, empty, process))
}

pub(super) fn empty(directory: &Path, logs: &Path, address: SocketAddr, cert: &str, key: &str) -> Result<Process> {
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
        anyhow::Ok(path)
    };
    let program = std::env::current_exe().context("could not find the running executable")?;
    Launch::new("empty-handler", program)
        .arg("empty-handler")
        .arg("--address")
        .arg(address.to_string())
        .arg("--cert")
        .arg(file("empty.crt", cert)?)
        .arg("--key")
        .arg(file("empty.key", key)?)
        .log(logs.join("empty-handler.log"))
        .start()
}

/// What the API server posts when somebody asks for an eviction of `pod`.
fn review(namespace: &str, pod: &str) -> Bytes {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": "policy", "version": "v1", "kind": "Eviction" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "subResource": "eviction",
            "requestKind": { "group": "policy", "version": "v1", "kind": "Eviction" },
            "requestResource": { "group": "", "version": "v1", "resource": "pods" },
            "requestSubResource": "eviction",
            "name": pod,
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": { "username": "bench", "groups": ["system:masters", "system:authenticated"] },
            "object": {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": { "name": pod, "namespace": namespace },
                "deleteOptions": {},
            },
            "oldObject": null,
            "dryRun": false,
            "options": { "apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions" },
        },
    });
    Bytes::from(review.to_string())
}
