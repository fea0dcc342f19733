//! What the extender counts. Every label value comes from an enum of ours, so the number of series is known.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use spawnery_core::placement::Refusal;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Verb {
    verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Wait {
    awaited: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// What an answer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Where the last pod went.
    LastPod,
    /// What the scheduler has seen and asks because of.
    OwnWatch,
}

impl Awaited {
    fn label(self) -> &'static str {
        match self {
            Self::LastPod => "last_pod",
            Self::OwnWatch => "own_watch",
        }
    }
}

/// The counters; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    calls: Family<Call, Counter>,
    duration: Family<Verb, Histogram, fn() -> Histogram>,
    refused: Family<Reason, Counter>,
    waits: Family<Wait, Counter>,
    certificate_expiry: Gauge,
}

/// The two calls about a pod are to take less than 2 ms together with 5,000 names: close to that, bounds are close.
fn call_buckets() -> Histogram {
    Histogram::new([
        0.000_1, 0.000_2, 0.000_3, 0.000_4, 0.000_5, 0.000_6, 0.000_7, 0.000_8, 0.000_9, 0.001, 0.001_2, 0.001_5,
        0.002, 0.003, 0.005, 0.01, 0.05, 0.25, 1.0,
    ])
}

impl Metrics {
    /// Registers everything under `spawnery_extender`.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            duration: Family::new_with_constructor(call_buckets),
            refused: Family::default(),
            waits: Family::default(),
            certificate_expiry: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("spawnery_extender");
        registry.register("calls", "Calls of schedulers, by what came of them", metrics.calls.clone());
        registry.register(
            "call_duration_seconds",
            "From the complete body to the answer, decoding and encoding included, waits left out",
            metrics.duration.clone(),
        );
        registry.register("nodes_refused", "Nodes kept from a pod, by why", metrics.refused.clone());
        registry.register("waits", "Answers that waited for our own watches, by what for", metrics.waits.clone());
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, 0 before there is one",
            metrics.certificate_expiry.clone(),
        );
        metrics
    }

    /// A scheduler was answered.
    pub(crate) fn called(&self, verb: &'static str, outcome: &'static str, took: Duration) {
        self.calls.get_or_create(&Call { verb, outcome }).inc();
        self.duration.get_or_create(&Verb { verb }).observe(took.as_secs_f64());
    }

    /// A call could not be read or worked on.
    pub(crate) fn failed(&self, verb: &'static str, outcome: &'static str) {
        self.calls.get_or_create(&Call { verb, outcome }).inc();
    }

    /// Nodes were kept from a pod.
    pub(crate) fn refused(&self, refusal: Refusal, nodes: u64) {
        self.refused.get_or_create(&Reason { reason: refusal.label() }).inc_by(nodes);
    }

    /// An answer waited until it saw what it waited for, or as long as it may.
    pub(crate) fn waited(&self, awaited: Awaited, seen: bool) {
        let outcome = if seen { "seen" } else { "expired" };
        self.waits.get_or_create(&Wait { awaited: awaited.label(), outcome }).inc();
    }

    /// Shows when the serving certificate ends.
    pub(crate) fn certificate_ends(&self) -> Gauge {
        self.certificate_expiry.clone()
    }
}
