//! Which rights each component needs, and the roles made from that.
//!
//! One table for each component: [`RECONCILER`] and [`WEBHOOK`]. The chart, the test clusters and the check that nothing
//! is denied all come from it, so a right that is missing here is missing everywhere and shows at once.

mod roles;
mod table;

pub use roles::{Bound, objects};
pub use table::{RECONCILER, WEBHOOK};

/// Where a right holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// In every namespace, and for what is in none.
    Cluster,
    /// In the operator's own namespace alone.
    Own,
}

/// One right: these verbs on these resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// Where it holds.
    pub scope: Scope,
    /// API group, empty for the core group.
    pub group: &'static str,
    /// Resources, with a subresource after a slash.
    pub resources: &'static [&'static str],
    /// Objects that it is limited to by name; empty means all. `create` cannot be limited by name.
    pub names: &'static [&'static str],
    /// What may be done.
    pub verbs: &'static [&'static str],
    /// What it is needed for.
    pub why: &'static str,
}

/// A component that has an account of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// Leader and standby.
    Reconciler,
    /// Admission and eviction.
    Webhook,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Reconciler, Self::Webhook];

    /// Name of its ServiceAccount, its roles and their bindings.
    pub fn account(self) -> &'static str {
        match self {
            Self::Reconciler => crate::names::object::OPERATOR,
            Self::Webhook => crate::names::object::WEBHOOK,
        }
    }

    /// Its rights.
    pub fn rights(self) -> &'static [Right] {
        match self {
            Self::Reconciler => RECONCILER,
            Self::Webhook => WEBHOOK,
        }
    }
}
