//! Where cargo puts things, and our own binaries there.

use crate::{args::settings, command::run, launch::Launch, lock};
use anyhow::{Context as _, Result, ensure};
use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};
use tokio::sync::OnceCell;

/// A cold build of the workspace takes two to three minutes on two cores; another cargo may hold the lock as long.
const CARGO_LIMIT: Duration = Duration::from_mins(20);

/// The workspace's root: where `Cargo.toml`, `tests/` and `examples/` are.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."))
}

/// Cargo's target directory, in which the running executable lies.
///
/// # Errors
/// When the running executable cannot be found.
pub fn directory() -> Result<PathBuf> {
    profile()?.parent().map(Path::to_owned).context("the executable does not lie in a target directory")
}

/// The directory of the profile that the running executable was built with, such as `target/debug`: binaries are in it,
/// tests in its `deps`.
fn profile() -> Result<PathBuf> {
    let executable = std::env::current_exe().context("could not find the running executable")?;
    let mut folders = executable.ancestors().skip(1);
    let profile = folders.find(|folder| !folder.ends_with("deps") && !folder.ends_with("examples"));
    profile.map(Path::to_owned).context("the executable lies nowhere")
}

/// The profile that the running executable was built with, by the name that cargo's `--profile` takes.
///
/// # Errors
/// When the running executable cannot be found.
pub fn profile_name() -> Result<String> {
    let directory = profile()?;
    let name = directory.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("no profile in {}", directory.display()))?;
    Ok(if name == "debug" { "dev" } else { name }.to_owned())
}

/// The directory below cargo's own in which a profile's binaries are.
pub(crate) fn profile_folder(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}

/// The turn to have cargo put a binary into a profile's directory and to do something with it there. Images hold binaries
/// of the same names that are linked otherwise; cargo's own lock is free again before anybody has looked.
///
/// # Errors
/// When somebody else has had it for longer than a build takes.
pub(crate) async fn turn(profile: &Path) -> Result<File> {
    lock::take(&profile.join("spawnery-binaries.lock"), CARGO_LIMIT, "building our binaries").await
}

/// The workspace's binary `name`, up to date: cargo is asked once for each binary and process.
///
/// # Errors
/// When cargo cannot build it; the message holds what cargo said.
pub async fn binary(name: &str) -> Result<PathBuf> {
    type Built = Arc<OnceCell<PathBuf>>;
    static BUILT: LazyLock<parking_lot::Mutex<HashMap<String, Built>>> = LazyLock::new(parking_lot::Mutex::default);
    let cell = Arc::clone(BUILT.lock().entry(name.to_owned()).or_default());
    cell.get_or_try_init(|| build(name)).await.cloned()
}

async fn build(name: &str) -> Result<PathBuf> {
    let profile = profile()?;
    let _turn = turn(&profile).await?;
    let mut cargo = Launch::new("cargo", &settings().cargo).args(["build", "--quiet", "--bin", name]);
    // `CARGO_TARGET_DIR` or `--target-dir` may have put us elsewhere than the default.
    cargo = cargo.arg("--target-dir").arg(directory()?).directory(workspace());
    cargo = cargo.args(["--profile".to_owned(), profile_name()?]);
    run(&cargo, None, CARGO_LIMIT).await?.stdout().with_context(|| format!("could not build {name}"))?;
    let path = profile.join(name);
    ensure!(path.is_file(), "cargo built {name}, but not at {}", path.display());
    Ok(path)
}
