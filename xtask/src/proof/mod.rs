//! `cargo xtask proof NAME`: what takes too long for CI, run by hand.
//!
//! Its output is kept under `docs/results/NAME-DATE.md`, with the commit, the machine and the seed, whether the proof held
//! or not.

mod image;
mod results;

use crate::{bench, interrupt, say};
use anyhow::{Context as _, Result, bail, ensure};
use results::Results;
use spawnery_tests::{Launch, args::settings, command, image::product, target};
use std::time::{Duration, Instant};

/// What can be proven.
const NAMES: [&str; 3] = ["speed", "interleavings", "image"];
/// The tests of `tests/tests/doors.rs` in which joins, evictions and restarts meet at random: the promise and its controls.
const INTERLEAVINGS: [&str; 3] = [
    "a_join_beside_an_eviction_never_ends_on_a_server_that_goes",
    "without_the_close_somebody_is_lost",
    "when_the_old_process_outlives_a_restart_somebody_is_lost",
];

/// Half a second a round, on a machine that does other things too, for ten times as many as by default.
const LIMIT: Duration = Duration::from_hours(3);

/// What takes too long for CI.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// `speed`: all benches, built as users run it. `interleavings`: joins beside evictions and restarts, and the controls.
    /// `image`: the same bytes twice from an empty target directory, within its size, and all that it holds starts.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    name: String,
    /// Rounds of a proof that plays at random.
    #[arg(long, default_value_t = 2000)]
    rounds: u32,
    /// The cargo profile that the proof of the image builds with; its size is promised for the default alone.
    #[arg(long, default_value = product::PROFILE)]
    profile: String,
}

/// Proves, and writes down what came out.
pub(crate) async fn run(args: Args) -> Result<()> {
    interrupt::or(async {
        let begin = Instant::now();
        let mut results = Results::begin(&args.name).await?;
        let proven = match args.name.as_str() {
            "speed" => speed(&mut results).await,
            "interleavings" => interleavings(args.rounds, &mut results).await,
            "image" => image::run(&args.profile, &mut results).await,
            other => bail!("no proof {other}"),
        };
        results.end(&proven, begin.elapsed());
        let path = results.write()?;
        say(&format!("written to {}", path.display()));
        proven
    })
    .await
}

/// All benches; every goal must hold.
async fn speed(results: &mut Results) -> Result<()> {
    let lines = bench::measured(&bench::Args::all()).await?;
    let figures: Vec<bench::Figure> = lines
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("not a figure: {line}")))
        .collect::<Result<_>>()?;
    let table = bench::table(&figures);
    results.fact("seed", "none: nothing is random");
    results.fact("profile", bench::PROFILE);
    results.output(&table);
    bench::print(&table);
    let broken: Vec<&str> =
        figures.iter().filter(|figure| figure.holds == Some(false)).map(|figure| figure.name.as_str()).collect();
    ensure!(broken.is_empty(), "goals that do not hold: {}", broken.join(", "));
    Ok(())
}

/// Joins beside evictions at random moments, while proxies are held up, deafened and restarted: nobody is lost; without the
/// close, or with a process that outlives its container, somebody is.
async fn interleavings(rounds: u32, results: &mut Results) -> Result<()> {
    results.fact("rounds", &rounds.to_string());
    results.fact("seed", "in the output");
    // The kit's way to run a command: the tests end with us, which cargo would leave behind.
    let cargo = Launch::new("cargo", &settings().cargo)
        .args(["test", "--quiet", "--package", "spawnery-tests", "--test", "doors", "--", "--nocapture", "--exact"])
        .args(INTERLEAVINGS)
        .env("SPAWNERY_ROUNDS", rounds.to_string())
        .directory(target::workspace());
    let output = command::run(&cargo, None, LIMIT).await?;
    let text = output.all();
    results.output(&text);
    bench::print(&text);
    ensure!(output.ok(), "the tests failed ({})", output.status);
    let passed = format!("{} passed", INTERLEAVINGS.len());
    ensure!(text.contains(&passed), "not all tests were run");
    Ok(())
}
