//! Metrics of the reconciler. Labels come from enums and constants, so the number of series is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use spawnery_core::loss::{Cause, Lost};
use spawnery_runtime::controller::Observer;
use spawnery_runtime::events::EventCounts;

/// Labels of a finished reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconcile {
    controller: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByController {
    controller: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

/// Everything counted; cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    reconciles: Family<Reconcile, Counter>,
    seconds: Family<ByController, Histogram, fn() -> Histogram>,
    players_lost: Family<ByCause, Counter>,
    /// 1 while this process leads.
    pub leading: Gauge,
    /// 1 while the webhook answers the leader's probe.
    pub webhook_answers: Gauge,
    /// From the first unanswered probe to the last budget widened.
    pub floor_widening: Histogram,
    /// Orphans removed.
    pub orphans: Counter,
    /// Orphans with people on them, which stay until those have left.
    pub orphans_waiting: Gauge,
    /// Seconds since 1970 at which the agent channel's leaf ends.
    pub leaf_not_after: Gauge,
}

fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Metrics {
    /// Registers everything.
    pub fn new(registry: &mut Registry, events: Arc<EventCounts>) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            seconds: Family::new_with_constructor(durations as fn() -> Histogram),
            players_lost: Family::default(),
            leading: Gauge::default(),
            webhook_answers: Gauge::default(),
            floor_widening: durations(),
            orphans: Counter::default(),
            orphans_waiting: Gauge::default(),
            leaf_not_after: Gauge::default(),
        };
        registry.register("spawnery_reconciles", "Finished reconciles by result", metrics.reconciles.clone());
        registry.register("spawnery_reconcile_duration_seconds", "Time of one reconcile", metrics.seconds.clone());
        registry.register("spawnery_leading", "1 while this process leads", metrics.leading.clone());
        registry.register(
            "spawnery_webhook_answers",
            "1 while the webhook answers the leader's probe",
            metrics.webhook_answers.clone(),
        );
        registry.register(
            "spawnery_floor_widening_seconds",
            "From the first unanswered probe to the last budget widened",
            metrics.floor_widening.clone(),
        );
        registry.register("spawnery_orphans_removed", "Pods without a parent", metrics.orphans.clone());
        registry.register(
            "spawnery_orphans_waiting",
            "Orphans with people on them, which stay until those have left",
            metrics.orphans_waiting.clone(),
        );
        registry.register(
            "spawnery_agent_certificate_not_after_seconds",
            "End of the agent channel's certificate since the Unix epoch",
            metrics.leaf_not_after.clone(),
        );
        registry.register(
            "spawnery_players_lost",
            "Players last reported on servers that ended, or were removed, with them on",
            metrics.players_lost.clone(),
        );
        // Each series is there from the start: a rate over a first loss would otherwise be none.
        for cause in Cause::ALL {
            metrics.players_lost.get_or_create(&ByCause { cause: cause.as_str() }).inc_by(0);
        }
        registry.register_collector(Box::new(EventTotals(events)));
        metrics
    }

    /// Counts players who were lost.
    pub fn lost(&self, lost: Lost) {
        self.players_lost.get_or_create(&ByCause { cause: lost.cause.as_str() }).inc_by(lost.players.into());
    }

    #[cfg(test)]
    pub(crate) fn players_lost(&self, cause: Cause) -> u64 {
        self.players_lost.get_or_create(&ByCause { cause: cause.as_str() }).get()
    }

    /// What controllers report their reconciles to.
    pub fn observer(&self) -> Observer {
        let this = self.clone();
        Arc::new(move |controller, result, took: Duration| {
            this.reconciles.get_or_create(&Reconcile { controller, result }).inc();
            this.seconds.get_or_create(&ByController { controller }).observe(took.as_secs_f64());
        })
    }
}

#[derive(Debug)]
struct EventTotals(Arc<EventCounts>);

impl Collector for EventTotals {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let totals: [(&str, &str, &AtomicU64); 3] = [
            ("spawnery_events_written", "Events that the API server accepted", &self.0.written),
            ("spawnery_events_dropped", "Events over budget", &self.0.dropped),
            ("spawnery_events_failed", "Events that could not be written", &self.0.failed),
        ];
        for (name, help, total) in totals {
            let counter = ConstCounter::new(total.load(Ordering::Relaxed));
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_counted_under_its_labels() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry, Arc::new(EventCounts::default()));
        metrics.observer()("server", "conflict", Duration::from_millis(3));
        metrics.lost(Lost { players: 3, cause: Cause::NodeLost });
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String takes everything");
        assert!(text.contains(r#"spawnery_reconciles_total{controller="server",result="conflict"} 1"#), "{text}");
        assert!(text.contains("spawnery_events_dropped_total 0"), "{text}");
        assert!(text.contains(r#"spawnery_players_lost_total{cause="NodeLost"} 3"#), "{text}");
        assert!(text.contains(r#"spawnery_players_lost_total{cause="Deadline"} 0"#), "{text}");
    }
}
