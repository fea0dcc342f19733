//! Ctrl-C and SIGTERM end things in order: what was started is dropped and so ended.

use anyhow::{Context as _, Result, bail};
use std::future::Future;
use tokio::signal::unix::{SignalKind, signal};

/// Does `work`, unless we are interrupted.
///
/// # Errors
/// Those of `work`, or that we were interrupted.
pub(crate) async fn or<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut terminate = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
    let interrupted = async move {
        tokio::select! {
            result = tokio::signal::ctrl_c() => result.context("could not listen for Ctrl-C"),
            _ = terminate.recv() => Ok(()),
        }
    };
    tokio::select! {
        result = interrupted => {
            result?;
            bail!("interrupted")
        }
        result = work => result,
    }
}
