//! What the webhook counts. Every label value comes from an enum of ours, so the number of series is known.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Endpoint {
    endpoint: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    endpoint: &'static str,
    decision: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// The counters; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    decisions: Family<Decision, Counter>,
    duration: Family<Endpoint, Histogram, fn() -> Histogram>,
    malformed: Family<Reason, Counter>,
    unknown_paths: Counter,
    holds: Family<Outcome, Counter>,
    held: Histogram,
    records: Family<Outcome, Counter>,
    findings: Family<Reason, Counter>,
    certificate_expiry: Gauge,
}

fn decision_buckets() -> Histogram {
    Histogram::new([0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5])
}

impl Metrics {
    /// Registers everything under `spawnery_webhook`.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            decisions: Family::default(),
            duration: Family::new_with_constructor(decision_buckets),
            malformed: Family::default(),
            unknown_paths: Counter::default(),
            holds: Family::default(),
            held: Histogram::new([0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5]),
            records: Family::default(),
            findings: Family::default(),
            certificate_expiry: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("spawnery_webhook");
        registry.register("decisions", "Reviews answered, by decision", metrics.decisions.clone());
        registry.register(
            "decision_duration_seconds",
            "From the complete body to the answer, holds included",
            metrics.duration.clone(),
        );
        registry.register("malformed", "Requests that were not answered with a review", metrics.malformed.clone());
        registry.register(
            "unknown_paths",
            "Requests to paths that nobody is told to call, such as that of evictions with a wrong token",
            metrics.unknown_paths.clone(),
        );
        registry.register("holds", "Evictions held for the seal, by how that ended", metrics.holds.clone());
        registry.register("hold_duration_seconds", "How long evictions were held", metrics.held.clone());
        registry.register("records", "Eviction requests recorded on pods, by outcome", metrics.records.clone());
        registry.register("findings", "What was found on objects that users applied", metrics.findings.clone());
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, 0 before there is one",
            metrics.certificate_expiry.clone(),
        );
        metrics
    }

    /// A review was answered.
    pub(crate) fn decided(&self, endpoint: &'static str, decision: &'static str, took: Duration) {
        self.decisions.get_or_create(&Decision { endpoint, decision }).inc();
        self.duration.get_or_create(&Endpoint { endpoint }).observe(took.as_secs_f64());
    }

    /// Something was refused as no review.
    pub(crate) fn malformed(&self, reason: &'static str) {
        self.malformed.get_or_create(&Reason { reason }).inc();
    }

    /// Somebody asked who was not told where.
    pub(crate) fn unknown_path(&self) {
        self.unknown_paths.inc();
    }

    /// An eviction was held; or there was no room to hold it.
    pub(crate) fn held(&self, outcome: &'static str, took: Duration) {
        self.holds.get_or_create(&Outcome { outcome }).inc();
        self.held.observe(took.as_secs_f64());
    }

    /// Something happened to a record.
    pub(crate) fn record(&self, outcome: &'static str) {
        self.records.get_or_create(&Outcome { outcome }).inc();
    }

    /// A rule found something.
    pub(crate) fn found(&self, rule: &'static str) {
        self.findings.get_or_create(&Reason { reason: rule }).inc();
    }

    /// Shows when the serving certificate ends.
    pub(crate) fn certificate_ends(&self) -> Gauge {
        self.certificate_expiry.clone()
    }
}
