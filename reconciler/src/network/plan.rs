//! What a Network's status says, decided from what is seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use spawnery_api::conditions::{self, Desired, Status};
use spawnery_api::names::condition::{self, reason};
use spawnery_api::names::label;
use spawnery_api::v1alpha1::{Network, NetworkStatus, ProxyGroup, ServerGroup};
use spawnery_api::view::{PodView, Role};

use super::secret::{Reading, Secret};

/// Why a group cannot use the Network that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotUsable {
    /// There is none of that name, or it is being deleted.
    NotFound,
    /// Another one counts in this namespace, or nobody has looked yet.
    NotAccepted,
}

impl NotUsable {
    /// Reason of the group's condition `Accepted`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => reason::NETWORK_NOT_FOUND,
            Self::NotAccepted => reason::NETWORK_NOT_ACCEPTED,
        }
    }
}

/// Something to tell people once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flank {
    /// Another secret than before.
    SecretRotated {
        /// Text of the event.
        note: String,
    },
    /// It is gone, or was never there.
    SecretNotFound {
        /// Text of the event.
        note: String,
    },
}

/// What the status is decided from; everything of the namespace.
pub(super) struct Observed<'a> {
    pub(super) server_groups: Vec<Arc<ServerGroup>>,
    pub(super) proxy_groups: Vec<Arc<ProxyGroup>>,
    pub(super) pods: Vec<Arc<PodView>>,
    pub(super) secret: &'a Secret,
}

/// Whether groups may use what was found under the name that they give.
pub(super) fn usable(found: Option<Arc<Network>>) -> Result<Arc<Network>, NotUsable> {
    let network = found.filter(|network| network.metadata.deletion_timestamp.is_none()).ok_or(NotUsable::NotFound)?;
    let conditions = network.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if conditions::is_true(conditions, condition::ACCEPTED) { Ok(network) } else { Err(NotUsable::NotAccepted) }
}

/// The Network that counts in a namespace: the oldest that is not being deleted, by name among equals.
pub(super) fn owner(networks: &[Arc<Network>]) -> Option<&Arc<Network>> {
    let alive = networks.iter().filter(|network| network.metadata.deletion_timestamp.is_none());
    alive.min_by_key(|network| {
        let created = network.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
        (created, network.name_any())
    })
}

/// Status of a Network that does not count: one condition, everything else as it was.
pub(super) fn duplicate(network: &Network, siblings: &[Arc<Network>], now: Timestamp) -> NetworkStatus {
    let mut status = network.status.clone().unwrap_or_default();
    let owner = owner(siblings).map(|owner| owner.name_any()).unwrap_or_default();
    let message = format!("namespace already belongs to the older Network {owner:?}; a namespace holds one");
    let accepted = Desired::new(condition::ACCEPTED, false, reason::DUPLICATE_NETWORK)
        .message(message)
        .generation(network.metadata.generation);
    conditions::set(&mut status.conditions, accepted, now);
    status
}

/// Status of the Network that counts, and what to tell people.
pub(super) fn accepted(network: &Network, seen: &Observed<'_>, now: Timestamp) -> (NetworkStatus, Vec<Flank>) {
    let name = network.name_any();
    let before = network.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let generation = network.metadata.generation;
    let mut set = |desired: Desired| conditions::set(&mut status.conditions, desired.generation(generation), now);
    set(Desired::new(condition::ACCEPTED, true, reason::ACCEPTED).message("this Network owns the namespace"));

    let resolved = resolved(seen.secret);
    let was_missing = conditions::get(&before.conditions, condition::FORWARDING_SECRET_RESOLVED)
        .is_some_and(|held| held.reason == reason::SECRET_NOT_FOUND);
    let hash = match &seen.secret.reading {
        Reading::Resolved(hash) => hash.clone(),
        Reading::NotFound | Reading::KeyMissing | Reading::Forbidden | Reading::Failed(_) => {
            before.forwarding_secret_hash.clone()
        }
    };
    let mut flanks = Vec::new();
    if resolved.reason == reason::SECRET_NOT_FOUND && !was_missing {
        flanks.push(Flank::SecretNotFound { note: resolved.message.clone() });
    }
    if !before.forwarding_secret_hash.is_empty() && before.forwarding_secret_hash != hash {
        let note = format!(
            "forwarding secret {:?} has changed; pods made before keep the old one until they are replaced, servers first",
            seen.secret.name
        );
        flanks.push(Flank::SecretRotated { note });
    }
    set(resolved);
    let mine = |pod: &&Arc<PodView>| pod.network() == Some(name.as_str());
    set(rotation(&hash, &seen.secret.reading, seen.pods.iter().filter(mine)));

    let server_groups: Vec<_> = seen.server_groups.iter().filter(|group| group.spec.network_ref.name == name).collect();
    let players = server_groups.iter().filter_map(|group| group.status.as_ref()).map(|status| status.online_players);
    status.online_players = players.fold(0, i32::saturating_add);
    status.server_groups = count(server_groups.len());
    status.proxy_groups = count(seen.proxy_groups.iter().filter(|group| group.spec.network_ref.name == name).count());
    status.forwarding_secret_hash = hash;
    (status, flanks)
}

/// Whether two states differ in nothing but numbers that change all the time.
pub(super) fn only_counts_differ(current: &NetworkStatus, next: &NetworkStatus) -> bool {
    let counted = NetworkStatus { online_players: current.online_players, ..next.clone() };
    *current == counted
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn resolved(secret: &Secret) -> Desired {
    let kind = condition::FORWARDING_SECRET_RESOLVED;
    let name = &secret.name;
    match &secret.reading {
        Reading::Resolved(_) => Desired::new(kind, true, reason::SECRET_RESOLVED).message(format!("secret {name:?} is readable")),
        Reading::NotFound => {
            Desired::new(kind, false, reason::SECRET_NOT_FOUND).message(format!("secret {name:?} does not exist"))
        }
        Reading::KeyMissing => {
            Desired::new(kind, false, reason::SECRET_KEY_MISSING).message(format!("secret {name:?} has no key \"secret\""))
        }
        Reading::Forbidden => Desired::new(kind, Status::Unknown, reason::SECRET_READ_FORBIDDEN).message(format!(
            "the operator may not read secret {name:?}; apply the Role spawnery-forwarding-secret-reader here to have changes noticed"
        )),
        Reading::Failed(why) => Desired::new(kind, Status::Unknown, reason::SECRET_READ_FAILED)
            .message(format!("could not read secret {name:?}: {why}")),
    }
}

/// Whether pods still run with another secret. A wrong stamp says more than a missing one; servers are named before
/// proxies, in the order in which they have to be replaced.
fn rotation<'a>(hash: &str, reading: &Reading, pods: impl Iterator<Item = &'a Arc<PodView>>) -> Desired {
    let kind = condition::FORWARDING_SECRET_ROTATION_PENDING;
    if hash.is_empty() || !matches!(reading, Reading::Resolved(_)) {
        return Desired::new(kind, Status::Unknown, reason::SECRET_UNRESOLVED)
            .message("the forwarding secret is not resolved");
    }
    let (mut stale, mut unstamped) = (BTreeMap::new(), BTreeMap::new());
    for pod in pods.filter(|pod| !pod.is_terminating() && !pod.is_terminal()) {
        let Some(role) = pod.role() else { continue };
        let key = (role, pod.group().unwrap_or_default().to_owned());
        match pod.label(label::FORWARDING_HASH) {
            Some(stamp) if stamp == hash => {}
            Some(_) => *stale.entry(key).or_insert(0_u32) += 1,
            None => *unstamped.entry(key).or_insert(0_u32) += 1,
        }
    }
    if !stale.is_empty() {
        let message = format!("pods run with an older secret: {}", listed(&stale));
        return Desired::new(kind, true, reason::ROTATION_PENDING).message(message);
    }
    if !unstamped.is_empty() {
        let message = format!("pods carry no stamp: {}", listed(&unstamped));
        return Desired::new(kind, Status::Unknown, reason::PODS_PREDATE_TRACKING).message(message);
    }
    Desired::new(kind, false, reason::FORWARDING_SECRET_IN_SYNC).message("every pod runs with the current secret")
}

fn listed(counts: &BTreeMap<(Role, String), u32>) -> String {
    let items: Vec<_> =
        counts.iter().map(|((role, group), count)| format!("{}/{group}={count}", role.as_str())).collect();
    items.join(", ")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
