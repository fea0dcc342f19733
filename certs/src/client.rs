//! The agent's side of TLS: trust in one bundle and nothing else.

use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

use crate::parse;
use crate::provider::provider;

/// Why there is no client configuration.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The bundle holds no certificate that can be an anchor.
    #[error("the CA bundle holds no certificate that can be read")]
    NoAnchor,
    /// The TLS library refused the configuration.
    #[error("could not configure TLS")]
    Config(#[from] rustls::Error),
}

/// TLS 1.3 and HTTP/2 towards a server whose certificate chains to any certificate in `ca_pem`.
pub fn client_config(ca_pem: &str) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    let (anchors, _unusable) = roots.add_parsable_certificates(parse::certificates(ca_pem));
    if anchors == 0 {
        return Err(ClientError::NoAnchor);
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
