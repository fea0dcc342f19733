//! A cluster with real nodes, and the threads that live in its network.

use super::{
    NODES,
    binaries::{self, Binaries},
    cgroups::Cgroups,
    dns, images,
    network::{Place, PrivateNetwork},
    node::Node,
    support,
};
use crate::{Cluster, cluster::Ground, eventually::eventually, failure, kubernetes, lock, target};
use anyhow::{Context as _, Result, ensure};
use futures::{FutureExt as _, future::try_join_all};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node as Object};
use kube::Api;
use std::{
    fmt::Write as _,
    fs::File,
    os::unix::fs::PermissionsExt as _,
    panic::{AssertUnwindSafe, resume_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A node is Ready two seconds after its kubelet starts; more beside a build.
const READY_LIMIT: Duration = Duration::from_mins(2);
/// Suites of tests on real nodes take a few minutes each.
const TURN_LIMIT: Duration = Duration::from_mins(15);
/// A whole suite may take 15 minutes.
const BODY_LIMIT: Duration = Duration::from_mins(12);
/// Logs of many pods.
const REPORT_LIMIT: Duration = Duration::from_mins(1);
/// What a test left running in its own runtime is not waited for.
const FAREWELL_LIMIT: Duration = Duration::from_secs(2);
/// Pods whose logs a report holds.
const REPORTED_PODS: usize = 20;

/// What a cluster should be like.
#[derive(Debug, Clone)]
pub struct RealOptions {
    /// OCI archives that both nodes have from the start.
    pub images: Vec<PathBuf>,
    /// Whether names of Services are answered.
    pub dns: bool,
    /// How long the body may take: less than what a whole suite may, so that a hanging test still says what it saw.
    pub limit: Duration,
    /// Leave the directory (logs, audit log, data, disks) after the end. `SPAWNERY_KEEP` does so for all clusters.
    pub keep: bool,
}

impl Default for RealOptions {
    fn default() -> Self {
        Self { images: Vec::new(), dns: true, limit: BODY_LIMIT, keep: false }
    }
}

/// A running cluster with two real nodes. It ends when this is dropped, or with our process.
#[derive(Debug)]
pub struct RealCluster {
    // In this order: nodes end first, then their groups can go, then the control plane and the directory.
    nodes: Vec<Node>,
    _cgroups: Cgroups,
    cluster: Cluster,
    network: Arc<PrivateNetwork>,
}

/// Runs `body` with a cluster of its own, on threads in the cluster's network: sockets that it opens and processes that it
/// starts are inside. Tests on real nodes take turns, whatever process they are of: two cores carry one such cluster.
///
/// Where real nodes cannot be had this says why and does nothing, or fails with `REAL_NODES=required`. When `body` fails or
/// panics, prints what was in the cluster and the ends of all logs.
///
/// # Errors
/// What `body` returned, or that the cluster did not start.
pub fn run<F>(options: RealOptions, body: F) -> Result<()>
where
    F: AsyncFnOnce(&RealCluster) -> Result<()> + Send,
{
    if support::wanted()? { inside(options, true, body) } else { Ok(()) }
}

/// The same for a person who asked for it: fails where real nodes cannot be had.
///
/// # Errors
/// Those of [`run`], or why there are no real nodes.
pub fn run_required<F>(options: RealOptions, body: F) -> Result<()>
where
    F: AsyncFnOnce(&RealCluster) -> Result<()> + Send,
{
    support::require()?;
    inside(options, false, body)
}

fn inside<F>(options: RealOptions, in_turn: bool, body: F) -> Result<()>
where
    F: AsyncFnOnce(&RealCluster) -> Result<()> + Send,
{
    // A thread of its own: entering a network is for ever.
    std::thread::scope(|scope| {
        let all = scope.spawn(move || {
            // Outside, where downloads are possible.
            let prepared = runtime()?.block_on(Prepared::new(in_turn))?;
            prepared.network.enter()?;
            let runtime = runtime()?;
            let result = runtime.block_on(AssertUnwindSafe(live(prepared, options, body)).catch_unwind());
            runtime.shutdown_timeout(FAREWELL_LIMIT);
            result.unwrap_or_else(|panic| resume_unwind(panic))
        });
        all.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().context("could not start a runtime")
}

/// What is made outside of the cluster's network.
struct Prepared {
    binaries: Binaries,
    images: Vec<PathBuf>,
    network: Arc<PrivateNetwork>,
    turn: Option<File>,
}

impl Prepared {
    async fn new(in_turn: bool) -> Result<Self> {
        kubernetes::binaries().await?;
        let binaries = binaries::binaries().await?;
        let images = images::standard(&binaries).await?;
        let places = NODES.map(|(_, place)| place);
        let turn = if in_turn {
            let path = target::directory()?.join("nodes/turn");
            Some(lock::take(&path, TURN_LIMIT, "testing on real nodes").await?)
        } else {
            None
        };
        Ok(Self { binaries, images, network: Arc::new(PrivateNetwork::create(&places).await?), turn })
    }
}

async fn live<F>(prepared: Prepared, options: RealOptions, body: F) -> Result<()>
where
    F: AsyncFnOnce(&RealCluster) -> Result<()>,
{
    let limit = options.limit;
    let real = RealCluster::start(&prepared, options).await?;
    let body = async {
        let result = tokio::time::timeout(limit, body(&real)).await;
        result.with_context(|| format!("not done after {limit:?}"))?
    };
    let result = failure::outcome(body).await;
    if let Some(why) = failure::of(&result) {
        real.cluster.thaw_all();
        failure::explain(&why, REPORT_LIMIT, real.report(), || real.cluster.log_tails(20)).await;
    }
    drop(real);
    drop(prepared.turn);
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

impl RealCluster {
    async fn start(prepared: &Prepared, options: RealOptions) -> Result<Self> {
        let Prepared { binaries, images, network, .. } = prepared;
        let network = Arc::clone(network);
        let cluster = Cluster::prepare(Ground::Private(Arc::clone(&network)), options.keep).await?;
        let name = cluster.directory().file_name().context("a cluster without a name")?.to_string_lossy().into_owned();
        let cgroups = Cgroups::create(&name)?;
        let node = |(name, place): (&str, Place)| {
            let others = NODES.iter().map(|(_, place)| *place).filter(|other| *other != place).collect();
            Node::new((name, place, others), &cluster, binaries, &network, cgroups.node(name)?)
        };
        let nodes = NODES.into_iter().map(node).collect::<Result<Vec<Node>>>()?;
        let real = Self { nodes, _cgroups: cgroups, cluster, network };
        let images = images.iter().chain(&options.images).map(PathBuf::as_path);
        let started = real.come_up(&images.collect::<Vec<_>>(), options.dns).await;
        started.with_context(|| format!("the cluster did not start\n{}", real.cluster.log_tails(15)))?;
        Ok(real)
    }

    async fn come_up(&self, images: &[&Path], dns: bool) -> Result<()> {
        let nodes = try_join_all(self.nodes.iter().map(|node| async move {
            node.power_on().await?;
            for image in images {
                node.import(image).await?;
            }
            Ok(())
        }));
        tokio::try_join!(self.cluster.come_up(&[]), nodes)?;
        for node in &self.nodes {
            node.start_kubelet().await?;
            node.start_kube_proxy().await?;
        }
        if dns {
            dns::create(&self.cluster).await?;
        }
        self.ready().await?;
        if dns { dns::ready(&self.cluster).await } else { Ok(()) }
    }

    /// The control plane, and what speaks to it: kubectl, helm, clients, the audit log, faults.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The nodes, `node-a` and `node-b`.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node by its name.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.iter().find(|node| node.name() == name).with_context(|| format!("no node {name}"))
    }

    /// The network that everything is in.
    pub fn network(&self) -> &PrivateNetwork {
        &self.network
    }

    /// Writes a command into the cluster's directory that runs what it is given, or a shell, in the cluster's network, with
    /// kubectl and helm at hand.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_enter(&self) -> Result<PathBuf> {
        let path = self.cluster.directory().join("enter");
        let script = format!(
            "#!/bin/sh\nexport KUBECONFIG=\"{}\" PATH=\"{}:$PATH\"\nexec nsenter --net={} -- \"${{@:-${{SHELL:-sh}}}}\"\n",
            self.cluster.kubeconfig().display(),
            self.cluster.binaries().directory().display(),
            self.network.file().display(),
        );
        std::fs::write(&path, script).with_context(|| format!("could not write {}", path.display()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .context("could not make it a command")?;
        Ok(path)
    }

    /// Imports an image from an OCI archive on both nodes.
    ///
    /// # Errors
    /// When a containerd does not take it.
    pub async fn import(&self, archive: &Path) -> Result<()> {
        try_join_all(self.nodes.iter().map(|node| node.import(archive))).await.map(drop)
    }

    /// Waits until all nodes are Ready, by word of kubelets that speak after this was called, and schedulable.
    ///
    /// # Errors
    /// When that takes too long, or a process of a node has ended.
    pub async fn ready(&self) -> Result<()> {
        let client = self.cluster.client().await?;
        let (objects, leases) =
            (Api::<Object>::all(client.clone()), Api::<Lease>::namespaced(client, "kube-node-lease"));
        let asked = now();
        try_join_all(self.nodes.iter().map(async |node| {
            eventually(READY_LIMIT, &format!("{} to be Ready", node.name()), || async {
                node.healthy().await?;
                let renewed = leases.get(node.name()).await?.spec.and_then(|spec| spec.renew_time);
                ensure!(renewed.as_ref().is_some_and(|time| time.0 >= asked), "its kubelet spoke last at {renewed:?}");
                let object = objects.get(node.name()).await?;
                let conditions = object.status.and_then(|status| status.conditions).unwrap_or_default();
                let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
                ensure!(ready.is_some_and(|ready| ready.status == "True"), "{ready:?}");
                let taints = object.spec.and_then(|spec| spec.taints).unwrap_or_default();
                ensure!(taints.is_empty(), "{taints:?}");
                Ok(())
            })
            .await
        }))
        .await
        .map(drop)
    }

    /// Everything that may explain a failure.
    pub async fn report(&self) -> String {
        let words = async |command: &str| {
            let args = command.split(' ').chain(["--request-timeout=5s"]);
            match self.cluster.kubectl(args).await {
                Ok(output) => output.all(),
                Err(error) => format!("{error:#}"),
            }
        };
        let mut report = String::new();
        for (title, command) in [
            ("nodes and pods", "get nodes,pods --all-namespaces -o wide"),
            ("events", "get events --all-namespaces --sort-by=.metadata.creationTimestamp"),
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(report, "--- {title}\n{}", words(command).await);
        }
        let pods =
            words("get pods --all-namespaces --no-headers -o custom-columns=:metadata.namespace,:metadata.name").await;
        for line in pods.lines().filter(|line| !line.starts_with("kube-system ")).take(REPORTED_PODS) {
            let mut fields = line.split_whitespace();
            let (Some(namespace), Some(pod)) = (fields.next(), fields.next()) else { continue };
            let logs = words(&format!("logs --namespace {namespace} {pod} --all-containers --prefix --tail=20")).await;
            let _ = writeln!(report, "--- pod {namespace}/{pod}\n{logs}");
        }
        report + &self.cluster.log_tails(15)
    }
}

#[expect(clippy::disallowed_methods, reason = "kubelets write the same clock's time into their leases")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
