//! Go programs, built from source once.
//!
//! A folder with a `go.mod` pins what is built. The binaries land in a folder whose name, the key, is a hash of everything
//! that decides about them: a change builds anew, and an old checkout finds its own again.

use crate::{args::settings, launch::Launch, lock, process::Process};
use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};
use tokio::time::Instant;

/// A first build of Kubernetes with downloads took 9 minutes on two cores; a slow network may take more than the build.
const BUILD_LIMIT: Duration = Duration::from_hours(1);
/// What takes longer says what it does.
const PATIENCE: Duration = Duration::from_secs(2);

/// Linker flags of a program that needs no stamp.
pub const PLAIN: &str = "-s -w";

/// One program of a module.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The binary, relative to the module's folder of binaries.
    pub file: &'static str,
    /// The package in the module.
    pub package: &'static str,
    /// The linker's flags.
    pub flags: &'static str,
    /// Build tags.
    pub tags: &'static str,
    /// Without C: a static binary. Elsewhere CGO stays at its default: another setting is another cache, and rebuilds all
    /// that uses the network.
    pub pure: bool,
    /// How long a first build takes, for the person who waits for it.
    pub takes: &'static str,
}

impl Part {
    /// A program that needs no tags, with CGO at its default.
    pub const fn new(file: &'static str, package: &'static str, flags: &'static str, takes: &'static str) -> Self {
        Self { file, package, flags, tags: "", pure: false, takes }
    }

    /// Everything about it that decides about the binary.
    fn decides(&self) -> String {
        let mut text = [self.file, self.package, self.flags].join("\0");
        if !self.tags.is_empty() {
            text.extend(["\0", self.tags]);
        }
        if self.pure {
            text.push_str("\0pure");
        }
        text
    }
}

/// A Go module of ours, and what is built from it.
#[derive(Debug)]
pub struct Module {
    /// The folder with `go.mod`.
    pub source: PathBuf,
    /// Where its binaries go, a folder for each key.
    pub root: PathBuf,
    /// The programs.
    pub parts: &'static [Part],
    /// Links beside them: name and target.
    pub links: &'static [(&'static str, &'static str)],
}

impl Module {
    /// The folder with the binaries; builds them when they are not there. Parallel processes build once, the others wait.
    ///
    /// # Errors
    /// When Go is missing or the build fails; the message holds the end of what Go said.
    pub async fn binaries(&self) -> Result<PathBuf> {
        let directory = self.root.join(self.key()?);
        if directory.is_dir() {
            return Ok(directory);
        }
        std::fs::create_dir_all(&self.root).with_context(|| format!("could not make {}", self.root.display()))?;
        let _lock =
            lock::take(&self.root.join("lock"), BUILD_LIMIT, &format!("building in {}", self.root.display())).await?;
        if !directory.is_dir() {
            self.build(&directory).await?;
        }
        Ok(directory)
    }

    fn key(&self) -> Result<String> {
        let source = &self.source;
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
        for part in self.parts {
            hash.update(part.decides());
        }
        let start: [u8; 8] = hash.finalize().first_chunk().copied().unwrap_or_default();
        Ok(format!("{:016x}", u64::from_be_bytes(start)))
    }

    async fn build(&self, directory: &Path) -> Result<()> {
        // A directory appears under its final name only when everything is in it.
        let unfinished = tempfile::Builder::new().prefix("unfinished-").tempdir_in(&self.root);
        let unfinished = unfinished.context("could not make a directory")?;
        let log = self.root.join("build.log");
        // Only one process builds, and the log is about this build.
        File::create(&log).with_context(|| format!("could not open {}", log.display()))?;
        for part in self.parts {
            let file = unfinished.path().join(part.file);
            file.parent().map_or(Ok(()), std::fs::create_dir_all).context("could not make a directory")?;
            let mut go = Launch::new("go", &settings().go)
                .args(["build", "-trimpath", "-tags", part.tags, "-ldflags", part.flags, "-o"])
                .arg(&file)
                .arg(part.package)
                .directory(&self.source)
                .log(&log);
            if part.pure {
                go = go.env("CGO_ENABLED", "0");
            }
            let process = go.start().with_context(|| format!("could not start Go, which builds {}", part.file))?;
            let status = wait(&process, part).await?;
            let source = self.source.display();
            let all = format!("{go} in {source}, {status}; Go 1.26 or newer is needed\n{}", process.tail(30));
            ensure!(status.success(), "could not build {}: {all}", part.file);
        }
        for (name, target) in self.links {
            std::os::unix::fs::symlink(target, unfinished.path().join(name))
                .with_context(|| format!("could not link {name}"))?;
        }
        std::fs::rename(unfinished.keep(), directory).with_context(|| format!("could not make {}", directory.display()))
    }
}

async fn wait(process: &Process, part: &Part) -> Result<ExitStatus> {
    let start = Instant::now();
    if let Ok(status) = process.wait(PATIENCE).await {
        return Ok(status);
    }
    tell(&format!("building {} from source, {} the first time", part.file, part.takes));
    let status = process.wait(BUILD_LIMIT).await?;
    tell(&format!("built {} in {:.0} s", part.file, start.elapsed().as_secs_f64()));
    Ok(status)
}

/// Progress is for the person who waits, whatever logging is set up.
#[expect(clippy::print_stderr, reason = "progress of a build that may take minutes")]
fn tell(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [Part; 1] = [Part::new("a", ".", PLAIN, "no time")];
    const TAGGED: [Part; 1] = [Part { tags: "small", ..PARTS[0] }];
    const PURE: [Part; 1] = [Part { pure: true, ..PARTS[0] }];

    #[test]
    fn the_key_follows_the_sources_and_the_flags() {
        let folder = tempfile::tempdir().unwrap();
        let module = |parts: &'static [Part]| {
            Module { source: folder.path().to_owned(), root: PathBuf::new(), parts, links: &[] }.key().unwrap()
        };
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("go.mod", "module a");
        write("main.go", "package main");
        let first = module(&PARTS);
        write("stages.yaml", "not compiled in");
        assert_eq!(module(&PARTS), first);
        assert_ne!(module(&TAGGED), first);
        assert_ne!(module(&PURE), first);
        write("main.go", "package main ");
        let second = module(&PARTS);
        assert_ne!(second, first);
        write("other.go", "");
        assert_ne!(module(&PARTS), second);
    }
}
