//! Waiting for a condition, with a limit.

use anyhow::{Context as _, Result, anyhow};
use std::{future::Future, time::Duration};
use tokio::time::Instant;

/// How often a condition is looked at: short beside what is waited for, long beside what looking costs.
const INTERVAL: Duration = Duration::from_millis(25);

/// Calls `look` until it returns `Ok`, at most for `limit`, and returns its value.
///
/// A look that hangs counts as a failed one: it is dropped when the limit is reached.
///
/// # Errors
/// When the limit is reached: says `what` was waited for and what the last look said.
pub async fn eventually<T, F, Fut>(limit: Duration, what: &str, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let end = Instant::now() + limit;
    let mut last = anyhow!("the first look has not come back");
    loop {
        match tokio::time::timeout_at(end, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => last = error,
            Err(_) => return Err(last).with_context(|| format!("waited {limit:?} for {what}, in vain; last look")),
        }
        tokio::time::sleep_until((Instant::now() + INTERVAL).min(end)).await;
        if Instant::now() >= end {
            return Err(last).with_context(|| format!("waited {limit:?} for {what}, in vain; last look"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::ensure;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn returns_the_first_value() {
        let looks = Cell::new(0);
        let value = eventually(Duration::from_secs(1), "three looks", || async {
            looks.set(looks.get() + 1);
            ensure!(looks.get() >= 3, "only {}", looks.get());
            Ok(looks.get())
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn says_what_it_saw_last() {
        let looks = Cell::new(0);
        let nothing = eventually(Duration::from_millis(60), "a miracle", || async {
            looks.set(looks.get() + 1);
            anyhow::bail!("look {}", looks.get()) as Result<()>
        });
        let message = format!("{:#}", nothing.await.unwrap_err());
        assert_eq!(message, "waited 60ms for a miracle, in vain; last look: look 3");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_look_ends_at_the_limit() {
        let nothing = eventually(Duration::from_secs(2), "an answer", std::future::pending::<Result<()>>);
        assert!(nothing.await.is_err());
    }
}
