//! Begins and ends a process: signals, a tree of tokens, and tasks whose end somebody notices.
//!
//! ```text
//! SIGTERM ─► terminating (unready) ── delay ─► stopping (refuse, finish) ── grace ─► end
//!                                                ▲
//! a task ends by itself, fails or panics ────────┘   and the exit status says so
//! ```

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// How long it is waited for dropped tasks.
const DROPPED: Duration = Duration::from_millis(100);

/// Knows every task of the process; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    terminating: CancellationToken,
    stopping: CancellationToken,
    /// Cancelled when the grace is over: whatever is left is dropped.
    over: CancellationToken,
    tasks: TaskTracker,
    failure: Arc<Mutex<Option<anyhow::Error>>>,
}

impl Supervisor {
    /// Nothing runs, nothing is to end.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled when the end has been asked for: stop being ready, go on serving.
    pub fn terminating(&self) -> CancellationToken {
        self.terminating.clone()
    }

    /// Cancelled when the delay has passed: take nothing new, finish what is under way.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Ends the process in an orderly way on SIGTERM or SIGINT, `delay` after becoming unready; a second signal skips
    /// the delay.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn watch_signals(&self, delay: Duration) -> anyhow::Result<()> {
        let mut term = signal(SignalKind::terminate()).context("could not install a handler for SIGTERM")?;
        let mut int = signal(SignalKind::interrupt()).context("could not install a handler for SIGINT")?;
        let this = self.clone();
        // Not tracked: it waits for signals for as long as the process lives.
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            tracing::info!(delay_ms = delay.as_millis(), "asked to end");
            this.terminating.cancel();
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            this.stopping.cancel();
        });
        Ok(())
    }

    /// Ends the process without delay, successfully.
    pub fn stop(&self) {
        self.terminating.cancel();
        self.stopping.cancel();
    }

    /// Ends the process without delay, as failed; the first failure is the one reported.
    pub fn fail(&self, error: anyhow::Error) {
        self.failure.lock().get_or_insert(error);
        self.stop();
    }

    /// Runs a task for as long as the process. If it returns before `stopping`, fails or panics, the process ends as
    /// failed.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        let this = self.clone();
        let span = tracing::info_span!("task", task = name);
        let watched = async move {
            let ended = tokio::select! {
                ended = AssertUnwindSafe(task).catch_unwind() => ended,
                () = this.over.cancelled() => return,
            };
            let early = !this.stopping.is_cancelled();
            let error = match ended {
                Ok(Ok(())) if !early => return,
                Ok(Ok(())) => anyhow::anyhow!("task `{name}` ended by itself"),
                Ok(Err(error)) => error.context(format!("task `{name}` failed")),
                Err(_) => anyhow::anyhow!("task `{name}` panicked"),
            };
            tracing::error!(error = format!("{error:#}"), early, "a task ended");
            this.fail(error);
        };
        self.tasks.spawn(watched.instrument(span));
    }

    /// As [`Supervisor::spawn`] for tasks that never end by themselves: dropped when the process stops.
    pub fn spawn_until_stopped(
        &self,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let stopping = self.stopping();
        self.spawn(name, async move {
            tokio::select! {
                ended = task => ended,
                () = stopping.cancelled() => Ok(()),
            }
        });
    }

    /// Waits for `stopping`, then up to `grace` for the tasks; those left are dropped where they wait, so that none acts
    /// after this.
    ///
    /// # Errors
    /// The first failure of a task, or that some did not end in time.
    pub async fn join(&self, grace: Duration) -> anyhow::Result<()> {
        self.stopping.cancelled().await;
        self.tasks.close();
        let finished = tokio::time::timeout(grace, self.tasks.wait()).await;
        let left = self.tasks.len();
        self.over.cancel();
        // Only a task that never waits is not gone at once.
        let _ = tokio::time::timeout(DROPPED, self.tasks.wait()).await;
        if let Some(error) = self.failure.lock().take() {
            return Err(error);
        }
        finished.map_err(|_| anyhow::anyhow!("{left} tasks did not end within {grace:?}"))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const GRACE: Duration = Duration::from_secs(1);

    #[rstest]
    #[case::ends_by_itself(async { Ok(()) }.boxed(), "task `t` ended by itself")]
    #[case::fails(async { Err(anyhow::anyhow!("why")) }.boxed(), "task `t` failed: why")]
    #[case::panics(async { panic!("on purpose") }.boxed(), "task `t` panicked")]
    #[tokio::test(start_paused = true)]
    async fn an_early_end_ends_everything(
        #[case] task: futures::future::BoxFuture<'static, anyhow::Result<()>>,
        #[case] why: &str,
    ) {
        let supervisor = Supervisor::new();
        supervisor.spawn_until_stopped("other", std::future::pending());
        supervisor.spawn("t", task);
        let error = supervisor.join(GRACE).await.unwrap_err();
        assert_eq!(format!("{error:#}"), why);
        assert!(supervisor.terminating().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn an_asked_for_end_is_a_success() {
        let supervisor = Supervisor::new();
        supervisor.spawn_until_stopped("t", std::future::pending());
        supervisor.stop();
        supervisor.join(GRACE).await.expect("nothing failed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_end_is_reported_and_dropped() {
        let supervisor = Supervisor::new();
        let (held, gone) = tokio::sync::oneshot::channel::<()>();
        supervisor.spawn("t", async move {
            let _held = held;
            std::future::pending().await
        });
        supervisor.stop();
        let error = supervisor.join(GRACE).await.unwrap_err();
        assert_eq!(error.to_string(), "1 tasks did not end within 1s");
        tokio::time::timeout(Duration::ZERO, gone).await.expect("dropped, so it acts no more").unwrap_err();
    }
}
