//! Stopping, killing, freezing and restarting the cluster's components.

use super::{Cluster, Component};
use crate::process::Process;
use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use std::time::Duration;

/// The API server takes its time to say farewell; whoever stops it in a test does not want to wait for that.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// A component is back in three seconds; more on a busy machine.
const RESTART_LIMIT: Duration = Duration::from_mins(1);

impl Cluster {
    /// Stops a component in its tracks: connections stay open, nothing answers.
    pub fn freeze(&self, component: Component) -> Result<()> {
        self.on(component, Process::freeze)
    }

    /// Lets a frozen component go on.
    pub fn thaw(&self, component: Component) -> Result<()> {
        self.on(component, Process::thaw)
    }

    /// Kills a component and waits until it is gone: connections are reset.
    pub async fn kill(&self, component: Component) -> Result<()> {
        let process = self.take(component)?;
        process.kill()?;
        process.wait(STOP_LIMIT).await.map(drop)
    }

    /// Ends a component in its own way, or kills it when that takes more than ten seconds.
    pub async fn stop(&self, component: Component) -> Result<()> {
        self.take(component)?.stop(STOP_LIMIT).await.map(drop)
    }

    /// Starts a component that was stopped or killed; kills it first when it runs. Returns when the API server is ready.
    /// kwok needs the API server for its restart.
    pub async fn restart(&self, component: Component) -> Result<()> {
        if self.inner.processes.lock().contains_key(&component) {
            self.kill(component).await?;
        }
        if component == Component::Kwok {
            self.release_nodes().await?;
        }
        self.launch(component)?;
        self.api_server_ready(RESTART_LIMIT).await.map(drop)
    }

    /// A new kwok has a new name, and would wait 40 s for the leases of the old one to run out.
    async fn release_nodes(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client().await?, "kube-node-lease");
        let (how, which) = (DeleteParams::default(), ListParams::default());
        let all = leases.delete_collection(&how, &which);
        let deleted = tokio::time::timeout(STOP_LIMIT, all).await.context("the API server does not answer")?;
        deleted.context("could not delete the nodes' leases").map(drop)
    }

    /// Thaws every component that a test may have left frozen.
    pub fn thaw_all(&self) {
        for process in self.inner.processes.lock().values() {
            // What has ended needs no thawing.
            let _ = process.thaw();
        }
    }

    /// Looks at a component's process: memory, processor time, log.
    pub fn on<T>(&self, component: Component, look: impl FnOnce(&Process) -> Result<T>) -> Result<T> {
        let processes = self.inner.processes.lock();
        look(processes.get(&component).with_context(|| format!("{component} does not run"))?)
    }

    fn take(&self, component: Component) -> Result<Process> {
        let process = self.inner.processes.lock().remove(&component);
        process.with_context(|| format!("{component} does not run"))
    }
}
