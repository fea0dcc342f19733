//! `cargo xtask demo`: a real `kubectl drain` that waits for the players of real game servers.
//!
//! ```text
//!  stage   what must be there: builds, cluster, Spawnery, the network of examples/network.yaml
//!  real    the same on real nodes: our image, helm, real Minecraft
//!  story   players join · kubectl drain · refused · some finish, the others are moved · done
//!  view    what the cluster and the players say, a few times a second ──► table ──► screen
//! ```

mod drain;
mod real;
mod screen;
mod stage;
mod story;
mod table;
mod view;

use crate::{interrupt, say};
use anyhow::{Context as _, Result};
use screen::Screen;
use spawnery_tests::nodes;
use stage::Stage;
use std::{io::IsTerminal as _, pin::pin};
use tokio::signal::unix::{SignalKind, signal};

/// A real drain that waits for players.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// With real Minecraft servers, a real proxy and bot players; needs Node 20 and npm.
    #[arg(long)]
    minecraft: bool,
    /// On two real nodes, with our image installed by helm and real Minecraft in containers; needs root, Node 20 and npm.
    #[arg(long, conflicts_with = "minecraft")]
    real_nodes: bool,
    /// Leave everything running at the end, until Ctrl-C, and say how to reach it.
    #[arg(long)]
    keep: bool,
    /// Print changes line by line instead of a table that refreshes; so does an output that is no terminal.
    #[arg(long)]
    plain: bool,
    /// How many players join.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..=40))]
    players: u16,
    /// Set by CI systems; means `--plain`.
    #[arg(long, env = "CI", hide = true, default_value = "false", value_parser = clap::builder::FalseyValueParser::new())]
    ci: bool,
}

/// What a person who typed the command should know first.
const WHAT: &str = "A real `kubectl drain` waits for the players of a game server, and goes through when they have left.\n\
    All of it runs on this machine alone and is gone at the end.\n";

/// Runs the demo. An error says what did not go as promised.
pub(crate) async fn run(args: Args) -> Result<()> {
    let screen = Screen::start(std::io::stdout().is_terminal() && !args.plain && !args.ci);
    screen.note(WHAT);
    if !args.real_nodes {
        return perform(&args, &screen, stage::set(args.minecraft, &screen)).await;
    }
    let (options, minecraft) = interrupt::or(real::prepare(args.keep, &screen)).await?;
    let on_real_nodes = move || {
        let mut outcome = Ok(());
        nodes::run_required(options, async |real| {
            outcome = perform(&args, &screen, real::set(real, &minecraft, &screen)).await;
            // What went wrong is told once, by us.
            Ok(())
        })?;
        outcome
    };
    tokio::task::spawn_blocking(on_real_nodes).await.context("the cluster's thread is gone")?
}

/// Sets the stage, tells the story on it, and says what it came to.
async fn perform(args: &Args, screen: &Screen, stage: impl Future<Output = Result<Stage>>) -> Result<()> {
    // Before anything is started, so that a Ctrl-C during the start ends things in order too.
    let mut terminate = signal(SignalKind::terminate()).context("could not listen for SIGTERM")?;
    let stop = async move {
        tokio::select! {
            result = tokio::signal::ctrl_c() => result.context("could not listen for Ctrl-C"),
            _ = terminate.recv() => Ok(()),
        }
    };
    let mut stop = pin!(stop);
    let (stage, outcome) = tokio::select! {
        result = &mut stop => {
            screen.close();
            result?;
            say("stopped before the end");
            anyhow::bail!("interrupted")
        }
        played = play(args, screen, stage) => played?,
    };
    screen.close();
    match &outcome {
        Ok(summary) => say(&format!("\nAs promised.\n{summary}")),
        Err(error) => say(&format!("\nNot as promised: {error:#}\n\n{}", stage.report().await)),
    }
    if args.keep {
        say(&stage.how_to_reach());
        stop.await?;
    }
    outcome.map(drop).context("the demo did not go as promised")
}

/// The stage outlives the story: it is what can be looked at afterwards.
async fn play(
    args: &Args,
    screen: &Screen,
    stage: impl Future<Output = Result<Stage>>,
) -> Result<(Stage, Result<String>)> {
    let stage = stage.await?;
    let outcome = story::tell(&stage, usize::from(args.players), screen).await;
    Ok((stage, outcome))
}
