//! Images of containers, written without a container engine or a registry.
//!
//! ```text
//!  files ──► Tree ──► Layer (a tar, hashed while written) ─┐
//!                     Layer ───────────────────────────────┴─► Image ──┐
//!                                                              Image ──┴─► Archive (an OCI layout in a tar)
//! ```
//!
//! An archive depends on nothing but what is put into it: the same contents give the same bytes, and so the same digest.
//! `ctr image import`, `docker load`, `podman load`, `kind load image-archive` and `skopeo copy oci-archive:` take it.

mod archive;
pub mod games;
mod layer;
mod linked;
pub mod product;
mod root;
mod tree;

pub use archive::{Archive, Image};
pub use layer::Layer;
pub use linked::libraries;
pub use root::Root;
pub use tree::Tree;

use crate::target;
use anyhow::{Context as _, Result};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The user that images of ours run as, without a name that anything depends on: what a pod security policy sees.
pub const NONROOT: u32 = 65532;

/// Writes an archive with one program of this machine, `from`, that starts as `words` say; its libraries come with it.
/// The archive lies below `target/images`.
///
/// # Errors
/// When a library is missing or the disk is full.
pub async fn single(name: &str, from: &Path, words: &[&str]) -> Result<PathBuf> {
    let program = words.first().context("an image of one program starts it")?;
    let tree = Tree::base().program(from, program).await?;
    let path = place(name)?;
    let image = Image::new(name, [Arc::new(tokio::task::spawn_blocking(move || Layer::write(&tree)).await??)]);
    Archive::write(&path, &[image.entrypoint(words.iter().copied())])?;
    Ok(path)
}

/// Where the archive of the image of this name lies.
fn place(name: &str) -> Result<PathBuf> {
    let file = name.replace(['/', ':'], "-");
    Ok(target::directory()?.join("images").join(format!("{file}.tar")))
}
