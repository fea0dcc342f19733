//! A server that does nothing: what is left when the work is taken away.

use anyhow::{Context as _, Result};
use axum::{Router, routing::post};
use axum_server::tls_rustls::RustlsConfig;
use bytes::Bytes;
use spawnery_certs::{Pair, ServingCert, webhook_server_config};
use std::{net::SocketAddr, sync::Arc};

/// Serves HTTPS with the webhook's TLS configuration and answers every POST, once it was read, with 200 and nothing,
/// until it is dropped.
///
/// # Errors
/// When the certificate is none or the address cannot be had.
pub async fn serve_empty(address: SocketAddr, pair: &Pair) -> Result<()> {
    let cert = ServingCert::empty();
    cert.set(pair).context("not a certificate and its key")?;
    let tls = webhook_server_config(cert).context("no TLS configuration")?;
    let router = Router::new().route("/{*path}", post(async |_: Bytes| ()));
    axum_server::bind_rustls(address, RustlsConfig::from_config(Arc::new(tls)))
        .serve(router.into_make_service())
        .await
        .with_context(|| format!("could not serve at {address}"))
}
