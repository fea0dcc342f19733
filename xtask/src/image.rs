//! `cargo xtask image`: Spawnery's image, without a container engine.

use crate::say;
use anyhow::{Context as _, Result, ensure};
use spawnery_tests::image::{games, product};
use std::{fs, path::PathBuf, time::Instant};

/// What the image may take on a node's disk. Who outgrows it looks for the reason before raising it.
pub(crate) const MOST_BYTES: u64 = 40_000_000;

/// Spawnery's image, as an archive.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its whole name, with registry and tag. Default: what the chart installs.
    #[arg(long)]
    name: Option<String>,
    /// The cargo profile that the programs are built with. `dev` takes seconds and makes an image ten times the size.
    #[arg(long, default_value = product::PROFILE)]
    profile: String,
    /// Where the archive goes. Default: below `target/images`.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Make the images of the example game instead: a server and a proxy of real Minecraft, in one archive.
    #[arg(long, conflicts_with = "name")]
    games: bool,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let start = Instant::now();
    let (names, path) = if args.games {
        (vec![games::LOBBY.to_owned(), games::GATEWAY.to_owned()], games::archive(&args.profile).await?)
    } else {
        let name = match args.name {
            Some(name) => name,
            None => product::default_name()?,
        };
        (vec![name.clone()], product::archive(&name, &args.profile).await?)
    };
    let path = match args.output {
        Some(output) => {
            fs::copy(&path, &output).with_context(|| format!("could not write {}", output.display()))?;
            output
        }
        None => path,
    };
    let bytes = fs::metadata(&path).with_context(|| format!("could not look at {}", path.display()))?.len();
    let (names, seconds) = (names.join(" and "), start.elapsed().as_secs_f64());
    say(&format!("{names} in {}: {} MB, {seconds:.0} s", path.display(), bytes.div_ceil(1_000_000)));
    let promised = !args.games && args.profile == product::PROFILE;
    ensure!(!promised || bytes <= MOST_BYTES, "{bytes} bytes are more than the {MOST_BYTES} that the image may have");
    Ok(())
}
