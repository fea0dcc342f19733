//! The agent's process: flags, logs, signals.

use clap::Parser as _;
use spawnery_agent::args::{Args, LogFormat};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

// One thread: an agent is small and never busy, and its pod belongs to the game.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    spawnery_certs::install_default();
    let args = Args::parse();
    start_logging(&args)?;
    let options = args.options()?;
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopper = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopper.cancel();
    });
    Ok(spawnery_agent::run(options, stop).await?)
}

fn start_logging(args: &Args) -> anyhow::Result<()> {
    let logs =
        tracing_subscriber::fmt().with_env_filter(EnvFilter::try_new(&args.log_level)?).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Json => logs.json().flatten_event(true).init(),
        LogFormat::Text => logs.init(),
    }
    Ok(())
}
