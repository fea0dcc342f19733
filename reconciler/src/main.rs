//! The reconciler's process: flags, TLS provider, logs, and [`spawnery_reconciler::run`].

use clap::Parser as _;
use spawnery_reconciler::args::Args;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    spawnery_certs::install_default();
    spawnery_runtime::telemetry::init(&args.log)?;
    spawnery_reconciler::run(args).await
}
