//! The project's commands: `cargo xtask --help`.
//!
//! ```text
//!  test         what CI runs, step by step
//!  demo         a real drain that waits for players
//!  bench        figures, each beside its baseline and its goal
//!  proof        what takes too long for CI; keeps what came out
//!  cluster      a private Kubernetes to play with
//!  image        the image that clusters install, without a container engine
//!  kubernetes   builds what clusters are made of
//! ```

mod bench;
mod cluster;
mod demo;
mod image;
mod interrupt;
mod orphans;
mod proof;
mod scheduler_config;
mod steps;
mod suites;
mod test;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run what CI runs, step by step, up to the first failure.
    Test(test::Args),
    /// Start a private Kubernetes to play with, until Ctrl-C.
    Cluster(cluster::Args),
    /// Watch a real `kubectl drain` wait for players.
    Demo(demo::Args),
    /// Measure the real parts on a real control plane.
    Bench(bench::Args),
    /// Run what takes too long for CI, and keep what came out under docs/results.
    Proof(proof::Args),
    /// Write the image that clusters install, or the example game's, without a container engine.
    Image(image::Args),
    /// Print what makes the cluster's own kube-scheduler ask the extender.
    SchedulerConfig(scheduler_config::Args),
    /// Serve nothing over HTTPS: what a bench compares with.
    #[command(hide = true)]
    EmptyHandler(bench::EmptyArgs),
    /// Build Kubernetes, helm and kwok from source, once; says where they are.
    Kubernetes,
}

#[tokio::main]
async fn main() -> ExitCode {
    // While a cluster starts, kube says at each try that nobody answers yet; whoever waits for that says so in the end.
    let filter = tracing_subscriber::EnvFilter::new("warn,kube_client::client::builder=off");
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
    match run(Args::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode> {
    let done = match command {
        Command::Bench(args) => return bench::run(args).await,
        Command::Proof(args) => proof::run(args).await,
        Command::EmptyHandler(args) => bench::serve_empty(&args).await,
        Command::Test(args) => test::run(&args).await,
        Command::Cluster(args) => cluster::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Image(args) => image::run(args).await,
        Command::SchedulerConfig(args) => scheduler_config::run(args).await,
        Command::Kubernetes => {
            let binaries = spawnery_tests::kubernetes::binaries().await?;
            say(&binaries.directory().display().to_string());
            Ok(())
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// What a person who typed a command reads.
#[expect(clippy::print_stderr, reason = "this is a command line tool")]
fn say(line: &str) {
    eprintln!("{line}");
}
