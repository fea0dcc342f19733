//! Flags of the webhook.

use std::net::SocketAddr;

use clap::Parser;
use spawnery_api::names::object;
use spawnery_runtime::args::{AdminArgs, ClientArgs, LogArgs, ScopeArgs, ShutdownArgs, bind_address};

/// Admission for Spawnery: validates groups, stamps pods, refuses evictions of pods with people on them.
#[derive(Debug, Clone, Parser)]
#[command(name = "spawnery-webhook", version)]
pub struct Args {
    /// How to reach the API server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to look at.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Address that the API server calls, in HTTPS.
    #[arg(long, default_value = ":8443", value_name = "HOST:PORT", value_parser = bind_address)]
    pub webhook_bind_address: SocketAddr,
    /// User name of the reconciler, whose own changes are not judged; by default its ServiceAccount in the operator's
    /// namespace.
    #[arg(long, value_name = "USER")]
    pub operator_user: Option<String>,
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
    /// The reconciler's user name.
    pub fn operator_user(&self) -> String {
        self.operator_user
            .clone()
            .unwrap_or_else(|| format!("system:serviceaccount:{}:{}", self.scope.operator_namespace, object::OPERATOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::default(&[], "system:serviceaccount:spawnery-system:spawnery-operator")]
    #[case::namespace(&["--operator-namespace", "ops"], "system:serviceaccount:ops:spawnery-operator")]
    #[case::named(&["--operator-user", "me"], "me")]
    fn knows_the_reconciler(#[case] flags: &[&str], #[case] want: &str) {
        let args = Args::try_parse_from(std::iter::once("webhook").chain(flags.iter().copied())).unwrap();
        assert_eq!(args.operator_user(), want);
    }

    #[test]
    fn flags_are_sound() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
