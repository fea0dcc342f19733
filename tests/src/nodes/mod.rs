//! Real nodes: kubelet, containerd, runc, CNI and kube-proxy, two of each, in namespaces that end with us.
//!
//! ```text
//!  etcd · API server · controllers · tests      10.77.0.1, a network namespace without a way out
//!        │
//!     bridge ── node-a   its own mount, pid, uts, ipc, network and cgroup namespaces, and a disk
//!        └───── node-b   pods in containers; CoreDNS is two of them
//! ```
//!
//! A node's processes end with its first one, and that dies with ours, in whatever way we end: nothing is left running or
//! mounted, no address, no control group. Clusters do not meet, though all have the same addresses.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use spawnery_tests::nodes::{self, RealOptions};
//! nodes::run(RealOptions::default(), async |real| {
//!     real.node("node-a")?.crash().await?;
//!     print!("{}", real.cluster().kubectl(["get", "nodes"]).await?.stdout()?);
//!     real.node("node-a")?.boot().await?;
//!     real.ready().await
//! })
//! # }
//! ```

pub mod binaries;
mod cgroups;
mod config;
mod dns;
mod images;
pub mod network;
mod node;
pub mod real;
pub mod support;

pub use binaries::{Binaries, binaries};
pub use dns::resolve;
pub use node::Node;
pub use real::{RealCluster, RealOptions, run, run_required};

use network::Place;

/// The nodes.
const NODES: [(&str, Place); 2] = [("node-a", Place { number: 1 }), ("node-b", Place { number: 2 })];

/// Whom the API server knows besides the control plane: the name of the kubeconfig, the user, the group.
pub(crate) const USERS: [(&str, &str, &str); 3] = [
    ("node-a", "system:node:node-a", "system:nodes"),
    ("node-b", "system:node:node-b", "system:nodes"),
    ("kube-proxy", "system:kube-proxy", ""),
];
