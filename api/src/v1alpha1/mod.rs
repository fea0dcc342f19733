//! The four custom resources, `spawnery.cloud/v1alpha1`.
//!
//! Fields, defaults, print columns, short names and rules are upstream's; what is added is optional. Every doc comment
//! here is what `kubectl explain` prints, so each says what a user needs: unit, default, effect.

#![expect(clippy::duplicated_attributes, reason = "columns of one type repeat it")]
#![expect(unreachable_pub, reason = "kube's derives repeat each struct inside a function, visibility included")]

mod common;
mod network;
mod proxy_group;
mod schema;
mod server;
mod server_group;

pub use common::{Defaults, Mount, ObjectRef, OnDeadline, Scheduling};
pub use network::{Network, NetworkSpec, NetworkStatus};
pub use proxy_group::{
    ClusterIpExpose, Expose, ExposeType, HostPortExpose, LoadBalancerExpose, NodePortExpose, ProxyConfig, ProxyDrain,
    ProxyGroup, ProxyGroupSpec, ProxyGroupStatus, Routing,
};
pub use schema::{CrdError, crds};
pub use server::{Server, ServerSpec, ServerStatus};
pub use server_group::{
    Scaling, ServerDrain, ServerGroup, ServerGroupSpec, ServerGroupStatus, ServerGroupType, Storage, Update,
};
