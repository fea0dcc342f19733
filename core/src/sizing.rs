//! How many servers an ephemeral group has: enough free slots, never more than its ceiling, and never one less that
//! somebody is on.

use crate::candidates::deletable;
use crate::member::Member;
use crate::retirement;
use std::collections::BTreeSet;
use std::time::Duration;

/// What the group asks for (`spec.scaling`, `spec.update`, `spec.maxPlayers`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// At least so many servers.
    pub min_replicas: u32,
    /// At most so many servers.
    pub max_replicas: u32,
    /// Free slots to keep in hand.
    pub spare_slots: u32,
    /// Slots of a server.
    pub max_players: u32,
    /// How long a server must have been empty before it may go for lack of demand.
    pub stabilization: Duration,
    /// How many servers may be retiring at a time; zero counts as one.
    pub max_unavailable: u32,
}

/// What was asked of the API server and the caches do not show yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reservations {
    /// Servers created.
    pub creates: u32,
    /// Names of servers deleted.
    pub deletes: BTreeSet<String>,
    /// Names of servers told to retire.
    pub retires: BTreeSet<String>,
}

/// What one pass does to the size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Creates so many servers.
    Create(u32),
    /// Deletes these servers.
    Delete(Vec<String>),
    /// Retires this server.
    Retire(String),
}

/// What stopped the group from growing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// It wants more servers for its spare slots than `maxReplicas` has room for.
    Ceiling {
        /// Servers wanted in this pass.
        wanted: u32,
        /// Servers there was room for.
        granted: u32,
    },
    /// Its first server of the new kind has no room below `maxReplicas`, so the update cannot begin.
    ColdStart,
}

/// What sizing decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizing {
    /// For the size.
    pub action: Action,
    /// Whether the ceiling is in the way.
    pub limited: Option<Limit>,
    /// Servers on departing nodes that were never open to players: nobody can be on them, so they are deleted at once and
    /// replaced elsewhere. Those that were open close their doors and go through the seal instead.
    pub condemn: Vec<String>,
}

/// Sizes a group: the first rule that fits, from top to bottom.
pub fn decide(members: &[Member], reserved: &Reservations, policy: &Policy) -> Sizing {
    let counting: Vec<&Member> =
        members.iter().filter(|m| m.counts() && !m.deleting && !reserved.deletes.contains(&m.name)).collect();
    let alive = reserved.creates.saturating_add(count(counting.len()));
    let demand = Demand::of(members, &counting, alive, reserved, policy);
    let (action, limited) = demand.meet(members, &counting, alive, reserved, policy);
    Sizing { action, limited, condemn: condemned(members, reserved) }
}

struct Demand {
    /// For spare slots.
    wanted: u32,
    /// For spare slots or the minimum.
    demanded: u32,
    /// There are servers, and none of them is of the current kind.
    cold: bool,
    /// All in all.
    create: u32,
}

impl Demand {
    fn of(members: &[Member], counting: &[&Member], alive: u32, reserved: &Reservations, policy: &Policy) -> Self {
        let room = policy.max_players.max(1);
        let provisional = members
            .iter()
            .filter(|m| !m.deleting && !reserved.deletes.contains(&m.name))
            .map(|m| m.expected_free(room))
            .fold(reserved.creates.saturating_mul(room), u32::saturating_add);
        let wanted = policy.spare_slots.saturating_sub(provisional).div_ceil(room);
        let demanded = wanted.max(policy.min_replicas.saturating_sub(alive));
        let cold = reserved.creates == 0 && !counting.is_empty() && !counting.iter().any(|m| m.current);
        Self { wanted, demanded, cold, create: demanded.max(u32::from(cold)) }
    }

    fn meet(
        &self,
        members: &[Member],
        counting: &[&Member],
        alive: u32,
        reserved: &Reservations,
        policy: &Policy,
    ) -> (Action, Option<Limit>) {
        let granted = self.create.min(policy.max_replicas.saturating_sub(alive));
        let limited = if self.wanted > granted {
            Some(Limit::Ceiling { wanted: self.wanted, granted })
        } else if self.cold && granted == 0 {
            Some(Limit::ColdStart)
        } else {
            None
        };
        if granted > 0 {
            return (Action::Create(granted), limited);
        }
        let pool: Vec<&Member> =
            counting.iter().copied().filter(|m| !m.retire && !reserved.retires.contains(&m.name)).collect();
        let surplus = alive.saturating_sub(policy.max_replicas);
        if surplus > 0 {
            return (delete(deletable(pool, size(surplus))), limited);
        }
        if self.demanded > 0 {
            return (Action::Keep, limited);
        }
        if let Some(member) = retirement::select(members, reserved, policy.max_unavailable) {
            return (Action::Retire(member.name.clone()), limited);
        }
        if reserved.creates == 0 && alive > policy.min_replicas {
            return (delete(unneeded(&pool, counting, policy)), limited);
        }
        (Action::Keep, limited)
    }
}

/// The server that the spare slots can do without, if it has been empty for long enough. While servers are being replaced
/// only one of the old kind may go: the new ones are about to be needed.
fn unneeded<'a>(pool: &[&'a Member], counting: &[&Member], policy: &Policy) -> Vec<&'a Member> {
    let changing = counting.iter().any(|m| !m.current);
    let free = pool.iter().map(|m| m.ready_free()).fold(0, u32::saturating_add);
    let eligible = pool.iter().copied().filter(|m| {
        (!changing || !m.current)
            && m.known_empty()
            && m.empty_for.is_some_and(|idle| idle >= policy.stabilization)
            && free.saturating_sub(m.ready_free()) >= policy.spare_slots
    });
    deletable(eligible, 1)
}

fn condemned(members: &[Member], reserved: &Reservations) -> Vec<String> {
    members
        .iter()
        .filter(|m| m.condemned && !m.was_registered && !m.deleting && !reserved.deletes.contains(&m.name))
        .map(|m| m.name.clone())
        .collect()
}

fn delete(chosen: Vec<&Member>) -> Action {
    if chosen.is_empty() { Action::Keep } else { Action::Delete(chosen.into_iter().map(|m| m.name.clone()).collect()) }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "sizing_tests.rs"]
mod tests;
