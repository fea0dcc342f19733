//! Objects as they are to be, from specs: pure builders, no client, no clock.
//!
//! ```text
//!  group, Network, inputs ─► server_pod, proxy_pod      made once, never changed
//!  group                  ─► config maps, budgets       kept as they are here by server-side apply
//!  ProxyGroup             ─► Service (or none) and the address that players use
//! ```
//! Each object holds only what is ours, so that applying it leaves alone what others add.

mod budget;
mod config;
mod mounts;
mod neighbours;
mod parts;
mod placement;
mod proxy;
mod server;
mod service;

pub use budget::{proxy_budget, same_budget, selects, server_budget};
pub use config::{proxy_config, same_config, server_config};
pub use mounts::{RESERVED, refused_mounts};
pub use parts::{owner, selector};
pub use placement::Placement;
pub use proxy::{ProxyPod, proxy_pod};
pub use server::{ServerPod, server_pod};
pub use service::{Service, address, same_service, service};

use spawnery_core::admission::Finding;

/// Why no pod can be made from a spec. Trying again does not help: somebody has to change the spec, or our flags.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The group names no image; the schema refuses that.
    #[error("spec.image is empty: name the image of the game")]
    NoImage,
    /// We do not know where agents find us.
    #[error("the operator's agent endpoint is empty: start it with a namespace or an endpoint")]
    NoEndpoint,
    /// Mounts take what is ours; refused on admission too, but a webhook can be down.
    #[error("{}", texts(.0))]
    Mounts(Vec<Finding>),
}

fn texts(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
pub(crate) mod testing;
