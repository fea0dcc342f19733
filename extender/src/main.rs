//! The scheduler extender's process: see the library for what it does.

use anyhow::Context as _;
use clap::Parser as _;
use spawnery_extender::args::Args;

fn main() -> anyhow::Result<()> {
    spawnery_certs::install_default();
    let args = Args::parse();
    spawnery_runtime::telemetry::init(&args.log)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the async runtime")?
        .block_on(spawnery_extender::run(args))
}
