//! Extenders, the way to them, and schedulers that ask them.

use super::{Doorway, READY_LIMIT, Replica, Stack, common, install};
use crate::{Cluster, FaultProxy, Launch, eventually::eventually, target::binary};
use anyhow::{Context as _, Result};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::Api;
use serde_json::{Value, json};
use spawnery_api::{
    names::object,
    scheduler::{Extender, Trust},
};
use spawnery_certs::{Authority, Pair, extender_names};
use std::{net::SocketAddr, sync::Arc, time::Duration};

const PORT: u16 = 8443;
/// Beside a build an answer takes longer than a scheduler should wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// The extenders of a stack.
#[derive(Default)]
pub(super) struct Extenders {
    replicas: Vec<Arc<Replica>>,
    way: Option<Doorway>,
    /// Between them and the API server.
    faults: Option<FaultProxy>,
}

impl Extenders {
    /// Starts so many and returns when they are ready. Certificates come from the leader.
    pub(super) async fn start(cluster: &Cluster, count: usize, log_level: &str, flags: &[String]) -> Result<Self> {
        if count == 0 {
            return Ok(Self::default());
        }
        let program = binary("spawnery-extender").await?;
        let account = cluster.service_account(object::OPERATOR_NAMESPACE, object::EXTENDER).await?;
        let faults = cluster.fault_proxy().await?;
        let kubeconfig = faults.kubeconfig(account.kubeconfig())?;
        let replicas: Vec<Arc<Replica>> =
            (1..=count).map(|n| Arc::new(Replica::new(cluster, format!("extender-{n}"), PORT))).collect();
        for replica in &replicas {
            let launch = Launch::new(replica.name(), &program)
                .arg(format!("--extender-bind-address={}", replica.address()))
                .arg("--shutdown-delay=0s")
                .args(flags);
            replica.launch(common(launch, log_level, cluster, replica, &kubeconfig))?;
        }
        for replica in &replicas {
            replica.wait_ready(READY_LIMIT).await?;
        }
        let way = Doorway::open(SocketAddr::from((cluster.free_address(), PORT)), &replicas).await?;
        Ok(Self { replicas, way: Some(way), faults: Some(faults) })
    }
}

impl Stack {
    /// One of the extenders, the first at 0.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn extender(&self, n: usize) -> Result<&Replica> {
        self.extenders.replicas.get(n).map(Arc::as_ref).with_context(|| format!("there is no extender {n}"))
    }

    /// What is between the extenders and the API server.
    ///
    /// # Errors
    /// When there are no extenders.
    pub fn extender_faults(&self) -> Result<&FaultProxy> {
        self.extenders.faults.as_ref().context("the stack has no extender")
    }

    /// The entry for a scheduler that is to ask the extenders about all pods.
    ///
    /// # Errors
    /// When there is none, or the leader has written no certificate.
    pub async fn extender_entry(&self) -> Result<Extender> {
        let way = self.extenders.way.as_ref().context("the stack has no extender")?;
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client().await?, object::OPERATOR_NAMESPACE);
        let ca = eventually(READY_LIMIT, "the extender's certificate", || async {
            let data = secrets.get(object::EXTENDER_TLS_SECRET).await?.data.unwrap_or_default();
            let pem = data.get(object::CA_KEY).context("the Secret has no CA")?;
            Ok(String::from_utf8(pem.0.clone())?)
        });
        let entry = Extender::in_namespace(object::OPERATOR_NAMESPACE, Trust::Data(ca.await?));
        Ok(Extender { url: format!("https://{}", way.address()), timeout: PATIENCE, ..entry })
    }

    /// Has the control plane's own scheduler ask the extenders about all pods.
    ///
    /// # Errors
    /// As [`Stack::extender_entry`], or when the scheduler does not come back.
    pub async fn ask_extenders(&self) -> Result<()> {
        self.cluster.configure_scheduler(&self.extender_entry().await?.snippet()).await
    }
}

/// An extender on a cluster without a reconciler, which would have opinions about what a bench makes there.
pub struct LoneExtender {
    extenders: Extenders,
    /// What it serves.
    pub leaf: Pair,
    /// Who issued that.
    pub ca_pem: String,
}

impl LoneExtender {
    /// Installs definitions, rights and a certificate, and starts one extender.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        install(cluster).await?;
        let authority = Authority::generate(now())?;
        let leaf = authority.leaf(now(), &extender_names(object::OPERATOR_NAMESPACE))?;
        let ca_pem = authority.cert_pem().to_owned();
        let data =
            [(object::CA_KEY, &ca_pem), (object::LEAF_KEY, &leaf.cert_pem), (object::LEAF_PRIVATE_KEY, &leaf.key_pem)];
        let data: serde_json::Map<String, Value> =
            data.into_iter().map(|(key, pem)| (key.to_owned(), json!(ByteString(pem.as_bytes().to_vec())))).collect();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": object::EXTENDER_TLS_SECRET, "namespace": object::OPERATOR_NAMESPACE },
            "data": data,
        });
        cluster.apply(&secret.to_string()).await?;
        let extenders = Extenders::start(cluster, 1, "info", &[]).await?;
        Ok(Self { extenders, leaf, ca_pem })
    }

    /// Its process.
    ///
    /// # Errors
    /// None in practice: there is one.
    pub fn replica(&self) -> Result<&Replica> {
        self.extenders.replicas.first().map(Arc::as_ref).context("there is no extender")
    }
}

#[expect(clippy::disallowed_methods, reason = "a certificate is valid from now on")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
