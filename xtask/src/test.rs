//! `cargo xtask test`: what CI runs.

use crate::{
    orphans,
    steps::{self, Step},
    suites,
};
use anyhow::{Context as _, Result, ensure};
use spawnery_tests::{kubernetes, nodes, target};
use std::path::PathBuf;

/// Checks licences, banned crates and sources; its version decides about its verdicts, so it is pinned.
const DENY_VERSION: &str = "0.20.2";

/// The packages that must compile alone, with only the features that they ask for themselves.
const PACKAGES: [&str; 12] = [
    "spawnery-core",
    "spawnery-api",
    "spawnery-proto",
    "spawnery-certs",
    "spawnery-runtime",
    "spawnery-webhook",
    "spawnery-extender",
    "spawnery-reconciler",
    "spawnery-agent",
    "spawnery-image",
    "spawnery-tests",
    "xtask",
];

/// The test executables that take longest, so that the last one to end does not begin last.
const SLOW_SUITES: &[&str] = &[
    "installed",
    "takeover",
    "chart",
    "label_flip",
    "doors",
    "agents_silent",
    "nodes",
    "extender",
    "drain",
    "proxies",
    "groups",
];

/// Run what CI runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these steps.
    steps: Vec<String>,
    /// Only say which steps there are.
    #[arg(long)]
    list: bool,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let mut all = all()?;
    if args.list {
        for step in &all {
            crate::say(step.name());
        }
        return Ok(());
    }
    for name in &args.steps {
        let names: Vec<&str> = all.iter().map(Step::name).collect();
        ensure!(names.contains(&name.as_str()), "no step `{name}`; there are {}", names.join(", "));
    }
    if !args.steps.is_empty() {
        all.retain(|step| args.steps.iter().any(|name| name == step.name()));
    }
    steps::run(all).await
}

/// The steps, cheap ones first.
fn all() -> Result<Vec<Step>> {
    let deny = target::directory()?.join("tools");
    let alone = PACKAGES.map(|package| format!("cargo check --quiet --package {package} --all-targets"));
    Ok(vec![
        Step::command("format", "cargo fmt --all --check"),
        Step::work("orphan-files", orphans::check()),
        Step::work("deny", self::deny(deny)),
        Step::command("clippy", "cargo clippy --workspace --all-targets -- -D warnings"),
        Step::commands("each-crate-alone", alone),
        Step::command("crds", "cargo run --quiet --package spawnery-api --features crdgen --bin crdgen -- --check"),
        Step::command("unit", "cargo test --workspace --exclude spawnery-tests"),
        Step::work("kubernetes", async { kubernetes::binaries().await.map(drop) }),
        Step::work("nodes", async {
            let had = nodes::support::wanted()?;
            if had { nodes::binaries().await.map(drop) } else { Ok(()) }
        }),
        // All at once: built one by one by the tests that run them, each would compile its dependencies in its own way.
        Step::command("binaries", "cargo build --workspace --bins"),
        // As those binaries are: the profile of what users run would build everything a second time.
        Step::command("image", "cargo run --quiet --package xtask -- image --profile dev"),
        Step::work("cluster", suites::run("spawnery-tests", "tests", SLOW_SUITES)),
        Step::command("demo", "cargo run --quiet --package xtask -- demo --plain"),
        // Shows that the benches work; figures come from a quiet machine and optimised binaries.
        Step::command("bench", "cargo run --quiet --package xtask -- bench --quick --profile dev"),
        Step::command("demo-minecraft", "cargo run --quiet --package xtask -- demo --plain --minecraft"),
        Step::command_on_real_nodes(
            "demo-real-nodes",
            "cargo run --quiet --package xtask -- demo --plain --real-nodes",
        ),
    ])
}

/// Runs cargo-deny from the person's own tools, or from `target/tools`, where it is built once.
async fn deny(root: PathBuf) -> Result<()> {
    let own = root.join("bin/cargo-deny");
    let installed = tokio::process::Command::new("cargo-deny").arg("--version").output().await;
    let installed = installed.is_ok_and(|output| output.stdout.ends_with(format!(" {DENY_VERSION}\n").as_bytes()));
    let program = if installed { PathBuf::from("cargo-deny") } else { own.clone() };
    if !installed && !own.is_file() {
        crate::say("building cargo-deny, a few minutes the first time");
        let mut install = tokio::process::Command::new("cargo");
        // Not optimised: it runs for a second, and takes minutes less to build.
        install
            .args(["install", "--quiet", "--locked", "--debug", "cargo-deny", "--version", DENY_VERSION, "--root"])
            .arg(&root);
        let status = install.kill_on_drop(true).status().await.context("could not run cargo install")?;
        ensure!(status.success(), "could not install cargo-deny {DENY_VERSION} ({status})");
    }
    let mut check = tokio::process::Command::new(program);
    // Advisories need a database from the network; they are not of this commit's making anyway.
    check.args(["--all-features", "check", "licenses", "bans", "sources"]).current_dir(target::workspace());
    let status = check.kill_on_drop(true).status().await.context("could not run cargo-deny")?;
    ensure!(status.success(), "cargo-deny found something ({status})");
    Ok(())
}
