//! Requests at a fixed rate over connections that stay open.
//!
//! The rate does not depend on the answers (an open loop): a request is due at its moment, and its time counts from then,
//! so that a server that stalls is charged for everybody who had to wait.

use super::Samples;
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use spawnery_certs::client_config;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::TcpStream,
    sync::mpsc::{Receiver, Sender, channel},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// Connections that share the load. One carries one request at a time.
const CONNECTIONS: usize = 16;
/// A connection on loopback is there at once; beside a build it takes longer.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Requests that wait for their connection: several seconds' worth. More is a server that is down.
const BACKLOG: usize = 1024;
/// From the last request on.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// Who is loaded, and with what.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// The name in its certificate.
    pub host: String,
    /// Who issued that.
    pub ca_pem: String,
    /// Path and query.
    pub path: String,
    /// The bodies that are posted, in turn.
    pub bodies: Vec<Bytes>,
    /// What every answer, which must be 200, must hold.
    pub expect: String,
}

/// How much is asked.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests a second.
    pub rate: u32,
    /// For how long.
    pub duration: Duration,
}

impl Load {
    /// Puts the load on the target; every answer's time, from when the request was due to the answer's end.
    ///
    /// # Errors
    /// When an answer is missing or is another one than expected.
    pub async fn put(self, target: &Target) -> Result<Samples> {
        ensure!(!target.bodies.is_empty(), "nothing to post");
        let target = Arc::new(target.clone());
        let mut connections = JoinSet::new();
        let mut queues = Vec::new();
        for _ in 0..CONNECTIONS {
            let connection = timeout(CONNECT_LIMIT, connect(&target)).await;
            let connection = connection.with_context(|| format!("{} takes no connection", target.address))??;
            let (queue, due) = channel(BACKLOG);
            queues.push(queue);
            connections.spawn(carry(connection, due, Arc::clone(&target)));
        }
        let pace = tokio::task::spawn_blocking(move || self.pace(&queues));
        pace.await.context("the pacer ended early")??;
        let mut times = Vec::new();
        while let Some(carried) = timeout(DRAIN_LIMIT, connections.join_next()).await.context("answers are missing")? {
            times.extend(carried.context("a connection's task ended early")??);
        }
        Ok(times.into_iter().collect())
    }

    /// Hands out the moments at which requests are due. On a thread of its own, because timers of tokio count whole
    /// milliseconds.
    fn pace(self, queues: &[Sender<Due>]) -> Result<()> {
        let count = u32::try_from(self.duration.as_millis() * u128::from(self.rate) / 1000).unwrap_or(u32::MAX);
        let start = Instant::now();
        for (n, queue) in (0..count).zip(queues.iter().cycle()) {
            let at = start + Duration::from_secs(u64::from(n)) / self.rate.max(1);
            loop {
                let early = at.saturating_duration_since(Instant::now());
                if early.is_zero() {
                    break;
                }
                // May return before its time; nobody unparks.
                std::thread::park_timeout(early);
            }
            let full = || format!("request {n}: more than {BACKLOG} wait on one connection, or it broke");
            queue.try_send(Due { n, at }).ok().with_context(full)?;
        }
        Ok(())
    }
}

/// One request that is due.
#[derive(Debug)]
struct Due {
    n: u32,
    at: Instant,
}

type Connection = SendRequest<Full<Bytes>>;

async fn connect(target: &Target) -> Result<Connection> {
    let mut tls = client_config(&target.ca_pem).context("not a CA")?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from(target.host.clone()).context("not a host name")?;
    let stream = TcpStream::connect(target.address).await.context("could not connect")?;
    stream.set_nodelay(true).context("could not set up the socket")?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.context("no TLS")?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.context("no HTTP")?;
    // When it breaks, the request on it says so.
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends what is due on one connection, one after another.
async fn carry(mut connection: Connection, mut due: Receiver<Due>, target: Arc<Target>) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    while let Some(Due { n, at }) = due.recv().await {
        let body = usize::try_from(n)?.checked_rem(target.bodies.len()).and_then(|n| target.bodies.get(n));
        let request = Request::post(&target.path)
            .header(header::HOST, &target.host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.context("nothing to post")?.clone()))?;
        connection.ready().await.context("the connection broke")?;
        let answer = connection.send_request(request).await.with_context(|| format!("no answer to request {n}"))?;
        let status = answer.status();
        let body = answer.into_body().collect().await.context("the answer broke off")?.to_bytes();
        times.push(at.elapsed());
        let text = String::from_utf8_lossy(&body);
        ensure!(status == StatusCode::OK && text.contains(&target.expect), "request {n} was answered {status} {text}");
    }
    Ok(times)
}
