//! The images that every cluster with real nodes has: the pods' sandbox and CoreDNS.

use super::{binaries::Binaries, config::PAUSE_IMAGE, dns};
use crate::{
    image::{Archive, Image, Layer, Tree},
    target,
};
use anyhow::{Context as _, Result};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The archives; written when they are not there, or older than this program, which may write them in another way.
pub(super) async fn standard(binaries: &Binaries) -> Result<Vec<PathBuf>> {
    let folder = target::directory()?.join("nodes/images");
    std::fs::create_dir_all(&folder).with_context(|| format!("could not make {}", folder.display()))?;
    let images = [("pause", PAUSE_IMAGE, binaries.pause()), ("coredns", dns::IMAGE, binaries.coredns())];
    let write = move || images.iter().map(|(file, name, binary)| write(&folder, file, name, binary)).collect();
    tokio::task::spawn_blocking(write).await.context("the writer of images is gone")?
}

/// An image of one static binary. Clusters that start at the same time write the same bytes, each to a file of its own first.
fn write(folder: &Path, file: &str, name: &str, binary: &Path) -> Result<PathBuf> {
    // Whoever built the binary named its folder after all that decides about it.
    let key = binary.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
    let path = folder.join(format!("{file}-{key}.tar"));
    let program = std::env::current_exe().context("could not find the running executable")?;
    let written = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    // Without an archive there is no time, and that comes before all others.
    if written(&path) < written(&program) {
        let entry = format!("/{file}");
        let layer = Layer::write(&Tree::base().copy(binary, &entry, 0o755))?;
        Archive::write(&path, &[Image::new(name, [Arc::new(layer)]).entrypoint([entry])])?;
    }
    Ok(path)
}
