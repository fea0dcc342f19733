//! Requests that are no reviews, over real TLS: each gets a defined answer, and the process goes on as before.

use anyhow::{Context as _, Result, ensure};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use spawnery_certs::Authority;
use spawnery_tests::eventually;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsConnector, rustls};

use crate::lone::{LIMIT, Lone, now};

/// A connection in HTTP/1.1, as the API server makes it, with exactly this version of TLS.
async fn connect(lone: &Lone, version: &'static rustls::SupportedProtocolVersion) -> Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(lone.ca_pem.as_bytes())?)?;
    let config = rustls::ClientConfig::builder_with_provider(spawnery_certs::provider())
        .with_protocol_versions(&[version])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(lone.address).await?;
    let name = ServerName::try_from(lone.address.ip().to_string())?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

pub(crate) async fn exchange(lone: &Lone, request: &[u8]) -> Result<String> {
    let mut stream = connect(lone, &rustls::version::TLS13).await?;
    // The answer to a body that is too long comes before the body's end, so writing may fail half-way.
    let _ = stream.write_all(request).await;
    answer(stream).await
}

/// What arrives until the server closes; a connection that is cut without TLS's goodbye counts as closed.
async fn answer(mut stream: TlsStream<TcpStream>) -> Result<String> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut bytes)).await.context("no answer in time")?;
    if let Err(error) = read {
        ensure!(!bytes.is_empty() || error.kind() == std::io::ErrorKind::UnexpectedEof, "{error}");
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: webhook\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

pub(crate) fn code(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

async fn ensure_as_before(lone: &Lone) -> Result<()> {
    ensure!(lone.process.is_running(), "the webhook has ended: {}", lone.process.tail(20));
    let probe = exchange(lone, b"GET /probe HTTP/1.1\r\nhost: webhook\r\nconnection: close\r\n\r\n").await?;
    ensure!(code(&probe) == "200", "{probe}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_review_gets_a_defined_answer() -> Result<()> {
    let lone = Lone::shared().await?;
    let v1beta1 = r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u"}}"#;
    let no_uid = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}"#;
    let nine_megabytes = " ".repeat(9_000_000);
    let cases = [("{", "400"), ("", "400"), (v1beta1, "400"), (no_uid, "400"), (nine_megabytes.as_str(), "413")];
    for path in [lone.eviction_path().await?.as_str(), "/validate", "/mutate-pods"] {
        for (body, want) in cases {
            let answer = exchange(lone, &post(path, body)).await?;
            let start: String = body.chars().take(40).collect();
            ensure!(code(&answer) == want, "{path} {start:?}: {answer}");
        }
    }
    ensure_as_before(lone).await
}

#[tokio::test]
async fn slow_and_half_closed_requests_end() -> Result<()> {
    let lone = Lone::shared().await?;
    let memory = lone.process.resident_bytes()?;
    let path = lone.eviction_path().await?;
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: w\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{");
    let head = head.as_bytes();
    let begin = Instant::now();
    let slow = async {
        let mut stream = connect(lone, &rustls::version::TLS13).await?;
        stream.write_all(head).await?;
        let mut bytes = vec![0; 1024];
        let read = tokio::time::timeout(LIMIT, stream.read(&mut bytes)).await.context("no answer in time")??;
        bytes.truncate(read);
        anyhow::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let said = slow.await?;
    ensure!(code(&said) == "408", "{said}");
    ensure!(begin.elapsed() < Duration::from_secs(8), "after {:?}", begin.elapsed());

    let half_closed = async {
        let mut stream = connect(lone, &rustls::version::TLS13).await?;
        stream.write_all(head).await?;
        stream.shutdown().await?;
        answer(stream).await
    };
    let said = half_closed.await?;
    ensure!(said.is_empty() || code(&said) == "400", "{said}");

    // Many that never say anything more: they cost a connection until their time is over, and nothing after that.
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut stream = connect(lone, &rustls::version::TLS13).await?;
        stream.write_all(head).await?;
        silent.push(stream);
    }
    ensure_as_before(lone).await?;
    drop(silent);
    eventually(LIMIT, "memory to be what it was", || async {
        let after = lone.process.resident_bytes()?;
        ensure!(after < memory + (32 << 20), "{memory} before, {after} after");
        Ok(())
    })
    .await?;
    ensure_as_before(lone).await
}

#[tokio::test]
async fn tls_1_2_is_spoken_too() -> Result<()> {
    let lone = Lone::shared().await?;
    let mut stream = connect(lone, &rustls::version::TLS12).await?;
    stream.write_all(b"GET /probe HTTP/1.1\r\nhost: w\r\nconnection: close\r\n\r\n").await?;
    let answer = answer(stream).await?;
    ensure!(code(&answer) == "200", "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_new_certificate_is_served_without_a_restart_and_a_stop_is_graceful() -> Result<()> {
    let mut lone = Lone::start().await?;
    let authority = Authority::generate(now())?;
    let old = served(&lone).await?;
    lone.ca_pem = format!("{}{}", authority.cert_pem(), lone.ca_pem);
    let pair = lone.leaf(&authority)?;
    lone.serve_with(&pair).await?;
    lone.ca_pem = authority.cert_pem().to_owned();
    eventually(LIMIT, "the new certificate", || async {
        ensure!(served(&lone).await? != old, "still the old one");
        Ok(())
    })
    .await?;

    let mut kept = connect(&lone, &rustls::version::TLS13).await?;
    kept.write_all(b"GET /probe HTTP/1.1\r\nhost: w\r\n\r\n").await?;
    let mut bytes = vec![0; 1024];
    let read = kept.read(&mut bytes).await?;
    bytes.truncate(read);
    let before = String::from_utf8_lossy(&bytes).into_owned();
    ensure!(code(&before) == "200" && !before.to_lowercase().contains("connection: close"), "{before}");
    lone.process.terminate()?;
    lone.process.wait_for_log("asked to end", LIMIT).await?;
    // It still answers, and asks to be left; the API server then goes elsewhere.
    kept.write_all(b"GET /probe HTTP/1.1\r\nhost: w\r\n\r\n").await?;
    let after = answer(kept).await?;
    ensure!(code(&after) == "200" && after.to_lowercase().contains("connection: close"), "{after}");
    let status = lone.process.wait(LIMIT).await?;
    ensure!(status.success(), "{status}: {}", lone.process.tail(20));
    Ok(())
}

async fn served(lone: &Lone) -> Result<Vec<u8>> {
    let stream = connect(lone, &rustls::version::TLS13).await?;
    let certificates = stream.get_ref().1.peer_certificates().context("no certificate")?;
    Ok(certificates.first().context("no certificate")?.to_vec())
}
