//! Images of real Minecraft, with our agent as their first process: what an owner of a game builds, by example.
//!
//! ```text
//!  lobby    spawnery-agent run … ── node server.js   (flying-squid)
//!  gateway  spawnery-agent run … ── node proxy.js    (basic-minecraft-proxy)
//! ```
//!
//! Node is the one of this machine, with the C library and whatever else it is linked to.

use super::{
    Archive, Image, Layer, Tree,
    product::{AGENT, FOLDER, PROBE, Program},
};
use crate::{Launch, command::run, minecraft::Installation, target};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A server of real Minecraft.
pub const LOBBY: &str = "local.test/lobby:1";
/// A proxy of real Minecraft.
pub const GATEWAY: &str = "local.test/gateway:1";

/// What a game's image has of ours: the agent, which starts the game, and the readiness probe.
const OURS: [Program; 2] = [AGENT, PROBE];
const APP: &str = "/app";
/// The one version of the game that the scripts play.
const GAME: &str = "1.12.2";
const VERSIONS: &str = "minecraft-data/minecraft-data/data/pc";
const NODE_LIMIT: Duration = Duration::from_secs(20);

/// Builds the agent and writes one archive with both images, which share all their layers, below `target/images`.
///
/// # Errors
/// When Node is missing, npm cannot get a package, or the agent cannot be built.
pub async fn archive(profile: &str) -> Result<PathBuf> {
    let installation = Installation::ensure().await?;
    let node = node().await?;
    let modules = installation.modules().to_owned();
    let versions = versions(&modules)?;
    let runtime = Tree::base().directory("/data", 0o1777).program(&node, &format!("{FOLDER}/node")).await?.copy_all(
        &modules,
        &format!("{APP}/node_modules"),
        |path| wanted(path, &versions),
    )?;
    let (mut ours, target) = (Tree::default(), target::directory()?);
    for script in [installation.server_script(), installation.proxy_script()] {
        let name = script.file_name().and_then(|name| name.to_str()).context("a script has no name")?;
        ours = ours.copy(&script, &format!("{APP}/{name}"), 0o644);
    }
    for program in OURS {
        ours = program.install(ours, profile, &target).await?;
    }
    let path = super::place("games")?;
    let to = path.clone();
    tokio::task::spawn_blocking(move || {
        let layers = [Arc::new(Layer::write(&runtime)?), Arc::new(Layer::write(&ours)?)];
        let image = |name: &str, flags: &[&str], script: &str| {
            let agent = [AGENT.path(), "run".to_owned()];
            let game = ["--".to_owned(), format!("{FOLDER}/node"), format!("{APP}/{script}")];
            let words = agent.into_iter().chain(flags.iter().map(|&flag| flag.to_owned())).chain(game);
            // Games write where they stand: their pods mount a volume there, and the rest is read-only.
            Image::new(name, layers.clone()).entrypoint(words).directory("/data")
        };
        let lobby = image(LOBBY, &[], "server.js");
        let gateway = image(GATEWAY, &["--count-source", "local", "--adapter", "external"], "proxy.js");
        Archive::write(&to, &[lobby, gateway])
    })
    .await??;
    Ok(path)
}

/// Node itself: what lies on the `PATH` may be a script of a version manager.
async fn node() -> Result<PathBuf> {
    let node = Launch::new("node", "node").args(["--print", "process.execPath"]);
    Ok(PathBuf::from(run(&node, None, NODE_LIMIT).await?.stdout()?.trim()))
}

/// The folders of data that the version needs; most come from versions before it.
fn versions(modules: &Path) -> Result<BTreeSet<String>> {
    let path = modules.join("minecraft-data/minecraft-data/data/dataPaths.json");
    let text = std::fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
    let paths: Value = serde_json::from_slice(&text).with_context(|| format!("could not read {}", path.display()))?;
    let paths = paths.pointer(&format!("/pc/{GAME}")).and_then(Value::as_object);
    let paths = paths.with_context(|| format!("{} does not know {GAME}", path.display()))?;
    let folders = paths.values().filter_map(|folder| folder.as_str()?.strip_prefix("pc/"));
    Ok(folders.chain(["common"]).map(ToOwned::to_owned).collect())
}

/// Leaves out what a game of one version never reads: the data of the others, and types and maps for people who write
/// code.
fn wanted(path: &Path, versions: &BTreeSet<String>) -> bool {
    let for_people = path.extension().is_some_and(|end| end == "map" || end == "ts");
    let version = path.strip_prefix(VERSIONS).ok().and_then(|rest| rest.components().next());
    let foreign = version.is_some_and(|version| !version.as_os_str().to_str().is_some_and(|v| versions.contains(v)));
    !for_people && !foreign
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("flying-squid/index.js", true)]
    #[case("minecraft-data/minecraft-data/data/pc", true)]
    #[case("minecraft-data/minecraft-data/data/pc/1.12/blocks.json", true)]
    #[case("minecraft-data/minecraft-data/data/pc/1.20", false)]
    #[case("rxjs/dist/index.js.map", false)]
    #[case("moment/moment.d.ts", false)]
    fn leaves_out(#[case] path: &str, #[case] want: bool) {
        assert_eq!(wanted(Path::new(path), &BTreeSet::from(["1.12".to_owned(), "common".to_owned()])), want);
    }
}
