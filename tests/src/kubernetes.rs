//! Kubernetes, helm and kwok, built from source once.
//!
//! `tests/kubernetes` is a Go module that pins all three. Their binaries land in `target/kubernetes/<key>/`, where the key
//! is a hash of everything that decides about them, so a change builds anew and an old checkout finds its own again.

use crate::{args::settings, launch::Launch, process::Process, target};
use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::Instant;

/// The version that `go.mod` pins, which the binary says of itself: without a stamp it would say v0.0.0.
pub const VERSION: &str = "1.37.2";
const STAMP: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2 \
                     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37";
const PLAIN: &str = "-s -w";

/// What is built: the file, its package, the linker's flags. They are part of the key.
const PARTS: [(&str, &str, &str); 3] =
    [("k8s", ".", STAMP), ("kwok", "sigs.k8s.io/kwok/cmd/kwok", PLAIN), ("helm", "helm.sh/helm/v4/cmd/helm", PLAIN)];

/// A first build with downloads took 9 minutes on two cores; a slow network may take more than the build.
const BUILD_LIMIT: Duration = Duration::from_hours(1);
/// What takes longer says what it does.
const PATIENCE: Duration = Duration::from_secs(2);

/// The binaries of one build.
#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// One of the components in the `k8s` binary, which dispatches on its first argument.
    pub fn component(&self, name: &str) -> Launch {
        Launch::new(name, self.directory.join("k8s")).arg(name)
    }

    /// kubectl: a link to `k8s`, which dispatches on the name it was called by.
    pub fn kubectl(&self) -> PathBuf {
        self.directory.join("kubectl")
    }

    /// helm.
    pub fn helm(&self) -> PathBuf {
        self.directory.join("helm")
    }

    /// kwok, the nodes' stand-in.
    pub fn kwok(&self) -> PathBuf {
        self.directory.join("kwok")
    }

    /// Where they are: a person may put this on `PATH`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// The binaries; builds them when they are not there. Parallel processes build once, the others wait.
///
/// # Errors
/// When Go is missing or the build fails; the message holds the end of what Go said.
pub async fn binaries() -> Result<Binaries> {
    let source = source();
    let root = target::directory()?.join("kubernetes");
    let directory = root.join(key(&source)?);
    if directory.is_dir() {
        return Ok(Binaries { directory });
    }
    std::fs::create_dir_all(&root).with_context(|| format!("could not make {}", root.display()))?;
    let _lock = lock(&root.join("lock")).await?;
    if !directory.is_dir() {
        build(&source, &root, &directory).await?;
    }
    Ok(Binaries { directory })
}

/// The Go module.
pub fn source() -> PathBuf {
    target::workspace().join("tests/kubernetes")
}

fn key(source: &Path) -> Result<String> {
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(source).with_context(|| format!("could not read {}", source.display()))? {
        let path = entry.context("could not read the Go module")?.path();
        let wanted = ["mod", "sum", "go"].map(Some).contains(&path.extension().and_then(|end| end.to_str()));
        if wanted {
            let text = std::fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
            inputs.push((path.file_name().unwrap_or_default().to_owned(), text));
        }
    }
    inputs.sort();
    let mut hash = Sha256::new();
    for (name, text) in &inputs {
        hash.update(name.as_encoded_bytes());
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    for (file, package, flags) in PARTS {
        hash.update([file, package, flags].join("\0"));
    }
    let start: [u8; 8] = hash.finalize().first_chunk().copied().unwrap_or_default();
    Ok(format!("{:016x}", u64::from_be_bytes(start)))
}

/// Takes the build lock; the kernel gives it back when the process ends in whatever way.
async fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("could not open {}", path.display()))?;
    let start = Instant::now();
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).context("could not take the build lock"),
        }
        ensure!(start.elapsed() < BUILD_LIMIT, "another process has been building Kubernetes for {BUILD_LIMIT:?}");
        if !told && start.elapsed() > PATIENCE {
            told = true;
            tell("waiting for another process that is building Kubernetes");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn build(source: &Path, root: &Path, directory: &Path) -> Result<()> {
    // A directory appears under its final name only when everything is in it.
    let unfinished =
        tempfile::Builder::new().prefix("unfinished-").tempdir_in(root).context("could not make a directory")?;
    let start = Instant::now();
    let log = root.join("build.log");
    // Only one process builds, and the log is about this build.
    File::create(&log).with_context(|| format!("could not open {}", log.display()))?;
    for (file, package, flags) in PARTS {
        // CGO stays at its default: another setting is another cache, and rebuilds all that uses the network.
        let go = Launch::new("go", &settings().go)
            .args(["build", "-trimpath", "-ldflags", flags, "-o"])
            .arg(unfinished.path().join(file))
            .arg(package)
            .directory(source)
            .log(&log);
        let process = go.start().context("could not start Go, which builds Kubernetes for the tests")?;
        let status = wait(&process, file, start).await?;
        let all = format!("{go} in {}, {status}; Go 1.26 or newer is needed\n{}", source.display(), process.tail(30));
        ensure!(status.success(), "could not build {file}: {all}");
    }
    std::os::unix::fs::symlink("k8s", unfinished.path().join("kubectl")).context("could not link kubectl")?;
    std::fs::rename(unfinished.keep(), directory).with_context(|| format!("could not make {}", directory.display()))?;
    if start.elapsed() > PATIENCE {
        tell(&format!("built Kubernetes in {:.0} s", start.elapsed().as_secs_f64()));
    }
    Ok(())
}

async fn wait(process: &Process, file: &str, start: Instant) -> Result<std::process::ExitStatus> {
    let patience = PATIENCE.saturating_sub(start.elapsed());
    if let Ok(status) = process.wait(patience).await {
        return Ok(status);
    }
    tell(&match file {
        "k8s" => format!("building Kubernetes {VERSION} from source, about 6 minutes the first time"),
        other => format!("building {other} from source, a minute or two the first time"),
    });
    process.wait(BUILD_LIMIT).await
}

/// Progress is for the person who waits, whatever logging is set up.
#[expect(clippy::print_stderr, reason = "progress of a build that may take minutes")]
fn tell(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_follows_the_sources() {
        let module = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(module.path().join(name), text).unwrap();
        write("go.mod", "module a");
        write("main.go", "package main");
        let first = key(module.path()).unwrap();
        write("stages.yaml", "not compiled in");
        assert_eq!(key(module.path()).unwrap(), first);
        write("main.go", "package main ");
        let second = key(module.path()).unwrap();
        assert_ne!(second, first);
        write("other.go", "");
        assert_ne!(key(module.path()).unwrap(), second);
    }
}
