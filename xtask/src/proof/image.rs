//! The image, from nothing and twice: the same bytes, no larger than it may be, and all that it holds starts.

use super::results::Results;
use crate::{bench, image::MOST_BYTES, say};
use anyhow::{Context as _, Result, ensure};
use spawnery_tests::{
    image::{Archive, Root, product},
    target,
};
use std::{fmt::Write as _, fs, time::Instant};

/// The target directory, below the usual one.
const FOLDER: &str = "proof-image";

pub(super) async fn run(profile: &str, results: &mut Results) -> Result<()> {
    let name = product::default_name()?;
    results.fact("seed", "none: nothing is random");
    results.fact("profile", profile);
    results.fact("image", &name);
    let mut told = String::new();
    let proven = prove(&name, profile, &mut told).await;
    results.output(&told);
    bench::print(&told);
    proven
}

async fn prove(name: &str, profile: &str, told: &mut String) -> Result<()> {
    let first = built(name, profile, 1, told).await?;
    let second = built(name, profile, 2, told).await?;
    let (root, other) = (Root::unpack(&first)?, Root::unpack(&second)?);
    for program in product::PROGRAMS {
        let path = program.path();
        let read = |root: &Root| fs::read(root.file(&path)).with_context(|| format!("no {path} in the image"));
        let (one, two) = (read(&root)?, read(&other)?);
        let same = one == two;
        line(told, &format!("{path}: {} bytes, {}", one.len(), if same { "the same twice" } else { "NOT the same" }));
        ensure!(same, "two builds of {path} differ");
    }
    ensure!(first == second, "two archives of the same programs differ");
    line(told, &format!("the archive: {} bytes, the same twice; it may have {MOST_BYTES}", first.len()));
    line(told, &format!("starts in the unpacked archive: {}", root.all_start().await?.join(", ")));
    let promised = profile == product::PROFILE;
    ensure!(!promised || first.len() as u64 <= MOST_BYTES, "{} bytes are more than {MOST_BYTES}", first.len());
    Ok(())
}

/// The archive, built in an empty target directory, which is gone afterwards. It is the same one each time: where generated
/// code was compiled is part of what it says when it panics.
async fn built(name: &str, profile: &str, number: u32, told: &mut String) -> Result<Vec<u8>> {
    let parent = target::directory()?;
    let path = parent.join(FOLDER);
    if path.exists() {
        // Of a run that was killed.
        fs::remove_dir_all(&path).with_context(|| format!("could not remove {}", path.display()))?;
    }
    let target = tempfile::Builder::new().prefix(FOLDER).rand_bytes(0).tempdir_in(parent);
    let target = target.context("could not make a target directory")?;
    say(&format!("build {number} in {}", target.path().display()));
    let begin = Instant::now();
    let archive = target.path().join("image.tar");
    Archive::write(&archive, &[product::image(name, profile, target.path()).await?])?;
    line(told, &format!("build {number}: {:.0} s", begin.elapsed().as_secs_f64()));
    fs::read(&archive).context("could not read the archive")
}

fn line(told: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(told, "{text}");
}
