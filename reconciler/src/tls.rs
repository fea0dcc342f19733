//! The CA and the leaves: kept in Secrets, renewed in time, served from memory.
//!
//! ```text
//! Secret spawnery-agent-tls (CA, agent leaf) ─► ServingCert of the agent channel
//!        │ signs                             └► CA bundle ─► game namespaces, webhook configurations, probe
//!        ├► Secret spawnery-webhook-tls (leaf alone) ─► webhook replicas follow it by their own watch
//!        └► Secret spawnery-extender-tls (leaf alone) ─► extender replicas do the same
//! ```
//!
//! Every write is a compare-and-set: two leaders, or a person with kubectl, never leave a key without its certificate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use spawnery_api::names::object;
use spawnery_certs::bundle::{CA_CERT, Stored, TLS_CERT, TLS_KEY};
use spawnery_certs::check::check_pair;
use spawnery_certs::issue::{Authority, IssueError, Pair, extender_names, operator_names, webhook_names};
use spawnery_certs::serve::{ServeError, ServingCert};
use spawnery_core::rotation::Rotation;
use spawnery_runtime::client::{CALL, CallError, deadline};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::leader::Leadership;
use tokio::sync::watch;

use crate::args::Config;
use crate::metrics::Metrics;
use crate::owner;

/// How often certificates are looked at while all is well; upstream's.
const IDLE: Duration = Duration::from_hours(1);
/// How soon after a failure.
const RETRY: Duration = Duration::from_secs(2);

/// Why certificates could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The API server.
    #[error("could not {verb} the Secret {name}")]
    Secret {
        /// What was tried.
        verb: &'static str,
        /// Which Secret.
        name: &'static str,
        /// What came of it.
        #[source]
        source: CallError,
    },
    /// No certificate could be made.
    #[error("could not issue a certificate")]
    Issue(#[from] IssueError),
    /// A certificate was made and cannot be served.
    #[error("could not serve the certificate of the agent channel")]
    Serve(#[from] ServeError),
    /// It is not known who would take the Secrets along.
    #[error("could not look for the owner of the certificates' Secrets")]
    Owner(#[source] CallError),
    /// The rotation rule left no CA; it would be a defect of ours.
    #[error("there is no CA after bringing certificates up to date")]
    NoCa,
}

/// Keeps the certificates.
pub struct Certificates {
    client: kube::Client,
    namespace: String,
    secrets: Api<Secret>,
    agent_names: Vec<String>,
    /// Secrets with a leaf alone, and the names in it.
    leaves: [(&'static str, Vec<String>); 2],
    clock: Clock,
    leadership: Leadership,
    serving: Arc<ServingCert>,
    ca: watch::Sender<Option<Arc<str>>>,
    metrics: Metrics,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("agent_names", &self.agent_names).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Nothing is read or written yet. `ca` is where the bundle is published.
    pub fn new(
        client: kube::Client,
        config: &Config,
        clock: Clock,
        leadership: Leadership,
        ca: watch::Sender<Option<Arc<str>>>,
        metrics: Metrics,
    ) -> Self {
        let namespace = &config.operator_namespace;
        let mut webhook_names = webhook_names(namespace);
        // A webhook that is reached by URL is asked for under the URL's host.
        webhook_names.extend(config.webhook_url.as_deref().and_then(host).map(str::to_owned));
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            client,
            namespace: namespace.clone(),
            agent_names: operator_names(namespace),
            leaves: [
                (object::WEBHOOK_TLS_SECRET, webhook_names),
                (object::EXTENDER_TLS_SECRET, extender_names(namespace)),
            ],
            clock,
            leadership,
            serving: ServingCert::empty(),
            ca,
            metrics,
        }
    }

    /// What the agent channel serves; empty until the first [`Certificates::ensure`].
    pub fn serving(&self) -> Arc<ServingCert> {
        Arc::clone(&self.serving)
    }

    /// Repeats [`Certificates::ensure`] until the first success, so that the channel has something to serve.
    pub async fn first(&self) {
        while let Err(error) = self.ensure().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not bring certificates up to date, trying again"
            );
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Looks after the certificates for ever.
    ///
    /// # Errors
    /// None; the type is that of supervised tasks.
    pub async fn run(self) -> anyhow::Result<()> {
        loop {
            tokio::time::sleep(IDLE).await;
            self.first().await;
        }
    }

    /// Brings the Secrets up to date and takes over what they hold.
    ///
    /// # Errors
    /// Where the API server or a certificate stands in the way; what was served before goes on being served.
    pub async fn ensure(&self) -> Result<(), TlsError> {
        let stored = self.agent().await?;
        let (Some(ca), Some(leaf)) = (&stored.ca, &stored.leaf) else {
            return Err(TlsError::NoCa);
        };
        self.serving.set(leaf)?;
        if let Some(end) = self.serving.not_after() {
            self.metrics.leaf_not_after.set(end.as_second());
        }
        for (name, names) in &self.leaves {
            self.leaf(ca, name, names).await?;
        }
        let bundle: Arc<str> = ca.cert_pem().into();
        self.ca.send_if_modified(|current| {
            let changed = current.as_deref() != Some(&*bundle);
            if changed {
                *current = Some(bundle);
            }
            changed
        });
        Ok(())
    }

    async fn agent(&self) -> Result<Stored, TlsError> {
        let name = object::AGENT_TLS_SECRET;
        let found = self.get(name).await?;
        let stored = Stored::from_data(&data(found.as_ref()));
        let now = self.clock.wall();
        let rotation = stored.plan(now, &self.agent_names, &[]);
        let Some(renewed) = stored.carry_out(rotation, now, &self.agent_names)? else {
            return Ok(stored);
        };
        let reason = match rotation {
            Rotation::Keep | Rotation::Publish => "none",
            Rotation::Renew(reason) | Rotation::Reissue(reason) => reason.label(),
        };
        self.put(name, found, renewed.to_data()).await?;
        tracing::info!(secret = name, reason, new_ca = matches!(rotation, Rotation::Reissue(_)), "issued certificates");
        Ok(renewed)
    }

    async fn leaf(&self, ca: &Authority, name: &'static str, names: &[String]) -> Result<(), TlsError> {
        let found = self.get(name).await?;
        let held = data(found.as_ref());
        let now = self.clock.wall();
        let text = |key: &str| held.get(key).and_then(|bytes| String::from_utf8(bytes.clone()).ok());
        let pair = text(TLS_CERT).zip(text(TLS_KEY)).map(|(cert_pem, key_pem)| Pair { cert_pem, key_pem });
        let sound = pair.is_some_and(|pair| {
            let checked = check_pair(&pair, ca.cert_pem(), names, now);
            checked.is_ok_and(|validity| !validity.renewal_due(now))
        });
        if sound && text(CA_CERT).as_deref() == Some(ca.cert_pem()) {
            return Ok(());
        }
        let pair = ca.leaf(now, names)?;
        let fresh = [(CA_CERT, ca.cert_pem()), (TLS_CERT, &*pair.cert_pem), (TLS_KEY, &*pair.key_pem)];
        let fresh = fresh.map(|(key, pem)| (key.to_owned(), pem.as_bytes().to_vec()));
        self.put(name, found, fresh.into()).await?;
        tracing::info!(secret = name, "issued a certificate");
        Ok(())
    }

    async fn get(&self, name: &'static str) -> Result<Option<Secret>, TlsError> {
        let found = deadline(CALL, self.secrets.get_opt(name)).await;
        found.map_err(|source| TlsError::Secret { verb: "read", name, source })
    }

    /// Replaces exactly what was read, or creates what was not there.
    async fn put(
        &self,
        name: &'static str,
        found: Option<Secret>,
        fresh: BTreeMap<String, Vec<u8>>,
    ) -> Result<(), TlsError> {
        if !self.leadership.check(self.clock.now()) {
            return Err(TlsError::Secret { verb: "write", name, source: CallError::NotLeading });
        }
        let exists = found.is_some();
        let mut secret = found.unwrap_or_else(|| Secret {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            type_: Some("kubernetes.io/tls".to_owned()),
            ..Secret::default()
        });
        if let Some(owner) = owner::role(&self.client, &self.namespace).await.map_err(TlsError::Owner)? {
            owner::set(&mut secret.metadata, owner);
        }
        // Entries that are not ours (slots of a rotation, somebody's notes) stay.
        let entries = fresh.into_iter().map(|(key, value)| (key, ByteString(value)));
        secret.data.get_or_insert_default().extend(entries);
        let params = PostParams {
            field_manager: Some(spawnery_api::names::manager::CERTIFICATES.to_owned()),
            ..PostParams::default()
        };
        let (verb, written) = if exists {
            ("replace", deadline(CALL, self.secrets.replace(name, &params, &secret)).await)
        } else {
            ("create", deadline(CALL, self.secrets.create(&params, &secret)).await)
        };
        written.map(drop).map_err(|source| TlsError::Secret { verb, name, source })
    }
}

fn data(secret: Option<&Secret>) -> BTreeMap<String, Vec<u8>> {
    let data = secret.and_then(|secret| secret.data.clone()).unwrap_or_default();
    data.into_iter().map(|(key, value)| (key, value.0)).collect()
}

/// Host of an `https://HOST[:PORT][/PATH]` URL, without the brackets of an IPv6 address.
fn host(url: &str) -> Option<&str> {
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next(),
        None => authority.split(':').next(),
    }
    .filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::with_port("https://127.0.0.1:8443", Some("127.0.0.1"))]
    #[case::with_path("https://hooks.example/x", Some("hooks.example"))]
    #[case::version_6("https://[::1]:8443", Some("::1"))]
    #[case::not_https("http://127.0.0.1", None)]
    #[case::empty("https://", None)]
    fn finds_the_host_that_is_asked_for(#[case] url: &str, #[case] want: Option<&str>) {
        assert_eq!(host(url), want);
    }
}
