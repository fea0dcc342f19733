//! An operator in the test's own process: real TLS, real gRPC, and a test that says what it says.

#![allow(dead_code)] // each test file uses its part

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use jiff::Timestamp;
use spawnery_agent::dial::Dialer;
use spawnery_agent::session::Role;
use spawnery_agent::session::deadlines::Timing;
use spawnery_agent::session::state::{Adapter, Character, Source};
use spawnery_agent::{Options, RunError};
use spawnery_certs::{Authority, ServingCert, agent_server_config, operator_names};
use spawnery_proto::v1alpha1 as pb;
use spawnery_proto::{AgentService, AgentServiceServer};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// The name that agents dial and the certificate carries.
pub(crate) const ENDPOINT: &str = "spawnery-operator.spawnery-system.svc:9443";
/// Nothing in these tests takes so long; what does has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// Clocks short enough for tests. Only reports and renewals are whole seconds, by the protocol.
pub(crate) const TIMING: Timing = Timing {
    silence: Duration::from_millis(600),
    unanswered: Duration::from_secs(10),
    slack: Duration::from_secs(1),
    connect: Duration::from_secs(5),
    backoff_first: Duration::from_millis(40),
    backoff_cap: Duration::from_millis(200),
    linger: Duration::from_secs(2),
};

/// Waits for `what`, at most [`LIMIT`].
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| unreachable!("no {what} within {LIMIT:?}"))
}

/// The system's clock: rustls checks certificates against it.
pub(crate) fn now() -> Timestamp {
    let since_epoch = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
    Timestamp::from_second(since_epoch.as_secs().cast_signed()).expect("in range")
}

/// The agent has dropped the stream.
#[derive(Debug)]
pub(crate) struct Gone;

/// One stream, seen from the operator.
pub(crate) struct Session<I, O> {
    /// The authorization that came with it.
    pub(crate) authorization: String,
    /// The agent's first message.
    pub(crate) hello: I,
    words: Streaming<I>,
    say: mpsc::Sender<Result<O, Status>>,
}

pub(crate) type ServerSession = Session<pb::ServerMessage, pb::OperatorToServer>;
pub(crate) type ProxySession = Session<pb::ProxyMessage, pb::OperatorToProxy>;

impl<I, O> Session<I, O> {
    /// Says `message` to the agent.
    pub(crate) async fn say(&self, message: O) {
        self.say.send(Ok(message)).await.expect("the agent still listens");
    }

    /// As [`Self::say`], to an agent that may be gone.
    pub(crate) async fn try_say(&self, message: O) -> Result<(), Gone> {
        self.say.send(Ok(message)).await.map_err(|_| Gone)
    }

    /// What the agent says next; `None` when it has half-closed or gone.
    pub(crate) async fn hear(&mut self) -> Option<I> {
        within("message of the agent", self.words.message()).await.unwrap_or(None)
    }
}

impl ServerSession {
    pub(crate) async fn tell(&self, message: pb::operator_to_server::Message) {
        self.say(pb::OperatorToServer { message: Some(message) }).await;
    }

    pub(crate) async fn heard(&mut self) -> Option<pb::server_message::Message> {
        self.hear().await.and_then(|message| message.message)
    }

    /// The next count.
    pub(crate) async fn count(&mut self) -> pb::PlayerCount {
        loop {
            match self.heard().await {
                Some(pb::server_message::Message::PlayerCount(count)) => return count,
                Some(_) => {}
                None => unreachable!("the stream ended before a count"),
            }
        }
    }

    /// Greets as every operator does.
    pub(crate) async fn greet(&self) {
        self.tell(pb::operator_to_server::Message::ReportInterval(pb::ReportInterval { seconds: 30 })).await;
    }
}

impl ProxySession {
    pub(crate) async fn tell(&self, message: pb::operator_to_proxy::Message) {
        self.say(pb::OperatorToProxy { message: Some(message) }).await;
    }

    pub(crate) async fn heard(&mut self) -> Option<pb::proxy_message::Message> {
        self.hear().await.and_then(|message| message.message)
    }

    pub(crate) async fn greet(&self) {
        self.tell(pb::operator_to_proxy::Message::ReportInterval(pb::ReportInterval { seconds: 30 })).await;
    }

    pub(crate) async fn sync(&self, names: &[&str], revision: u64, epoch: u64) {
        let server = |name: &&str| pb::RegisteredServer {
            name: (*name).to_owned(),
            address: "127.0.0.9:25565".into(),
            group: "lobby".into(),
        };
        let servers = names.iter().map(server).collect();
        self.tell(pb::operator_to_proxy::Message::FullSync(pb::FullSync { servers, revision, epoch })).await;
    }
}

struct Service {
    servers: mpsc::Sender<ServerSession>,
    proxies: mpsc::Sender<ProxySession>,
}

type Out<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Reads the Hello before it answers even with headers, as upstream's operator may.
async fn open<I, O: Send + 'static>(
    request: Request<Streaming<I>>,
    to: &mpsc::Sender<Session<I, O>>,
) -> Result<Response<Out<O>>, Status> {
    let authorization = request.metadata().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or("");
    let authorization = authorization.to_owned();
    let mut words = request.into_inner();
    let hello = words.message().await?.ok_or_else(|| Status::invalid_argument("no first message"))?;
    let (say, said) = mpsc::channel(64);
    let opened = to.send(Session { authorization, hello, words, say }).await;
    opened.map_err(|_| Status::unavailable("the test is over"))?;
    Ok(Response::new(Box::pin(ReceiverStream::new(said))))
}

#[tonic::async_trait]
impl AgentService for Service {
    type ProxySessionStream = Out<pb::OperatorToProxy>;
    type ServerSessionStream = Out<pb::OperatorToServer>;

    async fn proxy_session(
        &self,
        request: Request<Streaming<pb::ProxyMessage>>,
    ) -> Result<Response<Self::ProxySessionStream>, Status> {
        open(request, &self.proxies).await
    }

    async fn server_session(
        &self,
        request: Request<Streaming<pb::ServerMessage>>,
    ) -> Result<Response<Self::ServerSessionStream>, Status> {
        open(request, &self.servers).await
    }
}

/// The operator: where it listens and what comes in.
pub(crate) struct Operator {
    pub(crate) address: SocketAddr,
    pub(crate) ca: Arc<Authority>,
    servers: mpsc::Receiver<ServerSession>,
    proxies: mpsc::Receiver<ProxySession>,
    task: JoinHandle<()>,
}

impl Operator {
    /// On a free port, with a CA of its own.
    pub(crate) async fn start() -> Self {
        let ca = Arc::new(Authority::generate(now()).expect("a CA"));
        Self::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ca).await
    }

    /// At `address`, with a leaf of `ca`.
    pub(crate) async fn at(address: SocketAddr, ca: Arc<Authority>) -> Self {
        let cert = ServingCert::empty();
        cert.set(&ca.leaf(now(), &operator_names("spawnery-system")).expect("a leaf")).expect("servable");
        let acceptor = TlsAcceptor::from(Arc::new(agent_server_config(cert).expect("a configuration")));
        let listener = within("listener", bind_again(address)).await;
        let address = listener.local_addr().expect("an address");
        let ((servers_tx, servers), (proxies_tx, proxies)) = (mpsc::channel(8), mpsc::channel(8));
        let service = AgentServiceServer::new(Service { servers: servers_tx, proxies: proxies_tx });
        let (connections_tx, connections) = mpsc::channel(8);
        let task = tokio::spawn(async move {
            let accept = async {
                while let Ok((tcp, _)) = listener.accept().await {
                    if let Ok(tls) = acceptor.accept(tcp).await
                        && connections_tx.send(Ok::<_, std::io::Error>(tls)).await.is_err()
                    {
                        break;
                    }
                }
            };
            let serve = tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(ReceiverStream::new(connections));
            tokio::select! {
                () = accept => {}
                _ = serve => {}
            }
        });
        Self { address, ca, servers, proxies, task }
    }

    /// The next session of a server.
    pub(crate) async fn server(&mut self) -> ServerSession {
        within("session of a server", self.servers.recv()).await.expect("the operator runs")
    }

    /// The next session of a proxy.
    pub(crate) async fn proxy(&mut self) -> ProxySession {
        within("session of a proxy", self.proxies.recv()).await.expect("the operator runs")
    }

    /// Whether another session is opened within `limit`.
    pub(crate) async fn another_server_within(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.servers.recv()).await.is_ok()
    }

    /// Ends at once, listener and connections; where it listened and its CA are what is left.
    pub(crate) async fn kill(self) -> (SocketAddr, Arc<Authority>) {
        self.task.abort();
        let _cancelled = self.task.await;
        (self.address, self.ca)
    }
}

/// The port of an operator that was just killed is free a moment later.
async fn bind_again(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// An address on which nobody listens.
pub(crate) async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.expect("a free port").local_addr().expect("an address")
}

/// An agent running in the test's process.
pub(crate) struct Agent {
    pub(crate) directory: TempDir,
    pub(crate) local: SocketAddr,
    pub(crate) gate: SocketAddr,
    pub(crate) hook: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

pub(crate) const SERVER: Character =
    Character { role: Role::Server, source: Source::Local, adapter: Adapter::None, door_enforced: false };
pub(crate) const PROXY: Character = Character { role: Role::Proxy, adapter: Adapter::External, ..SERVER };

impl Agent {
    /// Of this character, towards `operator`.
    pub(crate) async fn start(character: Character, operator: &Operator) -> Self {
        Self::start_with(character, operator, |_| {}).await
    }

    /// As [`Self::start`], with options changed.
    pub(crate) async fn start_with(
        character: Character,
        operator: &Operator,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (ca_file, token_file) = (directory.path().join("ca.crt"), directory.path().join("token"));
        std::fs::write(&ca_file, operator.ca.cert_pem()).expect("written");
        std::fs::write(&token_file, "first\n").expect("written");
        let (local, gate, hook) = (free_address().await, free_address().await, free_address().await);
        let mut options = Options {
            name: "lobby-a2".to_owned(),
            character,
            slots: None,
            ping: None,
            ping_interval: Duration::from_millis(50),
            local_listen: local,
            gate: (character.role == Role::Proxy).then_some(gate),
            hook,
            dialer: Dialer {
                role: character.role,
                endpoint: ENDPOINT.parse().expect("an endpoint"),
                dial_address: Some(operator.address),
                ca_file,
                token_file,
                connect_limit: TIMING.connect,
            },
            timing: TIMING,
        };
        change(&mut options);
        let stop = CancellationToken::new();
        let task = tokio::spawn(spawnery_agent::run(options, stop.clone()));
        let agent = Self { directory, local, gate, hook, stop, task };
        within("local API", agent.answers()).await;
        agent
    }

    async fn answers(&self) {
        while TcpStream::connect(self.local).await.is_err() {
            assert!(!self.task.is_finished(), "the agent ended");
            tokio::task::yield_now().await;
        }
    }

    /// Writes another token.
    pub(crate) fn rotate_token(&self, token: &str) {
        std::fs::write(self.directory.path().join("token"), token).expect("written");
    }

    /// Writes another bundle.
    pub(crate) fn rotate_bundle(&self, pem: &str) {
        std::fs::write(self.directory.path().join("ca.crt"), pem).expect("written");
    }

    /// A request to the local API: status and body.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &serde_json::Value) -> (u16, serde_json::Value) {
        within("answer of the local API", Self::exchange(self.local, method, path, body)).await.expect("an answer")
    }

    /// Calls the pre-stop hook as a kubelet does, as soon as it is served; why the game may stop.
    pub(crate) fn pre_stop(&self, query: &str) -> JoinHandle<String> {
        let (hook, path) = (self.hook, format!("/v1/pre-stop{query}"));
        let call = async move {
            loop {
                match Self::exchange(hook, "GET", &path, &serde_json::Value::Null).await {
                    Ok((_, answer)) => {
                        return answer.get("why").and_then(|why| why.as_str()).unwrap_or_default().to_owned();
                    }
                    Err(_not_yet) => tokio::task::yield_now().await,
                }
            }
        };
        tokio::spawn(call)
    }

    async fn exchange(
        address: SocketAddr,
        method: &str,
        path: &str,
        body: &serde_json::Value,
    ) -> std::io::Result<(u16, serde_json::Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(address).await?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let json = answer.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body).unwrap_or_default());
        Ok((status, json.unwrap_or_default()))
    }

    /// What the agent knows.
    pub(crate) async fn state(&self) -> serde_json::Value {
        self.call("GET", "/v1/state", &serde_json::Value::Null).await.1
    }

    /// Waits until what the agent knows is as `holds` says.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&serde_json::Value) -> bool) {
        within(what, async { while !holds(&self.state().await) {} }).await;
    }

    /// Asks it to end, and waits.
    pub(crate) async fn stop(self) -> Result<(), RunError> {
        self.stop.cancel();
        within("end of the agent", self.task).await.expect("no panic")
    }
}
