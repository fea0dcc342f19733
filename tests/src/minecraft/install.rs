//! The npm folder: installed once for each state of the lock file.

use crate::{Launch, command::run, target};
use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// What decides over the installation.
const INPUTS: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
/// `npm ci` takes 25 s on two cores; a slow network takes longer.
const INSTALL_LIMIT: Duration = Duration::from_mins(10);
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// What the packages run on.
const NODE_MAJOR: u32 = 20;
/// Data of another edition of the game, most of what `npm ci` brings, which nothing here reads but its common part.
const BEDROCK: &str = "node_modules/minecraft-data/minecraft-data/data/bedrock";

/// An installed npm folder.
#[derive(Debug, Clone)]
pub struct Installation {
    /// Our scripts.
    scripts: PathBuf,
    modules: PathBuf,
}

impl Installation {
    /// Whether [`Installation::ensure`] has nothing to do.
    pub fn exists() -> Result<bool> {
        Ok(place()?.is_dir())
    }

    /// Installs the packages unless that has been done for this state of the lock file.
    ///
    /// # Errors
    /// When Node is missing or too old, or npm cannot get a package.
    pub async fn ensure() -> Result<Self> {
        check_node().await?;
        let place = place()?;
        if !place.is_dir() {
            install(&place).await.context("could not install the Minecraft parts")?;
        }
        Ok(Self { scripts: sources(), modules: place.join("node_modules") })
    }

    /// A server called `name`.
    pub fn server(&self, name: &str, address: SocketAddr, slots: u32) -> Launch {
        self.script(name, self.server_script())
            .args(["--name", name])
            .args(listen(address))
            .args(["--slots", &slots.to_string()])
    }

    /// A proxy that follows the agent at `api`.
    pub fn proxy(
        &self,
        name: &str,
        address: SocketAddr,
        slots: u32,
        api: SocketAddr,
        fallback_groups: &[String],
    ) -> Launch {
        let api = format!("http://{api}");
        let groups = fallback_groups.join(",");
        self.script(name, self.proxy_script()).args(listen(address)).args([
            "--slots",
            &slots.to_string(),
            "--api",
            &api,
            "--fallback-groups",
            &groups,
        ])
    }

    pub(super) fn bots(&self) -> PathBuf {
        self.scripts.join("bots.js")
    }

    pub(crate) fn server_script(&self) -> PathBuf {
        self.scripts.join("server.js")
    }

    pub(crate) fn proxy_script(&self) -> PathBuf {
        self.scripts.join("proxy.js")
    }

    pub(crate) fn modules(&self) -> &Path {
        &self.modules
    }

    fn script(&self, name: &str, script: PathBuf) -> Launch {
        Launch::new(name, "node").arg(script).env("NODE_PATH", &self.modules)
    }
}

fn listen(address: SocketAddr) -> [String; 4] {
    ["--host".to_owned(), address.ip().to_string(), "--port".to_owned(), address.port().to_string()]
}

fn sources() -> PathBuf {
    target::workspace().join("tests/minecraft")
}

/// Where the packages of this state of the lock file are.
fn place() -> Result<PathBuf> {
    let mut hash = Sha256::new();
    for name in INPUTS {
        let path = sources().join(name);
        hash.update(fs::read(&path).with_context(|| format!("could not read {}", path.display()))?);
    }
    // Half of it: nobody attacks, it only has to differ.
    let key = hash.finalize().iter().take(8).fold(0_u64, |key, byte| key << 8 | u64::from(*byte));
    Ok(target::directory()?.join("minecraft").join(format!("{key:016x}")))
}

async fn check_node() -> Result<()> {
    let node = Launch::new("node", "node").arg("--version");
    let version = run(&node, None, VERSION_LIMIT).await?.stdout();
    let version =
        version.with_context(|| format!("Minecraft needs Node {NODE_MAJOR} or newer, with npm, on the PATH"))?;
    let major = version.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    ensure!(major >= Some(NODE_MAJOR), "Minecraft needs Node {NODE_MAJOR} or newer, and this is {version}");
    Ok(())
}

async fn install(place: &Path) -> Result<()> {
    let parent = place.parent().context("the target directory has no parent")?;
    fs::create_dir_all(parent).with_context(|| format!("could not make {}", parent.display()))?;
    // Beside the final place, so that the rename is one step and two installations do not meet.
    let fresh = tempfile::tempdir_in(parent).context("could not make a directory to install in")?;
    for name in INPUTS {
        fs::copy(sources().join(name), fresh.path().join(name)).with_context(|| format!("could not copy {name}"))?;
    }
    let npm = Launch::new("npm", "npm").args(["ci", "--no-progress"]).directory(fresh.path());
    run(&npm, None, INSTALL_LIMIT).await?.stdout()?;
    trim(&fresh.path().join(BEDROCK))?;
    match fs::rename(fresh.keep(), place) {
        // Somebody else was faster; theirs is as good.
        Err(_) if place.is_dir() => Ok(()),
        renamed => renamed.with_context(|| format!("could not move the packages to {}", place.display())),
    }
}

fn trim(bedrock: &Path) -> Result<()> {
    let entries = fs::read_dir(bedrock).with_context(|| format!("could not read {}", bedrock.display()))?;
    for entry in entries {
        let path = entry.context("could not list the data")?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "common") {
            fs::remove_dir_all(&path).with_context(|| format!("could not remove {}", path.display()))?;
        }
    }
    Ok(())
}
