//! Which rights each part has, and the roles made from that.
//!
//! Two tables: what a part needs ([`Component::rights`]), and what only upstream's users expect it to have
//! ([`Component::compat`]). Test clusters grant the first alone, so a right that is missing there is missing everywhere and
//! shows at once; the chart grants both, and takes them from here ([`chart::rights`]).

pub mod chart;
mod compat;
mod roles;
mod table;

pub use compat::RECONCILER_COMPAT;
pub use roles::{Bound, objects, rules};
pub use table::{EXTENDER, RECONCILER, WEBHOOK};

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
    /// Placement.
    Extender,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reconciler, Self::Webhook, Self::Extender];

    /// Name of its ServiceAccount, its roles and their bindings.
    pub fn account(self) -> &'static str {
        match self {
            Self::Reconciler => crate::names::object::OPERATOR,
            Self::Webhook => crate::names::object::WEBHOOK,
            Self::Extender => crate::names::object::EXTENDER,
        }
    }

    /// What it needs.
    pub fn rights(self) -> &'static [Right] {
        match self {
            Self::Reconciler => RECONCILER,
            Self::Webhook => WEBHOOK,
            Self::Extender => EXTENDER,
        }
    }
    /// What it has besides, for the sake of compatibility.
    pub fn compat(self) -> &'static [Right] {
        match self {
            Self::Reconciler => RECONCILER_COMPAT,
            Self::Webhook | Self::Extender => &[],
        }
    }
}
