//! The serving certificate, followed by a watch on its Secret and swapped in place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use spawnery_api::names::object;
use spawnery_certs::check::check_pair;
use spawnery_certs::{Pair, ServingCert};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::readiness::{Readiness, ReadyFlag};

use crate::metrics::Metrics;

/// How often a certificate that has not changed is looked at again: it may have ended.
const RECHECK: Duration = Duration::from_mins(1);

/// Follows the Secret for as long as the process runs.
pub(crate) struct CertificateTask {
    api: Api<Secret>,
    names: Vec<String>,
    serving: Arc<ServingCert>,
    metrics: Metrics,
    clock: Clock,
    sound: ReadyFlag,
    current: Mutex<Option<Leaf>>,
}

struct Leaf {
    pair: Pair,
    ca: Option<String>,
}

impl CertificateTask {
    /// A task that keeps `serving` as the Secret in `namespace` says. Readiness holds while there is a leaf that is valid
    /// now, names our Service and, where the Secret shows the CA bundle, is covered by it.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        serving: Arc<ServingCert>,
        metrics: Metrics,
        readiness: &Readiness,
        clock: Clock,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            names: vec![format!("{}.{namespace}.svc", object::WEBHOOK)],
            serving,
            metrics,
            clock,
            sound: readiness.flag("certificate"),
            current: Mutex::new(None),
        }
    }

    /// Follows the Secret; a missing or broken one leaves what was served before.
    ///
    /// # Errors
    /// None; the type is that of supervised tasks.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", object::WEBHOOK_TLS_SECRET));
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
        let Some(leaf) = secret.data.as_ref().and_then(read) else {
            tracing::warn!(name = object::WEBHOOK_TLS_SECRET, "the Secret holds no certificate and key");
            return;
        };
        if let Err(error) = self.serving.set(&leaf.pair) {
            tracing::warn!(error = &error as &dyn std::error::Error, "the certificate in the Secret cannot be served");
            return;
        }
        self.metrics.certificate_ends(self.serving.not_after().map_or(0, jiff::Timestamp::as_second));
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

fn read(data: &BTreeMap<String, k8s_openapi::ByteString>) -> Option<Leaf> {
    let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
    let pair = Pair { cert_pem: text(object::LEAF_KEY)?, key_pem: text(object::LEAF_PRIVATE_KEY)? };
    Some(Leaf { pair, ca: text(object::CA_KEY) })
}
