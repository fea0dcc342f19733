//! A reverse proxy between one client and the API server, which delays, drops and refuses by rules.
//!
//! ```text
//!  client ── TLS, HTTP/1.1, the client's own token ──▶ FaultProxy ── the same request ──▶ API server
//!                                                        │
//!                                              Rules: the first match decides
//! ```

pub mod request;
pub mod rule;

use crate::cluster::{Cluster, kubeconfig};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use parking_lot::Mutex;
use request::Asked;
use rule::{Fault, Rule, RuleId, Rules};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// A client on loopback that takes longer has given up.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

type Upstream = Client<HttpsConnector<HttpConnector>, Incoming>;
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// A running fault proxy. It ends when this is dropped; connections through it are cut then.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    cluster: Cluster,
    // Its own, so that a test that blocks its thread does not stop the proxy. `None` only while it is dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

#[derive(Debug)]
struct Shared {
    rules: Mutex<Rules>,
    /// Ends all connections of the moment; replaced when used.
    cut: Mutex<CancellationToken>,
    upstream: Upstream,
    authority: String,
}

impl Cluster {
    /// Starts a proxy in front of the API server, without rules.
    pub async fn fault_proxy(&self) -> Result<FaultProxy> {
        let address = self.free_address();
        let server = self.issue(address)?.server_config()?;
        let listener = TcpListener::bind((address, crate::cluster::API_PORT)).await.context("could not listen")?;
        let address = listener.local_addr().context("could not read the proxy's address")?;
        let listener = listener.into_std().context("could not hand the listener over")?;
        let shared = Arc::new(Shared {
            rules: Mutex::default(),
            cut: Mutex::default(),
            upstream: upstream(self.ca_pem())?,
            authority: format!("{}:{}", self.address(), crate::cluster::API_PORT),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fault proxy")
            .enable_all()
            .build()
            .context("could not start a runtime")?;
        runtime.spawn(accept(listener, TlsAcceptor::from(Arc::new(server)), Arc::clone(&shared)));
        Ok(FaultProxy { address, shared, cluster: self.clone(), runtime: Some(runtime) })
    }
}

impl FaultProxy {
    /// Its URL, in place of the API server's.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig like this one, but through the proxy.
    pub fn kubeconfig(&self, original: &Path) -> Result<PathBuf> {
        let token = kubeconfig::token(original)?;
        let name = original.file_stem().context("not a file")?.to_string_lossy();
        let path = self.cluster.directory().join(format!("{name}-via-{}.kubeconfig", self.address.ip()));
        kubeconfig::write(&path, &self.url(), &self.cluster.ca_file(), &token)?;
        Ok(path)
    }

    /// An admin's client through the proxy.
    pub async fn client(&self) -> Result<kube::Client> {
        kubeconfig::client(&self.kubeconfig(&self.cluster.kubeconfig())?).await
    }

    /// Adds a rule after the others; it holds from the next request on.
    pub fn add(&self, rule: Rule) -> RuleId {
        self.shared.rules.lock().add(rule)
    }

    /// Takes a rule away.
    pub fn remove(&self, id: RuleId) {
        self.shared.rules.lock().remove(id);
    }

    /// Takes all rules away.
    pub fn clear(&self) {
        self.shared.rules.lock().clear();
    }

    /// How many requests a rule was applied to.
    pub fn hits(&self, id: RuleId) -> u64 {
        self.shared.rules.lock().hits(id)
    }

    /// Cuts all connections, watches included. New ones are accepted.
    pub fn cut(&self) {
        std::mem::take(&mut *self.shared.cut.lock()).cancel();
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A test's runtime may be running on this thread, where waiting for another is not allowed.
            runtime.shutdown_background();
        }
    }
}

fn upstream(ca_pem: &str) -> Result<Upstream> {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).context("the CA is not PEM")?;
    roots.add(ca).context("the CA is not a certificate")?;
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

async fn accept(listener: std::net::TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(error = %error, "the fault proxy cannot listen"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, tls.clone(), Arc::clone(&shared)))),
            // A connection that was gone before it was taken.
            Err(error) => tracing::debug!(error = %error, "the fault proxy could not accept"),
        }
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, shared: Arc<Shared>) {
    let cut = shared.cut.lock().clone();
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_LIMIT, tls.accept(stream)).await else {
        return;
    };
    let service = hyper::service::service_fn(|request| answer(request, Arc::clone(&shared)));
    let serve = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // The end of a connection is no news here: the client sees it, and dropping is what rules ask for.
        _ = serve => {}
        () = cut.cancelled() => {}
    }
}

/// Why a connection ends; the client sees only that it does.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("a rule drops this request")]
    Dropped,
    #[error("the API server did not answer")]
    Upstream(#[source] hyper_util::client::legacy::Error),
    #[error("not a request")]
    Malformed(#[source] http::Error),
}

async fn answer(mut request: Request<Incoming>, shared: Arc<Shared>) -> Result<Answer, Ended> {
    let asked = Asked::read(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
    let (delay, fault) = shared.rules.lock().judge(&asked);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    match fault {
        Fault::Pass | Fault::DropAnswer => {}
        Fault::Drop => return Err(Ended::Dropped),
        Fault::Hang => std::future::pending().await,
        Fault::Status(code) => return refuse(code, &asked).map_err(Ended::Malformed),
    }
    let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let uri = Uri::builder().scheme("https").authority(shared.authority.as_str()).path_and_query(target).build();
    *request.uri_mut() = uri.map_err(Ended::Malformed)?;
    // These two are about the client's connection to us.
    request.headers_mut().remove(header::CONNECTION);
    request.headers_mut().remove(header::HOST);
    let response = shared.upstream.request(request).await.map_err(Ended::Upstream)?;
    match fault {
        Fault::DropAnswer => Err(Ended::Dropped),
        _ => Ok(response.map(Either::Left)),
    }
}

fn refuse(code: u16, asked: &Asked) -> Result<Answer, http::Error> {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    };
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("fault proxy: {} {} is answered with {code}", asked.verb, asked.path),
    });
    Response::builder()
        .status(StatusCode::from_u16(code)?)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Either::Right(Full::from(body.to_string())))
}
