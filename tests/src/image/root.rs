//! An image unpacked: what its first process sees, and nothing else of the machine.

use super::{NONROOT, product};
use crate::{Launch, command::run, target};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;

/// A program says within milliseconds what it can do.
const HELP_LIMIT: Duration = Duration::from_secs(20);

/// A root directory; gone when this is dropped.
#[derive(Debug)]
pub struct Root {
    directory: TempDir,
}

impl Root {
    /// Unpacks the first image of an archive.
    ///
    /// # Errors
    /// When the archive is none of ours, or the disk is full.
    pub fn unpack(archive: &[u8]) -> Result<Self> {
        let files = files(archive).context("could not read the archive")?;
        let index: Value = serde_json::from_slice(file(&files, "index.json")?)?;
        let first = index.pointer("/manifests/0").context("an archive without an image")?;
        let manifest: Value = serde_json::from_slice(file(&files, &blob(first)?)?)?;
        // A runner's temporary directory may lie on a disk that refuses programs; the target directory does not.
        let directory = tempfile::tempdir_in(target::directory()?).context("could not make a root directory")?;
        for layer in manifest.get("layers").and_then(Value::as_array).context("an image without layers")? {
            let layer = file(&files, &blob(layer)?)?;
            tar::Archive::new(layer).unpack(directory.path()).context("could not unpack a layer")?;
        }
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        Ok(Self { directory })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Where a path of the image is.
    pub fn file(&self, path: &str) -> PathBuf {
        self.path().join(path.trim_start_matches('/'))
    }

    /// A program in it, and as the user that images name where we may choose.
    pub fn launch(&self, program: &str) -> Launch {
        let launch = if rustix::process::getuid().is_root() {
            Launch::new(program, "chroot").arg(format!("--userspec={NONROOT}:{NONROOT}"))
        } else {
            Launch::new(program, "unshare").args(["--user", "--map-root-user", "chroot"])
        };
        launch.arg(self.path()).arg(program).env_clear()
    }

    /// Starts each program that the chart, probes and games start, asks it for help, and returns their names.
    ///
    /// # Errors
    /// When one does not start, or is another.
    pub async fn all_start(&self) -> Result<Vec<&'static str>> {
        let mut started = Vec::new();
        for name in product::PROGRAMS.iter().flat_map(product::Program::names).copied() {
            let help = self.launch(&format!("{}/{name}", product::FOLDER)).arg("--help");
            let output = run(&help, None, HELP_LIMIT).await?;
            // The probe knows no such flag and says with 2 which ones it does know; 126, 127 and signals are not ours.
            let started_at_all = matches!(output.status.code(), Some(0 | 2));
            ensure!(started_at_all, "{name} ends with {}\n{}", output.status, output.all());
            ensure!(output.all().contains(name), "{name} says\n{}", output.all());
            started.push(name);
        }
        Ok(started)
    }
}

/// The archive's files by name.
fn files(archive: &[u8]) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents)?;
        files.insert(entry.path()?.to_string_lossy().into_owned(), contents);
    }
    Ok(files)
}

fn file<'a>(files: &'a BTreeMap<String, Vec<u8>>, name: &str) -> Result<&'a [u8]> {
    files.get(name).map(Vec::as_slice).with_context(|| format!("the archive has no {name}"))
}

/// Where the archive has what a descriptor describes.
fn blob(descriptor: &Value) -> Result<String> {
    let digest = descriptor.get("digest").and_then(Value::as_str).context("a descriptor without digest")?;
    Ok(format!("blobs/{}", digest.replace(':', "/")))
}
