//! What a pass over a ProxyGroup depends on, as values.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use spawnery_api::inputs;
use spawnery_api::names::{annotation, finalizer, label};
use spawnery_api::v1alpha1::{ExposeType, NetworkSpec, OnDeadline, ProxyGroup, ProxyGroupSpec};
use spawnery_api::view::PodView;
use spawnery_core::door::{DoorView, ProxyView};
use spawnery_core::eviction::request::EvictionRequest;
use spawnery_core::rollout::{Causes, Departure, DoorState, Leaving, Proxy, Wanted};

use super::memory::OfGroup;
use crate::network::plan::NotUsable;

/// A pod's conditions are first written within so long of its start. Its first probe comes later than that.
const BEGINNING: Duration = Duration::from_secs(5);

/// Everything that [`super::plan::plan`] reads.
#[derive(Debug)]
pub(super) struct Observed {
    /// The group, with our own writes.
    pub(super) group: Arc<ProxyGroup>,
    /// Its pods, those that are being deleted too; oldest first.
    pub(super) pods: Vec<Sight>,
    /// Whether the Network can be used.
    pub(super) network: Result<(), NotUsable>,
    /// Hash of what a new pod would be made from; none when that cannot be told.
    pub(super) desired_hash: Option<String>,
    /// Whether a node takes one new pod of it only.
    pub(super) one_per_node: bool,
    /// Pods whose creation was asked for and does not show yet.
    pub(super) creating: u32,
    /// The group's Service, if there is one.
    pub(super) service: Option<Arc<Service>>,
    /// Names of other budgets that select its pods.
    pub(super) foreign_budgets: Vec<String>,
    /// What this process remembers of the group.
    pub(super) memory: OfGroup,
    /// Now.
    pub(super) now: Timestamp,
}

impl Observed {
    /// The group is to be removed.
    pub(super) fn deleting(&self) -> bool {
        self.group.metadata.deletion_timestamp.is_some()
    }

    /// What the group wants.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            replicas: u32::try_from(self.group.spec.replicas).unwrap_or_default(),
            creating: self.creating,
            deleting: self.deleting(),
            one_per_node: self.one_per_node,
        }
    }

    /// It carries our finalizer.
    pub(super) fn guarded(&self) -> bool {
        self.group.metadata.finalizers.iter().flatten().any(|name| name == finalizer::GROUP)
    }
}

/// One pod of the group.
#[derive(Debug, Clone)]
pub(super) struct Sight {
    /// The pod.
    pub(super) pod: Arc<PodView>,
    /// What its agent says.
    pub(super) view: ProxyView,
    /// What is known of the emptying of its node.
    pub(super) departure: Departure,
    /// For how long something has wanted it gone.
    pub(super) caused_for: Duration,
    /// For how long that has been over, while its door is not open and it is not ready again.
    pub(super) released_for: Option<Duration>,
    /// For how long the scheduler has found no node for it.
    pub(super) unschedulable_for: Duration,
    /// For how long we have known that it is sealed.
    pub(super) sealed_for: Duration,
    /// For how long it has been told to take nobody in while somebody may still get in.
    pub(super) diverged_for: Duration,
}

/// What speaks for the pod's going, group size and inputs aside. A request that cannot be read counts as made just now.
pub(super) fn causes(pod: &PodView, departure: Departure, group_deleted: bool, now: Timestamp) -> Causes {
    let requested =
        pod.eviction_requested().map(|text| EvictionRequest::from_annotation(text).map_or(now, |request| request.at));
    Causes { sealed: pod.is_sealed(), group_deleted, departure, requested }
}

/// Whether a node takes one pod of the group only, so that one that leaves makes room: it opens a port of its node, or
/// its owner keeps it away from others.
pub(super) fn one_per_node(group: &ProxyGroupSpec, network: Option<&NetworkSpec>) -> bool {
    let scheduling = inputs::effective_scheduling(group.scheduling.as_ref(), network);
    let apart = scheduling.and_then(|scheduling| scheduling.affinity.as_ref()?.pod_anti_affinity.as_ref());
    let required = apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_ref());
    group.expose.kind == ExposeType::HostPort || required.is_some_and(|terms| !terms.is_empty())
}

/// Its door was told to close.
pub(super) fn marked(pod: &PodView) -> bool {
    pod.annotation(annotation::DRAINING_SINCE).is_some()
}

/// Since when its door has been told to close. A value that cannot be read is to be written anew.
pub(super) fn draining_since(pod: &PodView) -> Option<Timestamp> {
    pod.annotation(annotation::DRAINING_SINCE)?.parse().ok()
}

impl Sight {
    /// It is there and can hold players.
    pub(super) fn alive(&self) -> bool {
        !self.pod.is_terminating() && !self.pod.is_terminal()
    }

    /// It is being deleted, and its process may still run.
    pub(super) fn going(&self) -> bool {
        self.pod.is_terminating() && !self.pod.is_terminal()
    }

    /// It was told to close, or is about to be removed.
    pub(super) fn marked(&self) -> bool {
        marked(&self.pod)
    }

    /// The kubelet has never called it ready: the condition has not flipped since the pod began. One that flipped later
    /// may have flipped back.
    pub(super) fn never_ready(&self) -> bool {
        let Some(ready) = &self.pod.status.conditions.ready else { return self.pod.status.start_time.is_none() };
        let began = self.pod.status.start_time.and_then(|began| began.checked_add(BEGINNING).ok());
        !ready.holds && ready.last_transition_time.zip(began).is_some_and(|(flipped, began)| flipped <= began)
    }

    /// Why it must leave, if it must.
    fn causes(&self, observed: &Observed) -> Causes {
        causes(&self.pod, self.departure, observed.deleting(), observed.now)
    }

    /// How long to wait until it has found no node for longer than a rollout waits (`patience`); none when it need not.
    pub(super) fn patience_left(&self, patience: Duration) -> Option<Duration> {
        let left = patience.checked_sub(self.unschedulable_for).filter(|left| !left.is_zero());
        left.filter(|_| self.pod.is_unschedulable())
    }

    /// Its node is being emptied.
    pub(super) fn departing(&self) -> bool {
        self.departure == Departure::Underway
    }

    /// A request that is void, which is to be taken off.
    pub(super) fn request_void(&self, observed: &Observed) -> bool {
        self.causes(observed).withdrawn(observed.now)
    }

    /// Made from other inputs than a new pod would be. A pod without inputs was made by somebody else's scheme: it is
    /// taken over as it is.
    pub(super) fn outdated(&self, desired_hash: Option<&str>) -> bool {
        let own = self.pod.annotation(annotation::POD_INPUTS).is_some();
        own && desired_hash.is_some_and(|desired| self.pod.label(label::POD_HASH) != Some(desired))
    }

    /// As the decision about the group sees it.
    pub(super) fn proxy(&self, observed: &Observed) -> Proxy {
        Proxy {
            name: self.pod.name().to_owned(),
            created: self.pod.created(),
            ready: self.pod.is_ready(),
            unschedulable_for: self.unschedulable_for,
            outdated: self.outdated(observed.desired_hash.as_deref()),
            cause: self.causes(observed).strongest(observed.now),
            caused_for: self.caused_for,
            released_for: self.released_for,
            marked: self.marked(),
            trusted: !self.view.stale,
            players: self.view.last_players,
        }
    }

    /// As the decision about a leaving proxy sees it.
    pub(super) fn leaving(&self, observed: &Observed) -> Leaving {
        let drain = observed.group.spec.drain;
        let since = draining_since(&self.pod).unwrap_or(observed.now);
        let door = match (&self.view.door, self.pod.is_sealed()) {
            (_, true) | (DoorView::Sealed, false) => DoorState::Sealed(self.sealed_for),
            (DoorView::Empty, false) => DoorState::Empty,
            // The seal may have been written when the answer got lost: write it again, for the reason that it had.
            (DoorView::Sealing, false) if !self.view.occupied => DoorState::Empty,
            (DoorView::Sealing | DoorView::Open | DoorView::Closing { .. } | DoorView::Closed { .. }, false) => {
                DoorState::Shutting
            }
        };
        Leaving {
            cause: self.causes(observed).strongest(observed.now),
            door,
            closing_for: Duration::try_from(observed.now.duration_since(since)).unwrap_or_default(),
            shut_for: self.view.shut_for,
            timeout: Duration::from_secs(u64::try_from(drain.timeout_seconds).unwrap_or_default()),
            hold: drain.on_deadline == OnDeadline::Hold,
            overridden: self.pod.annotation(annotation::OVERRIDE) == Some(annotation::TRUE),
            killed_in: self.pod.metadata.deletion_timestamp.as_ref().map(|at| {
                let left = at.0.duration_since(observed.now);
                Duration::try_from(left).unwrap_or_default()
            }),
        }
    }
}
