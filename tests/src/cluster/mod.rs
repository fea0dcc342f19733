//! A private Kubernetes: etcd, API server, controller manager, scheduler, and kwok for nodes.

pub mod address;
pub mod audit;
pub mod authority;
mod clients;
pub mod component;
pub mod control;
pub mod directory;
mod ground;
pub mod identity;
pub mod kubeconfig;
mod nodes;
mod scheduler;

use crate::{
    args::settings,
    eventually::eventually,
    kubernetes::{self, Binaries},
    process::Process,
    target,
};
use address::Network;
use anyhow::{Context as _, Result, ensure};
use authority::Authority;
use component::Component;
use directory::Directory;
pub(crate) use ground::Ground;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::OnceCell;

/// The API server's port, at each cluster's own address.
pub const API_PORT: u16 = 6443;

/// A cluster is ready in about four seconds; beside a build on the same two cores it may take much longer.
const START_LIMIT: Duration = Duration::from_secs(90);

/// What a cluster should be like.
#[derive(Debug, Clone, Default)]
pub struct ClusterConfig {
    /// Nodes to start with.
    pub nodes: Vec<String>,
    /// Leave the directory (logs, audit log, data) after the end. `SPAWNERY_KEEP` does so for all clusters.
    pub keep: bool,
}

/// A running cluster. A copy is the same cluster; it ends with the last copy, or with our process.
#[derive(Debug, Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    binaries: Binaries,
    // Before the layout: processes end first, then the directory goes.
    processes: Mutex<BTreeMap<Component, Process>>,
    /// Serial number for files of identities and commands.
    serial: std::sync::atomic::AtomicU64,
    layout: Layout,
}

/// Where things of a cluster are.
#[derive(Debug)]
struct Layout {
    authority: Authority,
    directory: Directory,
    ground: Ground,
}

impl Layout {
    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn kubeconfig(&self, user: &str) -> PathBuf {
        self.file(&format!("{user}.kubeconfig"))
    }

    fn audit_log(&self) -> PathBuf {
        self.file("audit.log")
    }

    fn url(&self) -> String {
        format!("https://{}:{API_PORT}", self.ground.control_plane())
    }
}

impl Cluster {
    /// Starts a cluster and returns when it is usable: the API server ready, controllers at work, nodes Ready.
    ///
    /// Builds Kubernetes first when that has not happened yet.
    ///
    /// # Errors
    /// When the build fails or a component does not come up; the message holds the ends of the logs.
    pub async fn start(config: ClusterConfig) -> Result<Self> {
        let cluster = Self::prepare(Ground::Loopback(Network::claim()?), config.keep).await?;
        cluster.come_up(&config.nodes).await?;
        Ok(cluster)
    }

    /// Builds what is needed and writes all files; nothing runs yet.
    pub(crate) async fn prepare(ground: Ground, keep: bool) -> Result<Self> {
        install_crypto();
        let binaries = kubernetes::binaries().await?;
        let directory = Directory::create(&target::directory()?.join("clusters"), keep || settings().keep)?;
        let layout = Layout { authority: Authority::create()?, directory, ground };
        component::write_files(&layout)?;
        let inner = Inner { binaries, processes: Mutex::default(), serial: 0.into(), layout };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The cluster that the tests of one binary share: started by the first, ended with the process.
    pub async fn shared() -> Result<Self> {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(ClusterConfig::default())).await.cloned()
    }

    /// Starts the control plane and, on loopback, these nodes.
    pub(crate) async fn come_up(&self, nodes: &[String]) -> Result<()> {
        let started = self.start_all(nodes).await;
        started.with_context(|| format!("the cluster did not start\n{}", self.log_tails(15)))
    }

    async fn start_all(&self, nodes: &[String]) -> Result<()> {
        self.launch(Component::Etcd)?;
        self.launch(Component::ApiServer)?;
        let client = self.api_server_ready(START_LIMIT).await?;
        for component in self.inner.layout.ground.controllers() {
            self.launch(*component)?;
        }
        // The controller manager's first work that everybody needs.
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        eventually(START_LIMIT, "the default ServiceAccount", || async {
            self.all_running()?;
            Ok(accounts.get("default").await?)
        })
        .await?;
        futures::future::try_join_all(nodes.iter().map(|name| self.add_node(name))).await?;
        Ok(())
    }

    fn launch(&self, component: Component) -> Result<()> {
        let process = component::launch(component, &self.inner.binaries, &self.inner.layout).start()?;
        self.inner.processes.lock().insert(component, process);
        Ok(())
    }

    /// Waits for `/readyz`, which includes that RBAC's own roles are written.
    async fn api_server_ready(&self, limit: Duration) -> Result<kube::Client> {
        let client = self.client().await?;
        let request = || http::Request::get("/readyz").body(Vec::new()).context("not a request");
        eventually(limit, "the API server", || async {
            self.all_running()?;
            let answer = tokio::time::timeout(Duration::from_secs(2), client.request_text(request()?)).await;
            answer.context("no answer in 2 s")?.context("not ready").map(drop)
        })
        .await?;
        Ok(client)
    }

    fn all_running(&self) -> Result<()> {
        for (component, process) in &*self.inner.processes.lock() {
            ensure!(process.is_running(), "{component} has ended: {:?}", process.exit_status());
        }
        Ok(())
    }

    /// Where the control plane listens: 127.X.255.1, where X is this cluster's alone, or 10.77.0.1 beside real nodes.
    pub fn address(&self) -> Ipv4Addr {
        self.inner.layout.ground.control_plane()
    }

    /// An address that nobody else has, for a process beside the cluster; all its ports are free.
    pub fn free_address(&self) -> Ipv4Addr {
        self.inner.layout.ground.free_address()
    }

    /// The API server's URL.
    pub fn url(&self) -> String {
        self.inner.layout.url()
    }

    /// The certificate of the API server's CA.
    pub fn ca_pem(&self) -> &str {
        self.inner.layout.authority.pem()
    }

    /// The file that holds the API server's CA.
    pub fn ca_file(&self) -> PathBuf {
        self.inner.layout.file("ca.crt")
    }

    /// The admin's kubeconfig file.
    pub fn kubeconfig(&self) -> PathBuf {
        self.inner.layout.kubeconfig(component::ADMIN)
    }

    /// The cluster's directory, removed at its end.
    pub fn directory(&self) -> &Path {
        self.inner.layout.directory.path()
    }

    /// Where each process has its log. On a failure the ends of all `*.log` there are printed.
    pub fn log_dir(&self) -> PathBuf {
        self.inner.layout.directory.logs()
    }

    /// What was asked of the API server, by whom.
    pub fn audit(&self) -> audit::Audit {
        audit::Audit::new(self.inner.layout.audit_log())
    }

    /// Where kubectl, helm and kwok are.
    pub fn binaries(&self) -> &Binaries {
        &self.inner.binaries
    }

    /// The ends of all logs: so many lines of each, and a few of what the cluster's own components say.
    pub fn log_tails(&self, lines: usize) -> String {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(self.log_dir()).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "log"));
        paths.sort();
        let tails = paths.iter().map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let component = Component::ALL.iter().any(|component| component.name() == name);
            let lines = if component { lines.min(10) } else { lines };
            format!("--- log of {name}\n{}\n", crate::process::tail(path, lines))
        });
        tails.collect()
    }

    /// A certificate of the cluster's CA for a server at this address.
    pub fn issue(&self, address: Ipv4Addr) -> Result<authority::Leaf> {
        self.inner.layout.authority.issue(&[], &[address])
    }

    /// A kubeconfig among the cluster's files, by the name of its user's file.
    pub(crate) fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.inner.layout.kubeconfig(user)
    }

    fn serial(&self) -> u64 {
        self.inner.serial.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let processes = self.processes.get_mut();
        // All at once, so that the wait is for the slowest and not for the sum. Nothing here is worth a farewell.
        for process in processes.values() {
            // A process that cannot be killed has ended.
            let _ = process.kill();
        }
        processes.clear();
    }
}

/// One crypto provider for all TLS in this process; whoever came first has installed the same one.
fn install_crypto() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
