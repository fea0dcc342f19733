//! The custom resources, lean views, names, conditions and rights of Spawnery.
//!
//! ```text
//!  v1alpha1   Network, ProxyGroup, ServerGroup, Server: what users write and read; crdgen writes the definitions
//!  conditions how their status says what is going on
//!  view       Pods and Nodes as far as decisions read them
//!  names      every label, annotation, object name, port and reason in one place
//!  inputs     from specs to what a pod is made from
//!  rbac       which rights each component needs, and the roles made from that
//!  scheduler  how a kube-scheduler is told to ask the extender
//! ```
//!
//! Types and serde only: nothing here talks to a cluster.

pub mod conditions;
pub mod inputs;
pub mod names;
pub mod rbac;
pub mod scheduler;
pub mod v1alpha1;
pub mod view;
