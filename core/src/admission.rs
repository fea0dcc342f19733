//! What a schema cannot see about the objects that users apply.
//!
//! Each rule takes facts and gives [`Finding`]s; a finding knows whether it rejects or only warns, which field it is about,
//! and its text: what is wrong, with which value, and what would be accepted. Rules about other objects only warn, because
//! `GitOps` applies in any order and a snapshot says nothing about later. Every rule that rejects is enforced by the
//! reconciler too, for objects that were applied while no webhook ran.

mod fallbacks;
mod impact;
mod mounts;
mod ownership;
mod ports;
mod references;

pub use fallbacks::{fallbacks, group_name_problem};
pub use impact::{Impact, deletion, replacement, shrink};
pub use mounts::{MountFacts, Reserved, mounts};
pub use ownership::{Author, ServerFields, owned_fields};
pub use ports::{PodSecurity, PortUse, ports};
pub use references::{Found, Reference, memory_limit, references};

use std::fmt;

/// Whether a finding stops the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The request is refused.
    Reject,
    /// The request passes, and whoever made it reads the text.
    Warn,
}

/// One thing that is wrong, or that somebody should know before it happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A fallback group stands in the list twice.
    FallbackTwice {
        /// The name.
        name: String,
        /// Where it stands first.
        first: usize,
        /// Where it stands again.
        second: usize,
    },
    /// No group can have the name.
    FallbackImpossible {
        /// Where it stands.
        index: usize,
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A user mount takes a volume name of ours.
    MountReservedVolume {
        /// The mount's name.
        name: String,
        /// All names that are taken.
        reserved: String,
    },
    /// A user mount hides files of ours.
    MountReservedPath {
        /// The mount's name.
        name: String,
        /// Where it would be mounted.
        path: String,
        /// The path that it would hide.
        reserved: String,
    },
    /// Two user mounts want one path.
    MountPathTwice {
        /// The path.
        path: String,
        /// The mount that has it first.
        first: String,
        /// The mount that wants it too.
        second: String,
    },
    /// A field of a Server that belongs to its group was changed.
    GroupOwnedField {
        /// The field's name in the spec.
        field: &'static str,
        /// The value before, as text.
        old: String,
        /// The value asked for, as text.
        new: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// Something is named that does not exist.
    UnknownReference {
        /// Path of the field.
        field: String,
        /// Kind of what is named.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A group of another Network is named.
    ForeignReference {
        /// Path of the field.
        field: String,
        /// Kind of what is named.
        kind: &'static str,
        /// The name.
        name: String,
        /// The Network that it belongs to.
        network: String,
    },
    /// Another group wants the same port.
    PortTaken {
        /// Path of the field.
        field: &'static str,
        /// The port.
        port: i32,
        /// `namespace/name` of the other group.
        by: String,
    },
    /// The namespace's pod security level forbids host ports.
    HostPortForbidden {
        /// The enforced level.
        level: &'static str,
    },
    /// The game may take all memory of its node.
    NoMemoryLimit,
    /// Lowering `replicas` takes servers with people on them.
    ReplicasBelowOccupied {
        /// The value asked for.
        replicas: i32,
        /// Ordinals with people on them that go.
        ordinals: Vec<u32>,
    },
    /// The edit replaces running pods.
    PodsReplaced {
        /// `ServerGroup` or `ProxyGroup`.
        kind: &'static str,
        /// Name of the group.
        group: String,
        /// Pods that are replaced.
        pods: usize,
        /// People on them.
        people: u64,
    },
    /// What is deleted has people on it.
    DeletesOccupied {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
        /// Running pods below it.
        pods: usize,
        /// People on them.
        people: u64,
    },
}

impl Finding {
    /// Whether this stops the request.
    pub fn severity(&self) -> Severity {
        match self {
            Self::FallbackTwice { .. }
            | Self::FallbackImpossible { .. }
            | Self::MountReservedVolume { .. }
            | Self::MountReservedPath { .. }
            | Self::GroupOwnedField { .. } => Severity::Reject,
            Self::MountPathTwice { .. }
            | Self::UnknownReference { .. }
            | Self::ForeignReference { .. }
            | Self::PortTaken { .. }
            | Self::HostPortForbidden { .. }
            | Self::NoMemoryLimit
            | Self::ReplicasBelowOccupied { .. }
            | Self::PodsReplaced { .. }
            | Self::DeletesOccupied { .. } => Severity::Warn,
        }
    }

    /// Path of the field, as it stands in `details.causes[].field`.
    pub fn field(&self) -> String {
        match self {
            Self::FallbackTwice { second: index, .. } | Self::FallbackImpossible { index, .. } => {
                format!("spec.routing.fallbackGroups[{index}]")
            }
            Self::MountReservedVolume { name, .. } => format!("spec.mounts[{name}].name"),
            Self::MountReservedPath { name, .. } | Self::MountPathTwice { second: name, .. } => {
                format!("spec.mounts[{name}].mountPath")
            }
            Self::GroupOwnedField { field, .. } => format!("spec.{field}"),
            Self::UnknownReference { field, .. } | Self::ForeignReference { field, .. } => field.clone(),
            Self::PortTaken { field, .. } => (*field).to_owned(),
            Self::HostPortForbidden { .. } => "spec.expose.hostPort.port".to_owned(),
            Self::NoMemoryLimit => "spec.resources.limits.memory".to_owned(),
            Self::ReplicasBelowOccupied { .. } => "spec.replicas".to_owned(),
            Self::PodsReplaced { .. } => "spec".to_owned(),
            Self::DeletesOccupied { .. } => "metadata".to_owned(),
        }
    }

    /// Short name for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::FallbackTwice { .. } => "fallback-twice",
            Self::FallbackImpossible { .. } => "fallback-impossible",
            Self::MountReservedVolume { .. } => "mount-reserved-volume",
            Self::MountReservedPath { .. } => "mount-reserved-path",
            Self::MountPathTwice { .. } => "mount-path-twice",
            Self::GroupOwnedField { .. } => "group-owned-field",
            Self::UnknownReference { .. } => "unknown-reference",
            Self::ForeignReference { .. } => "foreign-reference",
            Self::PortTaken { .. } => "port-taken",
            Self::HostPortForbidden { .. } => "host-port-forbidden",
            Self::NoMemoryLimit => "no-memory-limit",
            Self::ReplicasBelowOccupied { .. } => "replicas-below-occupied",
            Self::PodsReplaced { .. } => "pods-replaced",
            Self::DeletesOccupied { .. } => "deletes-occupied",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field();
        match self {
            Self::FallbackTwice { name, first, .. } => {
                write!(f, "{field}: {name:?} stands in the list already, at [{first}]; name each group once")
            }
            Self::FallbackImpossible { name, problem, .. } => {
                write!(f, "{field}: {name:?} {problem}; a group's name is lower-case letters, digits, '-' and '.'")
            }
            Self::MountReservedVolume { name, reserved } => {
                write!(f, "{field}: the volume name {name:?} is taken; use any name but {reserved}")
            }
            Self::MountReservedPath { path, reserved, .. } => {
                write!(f, "{field}: {path:?} would hide {reserved}; mount somewhere else, for example below /data")
            }
            Self::MountPathTwice { path, first, .. } => {
                write!(f, "{field}: {path:?} is the path of mount {first:?} too; pods with both are refused")
            }
            Self::GroupOwnedField { old, new, instead, .. } => {
                write!(
                    f,
                    "{field} belongs to the server's group and cannot be changed from {old} to {new}; {instead}, or set \
                     the annotation spawnery.cloud/override: \"true\""
                )
            }
            Self::UnknownReference { kind, name, .. } => write!(f, "{field}: there is no {kind} {name:?} yet"),
            Self::ForeignReference { kind, name, network, .. } => {
                write!(f, "{field}: {kind} {name:?} belongs to another Network, {network:?}; players cannot go there")
            }
            Self::PortTaken { port, by, .. } => {
                write!(f, "{field}: {by} wants port {port} too; one of them will not get it")
            }
            Self::HostPortForbidden { level } => {
                write!(f, "{field}: this namespace enforces pod security {level:?}, which forbids host ports")
            }
            Self::NoMemoryLimit => {
                write!(f, "{field} is not set: the game sizes its heap by the node and may take three quarters of it")
            }
            Self::ReplicasBelowOccupied { replicas, ordinals } => {
                let list: Vec<String> = ordinals.iter().map(u32::to_string).collect();
                write!(f, "{field}: {replicas} drains servers with people on them: ordinals {}", list.join(", "))
            }
            Self::PodsReplaced { kind, group, pods, people } => {
                write!(
                    f,
                    "this replaces {} of {kind} {group:?}, with {} on them",
                    count(*pods, "running pod"),
                    crowd(*people)
                )
            }
            Self::DeletesOccupied { kind, name, pods, people } => {
                write!(f, "{kind} {name:?} has {} in {}; they are drained first", crowd(*people), count(*pods, "pod"))
            }
        }
    }
}

/// Splits what is found on an edit into what rejects it and what only warns. What the object said before is nobody's fault
/// now: it must not keep people from editing something else, or us from taking a finalizer off.
pub fn weigh(found: Vec<Finding>, before: &[Finding]) -> (Vec<Finding>, Vec<Finding>) {
    found.into_iter().partition(|finding| finding.severity() == Severity::Reject && !before.contains(finding))
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn crowd(people: u64) -> String {
    match people {
        0 => "nobody".to_owned(),
        1 => "1 person".to_owned(),
        people => format!("{people} people"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn twice() -> Finding {
        Finding::FallbackTwice { name: "lobby".into(), first: 0, second: 2 }
    }

    #[rstest]
    #[case::new_fault(vec![twice()], vec![], 1, 0)]
    #[case::old_fault_only_warns(vec![twice()], vec![twice()], 0, 1)]
    #[case::warning(vec![Finding::NoMemoryLimit], vec![], 0, 1)]
    #[case::both(vec![twice(), Finding::NoMemoryLimit], vec![], 1, 1)]
    fn weighs(#[case] found: Vec<Finding>, #[case] before: Vec<Finding>, #[case] rejects: usize, #[case] warns: usize) {
        let (rejected, warned) = weigh(found, &before);
        assert_eq!((rejected.len(), warned.len()), (rejects, warns));
    }

    #[rstest]
    #[case::twice(
        twice(),
        "spec.routing.fallbackGroups[2]: \"lobby\" stands in the list already, at [0]; name each group once"
    )]
    #[case::one_pod(
        Finding::PodsReplaced { kind: "ServerGroup", group: "lobby".into(), pods: 1, people: 0 },
        "this replaces 1 running pod of ServerGroup \"lobby\", with nobody on them"
    )]
    #[case::many(
        Finding::PodsReplaced { kind: "ProxyGroup", group: "edge".into(), pods: 3, people: 41 },
        "this replaces 3 running pods of ProxyGroup \"edge\", with 41 people on them"
    )]
    #[case::delete(
        Finding::DeletesOccupied { kind: "Network", name: "main".into(), pods: 2, people: 1 },
        "Network \"main\" has 1 person in 2 pods; they are drained first"
    )]
    #[case::replicas(
        Finding::ReplicasBelowOccupied { replicas: 1, ordinals: vec![1, 2] },
        "spec.replicas: 1 drains servers with people on them: ordinals 1, 2"
    )]
    fn says_field_value_and_what_is_accepted(#[case] finding: Finding, #[case] want: &str) {
        assert_eq!(finding.to_string(), want);
    }
}
