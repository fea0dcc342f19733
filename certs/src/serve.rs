//! The serving side of TLS: a certificate that can be exchanged while connections go on, and two configurations.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use spawnery_core::rotation::Validity;
use thiserror::Error;

use crate::check::{self, Unsound};
use crate::issue::Pair;
use crate::parse;
use crate::provider::provider;

/// ALPN of HTTP/2, which gRPC needs.
const H2: &[u8] = b"h2";
/// ALPN of HTTP/1.1, which probes and curl may speak.
const HTTP1: &[u8] = b"http/1.1";

/// Why a server cannot serve TLS.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The certificate cannot be served.
    #[error("the certificate cannot be served")]
    Certificate(#[from] Unsound),
    /// The TLS library refused the configuration.
    #[error("could not configure TLS")]
    Config(#[from] rustls::Error),
}

struct Current {
    key: Arc<CertifiedKey>,
    validity: Validity,
}

/// The certificate that new handshakes get. Empty at first: handshakes fail until [`ServingCert::set`].
///
/// Open connections keep the certificate of their handshake; both ends stay up across a change.
#[derive(Default)]
pub struct ServingCert {
    current: ArcSwapOption<Current>,
}

impl std::fmt::Debug for ServingCert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingCert").field("not_after", &self.not_after()).finish()
    }
}

impl ServingCert {
    /// Nothing to serve yet.
    pub fn empty() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Serves `pair` from the next handshake on. Whether clients accept it is for `check::check_pair` to say.
    ///
    /// # Errors
    /// When it cannot be read or the key does not match; what was served before is served on.
    pub fn set(&self, pair: &Pair) -> Result<(), ServeError> {
        let key = check::certified(pair)?;
        let leaf = parse::certificate(&pair.cert_pem).map_err(Unsound::Parse)?;
        let validity = parse::facts(&leaf).map_err(Unsound::Parse)?.validity;
        self.current.store(Some(Arc::new(Current { key: Arc::new(key), validity })));
        Ok(())
    }

    /// Whether there is something to serve.
    pub fn ready(&self) -> bool {
        self.current.load().is_some()
    }

    /// When what is served expires.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.current.load().as_ref().map(|current| current.validity.not_after)
    }
}

impl ResolvesServerCert for ServingCert {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Whoever dials us means us: agents pin the CA and check the name themselves.
        self.current.load().as_ref().map(|current| Arc::clone(&current.key))
    }
}

/// The agent channel: TLS 1.3 only, HTTP/2 only, no client certificates (agents send tokens).
pub fn agent_server_config(cert: Arc<ServingCert>) -> Result<ServerConfig, ServeError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(cert);
    config.alpn_protocols = vec![H2.to_vec()];
    Ok(config)
}

/// The extender: TLS 1.2 and up, HTTP/1.1 alone. A scheduler makes one call after the other, so it gains nothing from
/// HTTP/2, but Go keeps an HTTP/2 connection whose peer has died for up to 45 s, and every call on it times out; an
/// HTTP/1.1 connection goes with the first.
pub fn extender_server_config(cert: Arc<ServingCert>) -> Result<ServerConfig, ServeError> {
    let mut config = webhook_server_config(cert)?;
    config.alpn_protocols = vec![HTTP1.to_vec()];
    Ok(config)
}

/// Webhooks: TLS 1.2 and up, HTTP/2 and HTTP/1.1.
pub fn webhook_server_config(cert: Arc<ServingCert>) -> Result<ServerConfig, ServeError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(cert);
    config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
    Ok(config)
}
