//! The serving certificate, and what else the leader tells a replica in its Secret, followed by a watch and swapped in place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use spawnery_api::names::object;
use spawnery_certs::check::check_pair;
use spawnery_certs::{EvictionToken, EvictionTokens, Pair, ServingCert};

use crate::clock::Clock;
use crate::readiness::{Readiness, ReadyFlag};

/// How often a certificate that has not changed is looked at again: it may have ended.
const RECHECK: Duration = Duration::from_mins(1);

/// Whose certificate it is.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// Namespace of the Secret and of the Service.
    pub namespace: &'a str,
    /// The Secret that the leader writes.
    pub secret: &'static str,
    /// The Service under whose name callers ask for us.
    pub service: &'static str,
}

/// Follows the Secret for as long as the process runs.
pub struct CertificateTask {
    api: Api<Secret>,
    secret: &'static str,
    names: Vec<String>,
    serving: Arc<ServingCert>,
    ends: Gauge,
    clock: Clock,
    sound: ReadyFlag,
    current: Mutex<Option<Leaf>>,
    tokens: Option<(Arc<EvictionTokens>, ReadyFlag)>,
}

impl std::fmt::Debug for CertificateTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateTask").field("secret", &self.secret).finish_non_exhaustive()
    }
}

struct Leaf {
    pair: Pair,
    ca: Option<String>,
}

impl CertificateTask {
    /// A task that keeps `serving` as the Secret says, and in `ends` when that ends, in seconds since 1970. Readiness holds
    /// while there is a leaf that is valid now, names our Service and, where the Secret shows the CA bundle, is covered by
    /// it.
    pub fn new(
        client: Client,
        owner: Owner<'_>,
        serving: Arc<ServingCert>,
        ends: Gauge,
        readiness: &Readiness,
        clock: Clock,
    ) -> Self {
        Self {
            api: Api::namespaced(client, owner.namespace),
            secret: owner.secret,
            names: vec![format!("{}.{}.svc", owner.service, owner.namespace)],
            serving,
            ends,
            clock,
            sound: readiness.flag("certificate"),
            current: Mutex::new(None),
            tokens: None,
        }
    }

    /// Keeps `tokens` as the Secret says, too. Readiness holds only once there is one.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Arc<EvictionTokens>, readiness: &Readiness) -> Self {
        self.tokens = Some((tokens, readiness.flag("eviction token")));
        self
    }

    /// Follows the Secret; a missing or broken one leaves what was served before.
    ///
    /// # Errors
    /// None; the type is that of supervised tasks.
    pub async fn run(self) -> anyhow::Result<()> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.secret));
        let mut secrets = std::pin::pin!(watcher(self.api.clone(), config).default_backoff().applied_objects());
        let mut recheck = tokio::time::interval(RECHECK);
        loop {
            tokio::select! {
                Some(secret) = secrets.next() => match secret {
                    Ok(secret) => self.take(&secret),
                    Err(error) => tracing::warn!(error = &error as &dyn std::error::Error,
                        "could not follow the serving certificate, trying again"),
                },
                _ = recheck.tick() => self.check(),
            }
        }
    }

    fn take(&self, secret: &Secret) {
        self.take_token(secret);
        self.take_leaf(secret);
    }

    /// A missing or damaged token leaves the one before: the leader makes another.
    fn take_token(&self, secret: &Secret) {
        let Some((tokens, known)) = &self.tokens else {
            return;
        };
        let stored = secret.data.as_ref().and_then(|data| data.get(object::EVICTION_TOKEN_KEY));
        if let Some(token) = stored.and_then(|stored| EvictionToken::parse(&stored.0)) {
            tokens.set(&token, self.clock.now());
        } else {
            tracing::warn!(name = self.secret, "the Secret holds no token for the path of evictions");
        }
        known.set(tokens.ready());
    }

    fn take_leaf(&self, secret: &Secret) {
        let Some(leaf) = secret.data.as_ref().and_then(read) else {
            tracing::warn!(name = self.secret, "the Secret holds no certificate and key");
            return;
        };
        if let Err(error) = self.serving.set(&leaf.pair) {
            tracing::warn!(error = &error as &dyn std::error::Error, "the certificate in the Secret cannot be served");
            return;
        }
        self.ends.set(self.serving.not_after().map_or(0, jiff::Timestamp::as_second));
        tracing::info!(not_after = ?self.serving.not_after(), "serving a certificate");
        *self.current.lock() = Some(leaf);
        self.check();
    }

    fn check(&self) {
        let sound = self.current.lock().as_ref().is_some_and(|leaf| self.is_sound(leaf));
        self.sound.set(sound);
    }

    fn is_sound(&self, leaf: &Leaf) -> bool {
        let now = self.clock.wall();
        let Some(ca) = &leaf.ca else {
            return self.serving.not_after().is_some_and(|end| now < end);
        };
        match check_pair(&leaf.pair, ca, &self.names, now) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the serving certificate is not sound");
                false
            }
        }
    }
}

fn read(data: &BTreeMap<String, ByteString>) -> Option<Leaf> {
    let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
    let pair = Pair { cert_pem: text(object::LEAF_KEY)?, key_pem: text(object::LEAF_PRIVATE_KEY)? };
    Some(Leaf { pair, ca: text(object::CA_KEY) })
}
