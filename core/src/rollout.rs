//! Which proxies of a group stay, which leave, and how one that leaves goes.
//!
//! Players cannot be moved from one proxy to another: a proxy that leaves lets nobody new in and waits. So new proxies come
//! first, and a door is closed when enough others are ready, or when it has been asked for longer than anybody can be
//! expected to wait for a replacement that finds no node.

mod causes;
mod leaving;

pub use causes::{Causes, Departure};
pub use leaving::{DoorState, HAND_OVER, Leaving, Step};

use std::time::Duration;

use jiff::Timestamp;

/// A proxy that others want gone closes after so long, also without a replacement: otherwise the last two nodes of a
/// cluster could never be drained. In a rollout one proxy makes room after so long for a newcomer that finds no node
/// ([`Wanted::room_after`]).
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The only proxy of a group makes room after so long: nobody gets in meanwhile, and autoscalers that buy a node need
/// minutes.
pub const PATIENCE_ALONE: Duration = Duration::from_mins(10);

/// Why a proxy must leave, whatever the group's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Its group is being deleted.
    GroupDeleted,
    /// Somebody asked to evict it and still does.
    EvictionRequested,
    /// Its node is cordoned or tainted for a drain.
    NodeDeparting,
    /// It is sealed, which is final.
    Sealed,
}

/// One proxy pod that is not being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Name of the pod.
    pub name: String,
    /// When it was created.
    pub created: Timestamp,
    /// Whether the kubelet says it is ready.
    pub ready: bool,
    /// For how long the scheduler has found no node for it; zero when it found one.
    pub unschedulable_for: Duration,
    /// Whether it was made from other inputs than a new one would be.
    pub outdated: bool,
    /// Why it must leave, if it must.
    pub cause: Option<Cause>,
    /// For how long we have known of the cause.
    pub caused_for: Duration,
    /// For how long what it had to leave for has been gone, while it is not yet open and ready again.
    pub released_for: Option<Duration>,
    /// Whether its door was told to close in an earlier pass.
    pub marked: bool,
    /// Whether its count is fresh.
    pub trusted: bool,
    /// Players on it, as last reported.
    pub players: u32,
}

impl Proxy {
    /// Whether, having to leave, it closes without a look at how many others are open.
    fn closes_at_once(&self) -> bool {
        self.marked || self.cause == Some(Cause::Sealed) || self.caused_for >= PATIENCE
    }

    /// Whether its drain was called off and it may yet become ready again.
    fn comes_back(&self) -> bool {
        self.released_for.is_some_and(|released| released < PATIENCE)
    }

    /// Whether it is what a new one would be, and has found no node for longer than anybody can be expected to wait
    /// (`patience`). Only while all others are ready does one of them go for it: a spec that fits no node at all costs one
    /// proxy, not all.
    fn waits_for_room(&self, patience: Duration) -> bool {
        !self.outdated && self.unschedulable_for >= patience
    }
}

/// What a group wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Pods to keep.
    pub replicas: u32,
    /// Pods whose creation was asked for and does not show yet.
    pub creating: u32,
    /// Whether the group is being deleted.
    pub deleting: bool,
    /// Whether a node takes one of its proxies only (a port of the node, a required anti-affinity).
    pub one_per_node: bool,
}

impl Wanted {
    /// After how long without a node a newcomer gets the room of an outdated proxy; none where that need not help it. One
    /// that fits nowhere for want of memory, or of a node with its label, would cost a proxy and find no node either.
    pub fn room_after(&self) -> Option<Duration> {
        let patience = if self.replicas > 1 { PATIENCE } else { PATIENCE_ALONE };
        self.one_per_node.then_some(patience)
    }
}

/// What to do about a group's proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Pods to create.
    pub create: u32,
    /// Names of the pods whose doors are to be closed; all others are to be open.
    pub closed: Vec<String>,
}

/// Decides over all proxies of a group that are neither terminating nor dead.
pub fn decide(proxies: &[Proxy], wanted: Wanted) -> Decision {
    if wanted.deleting {
        return Decision { create: 0, closed: proxies.iter().map(|proxy| proxy.name.clone()).collect() };
    }
    let replicas = count(wanted.replicas);
    let staying: Vec<&Proxy> = proxies.iter().filter(|proxy| proxy.cause.is_none()).collect();
    let surge = usize::from(staying.iter().any(|proxy| proxy.outdated));
    let target = replicas.saturating_add(surge);
    let create = target.saturating_sub(staying.len()).saturating_sub(count(wanted.creating));

    let mut closed: Vec<&Proxy> = kept_marks(&staying, replicas);
    let mut open_and_ready = proxies.iter().filter(|proxy| proxy.ready && !is_in(&closed, proxy)).count();
    // Those that close whoever is left come first, so that the others are counted without them.
    let leaving = picked(proxies.iter().filter(|proxy| proxy.cause.is_some()));
    let (at_once, when_not_missed): (Vec<_>, Vec<_>) = leaving.into_iter().partition(|proxy| proxy.closes_at_once());
    for proxy in at_once {
        open_and_ready = open_and_ready.saturating_sub(usize::from(proxy.ready));
        closed.push(proxy);
    }
    for proxy in when_not_missed {
        if !proxy.ready || open_and_ready > replicas {
            open_and_ready = open_and_ready.saturating_sub(usize::from(proxy.ready));
            closed.push(proxy);
        }
    }
    // One thing at a time: what is on its way out has to be gone before the next one is chosen.
    if closed.is_empty() {
        closed.extend(nominated(&staying, target, wanted, open_and_ready));
    }
    let create = u32::try_from(create).unwrap_or(u32::MAX);
    Decision { create, closed: closed.into_iter().map(|proxy| proxy.name.clone()).collect() }
}

/// Earlier choices that still stand: those that are outdated, and of the others as many as are too many. A door that was
/// closed for something that has passed was no choice.
fn kept_marks<'a>(staying: &[&'a Proxy], replicas: usize) -> Vec<&'a Proxy> {
    let marked = || staying.iter().copied().filter(|proxy| proxy.marked);
    let mut kept: Vec<_> = marked().filter(|proxy| proxy.outdated).collect();
    let surplus = staying.len().saturating_sub(kept.len()).saturating_sub(replicas);
    kept.extend(
        picked(marked().filter(|proxy| !proxy.outdated && proxy.released_for.is_none())).into_iter().take(surplus),
    );
    kept
}

fn nominated<'a>(staying: &[&'a Proxy], target: usize, wanted: Wanted, open_and_ready: usize) -> Vec<&'a Proxy> {
    let replicas = count(wanted.replicas);
    let candidates = picked(staying.iter().copied());
    let surplus = staying.len().saturating_sub(target);
    if surplus > 0 {
        // Whoever came for one whose drain was called off is not chosen over it only because that one is not ready yet.
        if staying.iter().any(|proxy| proxy.comes_back()) {
            return Vec::new();
        }
        return candidates.into_iter().take(surplus).collect();
    }
    let mut outdated = candidates.into_iter().filter(|proxy| proxy.outdated);
    let waits = |patience| staying.iter().any(|proxy| proxy.waits_for_room(patience));
    let makes_room = open_and_ready >= replicas && wanted.room_after().is_some_and(waits);
    let one_is_no_loss = makes_room || open_and_ready > replicas || outdated.clone().any(|proxy| !proxy.ready);
    if one_is_no_loss { outdated.next().into_iter().collect() } else { Vec::new() }
}

/// In the order in which proxies are given up: outdated, not ready, known count, fewer players, newest.
fn picked<'a>(proxies: impl Iterator<Item = &'a Proxy>) -> Vec<&'a Proxy> {
    let mut proxies: Vec<_> = proxies.collect();
    proxies.sort_by(|a, b| {
        let rank = |proxy: &Proxy| (!proxy.outdated, proxy.ready, !proxy.trusted, proxy.players);
        rank(a).cmp(&rank(b)).then_with(|| b.created.cmp(&a.created)).then_with(|| a.name.cmp(&b.name))
    });
    proxies
}

fn is_in(list: &[&Proxy], proxy: &Proxy) -> bool {
    list.iter().any(|other| other.name == proxy.name)
}

fn count(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
