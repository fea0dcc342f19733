//! The five processes of a cluster: their flags, and what a test may do to them.

use super::{Layout, kubeconfig};
use crate::{kubernetes::Binaries, launch::Launch, nodes};
use anyhow::{Context as _, Result};
use serde_json::json;
use std::fmt;

/// One process of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The store.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager: ServiceAccounts, garbage collection, PDB status, node health, namespaces.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kwok: stands for the kubelet of each node.
    Kwok,
}

impl Component {
    /// All of them, in the order in which they start.
    pub const ALL: [Self; 5] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kwok];

    /// The name of the program and of the log file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
        }
    }

    /// Who the component is for the API server; the name in the audit log.
    pub fn user(self) -> Option<&'static str> {
        match self {
            Self::Etcd | Self::ApiServer => None,
            Self::ControllerManager => Some("system:kube-controller-manager"),
            Self::Scheduler => Some("system:kube-scheduler"),
            Self::Kwok => Some("kwok"),
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The admin's name in the audit log.
pub const ADMIN: &str = "admin";

/// All requests of everybody, once answered; a watch when it starts, as its end may be far away.
const AUDIT_POLICY: &str = r"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

/// Writes the files that components read: keys, tokens, kubeconfigs, policies.
pub(super) fn write_files(layout: &Layout) -> Result<()> {
    let write = |name: &str, text: &str| {
        let path = layout.file(name);
        std::fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))
    };
    let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"];
    let addresses = [layout.ground.control_plane(), nodes::network::API_SERVICE];
    let leaf = layout.authority.issue(&names, &addresses)?;
    let (private, public) = super::authority::token_keys()?;
    write("ca.crt", layout.authority.pem())?;
    write("apiserver.crt", &leaf.certificate_pem())?;
    write("apiserver.key", &leaf.key_pem())?;
    let kubelets = layout.authority.issue_client("kube-apiserver-kubelet-client", "system:masters")?;
    write("kubelet-client.crt", &kubelets.certificate_pem())?;
    write("kubelet-client.key", &kubelets.key_pem())?;
    write("tokens.key", &private)?;
    write("tokens.pub", &public)?;
    write("audit-policy.yaml", AUDIT_POLICY)?;
    write("stages.yaml", include_str!("../../kubernetes/stages.yaml"))?;
    let mut tokens = String::new();
    let users = Component::ALL.into_iter().filter_map(|component| {
        // kwok has no role of its own, as it stands for everything that a node does.
        let groups = if component == Component::Kwok { "system:masters" } else { "" };
        Some((component.name(), component.user()?, groups))
    });
    for (file, user, groups) in users.chain([(ADMIN, ADMIN, "system:masters")]).chain(nodes::USERS) {
        let token = format!("{:032x}", rand::random::<u128>());
        tokens.extend([&*token, ",", user, ",", user, ",\"", groups, "\"\n"]);
        kubeconfig::write(&layout.kubeconfig(file), &layout.url(), &layout.file("ca.crt"), &token)?;
    }
    write("tokens.csv", &tokens)?;
    let scheduler = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": { "leaderElect": false },
        // The default of 50 a second is what a test with hundreds of pods would measure.
        "clientConnection": { "kubeconfig": layout.kubeconfig("kube-scheduler"), "qps": 1000, "burst": 2000 },
    });
    write("scheduler.json", &scheduler.to_string())
}

/// How to start a component.
pub(super) fn launch(component: Component, binaries: &Binaries, layout: &Layout) -> Launch {
    let address = layout.ground.control_plane();
    let file = |flag: &str, name: &str| format!("--{flag}={}", layout.file(name).display());
    let launch = match component {
        Component::Etcd => {
            let (client, peer) = (format!("http://{address}:2379"), format!("http://{address}:2380"));
            binaries
                .component("etcd")
                .arg(file("data-dir", "etcd"))
                .arg(format!("--listen-client-urls={client}"))
                .arg(format!("--advertise-client-urls={client}"))
                .arg(format!("--listen-peer-urls={peer}"))
                .arg(format!("--initial-advertise-peer-urls={peer}"))
                .arg(format!("--initial-cluster=default={peer}"))
                // The data is thrown away; a killed etcd still finds what it wrote, as the machine goes on.
                .args(["--unsafe-no-fsync", "--log-level=warn"])
        }
        Component::ApiServer => binaries
            .component("kube-apiserver")
            .arg(format!("--etcd-servers=http://{address}:2379"))
            .arg(format!("--bind-address={address}"))
            // Not used, but without it a machine with no network at all is refused.
            .arg(format!("--advertise-address={address}"))
            .arg(format!("--secure-port={}", super::API_PORT))
            .arg(file("cert-dir", "apiserver"))
            .arg(file("tls-cert-file", "apiserver.crt"))
            .arg(file("tls-private-key-file", "apiserver.key"))
            .arg(file("token-auth-file", "tokens.csv"))
            .arg(file("service-account-signing-key-file", "tokens.key"))
            .arg(file("service-account-key-file", "tokens.pub"))
            .arg(file("audit-policy-file", "audit-policy.yaml"))
            .arg(format!("--audit-log-path={}", layout.audit_log().display()))
            // Never rotate: counts look back into the whole file.
            .arg("--audit-log-maxsize=100000")
            .args(["--service-account-issuer=https://kubernetes.default.svc", "--authorization-mode=Node,RBAC"])
            .args(["--allow-privileged", "--enable-aggregator-routing"])
            .arg(format!("--service-cluster-ip-range={}", nodes::network::SERVICES)),
        Component::ControllerManager => binaries
            .component("kube-controller-manager")
            .arg(format!("--kubeconfig={}", layout.kubeconfig("kube-controller-manager").display()))
            .arg(file("root-ca-file", "ca.crt"))
            .arg(file("service-account-private-key-file", "tokens.key"))
            .args(["--use-service-account-credentials", "--leader-elect=false", "--secure-port=0"])
            // The default of 20 a second delays ServiceAccounts by seconds.
            .args(["--kube-api-qps=500", "--kube-api-burst=1000"]),
        Component::Scheduler => {
            let launch = binaries.component("kube-scheduler");
            launch.arg(file("config", "scheduler.json")).arg("--secure-port=0")
        }
        Component::Kwok => Launch::new("kwok", binaries.kwok())
            .arg(format!("--kubeconfig={}", layout.kubeconfig("kwok").display()))
            .arg(file("config", "stages.yaml"))
            .arg(format!("--cidr={}", layout.ground.pods()))
            .arg(format!("--node-ip={address}"))
            .arg(format!("--server-address={address}:10247"))
            // Without leases nodes are given up after 40 s.
            .args(["--manage-all-nodes=true", "--node-lease-duration-seconds=40"]),
    };
    let launch = launch.args(layout.ground.flags(component, file));
    launch.log(layout.directory.logs().join(format!("{component}.log")))
}
