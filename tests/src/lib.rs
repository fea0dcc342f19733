//! The test ground: a private, real Kubernetes in seconds, agents, games and faults.
//!
//! ```text
//!  tests, `cargo xtask`
//!        │
//!     Cluster ── Process: etcd · API server · controller manager · scheduler · kwok
//!        │           (each dies with us: panic, Ctrl-C and SIGKILL included)
//!        ├── Namespace   one for each test; tells what it saw when the test fails
//!        ├── Audit       who asked the API server for what, counted
//!        └── FaultProxy  delays, drops and status codes between one client and the API server
//! ```
//!
//! [`nodes::run`] gives a cluster with two real nodes instead of kwok's: kubelet, containerd and containers, as root.
//!
//! Everything else listens on loopback. Each cluster owns one `127.X.0.0/16`: its components have the usual ports at
//! `127.X.255.1` and its pods get addresses in that range, so clusters never meet and pod addresses can be dialled.

pub mod args;
pub mod bench;
pub mod broom;
pub mod cluster;
pub mod command;
pub mod eventually;
mod failure;
pub mod fault;
pub mod game;
pub mod gobuild;
pub mod image;
pub mod installed;
pub mod kubernetes;
pub mod launch;
mod lock;
pub mod minecraft;
pub mod namespace;
pub mod nodes;
pub mod process;
pub mod runner;
pub mod stack;
pub mod target;

pub use cluster::{Cluster, ClusterConfig, component::Component, identity::Identity};
pub use command::Output;
pub use eventually::eventually;
pub use fault::{FaultProxy, rule::Rule};
pub use launch::Launch;
pub use namespace::Namespace;
pub use process::Process;
pub use target::binary;
