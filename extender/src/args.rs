//! Flags of the extender.

use std::net::SocketAddr;

use clap::Parser;
use spawnery_runtime::args::{AdminArgs, ClientArgs, LogArgs, ScopeArgs, ShutdownArgs, bind_address};

/// Tells kube-scheduler where pods of Spawnery should go: servers to where people are, proxies apart, nothing to nodes
/// that depart.
#[derive(Debug, Clone, Parser)]
#[command(name = "spawnery-extender", version)]
pub struct Args {
    /// How to reach the API server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to look at.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Address that schedulers call, in HTTPS.
    #[arg(long, default_value = ":8443", value_name = "HOST:PORT", value_parser = bind_address)]
    pub extender_bind_address: SocketAddr,
    /// Key of a taint that marks a departing node, besides a cordon; may be repeated. As the reconciler has it.
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub drain_taint: Vec<String>,
    /// Most player slots that the servers on a node may have together, on nodes without the label
    /// spawnery.cloud/player-budget; 0 is no limit.
    #[arg(long, default_value_t = 0, value_name = "SLOTS")]
    pub node_player_budget: u32,
    /// Where metrics and health are served.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
    /// How to end.
    #[command(flatten)]
    pub shutdown: ShutdownArgs,
}

impl Args {
    /// The budget of nodes that declare none; `None` is no limit.
    pub fn default_budget(&self) -> Option<u32> {
        Some(self.node_player_budget).filter(|slots| *slots > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_sound() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }

    #[test]
    fn no_budget_is_no_limit() {
        let budget = |flags: &[&str]| {
            let args = std::iter::once("extender").chain(flags.iter().copied());
            Args::try_parse_from(args).unwrap().default_budget()
        };
        assert_eq!(budget(&[]), None);
        assert_eq!(budget(&["--node-player-budget=400"]), Some(400));
    }
}
