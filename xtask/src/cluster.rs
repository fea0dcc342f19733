//! `cargo xtask cluster`: the tests' cluster for a person.

use crate::say;
use anyhow::{Context as _, Result};
use spawnery_tests::{Cluster, ClusterConfig, kubernetes};
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};

/// A private Kubernetes to play with.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many nodes to start with: node-1, node-2 and so on. Each has 32 processors and 256 GiB, on paper.
    #[arg(long, default_value_t = 2)]
    nodes: u16,
    /// Leave the cluster's directory (logs, audit log, data) when it ends.
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    // Before the start, so that a Ctrl-C during it ends the cluster in order too.
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
        result = serve(args) => result,
    }
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
    say(&format!(
        "\nLogs are in {}. Ctrl-C ends it{}.",
        cluster.log_dir().display(),
        if args.keep { "" } else { " and removes them" }
    ));
    std::future::pending().await
}
