//! Where somebody sits who follows the documentation: a folder, a shell, and the cluster's tools on the `PATH`.

use super::{Lobbies, Page, network};
use crate::{Cluster, Launch, Process, command::run, eventually::eventually, target};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use spawnery_api::names::{label, port};
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    time::{Duration, Instant},
};

/// The page that is followed.
const PAGE: &str = "getting-started.md";
/// Where the page installs Spawnery.
pub const OPERATOR_NAMESPACE: &str = "spawnery-system";
/// Where the page's network is.
pub const NAMESPACE: &str = "minecraft";
/// No section takes a quarter of that on two idle cores.
const SECTION_LIMIT: Duration = Duration::from_mins(5);
/// Replicas that start beside a build.
const READY_LIMIT: Duration = Duration::from_mins(2);

/// The folder, and whoever types there.
#[derive(Debug, Clone)]
pub struct Ground {
    cluster: Cluster,
    directory: PathBuf,
    page: Page,
}

impl Ground {
    /// A folder with the chart, and the example as this cluster needs it.
    ///
    /// # Errors
    /// When the page or the example is not as it is read here.
    pub fn prepare(cluster: &Cluster, lobbies: Lobbies) -> Result<Self> {
        let directory = cluster.directory().join("ground");
        let examples = directory.join("examples");
        fs::create_dir_all(&examples).with_context(|| format!("could not make {}", examples.display()))?;
        symlink(target::workspace().join("charts"), directory.join("charts")).context("could not link the chart")?;
        fs::write(examples.join("network.yaml"), network::manifests(lobbies)?)
            .context("could not write the example")?;
        Ok(Self { cluster: cluster.clone(), directory, page: Page::read(PAGE)? })
    }

    /// The page.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// Types the commands of a section, which must all succeed.
    ///
    /// # Errors
    /// When one does not; holds what it said.
    pub async fn follow(&self, section: &str) -> Result<String> {
        let output = run(&self.shell(section)?, None, SECTION_LIMIT).await?;
        ensure!(output.ok(), "the commands under {section:?} end with {}\n{}", output.status, output.all());
        Ok(output.stdout)
    }

    /// Starts to type the commands of a section; it goes on beside the test.
    ///
    /// # Errors
    /// When the shell cannot be started.
    pub fn begin(&self, section: &str) -> Result<Process> {
        let log = section.to_lowercase().replace(' ', "-");
        self.shell(section)?.log(self.cluster.log_dir().join(format!("{log}.log"))).start()
    }

    /// Applies a file of the folder.
    ///
    /// # Errors
    /// When the API server refuses something.
    pub async fn apply(&self, file: &str, namespace: &str) -> Result<()> {
        let file = self.directory.join(file).display().to_string();
        self.cluster.kubectl(["apply", "-n", namespace, "-f", &file]).await?.stdout().map(drop)
    }

    fn shell(&self, section: &str) -> Result<Launch> {
        let script = &self.page.section(section)?.script;
        Ok(self.here(Launch::new("sh", "sh").args(["-euxc", script])))
    }

    fn here(&self, launch: Launch) -> Launch {
        let helm = self.directory.join("helm");
        let mut path = OsString::from(self.cluster.binaries().directory());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        launch
            .directory(&self.directory)
            .env("PATH", path)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("KUBERC", "off")
            .env("KUBECACHEDIR", self.directory.join("kubectl-cache"))
            .env("HELM_CACHE_HOME", helm.join("cache"))
            .env("HELM_CONFIG_HOME", helm.join("config"))
            .env("HELM_DATA_HOME", helm.join("data"))
    }

    /// The metrics of all pods of a part (`webhook`, `reconciler`, `extender`), one after another.
    ///
    /// # Errors
    /// When one does not say.
    pub async fn metrics(&self, part: &str) -> Result<String> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().await?, OPERATOR_NAMESPACE);
        let selector = format!("{}={part}", label::PART);
        let mut metrics = String::new();
        for pod in pods.list(&ListParams::default().labels(&selector)).await? {
            let name = pod.name_any();
            let path = format!("/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{name}:{}/proxy/metrics", port::METRICS);
            metrics.push_str(&self.cluster.kubectl(["get", "--raw", &path]).await?.stdout()?);
        }
        ensure!(!metrics.is_empty(), "no pod of part {part} has metrics");
        Ok(metrics)
    }

    /// The sum of a counter over all its labels and all pods of a part.
    ///
    /// # Errors
    /// When a pod has no metrics.
    pub async fn counted(&self, part: &str, counter: &str) -> Result<u64> {
        self.counted_with(part, counter, "").await
    }

    /// The same where its labels hold this text, such as `endpoint="validate"`.
    ///
    /// # Errors
    /// When a pod has no metrics.
    pub async fn counted_with(&self, part: &str, counter: &str, labels: &str) -> Result<u64> {
        let metrics = self.metrics(part).await?;
        let of = metrics.lines().filter(|line| {
            let rest = line.strip_prefix(counter);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
        });
        Ok(of.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    /// Waits until every pod of ours is Ready and none is on its way out; returns when that was seen.
    ///
    /// # Errors
    /// Names the pods that are not.
    pub async fn all_ready(&self) -> Result<Instant> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().await?, OPERATOR_NAMESPACE);
        eventually(READY_LIMIT, "all pods of ours to be Ready", || async {
            let pods = pods.list(&ListParams::default().labels(label::PART)).await?;
            let waiting: Vec<String> = pods.iter().filter(|pod| !is_ready(pod)).map(ResourceExt::name_any).collect();
            ensure!(waiting.is_empty() && !pods.items.is_empty(), "not Ready of {}: {waiting:?}", pods.items.len());
            Ok(Instant::now())
        })
        .await
    }
}

/// Whether it is Ready and not on its way out.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}
