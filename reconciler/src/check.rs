//! Asks an installation whether it is at work, from where its callers are: what `helm test` runs.
//!
//! Over the Services and verified with the CA, as the API server and agents do it. Needs no rights.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustls::pki_types::ServerName;
use spawnery_api::names::{object, port};
use spawnery_runtime::args::duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// One try of one thing.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Pause between two.
const RETRY: Duration = Duration::from_millis(500);
/// Far more than the webhook's answer to a probe.
const ANSWER_MAX_BYTES: u64 = 64 << 10;

/// Ask an installation whether it is at work, and end: 0 when it is.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// File with the CA's certificate, PEM: the key ca.crt of the Secret spawnery-webhook-tls.
    #[arg(long, value_name = "PATH")]
    pub ca_file: PathBuf,
    /// How long to wait until all is well.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    pub timeout: Duration,
}

/// Asks until all is well.
///
/// # Errors
/// When it is not within the time; says what was asked and what came of it.
pub async fn run(args: &Args, operator_namespace: &str) -> anyhow::Result<()> {
    let path = args.ca_file.display();
    let ca = tokio::fs::read_to_string(&args.ca_file).await.with_context(|| format!("could not read {path}"))?;
    let tls = spawnery_certs::client::client_config(&ca).with_context(|| format!("{path} holds no CA"))?;
    let until = Instant::now() + args.timeout;

    let webhook = Place::new(object::WEBHOOK, operator_namespace, port::WEBHOOK_SERVICE)?;
    let https = with_protocol(&tls, b"http/1.1");
    until_well(until, &webhook, "answers reviews", || probe(&webhook, &https)).await?;
    let agents = Place::new(object::OPERATOR, operator_namespace, port::AGENT)?;
    let grpc = with_protocol(&tls, b"h2");
    until_well(until, &agents, "takes agents", || async { dial(&agents, &grpc).await.map(drop) }).await
}

/// A port of one of our Services.
struct Place {
    host: String,
    port: u16,
}

impl Place {
    fn new(service: &str, namespace: &str, port: i32) -> anyhow::Result<Self> {
        let port = u16::try_from(port).context("not a port")?;
        Ok(Self { host: format!("{service}.{namespace}.svc"), port })
    }
}

fn with_protocol(tls: &rustls::ClientConfig, protocol: &[u8]) -> TlsConnector {
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(tls))
}

async fn until_well<F: Future<Output = anyhow::Result<()>>>(
    until: Instant,
    place: &Place,
    what: &'static str,
    ask: impl Fn() -> F,
) -> anyhow::Result<()> {
    loop {
        let answer = match tokio::time::timeout(ATTEMPT, ask()).await {
            Ok(answer) => answer,
            Err(_) => Err(anyhow::anyhow!("no answer within {ATTEMPT:?}")),
        };
        let Err(error) = answer else {
            tracing::info!(host = place.host, port = place.port, what, "is well");
            return Ok(());
        };
        if Instant::now() >= until {
            return Err(error.context(format!("{}:{} is not well", place.host, place.port)));
        }
        tracing::debug!(host = place.host, port = place.port, error = format!("{error:#}"), "not yet");
        tokio::time::sleep(RETRY).await;
    }
}

async fn dial(place: &Place, tls: &TlsConnector) -> anyhow::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect((place.host.as_str(), place.port)).await.context("could not connect")?;
    let name = ServerName::try_from(place.host.clone()).context("not a host name")?;
    tls.connect(name, stream).await.context("no TLS connection that our CA vouches for")
}

async fn probe(place: &Place, tls: &TlsConnector) -> anyhow::Result<()> {
    let mut stream = dial(place, tls).await?;
    let request = format!("GET /probe HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", place.host);
    stream.write_all(request.as_bytes()).await.context("could not ask")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX_BYTES).read_to_end(&mut answer).await.context("no answer")?;
    let answer = String::from_utf8_lossy(&answer);
    ensure!(is_well(&answer), "it says: {}", answer.trim_end());
    Ok(())
}

/// Whether an HTTP answer is 200.
fn is_well(answer: &str) -> bool {
    answer.split(' ').nth(1) == Some("200")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::ready("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true)]
    #[case::not_ready("HTTP/1.1 503 Service Unavailable\r\n\r\nnot ready: certificate", false)]
    #[case::nothing("", false)]
    fn tells_an_answer(#[case] answer: &str, #[case] want: bool) {
        assert_eq!(is_well(answer), want);
    }
}
