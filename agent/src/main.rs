//! The agent's process: flags, logs, signals.

use std::process::ExitCode;

use spawnery_agent::args::{Args, Invocation, LogFormat};
use spawnery_agent::{Options, supervise};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

// One thread: an agent is small and never busy, and its pod belongs to the game.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    spawnery_certs::install_default();
    let invocation = Invocation::parse_from(std::env::args_os());
    start_logging(invocation.args())?;
    match invocation {
        Invocation::Beside(args) => beside(args.options()?).await,
        Invocation::Run(args, command) => match supervise::run(args.options()?, command).await {
            Ok(status) => Ok(ExitCode::from(status)),
            Err(error) => {
                let status = ExitCode::from(error.status());
                tracing::error!(error = format!("{:#}", anyhow::Error::from(error)), "there is no game");
                Ok(status)
            }
        },
    }
}

async fn beside(options: Options) -> anyhow::Result<ExitCode> {
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
    spawnery_agent::run(options, stop).await?;
    Ok(ExitCode::SUCCESS)
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
