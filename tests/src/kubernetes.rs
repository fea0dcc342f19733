//! Kubernetes, helm and kwok, built from source once.
//!
//! `tests/kubernetes` is a Go module that pins all three. Their binaries land in `target/kubernetes/<key>/`.

use crate::{
    gobuild::{Module, PLAIN, Part},
    launch::Launch,
    target,
};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The version that `go.mod` pins, which the binary says of itself: without a stamp it would say v0.0.0.
pub const VERSION: &str = "1.37.2";
const STAMP: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2 \
                     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37";

const PARTS: [Part; 3] = [
    Part::new("k8s", ".", STAMP, "about 6 minutes"),
    Part::new("kwok", "sigs.k8s.io/kwok/cmd/kwok", PLAIN, "a minute or two"),
    Part::new("helm", "helm.sh/helm/v4/cmd/helm", PLAIN, "a minute or two"),
];

/// The binaries of one build.
#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// One of the components in the `k8s` binary, which dispatches on its first argument.
    pub fn component(&self, name: &str) -> Launch {
        Launch::new(name, self.k8s()).arg(name)
    }

    /// The binary that holds every component of Kubernetes: which one it is to be is its first argument.
    pub fn k8s(&self) -> PathBuf {
        self.directory.join("k8s")
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
    let root = target::directory()?.join("kubernetes");
    let module = Module { source: source(), root, parts: &PARTS, links: &[("kubectl", "k8s")] };
    Ok(Binaries { directory: module.binaries().await? })
}

/// The Go module.
pub fn source() -> PathBuf {
    target::workspace().join("tests/kubernetes")
}
