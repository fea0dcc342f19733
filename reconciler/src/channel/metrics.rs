//! Metrics of the agent channel, under upstream's names.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use spawnery_core::ledger::Role;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RoleLabel(Role);

impl EncodeLabelValue for RoleLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&self.0.as_str(), encoder)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRole {
    role: RoleLabel,
}

fn by(role: Role) -> ByRole {
    ByRole { role: RoleLabel(role) }
}

/// Everything counted at the channel; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ChannelMetrics {
    streams: Family<ByRole, Gauge>,
    rejected: Family<ByRole, Counter>,
    auth_failures: Family<ByRole, Counter>,
    cache_hits: Counter,
    cache_misses: Counter,
    rate_limited: Counter,
    proxies_cut: Counter,
    connections: Gauge,
    refused_connections: Counter,
    handshake_failures: Counter,
}

impl ChannelMetrics {
    /// Registers everything.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // Known from the start, so that a first failure is seen as a rise from zero.
        for role in [Role::Server, Role::Proxy] {
            let _ = metrics.streams.get_or_create(&by(role));
            let _ = metrics.rejected.get_or_create(&by(role));
            let _ = metrics.auth_failures.get_or_create(&by(role));
        }
        registry.register(
            "spawnery_proxy_sessions_cut",
            "Proxies whose connection was cut because they did not read the end of their session",
            metrics.proxies_cut.clone(),
        );
        let agents = registry.sub_registry_with_prefix("spawnery_agent");
        agents.register("open_streams", "Sessions of agents that are up", metrics.streams.clone());
        agents.register(
            "rejected_reports",
            "Reports that were not taken (negative, or more players than slots)",
            metrics.rejected.clone(),
        );
        agents.register("auth_failures", "Sessions refused for their token or pod", metrics.auth_failures.clone());
        agents.register(
            "token_review_cache_hits",
            "Sessions judged by an earlier or a running review",
            metrics.cache_hits.clone(),
        );
        agents.register(
            "token_review_cache_misses",
            "Sessions that needed a review of their own",
            metrics.cache_misses.clone(),
        );
        agents.register(
            "rate_limited",
            "Sessions refused because their peer had too many reviews refused",
            metrics.rate_limited.clone(),
        );
        agents.register("connections", "Connections that are open", metrics.connections.clone());
        agents.register(
            "refused_connections",
            "Connections closed because too many were open",
            metrics.refused_connections.clone(),
        );
        agents.register(
            "handshake_failures",
            "Connections whose TLS handshake failed or took too long",
            metrics.handshake_failures.clone(),
        );
        metrics
    }

    pub(crate) fn stream_opened(&self, role: Role) {
        self.streams.get_or_create(&by(role)).inc();
    }

    pub(crate) fn stream_closed(&self, role: Role) {
        self.streams.get_or_create(&by(role)).dec();
    }

    pub(crate) fn report_rejected(&self, role: Role) {
        self.rejected.get_or_create(&by(role)).inc();
    }

    pub(super) fn auth_failed(&self, role: Role) {
        self.auth_failures.get_or_create(&by(role)).inc();
    }

    pub(super) fn cache_hit(&self) {
        self.cache_hits.inc();
    }

    pub(super) fn cache_missed(&self) {
        self.cache_misses.inc();
    }

    pub(super) fn limited(&self) {
        self.rate_limited.inc();
    }

    pub(super) fn session_cut(&self, role: Role) {
        if role == Role::Proxy {
            self.proxies_cut.inc();
        }
    }

    pub(super) fn connected(&self) {
        self.connections.inc();
    }

    pub(super) fn disconnected(&self) {
        self.connections.dec();
    }

    pub(super) fn connection_refused(&self) {
        self.refused_connections.inc();
    }

    pub(super) fn handshake_failed(&self) {
        self.handshake_failures.inc();
    }
}
