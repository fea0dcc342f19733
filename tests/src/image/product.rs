//! Spawnery's own image: our programs and nothing that could run anything else.
//!
//! The programs are linked statically. So the image needs no C library, and `spawnery-agent` and `spawnery-slp` can be
//! copied into any game's image, whatever C library that one has. glibc looks up files and DNS without loading anything
//! since 2.34; `/etc/nsswitch.conf` asks for nothing else.

use super::{Archive, Image, Layer, Tree, linked::libraries};
use crate::{Launch, args::settings, command::run, target};
use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The cargo profile of what users run.
pub const PROFILE: &str = "image";
/// Where programs are in images: the chart and the probes of pods call them by these paths.
pub const FOLDER: &str = "/usr/local/bin";
/// An empty target directory takes about ten minutes on two cores that do nothing else.
const BUILD_LIMIT: Duration = Duration::from_mins(40);
/// Where systems keep the certificates of public authorities: Debian and Alpine, Fedora.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
/// Where programs look for them first.
const AUTHORITIES_IN_IMAGE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A file with a program of ours, or with several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// The package that it comes from.
    package: &'static str,
    /// The file's name.
    file: &'static str,
    /// Other names, by which the file knows what it is to be.
    links: &'static [&'static str],
}

/// Reports from inside a game's pod: games' images hold it too.
pub const AGENT: Program = Program { package: "spawnery-agent", file: "spawnery-agent", links: &[] };
/// The readiness probe of games' pods.
pub const PROBE: Program = Program { package: "spawnery-agent", file: "spawnery-slp", links: &[] };
/// The parts that run once in a cluster.
const PARTS: Program = Program {
    package: "spawnery-image",
    file: "spawnery",
    links: &["spawnery-extender", "spawnery-reconciler", "spawnery-webhook"],
};
/// What the image holds.
pub const PROGRAMS: [Program; 3] = [PARTS, AGENT, PROBE];

impl Program {
    /// Where it is in an image.
    pub fn path(&self) -> String {
        format!("{FOLDER}/{}", self.file)
    }

    /// The names by which it is started.
    pub fn names(&self) -> &[&'static str] {
        if self.links.is_empty() { std::slice::from_ref(&self.file) } else { self.links }
    }

    /// Builds it with this profile, linked statically, and puts it into a tree. `target` is cargo's target directory.
    ///
    /// # Errors
    /// When cargo cannot build it, or no static C library is installed.
    pub async fn install(&self, tree: Tree, profile: &str, target: &Path) -> Result<Tree> {
        let tree = tree.copy(self.build(profile, target).await?, &self.path(), 0o755);
        Ok(self.links.iter().fold(tree, |tree, link| tree.link(&format!("{FOLDER}/{link}"), self.file)))
    }

    /// Links it into a place of its own. Where cargo puts it, a build for other tests may at any moment put the same
    /// program linked dynamically.
    async fn build(&self, profile: &str, target: &Path) -> Result<PathBuf> {
        let folder = target.join(target::profile_folder(profile));
        fs::create_dir_all(folder.join("image"))?;
        let path = folder.join("image").join(self.file);
        let mut cargo = Launch::new("cargo", &settings().cargo).args(["rustc", "--quiet", "--package", self.package]);
        cargo = cargo.args(["--bin", self.file, "--profile", profile, "--target-dir"]).arg(target);
        // For the last step alone: what is compiled before it serves other builds of this profile too.
        cargo = cargo.args(["--", "-C", "target-feature=+crt-static", "-C", "strip=symbols"]);
        let turn = target::turn(&folder).await?;
        let built = run(&cargo.directory(target::workspace()), None, BUILD_LIMIT).await?.stdout();
        let needs = "a static C library: libc6-dev of Debian, glibc-static of Fedora";
        built.with_context(|| format!("could not build {}; besides a C compiler it needs {needs}", self.file))?;
        place(&folder.join(self.file), &path).with_context(|| format!("could not write {}", path.display()))?;
        drop(turn);
        let needs = libraries(&path).await?;
        ensure!(needs.is_empty(), "{} needs libraries that the image does not have: {needs:?}", path.display());
        Ok(path)
    }
}

/// Copies a file in one step for those who read it meanwhile.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    let part = to.with_extension("part");
    fs::copy(from, &part)?;
    fs::rename(part, to)
}

/// Builds the programs in cargo's target directory `target` and gives the image, called `name`.
///
/// # Errors
/// When a program cannot be built.
pub async fn image(name: &str, profile: &str, target: &Path) -> Result<Image> {
    let mut tree = Tree::base().copy(authorities()?, AUTHORITIES_IN_IMAGE, 0o644);
    for program in PROGRAMS {
        tree = program.install(tree, profile, target).await?;
    }
    let layer = tokio::task::spawn_blocking(move || Layer::write(&tree)).await??;
    Ok(Image::new(name, [Arc::new(layer)])
        .label("org.opencontainers.image.source", env!("CARGO_PKG_REPOSITORY"))
        .label("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE"))
        .label("org.opencontainers.image.version", env!("CARGO_PKG_VERSION")))
}

/// Builds the image and writes its archive below `target/images`.
///
/// # Errors
/// When a program cannot be built or the disk is full.
pub async fn archive(name: &str, profile: &str) -> Result<PathBuf> {
    let path = super::place(name)?;
    Archive::write(&path, &[image(name, profile, &target::directory()?).await?])?;
    Ok(path)
}

/// The name that the chart installs unless its values say otherwise.
///
/// # Errors
/// When the chart cannot be read.
pub fn default_name() -> Result<String> {
    /// The chart's defaults, as far as they name the image.
    #[derive(Deserialize)]
    struct Values {
        image: Named,
    }
    #[derive(Deserialize)]
    struct Named {
        repository: String,
        tag: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Chart {
        app_version: String,
    }
    let Named { repository, tag } = chart::<Values>("values.yaml")?.image;
    let tag = if tag.is_empty() { chart::<Chart>("Chart.yaml")?.app_version } else { tag };
    Ok(format!("{repository}:{tag}"))
}

fn chart<T: DeserializeOwned>(file: &str) -> Result<T> {
    let path = target::workspace().join("charts/spawnery").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("could not understand {}", path.display()))
}

fn authorities() -> Result<&'static Path> {
    match AUTHORITIES.iter().map(Path::new).find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => bail!("the certificates of public authorities are in none of {AUTHORITIES:?}; install ca-certificates"),
    }
}
