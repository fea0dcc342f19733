//! Opening a session: TLS 1.3 pinned to the bundle on disk, the token on disk, Hello, and the operator's first word.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use spawnery_proto::AgentServiceClient;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Uri};
use tonic::{Request, Status};
use tower::service_fn;

use crate::session::{Incoming, Outgoing, Role, wire};

/// Messages handed to the transport ahead of the network. Small: what waits in our own outbox can still be replaced.
const AHEAD: usize = 4;
/// Largest message taken: a directory of some ten thousand servers.
const LARGEST_MESSAGE: usize = 8 * 1024 * 1024;

/// Where the operator is, as `host:port`; an IPv6 host in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// Not `host:port`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} is not host:port; accepted: a host name, an address or an IPv6 address in brackets, and a port from 1 to 65535"
)]
pub struct NotAnEndpoint(String);

impl FromStr for Endpoint {
    type Err = NotAnEndpoint;

    fn from_str(text: &str) -> Result<Self, NotAnEndpoint> {
        let refuse = || NotAnEndpoint(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(refuse)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(refuse)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(refuse());
        }
        let host = bare.unwrap_or(host);
        ServerName::try_from(host).map_err(|_| refuse())?;
        Ok(Self { host: host.to_owned(), port })
    }
}

/// Why no session was opened.
#[derive(Debug, Error)]
pub enum DialError {
    /// The token or the bundle cannot be read.
    #[error("could not read {}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The token file holds nothing that can be sent.
    #[error("{} holds no token", path.display())]
    Token {
        /// Which file.
        path: PathBuf,
    },
    /// The bundle trusts nobody.
    #[error("could not use {}", path.display())]
    Bundle {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: spawnery_certs::client::ClientError,
    },
    /// TCP or TLS failed.
    #[error("could not connect to {endpoint}")]
    Connect {
        /// Where to.
        endpoint: String,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// The operator ended the stream with a status.
    #[error("the operator refused the session ({:?}: {})", .0.code(), .0.message())]
    Refused(Box<Status>),
    /// The stream ended without a word.
    #[error("the operator ended the session without a word")]
    Ended,
    /// Nothing was heard in time.
    #[error("the operator did not answer within {after:?}")]
    Unanswered {
        /// How long we waited.
        after: Duration,
    },
}

/// What the operator says; `None` for what this version does not know, which is a sign of life all the same.
pub type Words = Pin<Box<dyn Stream<Item = Result<Option<Incoming>, Status>> + Send>>;

/// A session on which the operator has spoken.
pub struct Opened {
    /// What the agent said first.
    pub hello: Outgoing,
    /// What the operator said first.
    pub first: Option<Incoming>,
    /// To the operator; dropping it half-closes the stream.
    pub tx: mpsc::Sender<Outgoing>,
    /// From the operator.
    pub words: Words,
    /// Keeps the connection for as long as the stream is used.
    pub channel: Channel,
}

/// Opens sessions. Everything is read anew for each, so that rotated tokens and bundles take effect without a restart.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// Whose agent it is.
    pub role: Role,
    /// Where the operator is, and the name that its certificate must carry.
    pub endpoint: Endpoint,
    /// Connect here instead of resolving the endpoint's host.
    pub dial_address: Option<SocketAddr>,
    /// The CA bundle.
    pub ca_file: PathBuf,
    /// The bearer token.
    pub token_file: PathBuf,
    /// Bound of TCP and TLS.
    pub connect_limit: Duration,
}

impl Dialer {
    /// Opens a session that begins with `hello`, and waits at most `limit` for the operator's first word on it.
    pub async fn open(self, hello: Outgoing, limit: Duration) -> Result<Opened, DialError> {
        let unanswered = |_| DialError::Unanswered { after: limit };
        tokio::time::timeout(limit, self.greet(hello)).await.map_err(unanswered)?
    }

    async fn greet(self, hello: Outgoing) -> Result<Opened, DialError> {
        let token = self.token().await?;
        let channel = self.connect().await?;
        let (tx, rx) = mpsc::channel(AHEAD);
        // Queued before the call: an operator may wait for it before it answers even with headers.
        tx.try_send(hello.clone()).map_err(|_| DialError::Ended)?;
        let mut words =
            self.call(channel.clone(), token, rx).await.map_err(|status| DialError::Refused(status.into()))?;
        match words.next().await {
            Some(Ok(first)) => Ok(Opened { hello, first, tx, words, channel }),
            Some(Err(status)) => Err(DialError::Refused(status.into())),
            None => Err(DialError::Ended),
        }
    }

    async fn token(&self) -> Result<MetadataValue<Ascii>, DialError> {
        let path = || self.token_file.clone();
        let text = tokio::fs::read_to_string(&self.token_file)
            .await
            .map_err(|source| DialError::File { path: path(), source })?;
        let token = text.trim();
        if token.is_empty() {
            return Err(DialError::Token { path: path() });
        }
        let mut value: MetadataValue<Ascii> =
            format!("Bearer {token}").parse().map_err(|_| DialError::Token { path: path() })?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn connect(&self) -> Result<Channel, DialError> {
        let bundle = tokio::fs::read_to_string(&self.ca_file)
            .await
            .map_err(|source| DialError::File { path: self.ca_file.clone(), source })?;
        let config = spawnery_certs::client_config(&bundle)
            .map_err(|source| DialError::Bundle { path: self.ca_file.clone(), source })?;
        let tls = TlsConnector::from(Arc::new(config));
        let Endpoint { host, port } = self.endpoint.clone();
        let failed = |source| DialError::Connect { endpoint: format!("{host}:{port}"), source };
        let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        // The scheme is http only so that tonic leaves TLS to the connector; the operator sees https.
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{authority}")).map_err(failed)?;
        let origin = Uri::try_from(format!("https://{authority}")).unwrap_or_default();
        let (name, dial_address) = (host.clone(), self.dial_address);
        let connector = service_fn(move |_: Uri| {
            let (tls, name) = (tls.clone(), name.clone());
            async move {
                let tcp = match dial_address {
                    Some(address) => TcpStream::connect(address).await?,
                    None => TcpStream::connect((name.as_str(), port)).await?,
                };
                tcp.set_nodelay(true)?;
                let name = ServerName::try_from(name).map_err(std::io::Error::other)?;
                tls.connect(name, tcp).await.map(TokioIo::new)
            }
        });
        endpoint
            .origin(origin)
            .connect_timeout(self.connect_limit)
            .connect_with_connector(connector)
            .await
            .map_err(failed)
    }

    async fn call(
        &self,
        channel: Channel,
        token: MetadataValue<Ascii>,
        rx: mpsc::Receiver<Outgoing>,
    ) -> Result<Words, Status> {
        let mut client = AgentServiceClient::new(channel).max_decoding_message_size(LARGEST_MESSAGE);
        let outgoing = ReceiverStream::new(rx);
        match self.role {
            Role::Server => {
                let mut request = Request::new(outgoing.filter_map(wire::to_server_message));
                request.metadata_mut().insert("authorization", token);
                let words = client.server_session(request).await?.into_inner();
                Ok(Box::pin(words.map(|word| word.map(wire::from_operator_to_server))))
            }
            Role::Proxy => {
                let mut request = Request::new(outgoing.filter_map(wire::to_proxy_message));
                request.metadata_mut().insert("authorization", token);
                let words = client.proxy_session(request).await?.into_inner();
                Ok(Box::pin(words.map(|word| word.map(wire::from_operator_to_proxy))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::service("spawnery-operator.spawnery-system.svc:9443", Some(("spawnery-operator.spawnery-system.svc", 9443)))]
    #[case::address("127.0.0.1:9443", Some(("127.0.0.1", 9443)))]
    #[case::ipv6("[::1]:9443", Some(("::1", 9443)))]
    #[case::ipv6_without_brackets("::1:9443", None)]
    #[case::no_port("operator", None)]
    #[case::port_zero("operator:0", None)]
    #[case::port_too_large("operator:65536", None)]
    #[case::no_host(":9443", None)]
    #[case::not_a_name("op erator:9443", None)]
    fn endpoints(#[case] text: &str, #[case] want: Option<(&str, u16)>) {
        let got = text.parse::<Endpoint>().ok();
        assert_eq!(got.as_ref().map(|endpoint| (endpoint.host.as_str(), endpoint.port)), want);
    }
}
