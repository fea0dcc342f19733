//! A cluster's directory: made, owned, and removed in whatever way we end.

use crate::broom::{Broom, Waste};
use anyhow::{Context as _, Result};
use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

/// A directory under `target/clusters/`.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    keep: bool,
    broom: Option<Broom>,
    // Says to later clusters that somebody lives here.
    _lock: File,
}

impl Directory {
    /// Makes a directory under `parent`, and removes those whose owners are gone.
    pub fn create(parent: &Path, keep: bool) -> Result<Self> {
        std::fs::create_dir_all(parent).with_context(|| format!("could not make {}", parent.display()))?;
        // Between making a directory and locking it, it looks abandoned: nobody sweeps meanwhile.
        let entrance = File::create(parent.join("lock")).context("could not make the lock file of all clusters")?;
        entrance.lock().context("could not lock the directory of all clusters")?;
        sweep(parent);
        let path = tempfile::Builder::new()
            .prefix("cluster-")
            .tempdir_in(parent)
            .context("could not make a directory")?
            .keep();
        let lock = File::create(path.join("lock")).context("could not make the lock file")?;
        lock.lock().context("could not lock the cluster's directory")?;
        if keep {
            File::create(path.join("keep")).context("could not mark the directory to be kept")?;
        }
        std::fs::create_dir(path.join("log")).context("could not make the log directory")?;
        let broom = if keep { None } else { Some(Broom::start(Waste::Directories, [&path])?) };
        Ok(Self { path, keep, broom, _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where logs are, one file for each process.
    pub fn logs(&self) -> PathBuf {
        self.path.join("log")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), error = %error, "could not remove a cluster's directory");
        }
        // It finds nothing left to do.
        drop(self.broom.take());
    }
}

/// Removes what an owner left behind whose broom was killed too, or whose machine went down.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(lock) = File::open(path.join("lock")) else {
            continue;
        };
        let abandoned = !matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
        if abandoned && !path.join("keep").exists() {
            // Another process may be sweeping too.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_what_is_abandoned_and_only_that() {
        let parent = tempfile::tempdir().unwrap();
        let left = |name: &str, marks: &[&str]| {
            let path = parent.path().join(name);
            std::fs::create_dir(&path).unwrap();
            for mark in marks {
                File::create(path.join(mark)).unwrap();
            }
            path
        };
        let (abandoned, kept) = (left("abandoned", &["lock"]), left("kept", &["lock", "keep"]));
        let foreign = left("foreign", &[]);
        let owned = Directory::create(parent.path(), false).unwrap();
        let another = Directory::create(parent.path(), false).unwrap();
        assert!(!abandoned.exists());
        assert!(kept.exists() && foreign.exists() && owned.path().exists() && another.path().exists());
        let path = owned.path().to_owned();
        drop(owned);
        assert!(!path.exists());
    }
}
