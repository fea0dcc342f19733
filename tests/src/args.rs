//! What the test ground reads from the environment; the only place that does.

use clap::Parser;
use std::sync::LazyLock;

/// Settings of a test run, from the environment alone: `cargo test` owns the command line.
#[derive(Debug, Clone, Parser)]
#[command(no_binary_name = true)]
pub struct Settings {
    /// Keep the directories of clusters (logs, audit log, data) after their end.
    #[arg(long, env = "SPAWNERY_KEEP", default_value = "false", action = clap::ArgAction::Set,
        value_parser = clap::builder::BoolishValueParser::new())]
    pub keep: bool,
    /// Rounds of the tests that play at random; more than CI's find rarer things. `cargo xtask proof` sets it.
    #[arg(long, env = "SPAWNERY_ROUNDS", default_value = "200")]
    pub rounds: u32,
    /// What a test of real nodes does where they cannot be had: goes on without (auto), or fails (required, as CI has it).
    #[arg(long, env = "REAL_NODES", default_value = "auto", ignore_case = true)]
    pub real_nodes: crate::nodes::support::Want,
    /// Where programs are looked for.
    #[arg(long, env = "PATH", default_value = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")]
    pub path: std::ffi::OsString,
    /// The Go tool that builds Kubernetes.
    #[arg(long, env = "GO", default_value = "go")]
    pub go: String,
    /// The cargo that builds our binaries; cargo sets it for the tests it runs.
    #[arg(long, env = "CARGO", default_value = "cargo")]
    pub cargo: String,
}

/// The settings of this process, read once.
pub fn settings() -> &'static Settings {
    static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings::parse_from(std::iter::empty::<String>()));
    &SETTINGS
}
