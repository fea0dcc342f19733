//! A server on loopback, and agents that dial it.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use rustls::pki_types::ServerName;
use spawnery_certs::issue::{Authority, operator_names};
use spawnery_certs::serve::{ServingCert, agent_server_config};
use spawnery_core::door::{Introduction, ProxyFacts, ProxyView, ServerView, ServerWant, WantDoor};
use spawnery_core::ledger::Role;
use spawnery_proto::AgentServiceClient;
use spawnery_proto::v1alpha1::{OperatorToProxy, OperatorToServer, ProxyMessage, ServerMessage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::agent::{Agent, Gated};
use crate::channel::auth::{Accepted, Authenticate, Refusal};
use crate::channel::metrics::ChannelMetrics;
use crate::channel::{self, ChannelConfig};
use crate::hub::{Hub, HubConfig};

pub(super) const EPOCH: u64 = 7;
pub(super) const INTERVAL: Duration = Duration::from_millis(300);
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for a change before a condition is looked at all the same.
const PAUSE: Duration = Duration::from_millis(50);
const NAME: &str = "spawnery-operator.spawnery-system.svc";

/// What tests change.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) hard_deadline: Duration,
    pub(super) idle: Duration,
}

pub(super) fn quick() -> Times {
    Times { hard_deadline: Duration::from_mins(10), idle: Duration::from_mins(5) }
}

pub(super) struct Rig {
    pub(super) hub: Arc<Hub>,
    pub(super) ca: String,
    address: SocketAddr,
    registry: Registry,
    leads: Arc<AtomicBool>,
    stop: CancellationToken,
    server: JoinHandle<anyhow::Result<()>>,
}

impl Rig {
    pub(super) fn start(times: Times) -> Self {
        let now = spawnery_runtime::clock::Clock::system().wall();
        let authority = Authority::generate(now).unwrap();
        let serving = ServingCert::empty();
        serving.set(&authority.leaf(now, &operator_names("spawnery-system")).unwrap()).unwrap();
        let mut registry = Registry::default();
        let metrics = ChannelMetrics::new(&mut registry);
        let hub_config =
            HubConfig { report_interval: INTERVAL, hard_deadline: times.hard_deadline, ..HubConfig::default() };
        let hub = Hub::new(hub_config, metrics.clone());
        let leads = Arc::new(AtomicBool::new(true));
        let lease = Arc::clone(&leads);
        hub.lead(EPOCH, move || lease.load(Ordering::SeqCst));
        hub.listed();
        let config = ChannelConfig {
            report_interval: INTERVAL,
            hard_deadline: times.hard_deadline,
            keep_alive: INTERVAL,
            idle: times.idle,
            grace: Duration::from_millis(500),
            ..ChannelConfig::default()
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Arc::new(agent_server_config(serving).unwrap());
        let stop = CancellationToken::new();
        let (ticking, stopping) = (Arc::clone(&hub), stop.clone());
        tokio::spawn(async move { ticking.run(stopping).await });
        let serve = channel::serve(config, listener, tls, Arc::clone(&hub), Arc::new(Fake), metrics, stop.clone());
        Self { hub, ca: authority.cert_pem().to_owned(), address, registry, leads, stop, server: tokio::spawn(serve) }
    }

    pub(super) fn want(&self, name: &str, door: WantDoor) {
        self.hub.want(ServerWant {
            uid: name.into(),
            namespace: "game".into(),
            name: name.into(),
            group: "lobby".into(),
            address: format!("{name}:25565"),
            was_routable: door == WantDoor::Open,
            door,
        });
    }

    pub(super) fn observe(&self, name: &str) {
        self.hub.observe_proxy(ProxyFacts {
            uid: name.into(),
            namespace: "game".into(),
            name: name.into(),
            group: "edge".into(),
            fallback_groups: vec!["lobby".into()],
            terminal: false,
            started: true,
            container_since: None,
            routable: true,
            host_port: false,
        });
    }

    pub(super) fn view(&self, name: &str) -> ServerView {
        self.hub.server(&name.into(), tokio::time::Instant::now().into_std())
    }

    pub(super) fn proxy_view(&self, name: &str) -> ProxyView {
        self.hub.proxy(&name.into(), tokio::time::Instant::now().into_std())
    }

    pub(super) fn lose_lease(&self) {
        self.leads.store(false, Ordering::SeqCst);
    }

    /// Waits until `holds`: looks again after each change that the hub tells of.
    pub(super) async fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        let mut changes = self.hub.changes();
        let wait = async {
            while !holds() {
                // The end of the pause is no fault: metrics change without a word from the hub.
                _ = timeout(PAUSE, changes.next()).await;
            }
        };
        timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("not in time: {what}"));
    }

    pub(super) fn metrics_text(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        timeout(LIMIT, self.server).await.expect("in time").expect("no panic").expect("no error");
    }

    pub(super) async fn handshake(&self, config: rustls::ClientConfig) -> io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(NAME).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }

    pub(super) async fn plain_bytes(&self) {
        let mut tcp = TcpStream::connect(self.address).await.unwrap();
        tcp.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        _ = timeout(LIMIT, tcp.read_to_end(&mut answer)).await.expect("an answer or an end");
    }

    pub(super) async fn try_open(&self, role: Role, token: Option<&str>) -> Result<(), Status> {
        let (mut client, _gate) = self.dial().await;
        match role {
            Role::Server => {
                let (_say, said) = mpsc::unbounded_channel::<ServerMessage>();
                client.server_session(request(said, token)).await.map(|_| ())
            }
            Role::Proxy => {
                let (_say, said) = mpsc::unbounded_channel::<ProxyMessage>();
                client.proxy_session(request(said, token)).await.map(|_| ())
            }
        }
    }

    pub(super) async fn server(&self, name: &str) -> Agent<ServerMessage, OperatorToServer> {
        let (mut client, gate) = self.dial().await;
        let (say, said) = mpsc::unbounded_channel();
        let hears = client.server_session(request(said, Some(name))).await.unwrap().into_inner();
        Agent::new(say, hears, gate)
    }

    pub(super) async fn proxy(&self, name: &str) -> Agent<ProxyMessage, OperatorToProxy> {
        let (mut client, gate) = self.dial().await;
        let (say, said) = mpsc::unbounded_channel();
        let hears = client.proxy_session(request(said, Some(name))).await.unwrap().into_inner();
        Agent::new(say, hears, gate)
    }

    async fn dial(&self) -> (AgentServiceClient<Channel>, watch::Sender<bool>) {
        let config = spawnery_certs::client::client_config(&self.ca).unwrap();
        let tls = self.handshake(config).await.unwrap();
        let (gate, frozen) = watch::channel(false);
        let io = Gated::new(tls, frozen);
        let mut io = Some(TokioIo::new(io));
        let connect = tower::service_fn(move |_| {
            let io = io.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
            async move { io }
        });
        let endpoint = Endpoint::from_static("http://operator");
        let channel = endpoint.connect_with_connector(connect).await.unwrap();
        (AgentServiceClient::new(channel), gate)
    }
}

fn request<M: Send + 'static>(
    said: mpsc::UnboundedReceiver<M>,
    token: Option<&str>,
) -> Request<UnboundedReceiverStream<M>> {
    let mut request = Request::new(UnboundedReceiverStream::new(said));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

pub(super) fn tls_1_2(ca: &str) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in spawnery_certs::parse::certificates(ca) {
        roots.add(certificate).unwrap();
    }
    let builder = rustls::ClientConfig::builder_with_provider(spawnery_certs::provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

pub(super) async fn reads_the_end(mut stream: TlsStream<TcpStream>) {
    let mut rest = Vec::new();
    _ = timeout(LIMIT, stream.read_to_end(&mut rest)).await.expect("the connection ends");
}

/// Takes the token for the pod's name.
struct Fake;

impl Authenticate for Fake {
    fn authenticate<'a>(&'a self, token: &'a str, role: Role, _: IpAddr) -> BoxFuture<'a, Result<Accepted, Refusal>> {
        let judged = match token {
            "" => Err(Refusal::NoToken),
            "refuse" => Err(Refusal::TokenNotAccepted),
            "outage" => Err(Refusal::Unavailable),
            "limited" => Err(Refusal::RateLimited),
            name => Ok(Accepted {
                namespace: "game".into(),
                who: Introduction { uid: name.into(), name: name.into(), group: "group".into(), role },
            }),
        };
        std::future::ready(judged).boxed()
    }
}
