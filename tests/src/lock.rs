//! A turn that one process has at a time.

use anyhow::{Context as _, Result, ensure};
use std::{
    fs::{File, TryLockError},
    path::Path,
    time::Duration,
};
use tokio::time::Instant;

/// Who waits longer is told for what.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes the lock that the file `path` stands for, until what this returns is dropped. The kernel gives it back when the
/// process ends in whatever way.
///
/// # Errors
/// When somebody else has had it for `limit`.
pub(crate) async fn take(path: &Path, limit: Duration, what: &str) -> Result<File> {
    let file = File::create(path).with_context(|| format!("could not open {}", path.display()))?;
    let start = Instant::now();
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("could not lock {}", path.display()));
            }
        }
        ensure!(start.elapsed() < limit, "waited {limit:?} for another process that is {what}");
        if !told && start.elapsed() > PATIENCE {
            told = true;
            tell(&format!("waiting for another process that is {what}"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[expect(clippy::print_stderr, reason = "why nothing happens is for the person who waits")]
fn tell(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_has_it_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = take(&path, Duration::ZERO, "first").await.unwrap();
        let error = take(&path, Duration::ZERO, "first").await.unwrap_err();
        assert_eq!(error.to_string(), "waited 0ns for another process that is first");
        drop(first);
        take(&path, Duration::ZERO, "first").await.unwrap();
    }
}
