//! Logs: JSON lines in clusters, text for people. Always on standard error, so that output stays for results.

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::args::{LogArgs, LogFormat};

/// Starts logging for this process.
///
/// # Errors
/// When the filter cannot be read or logging was started before.
pub fn init(args: &LogArgs) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&args.log_level)
        .with_context(|| format!("could not read the log filter `{}`; write a level such as info", args.log_level))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match args.log_format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).try_init(),
        LogFormat::Text => lines.with_ansi(false).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("could not start logging: {error}"))
}
