//! What a group's plan depends on, as values.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use spawnery_api::conditions;
use spawnery_api::names::{condition, container, finalizer};
use spawnery_api::v1alpha1::{Server, ServerGroup, ServerStatus};
use spawnery_api::view::PodView;
use spawnery_core::door::ServerView;
use spawnery_core::member::Member;
use spawnery_core::phase::{MAX_CONTAINER_RESTARTS, Phase};
use spawnery_core::sizing::{Policy, Reservations};

/// Everything that [`super::plan::plan`] reads.
#[derive(Debug, Clone)]
pub(crate) struct Observed<'a> {
    /// The group, with our own writes.
    pub(crate) group: &'a ServerGroup,
    /// Whether servers can be made for it.
    pub(crate) usable: Result<(), Refusal>,
    /// Its servers.
    pub(crate) members: Vec<Member>,
    /// Nodes that are being emptied and have servers of the group.
    pub(crate) departing_nodes: BTreeSet<String>,
    /// Foreign budgets that select its pods.
    pub(crate) foreign_budgets: BTreeSet<String>,
    /// What was asked for and does not show yet.
    pub(crate) reserved: Reservations,
    /// What the API server says of an object around its servers that it refuses: the budget, or the ConfigMap.
    pub(crate) refused: Option<&'a str>,
    /// Now.
    pub(crate) now: Timestamp,
}

/// Why no servers can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Reason of the condition `Accepted`.
    pub(crate) reason: &'static str,
    /// Text for people.
    pub(crate) message: String,
}

impl Observed<'_> {
    /// The group is to be removed.
    pub(crate) fn deleting(&self) -> bool {
        self.group.metadata.deletion_timestamp.is_some()
    }

    /// It carries our finalizer.
    pub(crate) fn guarded(&self) -> bool {
        self.group.metadata.finalizers.iter().flatten().any(|name| name == finalizer::GROUP)
    }

    /// Count of edits of its spec.
    pub(crate) fn generation(&self) -> i64 {
        self.group.metadata.generation.unwrap_or_default()
    }
}

/// What an ephemeral group's spec says about its size; `None` without `spec.scaling`, which the schema requires.
pub(crate) fn policy(group: &ServerGroup) -> Option<Policy> {
    let scaling = group.spec.scaling?;
    let update = group.spec.update.unwrap_or_default();
    Some(Policy {
        min_replicas: unsigned(scaling.min_replicas),
        max_replicas: unsigned(scaling.max_replicas),
        spare_slots: unsigned(scaling.spare_slots),
        max_players: unsigned(group.spec.max_players).max(1),
        stabilization: Duration::from_secs(unsigned(scaling.scale_down_stabilization_seconds).into()),
        max_unavailable: unsigned(update.max_unavailable),
    })
}

fn unsigned(n: i32) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

/// What is known of one server.
#[derive(Debug, Clone)]
pub(crate) struct Sight<'a> {
    /// The Server.
    pub(crate) server: &'a Server,
    /// Its pod.
    pub(crate) pod: Option<&'a PodView>,
    /// What agents say of the pod.
    pub(crate) view: Option<&'a ServerView>,
    /// The pod's node is being emptied.
    pub(crate) departing: bool,
}

impl Sight<'_> {
    /// The server as a member of its group, whose servers take `max_players` and are made from what `pod_hash` stands for.
    pub(crate) fn member(&self, max_players: i32, pod_hash: Option<&str>) -> Member {
        let Self { server, pod, view, departing } = *self;
        let nothing = ServerStatus::default();
        let status = server.status.as_ref().unwrap_or(&nothing);
        let live = pod.filter(|pod| !pod.is_terminating());
        let phase = Phase::parse(&status.phase).unwrap_or(Phase::Pending);
        let asked_to_go = live.is_some_and(|pod| pod.is_sealed() || pod.eviction_requested().is_some())
            || conditions::is_true(&status.conditions, condition::DRAINING);
        // A report may claim more than the group allows, and count somebody who is still on the way in.
        let slots = view.map_or(0, |view| view.slots).min(unsigned(max_players).max(1));
        let spec_hash = server.spec.pod_hash.as_str();
        Member {
            name: server.metadata.name.clone().unwrap_or_default(),
            phase,
            generation: server.spec.group_generation,
            current: spec_hash.is_empty() || pod_hash.is_none_or(|wanted| wanted == spec_hash),
            created_at: server.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            players: view.map_or(0, |view| view.last_players).min(slots),
            slots,
            stale: view.is_none_or(|view| view.stale),
            silent_for: view.map_or(Duration::ZERO, |view| view.silent_for),
            was_registered: status.was_registered,
            retire: server.spec.retire,
            deleting: server.metadata.deletion_timestamp.is_some(),
            condemned: departing && live.is_some(),
            closing: asked_to_go && matches!(phase, Phase::Pending | Phase::Starting | Phase::Ready),
            sessions_gone: !status.pod_name.is_empty() && live.is_none_or(|pod| pod.is_terminal() || crash_loops(pod)),
            empty_for: view.and_then(|view| view.empty_for),
            ready_since: status.ready_since.as_ref().map(|time| time.0),
            failed_at: status.failed_at.as_ref().map(|time| time.0),
        }
    }
}

fn crash_loops(pod: &PodView) -> bool {
    pod.container(container::SERVER).is_some_and(|game| {
        u32::try_from(game.restart_count).is_ok_and(|restarts| restarts >= MAX_CONTAINER_RESTARTS)
            && game.waiting_reason.as_deref() == Some("CrashLoopBackOff")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};
    use spawnery_core::door::DoorView;

    fn server(status: Value) -> Server {
        let mut server = Server::default();
        server.metadata.name = Some("lobby-abcd".to_owned());
        server.spec.pod_hash = "0123456789abcdef".to_owned();
        server.status = Some(serde_json::from_value(status).unwrap());
        server
    }

    fn pod(metadata: Value) -> PodView {
        let mut pod = json!({});
        pod["metadata"] = metadata;
        serde_json::from_value(pod).unwrap()
    }

    fn view(players: u32, slots: u32) -> ServerView {
        ServerView {
            connected: true,
            ready: true,
            players: Some(players),
            last_players: players,
            slots,
            stale: false,
            silent_for: Duration::ZERO,
            ever_connected: true,
            stream_down_for: Duration::ZERO,
            empty_for: None,
            occupied: players > 0,
            deaf: BTreeSet::new(),
            enforced: true,
            door: DoorView::Open,
        }
    }

    fn ready() -> Server {
        server(json!({ "phase": "Ready", "podName": "lobby-abcd", "wasRegistered": true }))
    }

    fn member(server: &Server, pod: Option<&PodView>, view: Option<&ServerView>) -> Member {
        Sight { server, pod, view, departing: true }.member(20, Some("0123456789abcdef"))
    }

    #[rstest]
    #[case::as_reported(5, 20, (5, 20))]
    #[case::more_slots_than_the_group_allows(5, 100, (5, 20))]
    #[case::more_players_than_slots(30, 20, (20, 20))]
    fn counts_are_clamped(#[case] players: u32, #[case] slots: u32, #[case] want: (u32, u32)) {
        let member = member(&ready(), Some(&pod(json!({}))), Some(&view(players, slots)));
        assert_eq!((member.players, member.slots), want);
    }

    #[rstest]
    #[case::made_from_the_same("0123456789abcdef", Some("0123456789abcdef"), true)]
    #[case::made_from_something_else("0123456789abcdef", Some("fedcba9876543210"), false)]
    #[case::made_by_upstream("", Some("fedcba9876543210"), true)]
    #[case::nobody_knows_what_is_wanted("0123456789abcdef", None, true)]
    fn is_current(#[case] made: &str, #[case] wanted: Option<&str>, #[case] want: bool) {
        let mut server = ready();
        made.clone_into(&mut server.spec.pod_hash);
        let sight = Sight { server: &server, pod: None, view: None, departing: false };
        assert_eq!(sight.member(20, wanted).current, want);
    }

    #[rstest]
    #[case::live(ready(), Some(pod(json!({}))), false)]
    #[case::no_pod_made_yet(server(json!({})), None, false)]
    #[case::gone(ready(), None, true)]
    #[case::going(ready(), Some(pod(json!({"deletionTimestamp": "2027-01-01T00:00:00Z"}))), true)]
    fn sessions_go_with_the_pod(#[case] server: Server, #[case] pod: Option<PodView>, #[case] want: bool) {
        assert_eq!(member(&server, pod.as_ref(), None).sessions_gone, want);
    }

    #[rstest]
    #[case::nothing(json!({}), json!({ "phase": "Ready" }), false)]
    #[case::eviction_requested(json!({"annotations": {"spawnery.cloud/eviction-requested": "{}"}}), json!({ "phase": "Ready" }), true)]
    #[case::sealed(json!({"labels": {"spawnery.cloud/sealed": "true"}}), json!({ "phase": "Ready" }), true)]
    #[case::draining(json!({}), json!({ "phase": "Ready", "conditions": [{"type": "Draining", "status": "True", "reason": "NodeDraining", "message": "", "lastTransitionTime": "2027-01-01T00:00:00Z"}] }), true)]
    #[case::a_failed_one_counts_as_failed(json!({"labels": {"spawnery.cloud/sealed": "true"}}), json!({ "phase": "Failed" }), false)]
    fn a_closing_door_shows(#[case] metadata: Value, #[case] status: Value, #[case] want: bool) {
        assert_eq!(member(&server(status), Some(&pod(metadata)), None).closing, want);
    }

    #[test]
    fn a_departing_node_condemns_live_pods_alone() {
        assert!(member(&ready(), Some(&pod(json!({}))), None).condemned);
        assert!(!member(&ready(), None, None).condemned);
    }
}
