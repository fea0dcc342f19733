//! What a node is made of, besides Kubernetes: containerd, runc, CNI plugins; and what the first pods are made of.
//!
//! Each is a Go module of its own under `tests/nodes/`, with upstream's own versions of what it needs.

use crate::{
    gobuild::{Module, PLAIN, Part},
    target,
};
use anyhow::Result;
use std::path::PathBuf;

const CONTAINERD_FLAGS: &str = "-s -w -X github.com/containerd/containerd/v2/version.Version=v2.4.2";
const CONTAINERD_TAGS: &str = "no_btrfs no_devmapper no_zfs no_aufs no_tracing";
/// Static: it runs where a container's own files are.
const RUNC_FLAGS: &str = "-s -w -X main.version=1.5.3 -linkmode external -extldflags -static";

const fn containerd(file: &'static str, package: &'static str) -> Part {
    Part { tags: CONTAINERD_TAGS, ..Part::new(file, package, CONTAINERD_FLAGS, "a minute or two") }
}

const fn plugin(file: &'static str, package: &'static str) -> Part {
    Part { pure: true, ..Part::new(file, package, PLAIN, "some seconds") }
}

const CONTAINERD: [Part; 3] = [
    containerd("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
    containerd("containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
    containerd("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
];
const RUNC: [Part; 1] =
    [Part { tags: "seccomp", ..Part::new("runc", "github.com/opencontainers/runc", RUNC_FLAGS, "some seconds") }];
const CNI: [Part; 4] = [
    plugin("bridge", "github.com/containernetworking/plugins/plugins/main/bridge"),
    plugin("loopback", "github.com/containernetworking/plugins/plugins/main/loopback"),
    plugin("host-local", "github.com/containernetworking/plugins/plugins/ipam/host-local"),
    plugin("portmap", "github.com/containernetworking/plugins/plugins/meta/portmap"),
];
const COREDNS: [Part; 1] = [Part { pure: true, ..Part::new("coredns", ".", PLAIN, "2 to 5 minutes") }];
const PAUSE: [Part; 1] = [Part { pure: true, ..Part::new("pause", ".", PLAIN, "some seconds") }];

/// Where the binaries are.
#[derive(Debug, Clone)]
pub struct Binaries {
    containerd: PathBuf,
    runc: PathBuf,
    cni: PathBuf,
    coredns: PathBuf,
    pause: PathBuf,
}

impl Binaries {
    /// The folder with containerd, its shim and `ctr`.
    pub fn containerd(&self) -> PathBuf {
        self.containerd.clone()
    }

    /// runc.
    pub fn runc(&self) -> PathBuf {
        self.runc.join("runc")
    }

    /// The folder with the CNI plugins.
    pub fn cni(&self) -> PathBuf {
        self.cni.clone()
    }

    /// CoreDNS, a static binary.
    pub fn coredns(&self) -> PathBuf {
        self.coredns.join("coredns")
    }

    /// The first process of every pod, a static binary.
    pub fn pause(&self) -> PathBuf {
        self.pause.join("pause")
    }
}

/// The binaries; builds them when they are not there.
///
/// # Errors
/// When Go or a C compiler with libseccomp's headers is missing; the message holds the end of what Go said.
pub async fn binaries() -> Result<Binaries> {
    Ok(Binaries {
        containerd: build("containerd", &CONTAINERD).await?,
        runc: build("runc", &RUNC).await?,
        cni: build("cni", &CNI).await?,
        coredns: build("coredns", &COREDNS).await?,
        pause: build("pause", &PAUSE).await?,
    })
}

async fn build(name: &str, parts: &'static [Part]) -> Result<PathBuf> {
    let source = target::workspace().join("tests/nodes").join(name);
    let root = target::directory()?.join("nodes").join(name);
    Module { source, root, parts, links: &[] }.binaries().await
}
