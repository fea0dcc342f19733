//! A node: a machine made of namespaces, with containerd, kubelet and kube-proxy on it.

use super::{
    binaries::Binaries,
    cgroups::NodeGroups,
    config::Files,
    network::{Place, PrivateNetwork},
};
use crate::{Cluster, Launch, Output, Process, command::run, eventually::eventually, target};
use anyhow::{Context as _, Result, bail, ensure};
use std::{
    ffi::OsStr,
    net::Ipv4Addr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Mutex;

/// Namespaces and mounts take a tenth of a second; more on a busy machine.
const BOOT_LIMIT: Duration = Duration::from_secs(30);
/// Containers, shims and all end with the first process; the kernel frees their memory first.
const DEATH_LIMIT: Duration = Duration::from_secs(20);
/// An archive of 200 MB takes a second or two.
const IMPORT_LIMIT: Duration = Duration::from_mins(2);
/// For what a test runs on a node by hand.
const COMMAND_LIMIT: Duration = Duration::from_mins(1);

/// Joins control groups (how many, then their folders), and becomes what follows.
const JOIN: &str =
    r#"n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 >"$1/cgroup.procs"; shift; n=$((n-1)); done; exec "$@""#;
/// Finds programs in one folder more.
const FIND: &str = r#"PATH=$1:$PATH; shift; exec "$@""#;

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    name: String,
    place: Place,
    others: Vec<Place>,
    cluster: Cluster,
    binaries: Binaries,
    network: Arc<PrivateNetwork>,
    groups: NodeGroups,
    files: Files,
    running: Mutex<Running>,
}

/// What runs on it. Whatever is not there is off.
#[derive(Debug, Default)]
struct Running {
    /// The outermost process of the namespaces: the node's first process dies with it, and all others with that.
    machine: Option<Process>,
    containerd: Option<Process>,
    kubelet: Option<Process>,
    kube_proxy: Option<Process>,
}

impl Node {
    pub(super) fn new(
        (name, place, others): (&str, Place, Vec<Place>),
        cluster: &Cluster,
        binaries: &Binaries,
        network: &Arc<PrivateNetwork>,
        groups: NodeGroups,
    ) -> Result<Self> {
        let files = Files { disk: cluster.directory().join(name) };
        files.write(name, place, binaries, cluster)?;
        Ok(Self {
            name: name.to_owned(),
            place,
            others,
            cluster: cluster.clone(),
            binaries: binaries.clone(),
            network: Arc::clone(network),
            groups,
            files,
            running: Mutex::default(),
        })
    }

    /// Its name, `node-a` or `node-b`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address, at which node ports and host ports answer.
    pub fn address(&self) -> Ipv4Addr {
        self.place.address()
    }

    /// Ends it as a power cut does: every process on it is gone, nobody says farewell, the disk stays.
    ///
    /// # Errors
    /// When something outlives it, or it was off.
    pub async fn crash(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        let Some(machine) = running.machine.take() else { bail!("{} is off", self.name) };
        machine.kill()?;
        machine.wait(DEATH_LIMIT).await?;
        // They were on it, and have ended.
        *running = Running::default();
        self.network.pull_out(self.place).await?;
        // Groups can be removed when nothing is in them any more. A machine that boots has none either.
        eventually(DEATH_LIMIT, &format!("everything on {} to be gone", self.name), || async { self.groups.clear() })
            .await
    }

    /// Switches it on: returns when kubelet and kube-proxy have been started. [`super::RealCluster::ready`] waits for the node.
    ///
    /// # Errors
    /// When it is on, or does not come up.
    pub async fn boot(&self) -> Result<()> {
        self.power_on().await?;
        self.start_kubelet().await?;
        self.start_kube_proxy().await
    }

    /// Namespaces, network and containerd.
    pub(super) async fn power_on(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        ensure!(running.machine.is_none(), "{} is on", self.name);
        let booted = self.files.file("booted");
        self.groups.make()?;
        // It is not there on the first boot.
        let _ = std::fs::remove_file(&booted);
        let machine = self.machine()?.start()?;
        eventually(BOOT_LIMIT, &format!("{} to boot", self.name), || async {
            ensure!(machine.is_running(), "its first process has ended\n{}", machine.tail(10));
            ensure!(booted.exists(), "still booting\n{}", machine.tail(10));
            Ok(())
        })
        .await?;
        self.network.plug_in(self.place, machine.pid(), &self.others).await?;
        let containerd = self.on(&machine, "containerd", "containerd");
        let containerd = self.logged(containerd.arg("--config").arg(self.files.file("containerd.toml"))).start()?;
        let socket = PathBuf::from(format!("/proc/{}/root/run/containerd/containerd.sock", first_process(&machine)?));
        eventually(BOOT_LIMIT, &format!("containerd on {}", self.name), || async {
            ensure!(containerd.is_running(), "it has ended\n{}", containerd.tail(10));
            UnixStream::connect(&socket).with_context(|| format!("no answer\n{}", containerd.tail(10))).map(drop)
        })
        .await?;
        running.machine = Some(machine);
        running.containerd = Some(containerd);
        Ok(())
    }

    /// Imports an image from an OCI archive.
    ///
    /// # Errors
    /// When containerd does not take it.
    pub async fn import(&self, archive: &Path) -> Result<()> {
        let ctr = {
            let running = self.running.lock().await;
            let machine = running.machine.as_ref().with_context(|| format!("{} is off", self.name))?;
            self.on(machine, "ctr", "ctr").args(["--namespace", "k8s.io", "images", "import"]).arg(archive)
        };
        let output = run(&ctr, None, IMPORT_LIMIT).await?;
        output.stdout().map(drop).with_context(|| format!("could not import {} on {}", archive.display(), self.name))
    }

    /// Runs a command on the node, among its own processes, to its end.
    ///
    /// # Errors
    /// When the node is off or the command does not end.
    pub async fn run<A: AsRef<OsStr>>(&self, program: &str, args: impl IntoIterator<Item = A>) -> Result<Output> {
        let launch = {
            let running = self.running.lock().await;
            let machine = running.machine.as_ref().with_context(|| format!("{} is off", self.name))?;
            self.on(machine, program, program).args(args)
        };
        run(&launch, None, COMMAND_LIMIT).await
    }

    /// Kills the kubelet. Its pods go on, and nobody looks after them.
    ///
    /// # Errors
    /// When it was not running.
    pub async fn stop_kubelet(&self) -> Result<()> {
        let kubelet = self.running.lock().await.kubelet.take();
        let kubelet = kubelet.with_context(|| format!("no kubelet runs on {}", self.name))?;
        kubelet.kill()?;
        kubelet.wait(DEATH_LIMIT).await.map(drop)
    }

    /// Starts the kubelet.
    ///
    /// # Errors
    /// When it runs already or the node is off.
    pub async fn start_kubelet(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        ensure!(running.kubelet.is_none(), "the kubelet of {} runs", self.name);
        let machine = running.machine.as_ref().with_context(|| format!("{} is off", self.name))?;
        let kubelet = self
            .on(machine, "kubelet", self.cluster.binaries().k8s())
            .args(["kubelet", "--v=2"])
            .arg(format!("--config={}", self.files.file("kubelet.json").display()))
            .arg(format!("--kubeconfig={}", self.cluster.kubeconfig_of(&self.name).display()))
            .args([format!("--hostname-override={}", self.name), format!("--node-ip={}", self.address())]);
        running.kubelet = Some(self.logged(kubelet).start()?);
        Ok(())
    }

    /// Cuts its cable: it goes on alone, with its pods, and nobody hears of it.
    ///
    /// # Errors
    /// When it is off.
    pub async fn disconnect(&self) -> Result<()> {
        self.network.set_link(self.place, false).await
    }

    /// Mends its cable.
    ///
    /// # Errors
    /// When it is off.
    pub async fn connect(&self) -> Result<()> {
        self.network.set_link(self.place, true).await
    }

    pub(super) async fn start_kube_proxy(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        let machine = running.machine.as_ref().with_context(|| format!("{} is off", self.name))?;
        let proxy = self
            .on(machine, "kube-proxy", self.cluster.binaries().k8s())
            .arg("kube-proxy")
            .arg(format!("--config={}", self.files.file("kube-proxy.json").display()));
        running.kube_proxy = Some(self.logged(proxy).start()?);
        Ok(())
    }

    /// The node's own processes must run: otherwise waiting for it is in vain.
    pub(super) async fn healthy(&self) -> Result<()> {
        let running = self.running.lock().await;
        for process in
            [&running.machine, &running.containerd, &running.kubelet, &running.kube_proxy].into_iter().flatten()
        {
            let status = process.exit_status();
            ensure!(
                status.is_none(),
                "{} of {} has ended ({status:?})\n{}",
                process.name(),
                self.name,
                process.tail(10)
            );
        }
        Ok(())
    }

    /// The namespaces, with `node.sh` in them.
    fn machine(&self) -> Result<Launch> {
        // The namespace's root is the group that its first process is in at that moment, and then it goes where it belongs:
        // later, from outside of the namespace, no process may be moved into it.
        let launch = joining(Launch::new(&self.name, "sh"), &self.groups.tops).args(["unshare", "--cgroup", "sh"]);
        let launch = joining(launch, &self.groups.own)
            .args(["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=KILL"])
            .args(["--mount-proc", "sh", "-c", include_str!("node.sh"), "node", &self.name])
            .arg(&self.files.disk)
            .arg(target::directory()?)
            .arg(&self.groups.kinds);
        Ok(launch.log(self.cluster.log_dir().join(format!("{}.log", self.name))))
    }

    /// A process on the node: in its namespaces and its own control groups.
    fn on(&self, machine: &Process, name: &str, program: impl AsRef<OsStr>) -> Launch {
        let space = |flag: &str, file: &str| format!("--{flag}=/proc/{}/ns/{file}", machine.pid());
        joining(Launch::new(name, "sh"), &self.groups.own)
            .arg("nsenter")
            .args([space("mount", "mnt"), space("net", "net"), space("uts", "uts"), space("ipc", "ipc")])
            .args([space("cgroup", "cgroup"), space("pid", "pid_for_children")])
            .args(["--", "sh", "-c", FIND, "find"])
            .arg(self.binaries.containerd())
            .arg(program)
    }

    fn logged(&self, launch: Launch) -> Launch {
        let log = self.cluster.log_dir().join(format!("{}-{}.log", launch.name(), self.name));
        launch.log(log)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The machine first: all on it ends at once. A process that cannot be killed has ended.
        if let Some(machine) = &self.running.get_mut().machine {
            let _ = machine.kill();
        }
    }
}

/// The node's process 1, by its number outside. Its root is the node's.
fn first_process(machine: &Process) -> Result<i32> {
    let path = format!("/proc/{0}/task/{0}/children", machine.pid());
    let children = std::fs::read_to_string(&path).with_context(|| format!("could not read {path}"))?;
    let first = children.split(' ').next().and_then(|pid| pid.parse().ok());
    first.with_context(|| format!("{} has no child", machine.name()))
}

/// A shell that joins control groups first, and becomes what follows.
fn joining(shell: Launch, groups: &[PathBuf]) -> Launch {
    shell.args(["-c", JOIN, "join"]).arg(groups.len().to_string()).args(groups)
}
