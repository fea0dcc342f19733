//! Clients of the cluster: Rust, kubectl, helm.

use super::{Cluster, kubeconfig};
use crate::{
    command::{Output, run},
    launch::Launch,
    process::Process,
};
use anyhow::{Context as _, Result};
use std::{ffi::OsStr, path::Path, time::Duration};

/// Commands that are meant to end; a drain that waits for players is started with `kubectl_spawn`.
const COMMAND_LIMIT: Duration = Duration::from_mins(2);

impl Cluster {
    /// An admin's client; a new one each time, as a client belongs to the tokio runtime that it was made in.
    pub async fn client(&self) -> Result<kube::Client> {
        kubeconfig::client(&self.kubeconfig()).await
    }

    /// Runs kubectl as admin, to its end.
    pub async fn kubectl<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Output> {
        self.kubectl_as(&self.kubeconfig(), args).await
    }

    /// Runs kubectl with this kubeconfig, to its end.
    pub async fn kubectl_as<A: AsRef<OsStr>>(
        &self,
        kubeconfig: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Output> {
        run(&self.kubectl_launch(kubeconfig).args(args), None, COMMAND_LIMIT).await
    }

    /// Starts kubectl as admin; it goes on beside the test. Its output is `NAME.log` among the logs.
    pub fn kubectl_spawn<A: AsRef<OsStr>>(&self, name: &str, args: impl IntoIterator<Item = A>) -> Result<Process> {
        let log = self.log_dir().join(format!("{name}.log"));
        self.kubectl_launch(&self.kubeconfig()).args(args).log(log).start()
    }

    /// Applies manifests, which must be accepted, as admin.
    pub async fn apply(&self, manifests: &str) -> Result<()> {
        self.try_apply(manifests).await?.stdout().map(drop)
    }

    /// Applies manifests on the server's side, which must be accepted, as admin. For objects that are too long for the
    /// annotation that kubectl otherwise leaves.
    pub async fn apply_server_side(&self, manifests: &str) -> Result<()> {
        let kubectl = self.kubectl_launch(&self.kubeconfig()).args(["apply", "--server-side", "-f", "-"]);
        run(&kubectl, Some(manifests), COMMAND_LIMIT).await?.stdout().map(drop)
    }

    /// Applies manifests as admin and says what kubectl said.
    pub async fn try_apply(&self, manifests: &str) -> Result<Output> {
        let kubectl = self.kubectl_launch(&self.kubeconfig()).args(["apply", "-f", "-"]);
        run(&kubectl, Some(manifests), COMMAND_LIMIT).await
    }

    /// Runs helm as admin, to its end. Its caches are the cluster's own.
    pub async fn helm<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Output> {
        let home = self.directory().join("helm");
        std::fs::create_dir_all(&home).context("could not make helm's home")?;
        let helm = Launch::new("helm", self.binaries().helm())
            .env("KUBECONFIG", self.kubeconfig())
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"));
        run(&helm.args(args), None, COMMAND_LIMIT).await
    }

    fn kubectl_launch(&self, kubeconfig: &Path) -> Launch {
        Launch::new("kubectl", self.binaries().kubectl())
            .env("KUBECONFIG", kubeconfig)
            // A person's own preferences and cache stay out of it.
            .env("KUBERC", "off")
            .env("KUBECACHEDIR", self.directory().join("kubectl-cache"))
    }
}
