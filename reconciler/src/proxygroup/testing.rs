//! Groups and proxies as tests want them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use spawnery_api::view::PodView;
use spawnery_core::door::{DoorView, ProxyView};
use spawnery_core::rollout::Departure;

use super::memory::OfGroup;
use super::observed::{Observed, Sight};
use super::plan::{Plan, PodId};
use crate::render;

const HASH: &str = "0123456789abcdef";

pub(super) fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

pub(super) fn ago(seconds: i64) -> String {
    (now() - jiff::SignedDuration::from_secs(seconds)).to_string()
}

/// A ready proxy whose door is open and on which nobody is.
pub(super) fn sight(name: &str, annotations: Value, labels: Value) -> Sight {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "minecraft", "uid": format!("uid-of-{name}"),
            "creationTimestamp": ago(3600),
            "labels": {"spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": "proxy",
                       "spawnery.cloud/pod-hash": HASH},
            "annotations": {"spawnery.cloud/pod-inputs": "{}",
                            "cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        },
        "spec": {"nodeName": "node-a"},
        "status": {"phase": "Running", "hostIP": "192.0.2.7", "startTime": ago(3600),
                   "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (key, values) in [("annotations", annotations), ("labels", labels)] {
        for (name, value) in values.as_object().unwrap() {
            pod["metadata"][key][name] = value.clone();
        }
    }
    Sight {
        pod: Arc::new(serde_json::from_value::<PodView>(pod).unwrap()),
        view: ProxyView {
            connected: true,
            players: Some(0),
            last_players: 0,
            slots: 500,
            stale: false,
            ever_connected: true,
            stream_down_for: Duration::ZERO,
            empty_for: Some(Duration::from_mins(1)),
            occupied: false,
            enforced: true,
            shut_for: Duration::ZERO,
            door: DoorView::Open,
        },
        departure: Departure::Idle(Timestamp::UNIX_EPOCH),
        caused_for: Duration::ZERO,
        released_for: None,
        unschedulable_for: Duration::ZERO,
        sealed_for: Duration::ZERO,
        diverged_for: Duration::ZERO,
    }
}

pub(super) fn plain(name: &str) -> Sight {
    sight(name, json!({}), json!({}))
}

pub(super) fn with_players(mut sight: Sight, players: u32) -> Sight {
    sight.view.players = Some(players);
    sight.view.last_players = players;
    sight.view.occupied = players > 0;
    sight
}

pub(super) fn door(mut sight: Sight, door: DoorView) -> Sight {
    sight.view.door = door;
    sight
}

pub(super) fn requested(seconds: i64) -> Value {
    let request = json!({"time": ago(seconds), "requester": "admin"}).to_string();
    json!({"spawnery.cloud/eviction-requested": request})
}

pub(super) fn draining(seconds: i64) -> Value {
    json!({"spawnery.cloud/draining-since": ago(seconds)})
}

pub(super) fn both(mut a: Value, b: &Value) -> Value {
    a.as_object_mut().unwrap().extend(b.as_object().unwrap().clone());
    a
}

pub(super) fn observed(pods: Vec<Sight>) -> Observed {
    let mut group = render::testing::proxy_group();
    group.metadata.finalizers = Some(vec!["spawnery.cloud/group".to_owned()]);
    Observed {
        group: Arc::new(group),
        pods,
        network: Ok(()),
        desired_hash: Some(HASH.to_owned()),
        one_per_node: false,
        creating: 0,
        service: None,
        foreign_budgets: vec![],
        memory: OfGroup::default(),
        now: now(),
    }
}

pub(super) fn edit(mut seen: Observed, change: impl FnOnce(&mut spawnery_api::v1alpha1::ProxyGroup)) -> Observed {
    let mut group = (*seen.group).clone();
    change(&mut group);
    seen.group = Arc::new(group);
    seen
}

pub(super) fn names<'a>(pods: impl IntoIterator<Item = &'a PodId>) -> Vec<&'a str> {
    pods.into_iter().map(|pod| pod.name.as_str()).collect()
}

pub(super) fn closed(plan: &Plan) -> Vec<&str> {
    names(plan.doors.iter().filter(|door| !door.open).map(|door| &door.pod))
}
