//! The images of the tests of record, under the names by which users have them.

use crate::{
    image::{Archive, Image, Layer, Tree, games, product},
    kubernetes, target,
};
use anyhow::{Context as _, Result};
use std::{path::PathBuf, sync::Arc};

/// The tag of the other image of ours that an upgrade goes to.
pub const OTHER_TAG: &str = "next";
/// As the chart calls it, with the version of the cluster.
const SCHEDULER: &str = "registry.k8s.io/kube-scheduler";
/// Where that image has its program.
const FOLDER: &str = "/usr/local/bin";

/// Images as archives, built before a cluster starts.
#[derive(Debug, Clone)]
pub struct Images {
    archives: Vec<PathBuf>,
}

impl Images {
    /// Builds ours and the games'.
    ///
    /// # Errors
    /// When a build fails.
    pub async fn build(profile: &str) -> Result<Self> {
        let ours = product::archive(&product::default_name()?, profile).await?;
        Ok(Self { archives: vec![ours, games::archive(profile).await?] })
    }

    /// With ours once more, for an upgrade.
    ///
    /// # Errors
    /// When a build fails.
    pub async fn with_upgrade(mut self, profile: &str) -> Result<Self> {
        let first = product::default_name()?;
        let (repository, _) = first.rsplit_once(':').context("the chart's image has no tag")?;
        self.archives.push(product::archive(&format!("{repository}:{OTHER_TAG}"), profile).await?);
        Ok(self)
    }

    /// With the scheduler of these nodes' Kubernetes too.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn with_scheduler(mut self) -> Result<Self> {
        let name = format!("{SCHEDULER}:v{}", kubernetes::VERSION);
        let path = target::directory()?.join("images/kube-scheduler.tar");
        let binary = kubernetes::binaries().await?.directory().join("k8s");
        // What the one binary does, it knows by the name that it is called by.
        let tree = Tree::base().program(&binary, &format!("{FOLDER}/k8s")).await?;
        let tree = tree.link(&format!("{FOLDER}/kube-scheduler"), "k8s");
        let to = path.clone();
        let write = move || {
            let image = Image::new(name, [Arc::new(Layer::write(&tree)?)]).env("PATH", FOLDER);
            Archive::write(&to, &[image])
        };
        tokio::task::spawn_blocking(write).await.context("the writer of images is gone")??;
        self.archives.push(path);
        Ok(self)
    }

    /// The archives.
    pub fn into_archives(self) -> Vec<PathBuf> {
        self.archives
    }
}
