//! What a failed test says: the failure first, for logs are cut, then what was there.

use anyhow::Result;
use futures::FutureExt as _;
use std::{future::Future, panic::AssertUnwindSafe, thread, time::Duration};

/// What came of a test's body, be it a panic.
pub(crate) type Outcome = thread::Result<Result<()>>;

/// Runs a test's body to its end, whatever that is.
pub(crate) fn outcome(body: impl Future<Output = Result<()>>) -> impl Future<Output = Outcome> {
    AssertUnwindSafe(body).catch_unwind()
}

/// Why the body failed, if it did.
pub(crate) fn of(outcome: &Outcome) -> Option<String> {
    match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => Some("a panic, which has told of itself".to_owned()),
    }
}

/// Tells why a body failed, and then what a report says, or something else instead of one that takes longer than `limit`:
/// it would hide the failure that it is about.
pub(crate) async fn explain(
    why: &str,
    limit: Duration,
    report: impl Future<Output = String>,
    instead: impl FnOnce() -> String,
) {
    tell(&format!("=== failed: {why}"));
    let report = tokio::time::timeout(limit, report).await;
    tell(&report.unwrap_or_else(|_| format!("no report: kubectl hangs\n{}", instead())));
}

#[expect(clippy::print_stderr, reason = "cargo test shows this with the failed test")]
fn tell(text: &str) {
    eprintln!("{text}");
}
