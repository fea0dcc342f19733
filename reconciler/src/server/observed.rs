//! What a step of a Server's life depends on, as values.

use std::time::Duration;

use jiff::Timestamp;
use spawnery_api::names::{annotation, container, finalizer, port};
use spawnery_api::v1alpha1::{OnDeadline as ApiOnDeadline, Server, ServerDrain, ServerGroup};
use spawnery_api::view::{PodPhase, PodView};
use spawnery_core::door::ServerView;
use spawnery_core::drain::{Cause, Clock, OnDeadline, Policy};
use spawnery_core::eviction::request::EvictionRequest;
use spawnery_core::occupancy::{Carried, SealReason};
use spawnery_core::phase::MAX_CONTAINER_RESTARTS;
use spawnery_core::rollout::Departure;

use crate::seal;

/// Everything that [`super::plan::plan`] reads.
#[derive(Debug, Clone)]
pub(crate) struct Observed<'a> {
    /// The Server, with our own writes.
    pub(crate) server: &'a Server,
    /// What its group says; `None` when there is no such group.
    pub(crate) group: Option<GroupRules>,
    /// Whether the Network that the group names exists.
    pub(crate) network: bool,
    /// The pod of the Server's name.
    pub(crate) pod: PodSight,
    /// What the agents say of our pod; `None` without one.
    pub(crate) view: Option<ServerView>,
    /// The pod's node is being emptied.
    pub(crate) node_departing: bool,
    /// The pod's node is gone, or does not answer.
    pub(crate) node_down: bool,
    /// A server of a group that players may be moved to is ready.
    pub(crate) fallback_ready: bool,
    /// What this process remembers of the Server.
    pub(crate) memory: Memory,
    /// Longest time that a server may take to start.
    pub(crate) startup_deadline: Duration,
    /// Now.
    pub(crate) now: Timestamp,
}

impl Observed<'_> {
    /// The Server is to be removed.
    pub(crate) fn deleting(&self) -> bool {
        self.server.metadata.deletion_timestamp.is_some()
    }

    /// It carries our finalizer.
    pub(crate) fn guarded(&self) -> bool {
        self.server.metadata.finalizers.iter().flatten().any(|name| name == finalizer::DRAIN)
    }

    /// What the group says, or what holds when nobody says anything.
    pub(crate) fn rules(&self) -> GroupRules {
        self.group.unwrap_or_default()
    }
}

/// The part of a ServerGroup's spec that governs a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupRules {
    /// How it is drained.
    pub(crate) drain: Policy,
    /// How long it may be retiring; `None` for as long as players like.
    pub(crate) max_stale: Option<Duration>,
    /// How long it is kept when it failed.
    pub(crate) retention: Duration,
}

impl Default for GroupRules {
    /// For a Server whose group is gone.
    fn default() -> Self {
        Self { drain: policy(&ServerDrain::default()), max_stale: None, retention: Duration::from_hours(1) }
    }
}

impl GroupRules {
    /// What the group says.
    pub(crate) fn of(group: &ServerGroup) -> Self {
        let max_stale = group.spec.update.map(|update| seconds(update.max_stale_seconds));
        Self {
            drain: policy(&group.spec.drain),
            max_stale: max_stale.filter(|max_stale| !max_stale.is_zero()),
            retention: seconds(group.spec.failed_retention_seconds),
        }
    }
}

fn policy(drain: &ServerDrain) -> Policy {
    Policy {
        move_after: seconds(drain.move_after_seconds),
        timeout: seconds(drain.timeout_seconds),
        on_deadline: match drain.on_deadline {
            ApiOnDeadline::Disconnect => OnDeadline::Disconnect,
            ApiOnDeadline::Hold => OnDeadline::Hold,
        },
    }
}

fn seconds(n: impl TryInto<u64>) -> Duration {
    Duration::from_secs(n.try_into().unwrap_or(0))
}

/// The pod that carries the Server's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PodSight {
    /// There is none.
    Absent,
    /// Ours.
    Here(PodFacts),
    /// Ours, and being deleted.
    Going(PodFacts),
    /// Somebody else's.
    Foreign {
        /// It is being deleted.
        going: bool,
    },
}

impl PodSight {
    /// What the pod of `server`'s name is to it.
    pub(crate) fn of(server: &Server, pod: Option<&PodView>, now: Timestamp) -> Self {
        let Some(pod) = pod else { return Self::Absent };
        let ours = pod.controller().is_some_and(|owner| Some(&owner.uid) == server.metadata.uid.as_ref());
        match (ours, pod.is_terminating()) {
            (true, false) => Self::Here(PodFacts::of(pod, now)),
            (true, true) => Self::Going(PodFacts::of(pod, now)),
            (false, going) => Self::Foreign { going },
        }
    }

    /// Our pod, as long as the API server shows it.
    pub(crate) fn ours(&self) -> Option<&PodFacts> {
        match self {
            Self::Here(pod) | Self::Going(pod) => Some(pod),
            Self::Absent | Self::Foreign { .. } => None,
        }
    }

    /// Our pod, being deleted while its game may still run.
    pub(crate) fn going(&self) -> Option<&PodFacts> {
        if let Self::Going(pod) = self { Some(pod).filter(|pod| !pod.terminal) } else { None }
    }

    /// Our pod, unless it is being deleted.
    pub(crate) fn here(&self) -> Option<&PodFacts> {
        if let Self::Here(pod) = self { Some(pod) } else { None }
    }
}

/// A pod as far as its Server's life depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodFacts {
    pub(crate) uid: String,
    /// The kubelet runs it.
    pub(crate) running: bool,
    /// Its readiness probe passes.
    pub(crate) ready: bool,
    /// It ended for good, or its game crash-loops: nobody is on it.
    pub(crate) terminal: bool,
    /// The node that it was placed on; empty until then.
    pub(crate) node: String,
    /// How often the process of its game has ended.
    pub(crate) game_ends: i32,
    /// A process of its game runs now.
    pub(crate) game_runs: bool,
    /// `host:port` at which proxies reach it.
    pub(crate) address: Option<String>,
    /// When the kubelet took it.
    pub(crate) started: Option<Timestamp>,
    /// The marks that it carries.
    pub(crate) carried: Carried,
    /// Why it is sealed, if it is.
    pub(crate) sealed: Option<SealReason>,
    /// When somebody last asked to evict it.
    pub(crate) eviction_requested: Option<Timestamp>,
    /// An administrator lets it go whoever is on it.
    pub(crate) overridden: bool,
    /// When the kubelet ends it whoever is on it; `None` while nobody deletes it.
    pub(crate) killed_at: Option<Timestamp>,
}

impl PodFacts {
    /// Reads a pod. An eviction request that cannot be read counts as made just now.
    pub(crate) fn of(pod: &PodView, now: Timestamp) -> Self {
        let game = pod.container(container::SERVER);
        // A restart is counted when the next process begins, so the sum does not change then.
        let game_over = pod.is_terminal() || game.is_some_and(|game| game.ended_at.is_some());
        let crash_looping = game.is_some_and(|game| {
            u32::try_from(game.restart_count).is_ok_and(|restarts| restarts >= MAX_CONTAINER_RESTARTS)
                && game.waiting_reason.as_deref() == Some("CrashLoopBackOff")
        });
        let requested = pod
            .eviction_requested()
            .map(|text| EvictionRequest::from_annotation(text).map_or(now, |request| request.at));
        Self {
            uid: pod.uid().to_owned(),
            running: pod.status.phase == PodPhase::Running,
            ready: pod.is_ready(),
            terminal: pod.is_terminal() || crash_looping,
            node: pod.spec.node_name.clone().unwrap_or_default(),
            game_ends: game.map_or(0, |game| game.restart_count).saturating_add(i32::from(game_over)),
            game_runs: !game_over,
            address: pod.status.pod_ip.as_deref().filter(|ip| !ip.is_empty()).map(address),
            started: pod.status.start_time,
            carried: seal::carried(pod),
            sealed: seal::sealed(pod),
            eviction_requested: requested,
            overridden: pod.annotation(annotation::OVERRIDE) == Some(annotation::TRUE),
            killed_at: pod.metadata.deletion_timestamp.as_ref().map(|at| at.0),
        }
    }
}

/// `ip:25565`, with brackets where they are needed.
fn address(ip: &str) -> String {
    if ip.contains(':') { format!("[{ip}]:{}", port::MINECRAFT) } else { format!("{ip}:{}", port::MINECRAFT) }
}

/// What this process remembers of a Server, beside what the API server keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// When this process first looked at it: what came before nobody of us could hear.
    pub(crate) since: Option<Timestamp>,
    /// When its pod was made by us; the cache may not show it yet.
    pub(crate) pod_made: Option<Timestamp>,
    /// UID of the pod that the hub was told of.
    pub(crate) declared: Option<String>,
    /// What is known of the emptying of its node; `None` until this process has looked.
    pub(crate) departure: Option<Departure>,
    /// Why its door closes.
    pub(crate) cause: Option<Cause>,
    /// The drain's clock as it was last decided on, written or not; `None` until this process has.
    pub(crate) clock: Option<Clock>,
    /// Since when nobody could count its players, and its game did not say that it is up.
    pub(crate) silent_since: Option<Timestamp>,
    /// Since when its pod is known to be sealed.
    pub(crate) sealed_at: Option<Timestamp>,
    /// Players last reported on it; `None` until this process has heard a count.
    pub(crate) players: Option<u32>,
    /// Players last reported before its agent was not heard, and when that was last so.
    pub(crate) before_silence: Option<(u32, Timestamp)>,
    /// When its node was last down, or its agent not heard since.
    pub(crate) node_down_at: Option<Timestamp>,
    /// When its players were last counted as lost with the process of their game: an older count is of nobody.
    pub(crate) lost_at: Option<Timestamp>,
    /// When its status was last written.
    pub(crate) written: Option<Timestamp>,
    /// Since when its status as it should be is not the one that is written.
    pub(crate) unwritten_since: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn pod(value: Value) -> PodView {
        serde_json::from_value(value).unwrap()
    }

    fn server() -> Server {
        let mut server = Server::default();
        server.metadata.uid = Some("s".to_owned());
        server
    }

    fn owned(uid: &str, going: bool) -> PodView {
        let mut value = json!({ "metadata": { "uid": "p", "ownerReferences": [
            { "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server", "name": "a", "uid": uid, "controller": true } ] } });
        if going {
            value["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        }
        pod(value)
    }

    #[test]
    fn a_pod_is_ours_by_its_controller_alone() {
        assert_eq!(PodSight::of(&server(), None, NOW), PodSight::Absent);
        assert!(matches!(PodSight::of(&server(), Some(&owned("s", false)), NOW), PodSight::Here(_)));
        assert!(matches!(PodSight::of(&server(), Some(&owned("s", true)), NOW), PodSight::Going(_)));
        assert_eq!(PodSight::of(&server(), Some(&owned("other", false)), NOW), PodSight::Foreign { going: false });
        assert_eq!(
            PodSight::of(&server(), Some(&pod(json!({"metadata": {}}))), NOW),
            PodSight::Foreign { going: false }
        );
    }

    fn crashing(name: &str, restarts: i32, reason: &str) -> Value {
        json!({ "metadata": {}, "status": { "phase": "Running", "containerStatuses": [
            { "name": name, "restartCount": restarts, "state": { "waiting": { "reason": reason } } } ] } })
    }

    #[rstest]
    #[case::running(json!({"metadata": {}, "status": {"phase": "Running"}}), false)]
    #[case::failed(json!({"metadata": {}, "status": {"phase": "Failed"}}), true)]
    #[case::succeeded(json!({"metadata": {}, "status": {"phase": "Succeeded"}}), true)]
    #[case::crash_loop(crashing("minecraft", 3, "CrashLoopBackOff"), true)]
    #[case::not_often_enough(crashing("minecraft", 2, "CrashLoopBackOff"), false)]
    #[case::waiting_for_something_else(crashing("minecraft", 3, "ContainerCreating"), false)]
    #[case::a_sidecar_does_not_matter(crashing("metrics", 9, "CrashLoopBackOff"), false)]
    fn terminal(#[case] value: Value, #[case] want: bool) {
        assert_eq!(PodFacts::of(&pod(value), NOW).terminal, want);
    }

    fn game(status: &Value) -> Value {
        json!({ "metadata": {}, "status": { "phase": "Running", "containerStatuses": [status] } })
    }

    /// Of one life after another: an end counts at once, and the restart after it does not count again.
    #[rstest]
    #[case::not_begun(json!({"metadata": {}}), 0, true)]
    #[case::running(game(&json!({"name": "minecraft", "restartCount": 0, "state": {"running": {}}})), 0, true)]
    #[case::ended(game(&json!({"name": "minecraft", "restartCount": 0, "state": {"terminated": {"finishedAt": "2026-11-29T10:00:03Z"}}})), 1, false)]
    #[case::waits_to_run_again(game(&json!({"name": "minecraft", "restartCount": 0, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"finishedAt": "2026-11-29T10:00:03Z"}}})), 1, false)]
    #[case::runs_again(game(&json!({"name": "minecraft", "restartCount": 1, "state": {"running": {}},
        "lastState": {"terminated": {"finishedAt": "2026-11-29T10:00:03Z"}}})), 1, true)]
    #[case::ended_again(game(&json!({"name": "minecraft", "restartCount": 1, "state": {"terminated": {"finishedAt": "2026-11-29T10:00:09Z"}}})), 2, false)]
    #[case::a_sidecar_does_not_matter(game(&json!({"name": "metrics", "restartCount": 7, "state": {"running": {}}})), 0, true)]
    #[case::over_for_good(json!({"metadata": {}, "status": {"phase": "Failed"}}), 1, false)]
    fn ends_of_the_game(#[case] value: Value, #[case] ends: i32, #[case] runs: bool) {
        let facts = PodFacts::of(&pod(value), NOW);
        assert_eq!((facts.game_ends, facts.game_runs), (ends, runs));
    }

    #[rstest]
    #[case::readable(r#"{"time":"2026-01-01T00:00:00Z","requester":"r"}"#, "2026-01-01T00:00:00Z".parse().unwrap())]
    #[case::unreadable_is_just_now("soon", NOW)]
    fn requests(#[case] text: &str, #[case] want: Timestamp) {
        let pod = pod(json!({ "metadata": { "annotations": { "spawnery.cloud/eviction-requested": text } } }));
        assert_eq!(PodFacts::of(&pod, NOW).eviction_requested, Some(want));
    }

    #[rstest]
    #[case("10.0.0.1", "10.0.0.1:25565")]
    #[case("fd00::1", "[fd00::1]:25565")]
    fn addresses(#[case] ip: &str, #[case] want: &str) {
        assert_eq!(address(ip), want);
    }
}
