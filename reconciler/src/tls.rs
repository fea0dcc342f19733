//! The CA and the leaves: kept in Secrets, renewed in time, served from memory.
//!
//! ```text
//! Secret spawnery-agent-tls (CA, agent leaf) ─► ServingCert of the agent channel
//!        │ signs                             └► CA bundle ─► game namespaces, webhook configurations, probe
//!        ├► Secret spawnery-webhook-tls (leaf alone, eviction token) ─► webhook replicas follow it by their own watch
//!        └► Secret spawnery-extender-tls (leaf alone) ─► extender replicas do the same
//! ```
//!
//! The token ends the path under which the webhook is registered for evictions: by it a replica tells the API server from
//! everybody else. It outlives leaves and CAs, and is made anew only where there is none that can be read.
//!
//! Every write is a compare-and-set: two leaders, or a person with kubectl, never leave a key without its certificate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
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
use spawnery_certs::token::EvictionToken;
use spawnery_core::rotation::Rotation;
use spawnery_runtime::client::{CALL, CallError, deadline};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::leader::Leadership;
use tokio::sync::watch;

use crate::args::Config;
use crate::metrics::Metrics;
use crate::owner;

/// How often the Secrets are looked at while all is well. Not for the certificates' sake, for which upstream's hour would
/// do: a Secret that somebody deleted or changed keeps replicas that start from being ready.
const IDLE: Duration = Duration::from_mins(1);
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
    webhook_names: Vec<String>,
    extender_names: Vec<String>,
    clock: Clock,
    leadership: Leadership,
    serving: Arc<ServingCert>,
    ca: watch::Sender<Option<Arc<str>>>,
    token: watch::Sender<Option<EvictionToken>>,
    metrics: Metrics,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("agent_names", &self.agent_names).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Nothing is read or written yet. `ca` is where the bundle is published, `token` where the eviction token is.
    pub fn new(
        client: kube::Client,
        config: &Config,
        clock: Clock,
        leadership: Leadership,
        ca: watch::Sender<Option<Arc<str>>>,
        token: watch::Sender<Option<EvictionToken>>,
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
            webhook_names,
            extender_names: extender_names(namespace),
            clock,
            leadership,
            serving: ServingCert::empty(),
            ca,
            token,
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
        let token = self.webhook(ca).await?;
        self.extender(ca).await?;
        // Before the bundle, which is what the registration waits for.
        publish(&self.token, token);
        publish(&self.ca, ca.cert_pem().into());
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

    /// The webhook's leaf, and the token by which it knows the API server.
    async fn webhook(&self, ca: &Authority) -> Result<EvictionToken, TlsError> {
        let name = object::WEBHOOK_TLS_SECRET;
        let found = self.get(name).await?;
        let held = data(found.as_ref());
        let (token, fresh) = due_webhook(&held, ca, &self.webhook_names, self.clock.wall())?;
        self.renew(name, found, fresh).await?;
        Ok(token)
    }

    /// The extender's leaf.
    async fn extender(&self, ca: &Authority) -> Result<(), TlsError> {
        let name = object::EXTENDER_TLS_SECRET;
        let found = self.get(name).await?;
        let fresh = due_leaf(&data(found.as_ref()), ca, &self.extender_names, self.clock.wall())?;
        self.renew(name, found, fresh).await
    }

    /// Writes what has to be written, if anything has.
    async fn renew(
        &self,
        name: &'static str,
        found: Option<Secret>,
        fresh: BTreeMap<String, Vec<u8>>,
    ) -> Result<(), TlsError> {
        if fresh.is_empty() {
            return Ok(());
        }
        let entries: Vec<String> = fresh.keys().cloned().collect();
        self.put(name, found, fresh).await?;
        tracing::info!(secret = name, entries = entries.join(", "), "brought a Secret up to date");
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

/// Tells those who follow, where it is news.
fn publish<T: PartialEq>(channel: &watch::Sender<Option<T>>, value: T) {
    channel.send_if_modified(|current| {
        let changed = current.as_ref() != Some(&value);
        if changed {
            *current = Some(value);
        }
        changed
    });
}

/// The entries of a Secret with a leaf alone that have to be written; none while the leaf is sound.
fn due_leaf(
    held: &BTreeMap<String, Vec<u8>>,
    ca: &Authority,
    names: &[String],
    now: Timestamp,
) -> Result<BTreeMap<String, Vec<u8>>, IssueError> {
    let text = |key: &str| held.get(key).and_then(|bytes| String::from_utf8(bytes.clone()).ok());
    let pair = text(TLS_CERT).zip(text(TLS_KEY)).map(|(cert_pem, key_pem)| Pair { cert_pem, key_pem });
    let sound = pair.is_some_and(|pair| {
        let checked = check_pair(&pair, ca.cert_pem(), names, now);
        checked.is_ok_and(|validity| !validity.renewal_due(now))
    });
    if sound && text(CA_CERT).as_deref() == Some(ca.cert_pem()) {
        return Ok(BTreeMap::new());
    }
    let pair = ca.leaf(now, names)?;
    let fresh = [(CA_CERT, ca.cert_pem()), (TLS_CERT, &*pair.cert_pem), (TLS_KEY, &*pair.key_pem)];
    Ok(fresh.map(|(key, pem)| (key.to_owned(), pem.as_bytes().to_vec())).into())
}

/// The token of the webhook's Secret, the one that is held or a new one, and the entries that have to be written.
fn due_webhook(
    held: &BTreeMap<String, Vec<u8>>,
    ca: &Authority,
    names: &[String],
    now: Timestamp,
) -> Result<(EvictionToken, BTreeMap<String, Vec<u8>>), IssueError> {
    let mut fresh = due_leaf(held, ca, names, now)?;
    let key = object::EVICTION_TOKEN_KEY;
    if let Some(token) = held.get(key).and_then(|stored| EvictionToken::parse(stored)) {
        return Ok((token, fresh));
    }
    let token = EvictionToken::generate()?;
    fresh.insert(key.to_owned(), token.reveal().as_bytes().to_vec());
    Ok((token, fresh))
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

    type Data = BTreeMap<String, Vec<u8>>;

    fn later(days: i64) -> Timestamp {
        let begin: Timestamp = "2026-11-29T12:00:00Z".parse().expect("a timestamp");
        begin.checked_add(jiff::SignedDuration::from_hours(days * 24)).expect("within range")
    }

    /// What stands in the webhook's Secret after the leader has looked at it, what of it was new, and the token.
    fn looked_at(held: &Data, ca: &Authority, now: Timestamp) -> (Data, Vec<String>, EvictionToken) {
        let (token, fresh) = due_webhook(held, ca, &webhook_names("ops"), now).expect("issued");
        let keys = fresh.keys().cloned().collect();
        (held.clone().into_iter().chain(fresh).collect(), keys, token)
    }

    #[test]
    fn the_token_outlives_leaves_and_authorities() {
        let (ca, other) = (Authority::generate(later(0)).expect("a CA"), Authority::generate(later(0)).expect("a CA"));
        let (held, new, token) = looked_at(&Data::new(), &ca, later(0));
        assert_eq!(new, [CA_CERT, object::EVICTION_TOKEN_KEY, TLS_CERT, TLS_KEY]);
        for (ca, days, want) in [
            (&ca, 1, &[] as &[&str]),
            (&ca, 61, &[CA_CERT, TLS_CERT, TLS_KEY]),
            (&other, 1, &[CA_CERT, TLS_CERT, TLS_KEY]),
        ] {
            let (after, new, kept) = looked_at(&held, ca, later(days));
            assert_eq!(new, want, "after {days} days");
            assert_eq!(kept, token, "after {days} days");
            assert_eq!(after.get(object::EVICTION_TOKEN_KEY), held.get(object::EVICTION_TOKEN_KEY));
        }
    }

    #[rstest]
    #[case::deleted(None)]
    #[case::emptied(Some(""))]
    #[case::cut_off(Some("0123456789abcdef"))]
    #[case::of_another_kind(Some("/etc/passwd"))]
    fn a_token_that_cannot_be_read_is_made_anew_and_nothing_else(#[case] stored: Option<&str>) {
        let ca = Authority::generate(later(0)).expect("a CA");
        let (mut held, _, before) = looked_at(&Data::new(), &ca, later(0));
        held.remove(object::EVICTION_TOKEN_KEY);
        held.extend(stored.map(|stored| (object::EVICTION_TOKEN_KEY.to_owned(), stored.as_bytes().to_vec())));
        let (after, new, token) = looked_at(&held, &ca, later(1));
        assert_eq!(new, [object::EVICTION_TOKEN_KEY]);
        assert_ne!(token, before);
        assert_eq!(looked_at(&after, &ca, later(1)).2, token, "what was written is what is registered");
    }
}
