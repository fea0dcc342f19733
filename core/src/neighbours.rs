//! Which pods of ours a pod would like to have on its node: what it tells a scheduler that asks nobody.
//!
//! ```text
//!  the owner says an affinity, even an empty one ─► theirs, whole
//!  the extender is asked about the pod ───────────► nothing: it knows more
//!  proxy ─────────────────────────────────────────► apart from the proxies of its group
//!  server that says what it needs ────────────────► to the servers, first to those with people on them
//! ```
//!
//! Both are preferences: a pod that cannot have them is placed all the same. Servers are packed so that the emptiest nodes
//! empty out and can be drained or given back; proxies are kept apart because a node that dies takes with it everybody
//! who came through its proxies.

use crate::ledger::Role;

/// A pod, as far as this matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newcomer {
    /// What it is for.
    pub role: Role,
    /// Its owner set an affinity, be it an empty one.
    pub own_affinity: bool,
    /// Its scheduler asks our extender about it.
    pub extender: bool,
    /// It requests processor and memory.
    pub sized: bool,
}

/// The neighbours that a pod prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Neighbours {
    /// Servers of its namespace: with each the weight [`SERVER_WEIGHT`], and [`PEOPLE_WEIGHT`] more where people are on it.
    Servers,
    /// No proxy of its group that is made from the same inputs, with the weight [`SIBLING_WEIGHT`]. Those made from others
    /// are about to go.
    NoSiblings,
    /// It says nothing.
    Unsaid(Unsaid),
}

/// Why a pod says nothing about neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unsaid {
    /// Its owner decides. Theirs and ours are not merged: whoever writes an affinity sees in the pod what they wrote.
    Owner,
    /// The extender decides, by people instead of pods. A scheduler adds up what it and the extender say, so that a node
    /// with many servers would win over one with more people.
    Extender,
    /// Nobody knows how many of them a node can bear, so that one node would get them all.
    Unsized,
}

/// For each server on a node. The scheduler counts it twice: as what the newcomer says of the servers there are, and as
/// what they say of it.
pub const SERVER_WEIGHT: i32 = 1;
/// For each server on a node that has people on it, besides. The most that Kubernetes allows: a server with people draws
/// newcomers as 51 empty ones do.
pub const PEOPLE_WEIGHT: i32 = 100;
/// For each proxy on a node from which a newcomer is kept apart. A pod has no other such weight beside it, and the
/// scheduler compares nodes with the worst and the best of them, so that its size means nothing.
pub const SIBLING_WEIGHT: i32 = 100;

/// The neighbours that a pod prefers.
pub fn prefer(newcomer: Newcomer) -> Neighbours {
    let Newcomer { role, own_affinity, extender, sized } = newcomer;
    match role {
        Role::Server | Role::Proxy if own_affinity => Neighbours::Unsaid(Unsaid::Owner),
        Role::Server | Role::Proxy if extender => Neighbours::Unsaid(Unsaid::Extender),
        Role::Proxy => Neighbours::NoSiblings,
        Role::Server if sized => Neighbours::Servers,
        Role::Server => Neighbours::Unsaid(Unsaid::Unsized),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SERVER: Newcomer = Newcomer { role: Role::Server, own_affinity: false, extender: false, sized: true };
    const PROXY: Newcomer = Newcomer { role: Role::Proxy, ..SERVER };

    #[rstest]
    #[case::servers_are_packed(SERVER, Neighbours::Servers)]
    #[case::proxies_are_apart(PROXY, Neighbours::NoSiblings)]
    #[case::the_owner_of_servers_decides(
        Newcomer { own_affinity: true, ..SERVER }, Neighbours::Unsaid(Unsaid::Owner))]
    #[case::the_owner_of_proxies_decides(
        Newcomer { own_affinity: true, ..PROXY }, Neighbours::Unsaid(Unsaid::Owner))]
    #[case::the_extender_decides_about_servers(
        Newcomer { extender: true, ..SERVER }, Neighbours::Unsaid(Unsaid::Extender))]
    #[case::the_extender_decides_about_proxies(
        Newcomer { extender: true, ..PROXY }, Neighbours::Unsaid(Unsaid::Extender))]
    #[case::the_owner_before_the_extender(
        Newcomer { own_affinity: true, extender: true, ..SERVER }, Neighbours::Unsaid(Unsaid::Owner))]
    #[case::servers_that_ask_for_nothing_are_not_packed(
        Newcomer { sized: false, ..SERVER }, Neighbours::Unsaid(Unsaid::Unsized))]
    #[case::proxies_are_apart_whatever_they_ask_for(Newcomer { sized: false, ..PROXY }, Neighbours::NoSiblings)]
    fn prefers(#[case] newcomer: Newcomer, #[case] want: Neighbours) {
        assert_eq!(prefer(newcomer), want);
    }
}
