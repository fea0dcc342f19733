//! `cargo xtask bench`: figures of the real parts on a real control plane, each beside its baseline and its goal.
//!
//! ```text
//!  bench ──(another profile than ours?)──► cargo build --profile P ──► target/P/xtask bench
//!    └── each bench: a cluster and a stack of its own ──► Report ──► one line a figure
//! ```
//! The one who measures is built like the one who is measured: an unoptimised observer would be slower than what it sees.

mod bare;
mod eviction;
mod extender;
mod figure;
mod hundred;
mod joins;
mod ready;

pub(crate) use figure::{Figure, table};

use crate::{interrupt, say};
use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use spawnery_tests::{
    args::settings,
    binary, kubernetes,
    stack::{Arena, StackOptions},
    target,
};
use std::{future::Future, path::PathBuf, process::ExitCode, sync::Arc};

/// What is measured.
const NAMES: [&str; 6] =
    ["eviction-verdict", "extender", "join-to-server", "join-to-label", "ready-to-registered", "hundred-servers"];
/// What users run is built like this, but for link-time optimisation and symbols.
pub(crate) const PROFILE: &str = "release";

/// Figures of the real parts.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// What to measure; everything if none is named.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    names: Vec<String>,
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Few samples: shows that the benches work, not how fast we are.
    #[arg(long)]
    quick: bool,
    /// The cargo profile of what is measured, and of what measures.
    #[arg(long, default_value = PROFILE)]
    profile: String,
}

impl Args {
    /// Everything, thoroughly.
    pub(crate) fn all() -> Self {
        Self { names: Vec::new(), json: true, quick: false, profile: PROFILE.to_owned() }
    }

    fn command_line(&self) -> Vec<String> {
        let mut words = vec!["bench".to_owned(), "--profile".to_owned(), self.profile.clone()];
        words.extend(self.json.then(|| "--json".to_owned()));
        words.extend(self.quick.then(|| "--quick".to_owned()));
        words.extend(self.names.iter().cloned());
        words
    }
}

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    quick: bool,
}

impl Effort {
    /// `few` when it shall be quick, else `many`.
    fn of<T>(self, few: T, many: T) -> T {
        if self.quick { few } else { many }
    }
}

/// Where a bench leaves its figures; they are printed as they come when they are JSON.
#[derive(Clone)]
struct Report {
    json: bool,
    figures: Arc<Mutex<Vec<Figure>>>,
}

impl Report {
    fn add(&self, figure: Figure) {
        if self.json {
            print(&serde_json::to_string(&figure).unwrap_or_default());
        }
        self.figures.lock().push(figure);
    }

    fn extend(&self, figures: impl IntoIterator<Item = Figure>) {
        figures.into_iter().for_each(|figure| self.add(figure));
    }
}

/// Measures; with another profile than ours in a process that was built so.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    interrupt::or(async {
        if target::profile_name()? == args.profile {
            // Whole clusters and stacks are in it: on the heap.
            Box::pin(measure(&args)).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut command = tokio::process::Command::new(built(&args.profile).await?);
        let status = command.args(args.command_line()).kill_on_drop(true).status().await;
        let status = status.context("could not run what was built")?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
    .await
}

/// Measures in a process built with the release profile, and returns its lines of JSON.
pub(crate) async fn measured(args: &Args) -> Result<String> {
    let mut command = tokio::process::Command::new(built(&args.profile).await?);
    command.args(args.command_line()).kill_on_drop(true).stderr(std::process::Stdio::inherit());
    let output = command.output().await.context("could not run what was built")?;
    ensure!(output.status.success(), "the benches failed ({})", output.status);
    String::from_utf8(output.stdout).context("not text")
}

/// This program, built with `profile`.
async fn built(profile: &str) -> Result<PathBuf> {
    say(&format!("building with profile {profile}, some minutes the first time"));
    let directory = target::directory()?;
    let mut cargo = tokio::process::Command::new(&settings().cargo);
    cargo.args(["build", "--quiet", "--package", "xtask", "--profile", profile, "--target-dir"]).arg(&directory);
    let status = cargo.current_dir(target::workspace()).kill_on_drop(true).status().await;
    let status = status.context("could not run cargo")?;
    ensure!(status.success(), "could not build with profile {profile} ({status})");
    Ok(directory.join(if profile == "dev" { "debug" } else { profile }).join("xtask"))
}

async fn measure(args: &Args) -> Result<()> {
    let effort = Effort { quick: args.quick };
    let report = Report { json: args.json, figures: Arc::default() };
    let profile = target::profile_name()?;
    say(&format!("measuring binaries of profile {profile}{}", if args.quick { ", quickly" } else { "" }));
    let wanted = |name: &&&str| args.names.is_empty() || args.names.iter().any(|wanted| wanted == *name);
    // Before the first figure: a build beside it would be in it.
    for program in NAMES.iter().filter(wanted).flat_map(|name| programs(name)) {
        binary(program).await?;
    }
    kubernetes::binaries().await?;
    for name in NAMES.iter().filter(wanted) {
        say(&format!("=== {name}"));
        bench(name, effort, report.clone()).await.with_context(|| format!("could not measure {name}"))?;
    }
    if !args.json {
        print(&table(&report.figures.lock()));
    }
    Ok(())
}

/// What a bench runs.
fn programs(name: &str) -> &'static [&'static str] {
    match name {
        "extender" => &["spawnery-extender"],
        _ => &["spawnery-reconciler", "spawnery-webhook", "spawnery-agent"],
    }
}

async fn bench(name: &str, effort: Effort, report: Report) -> Result<()> {
    match name {
        "eviction-verdict" => in_arena(name, |arena| eviction::measure(arena, effort, report)).await,
        "extender" => Box::pin(extender::measure(effort, report)).await,
        "join-to-server" => in_arena(name, |arena| joins::to_server(arena, effort, report)).await,
        "join-to-label" => in_arena(name, |arena| joins::to_label(arena, effort, report)).await,
        "ready-to-registered" => in_arena(name, |arena| ready::measure(arena, effort, report)).await,
        "hundred-servers" => in_arena(name, |arena| hundred::measure(arena, effort, report)).await,
        other => bail!("no bench {other}"),
    }
}

async fn in_arena<F: Future<Output = Result<()>>>(name: &str, measure: impl FnOnce(Arc<Arena>) -> F) -> Result<()> {
    // As users run it: a line for each answer is for tests.
    let options = StackOptions { log_level: "info".to_owned(), ..StackOptions::default() };
    Arena::run(name, options, measure).await
}

pub(crate) use bare::{EmptyArgs, serve_empty};

/// What another program may read.
#[expect(clippy::print_stdout, reason = "figures are this command's product")]
pub(crate) fn print(text: &str) {
    println!("{}", text.trim_end());
}
