//! Flags of the reconciler. Upstream's keep their names and defaults.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgAction, Parser};
use spawnery_api::names::object;
use spawnery_runtime::args::{AdminArgs, ClientArgs, LogArgs, ScopeArgs, bind_address, duration};

use crate::check;
use crate::render::Placement;

/// Sizes, drains and heals groups of servers and proxies from what agents report.
#[derive(Debug, Parser)]
#[command(name = "spawnery-reconciler", version)]
pub struct Args {
    /// Something else than running.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to reach the API server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
    /// Where health and metrics are served.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// How long what is under way may take when the process ends; the lease is released after it.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    pub shutdown_grace: Duration,
    /// What to look at.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Elect one leader among replicas; `--leader-elect=false` for a single process.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub leader_elect: bool,
    /// How often agents report at the least.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    pub report_interval: Duration,
    /// How long a server may take from its pod's creation to ready.
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = duration)]
    pub startup_deadline: Duration,
    /// Upstream's; taken so that its command lines work, and not needed: a count is written when it changes, at most
    /// once a second.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    pub player_status_interval: Duration,
    /// How often orphans are looked for.
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = duration)]
    pub orphan_interval: Duration,
    /// Address of the agent channel (gRPC over TLS 1.3).
    #[arg(long, default_value = ":9443", value_name = "HOST:PORT", value_parser = bind_address)]
    pub agent_bind_address: SocketAddr,
    /// HOST:PORT that pods dial; empty means the operator's Service.
    #[arg(long, default_value = "", value_name = "HOST:PORT")]
    pub agent_endpoint: String,
    /// When agents are asked to open a new session with a fresh token.
    #[arg(long, default_value = "8m", value_name = "DURATION", value_parser = duration)]
    pub agent_session_renew_after: Duration,
    /// When a session is ended; longer than the renewal.
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = duration)]
    pub agent_session_deadline: Duration,
    /// How long an agent that cannot confirm is given to apply a change of its directory before its report counts.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub unconfirmed_grace: Duration,
    /// Key of a taint that marks a departing node, besides a cordon; may be repeated.
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub drain_taint: Vec<String>,
    /// Base URL by which the API server reaches the webhook; empty means the webhook's Service.
    #[arg(long, default_value = "", value_name = "URL")]
    pub webhook_url: String,
    /// URL that is probed for an answer of the webhook; empty means /probe below where the API server would go.
    #[arg(long, default_value = "", value_name = "URL")]
    pub webhook_probe_url: String,
    /// Scheduler that places servers and proxies; empty means the cluster's default.
    #[arg(long, default_value = "", value_name = "NAME")]
    pub scheduler_name: String,
    /// Mark servers and proxies with the resource spawnery.cloud/placement, by which a scheduler that other pods use too
    /// knows that it has to ask the extender about them. That scheduler must be told to ignore the resource.
    #[arg(long)]
    pub placement_resource: bool,
    /// Name of the pod that this runs in; without one no pod is labelled as the leader.
    #[arg(long, env = "POD_NAME", default_value = "", value_name = "NAME")]
    pub pod_name: String,
}

/// What this program does besides.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Ask an installation whether it is at work, and end: 0 when it is.
    Check(check::Args),
}

/// What the rest of the process reads of the flags.
#[derive(Debug, Clone)]
pub struct Config {
    /// Namespace of our own objects.
    pub operator_namespace: String,
    /// The one namespace to look after; `None`: all.
    pub only_namespace: Option<String>,
    /// See [`Args::report_interval`].
    pub report_interval: Duration,
    /// See [`Args::startup_deadline`].
    pub startup_deadline: Duration,
    /// See [`Args::orphan_interval`].
    pub orphan_interval: Duration,
    /// See [`Args::agent_session_renew_after`].
    pub session_renew_after: Duration,
    /// See [`Args::agent_session_deadline`].
    pub session_deadline: Duration,
    /// See [`Args::unconfirmed_grace`].
    pub unconfirmed_grace: Duration,
    /// Keys of taints that mark departing nodes.
    pub drain_taints: Vec<String>,
    /// `HOST:PORT` that agents dial.
    pub agent_endpoint: String,
    /// Base URL of the webhook; `None`: its Service.
    pub webhook_url: Option<String>,
    /// URL that is probed.
    pub webhook_probe_url: String,
    /// What pods say to schedulers.
    pub placement: Placement,
    /// The pod that this runs in.
    pub pod_name: Option<String>,
    /// Unlike that of any other process, also of an earlier one in the same pod.
    pub identity: String,
}

/// Flags that do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Agents would be cut off before they were asked to renew.
    #[error("--agent-session-renew-after ({renew:?}) must be shorter than --agent-session-deadline ({deadline:?})")]
    Renewal {
        /// As given.
        renew: Duration,
        /// As given.
        deadline: Duration,
    },
    /// Webhooks are reached over TLS only.
    #[error("--webhook-url is `{0}`; write an https:// URL")]
    WebhookUrl(String),
}

impl Config {
    /// Reads the flags; `random` makes the identity unique.
    ///
    /// # Errors
    /// Where flags do not fit together.
    pub fn new(args: &Args, random: u64) -> Result<Self, ConfigError> {
        let (renew, deadline) = (args.agent_session_renew_after, args.agent_session_deadline);
        if renew >= deadline {
            return Err(ConfigError::Renewal { renew, deadline });
        }
        let given = |text: &str| Some(text.trim_end_matches('/').to_owned()).filter(|text| !text.is_empty());
        let webhook_url = given(&args.webhook_url);
        if let Some(url) = webhook_url.as_ref().filter(|url| !url.starts_with("https://")) {
            return Err(ConfigError::WebhookUrl(url.clone()));
        }
        let operator_namespace = args.scope.operator_namespace.clone();
        let pod_name = given(&args.pod_name);
        let service = format!("https://{}.{operator_namespace}.svc", object::WEBHOOK);
        Ok(Self {
            only_namespace: args.scope.only().map(str::to_owned),
            report_interval: args.report_interval,
            startup_deadline: args.startup_deadline,
            orphan_interval: args.orphan_interval,
            session_renew_after: renew,
            session_deadline: deadline,
            unconfirmed_grace: args.unconfirmed_grace,
            drain_taints: args.drain_taint.clone(),
            agent_endpoint: given(&args.agent_endpoint)
                .unwrap_or_else(|| object::operator_endpoint(&operator_namespace)),
            webhook_probe_url: given(&args.webhook_probe_url)
                .unwrap_or_else(|| format!("{}/probe", webhook_url.as_deref().unwrap_or(&service))),
            webhook_url,
            placement: Placement { scheduler: given(&args.scheduler_name), resource: args.placement_resource },
            identity: format!("{}_{random:016x}", pod_name.as_deref().unwrap_or(object::OPERATOR)),
            pod_name,
            operator_namespace,
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn config(flags: &[&str]) -> Result<Config, String> {
        let all = ["spawnery-reconciler", "--operator-namespace=ops", "--pod-name="].iter().chain(flags);
        let args = Args::try_parse_from(all).map_err(|error| error.to_string())?;
        Config::new(&args, 7).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_lead_to_our_services() {
        let config = config(&[]).expect("defaults fit");
        assert_eq!(config.agent_endpoint, "spawnery-operator.ops.svc:9443");
        assert_eq!(config.webhook_probe_url, "https://spawnery-webhook.ops.svc/probe");
        assert_eq!((config.webhook_url, config.only_namespace), (None, None));
        assert_eq!(config.identity, "spawnery-operator_0000000000000007");
    }

    #[test]
    fn a_webhook_url_is_also_probed() {
        let config = config(&["--webhook-url=https://127.0.0.1:8443/"]).expect("flags fit");
        assert_eq!(config.webhook_probe_url, "https://127.0.0.1:8443/probe");
    }

    #[test]
    fn pods_say_nothing_to_schedulers_unless_told_to() {
        assert_eq!(config(&[]).expect("defaults fit").placement, Placement::default());
        let told = config(&["--scheduler-name=spawnery", "--placement-resource"]).expect("flags fit");
        assert_eq!(told.placement, Placement { scheduler: Some("spawnery".to_owned()), resource: true });
    }

    #[rstest]
    #[case::go_style("--leader-elect=false", false)]
    #[case::bare("--leader-elect", true)]
    fn leader_elect_is_read_as_upstream_reads_it(#[case] flag: &str, #[case] want: bool) {
        let args = Args::try_parse_from(["spawnery-reconciler", flag]).expect("a valid flag");
        assert_eq!(args.leader_elect, want);
    }

    #[rstest]
    #[case::renewal_after_the_deadline("--agent-session-renew-after=10m", "must be shorter")]
    #[case::plain_http("--webhook-url=http://127.0.0.1:80", "write an https:// URL")]
    #[case::empty_taint("--drain-taint=", "--drain-taint")]
    fn refuses(#[case] flag: &str, #[case] why: &str) {
        let error = config(&[flag]).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
