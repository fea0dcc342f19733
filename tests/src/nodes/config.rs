//! The files that a node's programs read.

use super::{
    binaries::Binaries,
    network::{self, Place},
};
use crate::Cluster;
use anyhow::{Context as _, Result};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The sandbox of every pod.
pub(super) const PAUSE_IMAGE: &str = "local.test/pause:1";

/// Where a node's files are.
#[derive(Debug, Clone)]
pub(super) struct Files {
    /// The node's disk.
    pub(super) disk: PathBuf,
}

impl Files {
    /// A file on the node's disk.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.disk.join(name)
    }

    /// Writes all of them.
    pub(super) fn write(&self, name: &str, place: Place, binaries: &Binaries, cluster: &Cluster) -> Result<()> {
        let write = |file: &str, text: &str| {
            let path = self.file(file);
            std::fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))
        };
        std::fs::create_dir_all(self.file("cni")).context("could not make a node's disk")?;
        write("cni/10-bridge.conflist", &cni(place))?;
        write("containerd.toml", &self.containerd(binaries))?;
        // No name server but the cluster's: there is nobody to ask.
        write("resolv.conf", "")?;
        write("kubelet.json", &kubelet(&cluster.ca_file(), &self.file("resolv.conf")))?;
        write("kube-proxy.json", &kube_proxy(name, &cluster.kubeconfig_of("kube-proxy")))
    }

    fn containerd(&self, binaries: &Binaries) -> String {
        format!(
            r"version = 3
imports = []
disabled_plugins = ['io.containerd.internal.v1.opt', 'io.containerd.tracing.processor.v1.otlp', 'io.containerd.internal.v1.tracing', 'io.containerd.nri.v1.nri']
[plugins.'io.containerd.cri.v1.images']
  snapshotter = '{snapshotter}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE_IMAGE}'
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE a process may not be spared more than its parent.
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{cni}']
  conf_dir = '{conf}'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{runc}'
  SystemdCgroup = false
",
            snapshotter = snapshotter(&self.disk),
            cni = binaries.cni().display(),
            conf = self.file("cni").display(),
            runc = binaries.runc().display(),
        )
    }
}

/// An overlay cannot have its upper layer on another overlay, which is what a container's own disk is.
fn snapshotter(disk: &Path) -> &'static str {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if file_system(&mounts, disk) == Some("overlay") { "native" } else { "overlayfs" }
}

/// The kind of file system that a path is on, by `/proc/self/mountinfo`: the mount point that holds most of the path.
fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let points = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        path.starts_with(point).then(|| (point.len(), after.split(' ').next().unwrap_or_default()))
    });
    // Later lines are mounted over earlier ones; `max_by_key` gives the last of equals.
    points.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

fn cni(place: Place) -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni/networks",
                    "ranges": [[{ "subnet": place.pods() }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "backend": "nftables", "capabilities": { "portMappings": true } },
        ],
    })
    .to_string()
}

fn kubelet(ca: &Path, resolv_conf: &Path) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        // Version 1 is refused otherwise. Where there is version 2 it says nothing.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": ca },
        },
        "authorization": { "mode": "Webhook" },
        "clusterDomain": "cluster.local",
        "clusterDNS": [network::DNS_SERVICE],
        "resolvConf": resolv_conf,
        "failSwapOn": false,
        // Images come from files: nobody could pull again what a full disk made it remove.
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        // A dead node is noticed in seconds; the controller manager's flags fit.
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 10,
        "maxPods": 100,
    })
    .to_string()
}

fn kube_proxy(node: &str, kubeconfig: &Path) -> String {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": { "kubeconfig": kubeconfig },
        "clusterCIDR": network::PODS,
        "hostnameOverride": node,
        // The whole machine's, and not ours to set.
        "conntrack": { "maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
        "nftables": { "minSyncPeriod": "0s" },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const MOUNTS: &str = "1 0 0:1 / / rw - overlay overlay rw\n\
                          2 1 0:2 / /data rw shared:1 - ext4 /dev/vda rw\n\
                          3 1 0:3 / /database rw - tmpfs tmpfs rw\n\
                          4 2 0:4 / /data rw - xfs /dev/vdb rw\n";

    #[rstest]
    #[case::of_the_root("/home", "overlay")]
    #[case::of_the_mount_that_hides_the_other("/data/kubelet", "xfs")]
    #[case::names_are_whole("/database", "tmpfs")]
    fn finds_the_file_system(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(file_system(MOUNTS, Path::new(path)), Some(expected));
    }
}
