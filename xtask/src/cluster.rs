//! `cargo xtask cluster`: the tests' cluster for a person.

use crate::say;
use anyhow::{Context as _, Result};
use spawnery_tests::{
    Cluster, ClusterConfig, kubernetes,
    nodes::{self, RealCluster, RealOptions},
};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::signal::unix::{SignalKind, signal};

/// A private Kubernetes to play with.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many nodes to start with: node-1, node-2 and so on. Each has 32 processors and 256 GiB, on paper.
    #[arg(long, default_value_t = 2)]
    nodes: u16,
    /// Two real nodes instead, with kubelet and containerd, in namespaces that end with this command. Needs root.
    #[arg(long, conflicts_with = "nodes")]
    real_nodes: bool,
    /// An OCI archive that both real nodes have from the start, as `cargo xtask image` writes it. May be repeated.
    #[arg(long, requires = "real_nodes", value_name = "FILE")]
    image: Vec<PathBuf>,
    /// Leave the cluster's directory (logs, audit log, data) when it ends.
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    if args.real_nodes {
        let options =
            RealOptions { images: args.image, keep: args.keep, limit: Duration::MAX, ..RealOptions::default() };
        let keep = args.keep;
        let start = Instant::now();
        let cluster =
            move || nodes::run_required(options, async |real| until_stopped(tell_real(real, start, keep)).await);
        return tokio::task::spawn_blocking(cluster).await.context("the cluster's thread is gone")?;
    }
    until_stopped(serve(args)).await
}

/// Does `work` until Ctrl-C or SIGTERM, which are no errors here. What was started is dropped and so ended.
async fn until_stopped(work: impl Future<Output = Result<()>>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
    let stop = async move {
        tokio::select! {
            result = tokio::signal::ctrl_c() => result.context("could not listen for Ctrl-C"),
            _ = terminate.recv() => Ok(()),
        }
    };
    tokio::select! {
        result = stop => {
            say("stopping");
            result
        }
        result = work => result,
    }
}

/// Says how to use a cluster with real nodes, and keeps it.
async fn tell_real(real: &RealCluster, start: Instant, keep: bool) -> Result<()> {
    let seconds = start.elapsed().as_secs_f64();
    say(&format!("Kubernetes {} with two real nodes, ready in {seconds:.1} s.\n", kubernetes::VERSION));
    let enter = real.write_enter()?;
    say(&format!("  {}                       # a shell inside, with kubectl and helm", enter.display()));
    say(&format!("  {} kubectl get pods -A   # or one command\n", enter.display()));
    say("Its network has no way out and none in but this. NodePorts answer at 10.77.0.11 and 10.77.0.12.");
    say_where(real.cluster(), keep);
    std::future::pending().await
}

/// Starts the cluster and keeps it. Dropping this ends it.
async fn serve(args: Args) -> Result<()> {
    kubernetes::binaries().await?;
    let start = Instant::now();
    let nodes = (1..=args.nodes).map(|n| format!("node-{n}")).collect();
    let cluster = Cluster::start(ClusterConfig { nodes, keep: args.keep }).await?;
    let seconds = start.elapsed().as_secs_f64();
    say(&format!("Kubernetes {} with {} nodes, ready in {seconds:.1} s.\n", kubernetes::VERSION, args.nodes));
    say(&format!("  export KUBECONFIG={}", cluster.kubeconfig().display()));
    say(&format!(
        "  export PATH={}:$PATH   # kubectl and helm of the same version",
        cluster.binaries().directory().display()
    ));
    say_where(&cluster, args.keep);
    std::future::pending().await
}

fn say_where(cluster: &Cluster, keep: bool) {
    let end = if keep { "" } else { " and removes them" };
    say(&format!("\nLogs are in {}. Ctrl-C ends it{end}.", cluster.log_dir().display()));
}
