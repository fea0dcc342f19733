//! What a game says to the agent in its pod, and hears from it: the agent's local HTTP API.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The port of the local API, at the pod's address.
pub const PORT: u16 = 8090;
/// How long the agent may hold an answer back when nothing has changed.
const LONG_POLL: Duration = Duration::from_secs(20);
/// An agent answers at once; one that does not is frozen.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// More than a directory of some thousand servers.
const BODY_LIMIT_BYTES: usize = 8 << 20;

/// What went wrong in talking to the agent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody there, or the connection broke.
    #[error("could not reach the agent for {what}")]
    Unreachable {
        /// Method and path.
        what: String,
        /// The connection's fault.
        #[source]
        source: hyper_util::client::legacy::Error,
    },
    /// The agent is frozen.
    #[error("no answer to {what} in {limit:?}")]
    Slow {
        /// Method and path.
        what: String,
        /// How long we waited.
        limit: Duration,
    },
    /// The agent says no.
    #[error("{what}: {status} {body}")]
    Refused {
        /// Method and path.
        what: String,
        /// Its status.
        status: StatusCode,
        /// What it says about it.
        body: String,
    },
    /// The answer broke off, or is not what was agreed.
    #[error("could not read the answer to {what}")]
    Unreadable {
        /// Method and path.
        what: String,
        /// The fault in it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A server in the agent's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where its game listens, `host:port`.
    pub address: String,
    /// The group that it belongs to.
    pub group: String,
}

/// An order to move everybody off a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// The server that shall become empty.
    pub from_server: String,
    /// Where to: the first group that has a server.
    pub to_groups: Vec<String>,
}

/// What a proxy routes by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    /// Grows with each change, within one run of the agent.
    pub seq: u64,
    /// Every server that newcomers may be sent to.
    pub servers: Vec<Listed>,
    /// Drains in force.
    #[serde(default)]
    pub drains: Vec<Drain>,
    /// Whether this proxy may take newcomers at all.
    #[serde(default = "yes")]
    pub accepting: bool,
}

fn yes() -> bool {
    true
}

/// What a proxy has on one server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnServer {
    /// Players whose game goes to the server.
    pub players: u32,
    /// Players on the way to it.
    pub connecting: u32,
}

/// What a proxy has, all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Players on this proxy.
    pub players: u32,
    /// Most players that it takes.
    pub slots: u32,
    /// Every server that a player is on or on the way to.
    pub servers: BTreeMap<String, OnServer>,
    /// Grows with each report; the agent drops one that was overtaken.
    pub serial: u64,
}

/// The local API of one agent.
#[derive(Debug, Clone)]
pub struct LocalApi {
    http: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
}

impl LocalApi {
    /// The agent that listens at this address.
    pub fn new(address: SocketAddr) -> Self {
        Self { http: Client::builder(TokioExecutor::new()).build_http(), address }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many players the server has.
    pub async fn put_count(&self, players: u32, slots: u32, serial: u64) -> Result<(), Error> {
        let body = serde_json::json!({ "players": players, "slots": slots, "serial": serial });
        self.send(Method::PUT, "/v1/count", Some(&body), ANSWER_LIMIT).await.map(drop)
    }

    /// The game cannot tell how many players there are; the agent stops counting.
    pub async fn put_unknown_count(&self) -> Result<(), Error> {
        let body = serde_json::json!({ "players": null, "slots": null });
        self.send(Method::PUT, "/v1/count", Some(&body), ANSWER_LIMIT).await.map(drop)
    }

    /// Whether the game has loaded.
    pub async fn put_ready(&self, ready: bool) -> Result<(), Error> {
        let body = serde_json::json!({ "ready": ready });
        self.send(Method::PUT, "/v1/ready", Some(&body), ANSWER_LIMIT).await.map(drop)
    }

    /// What the proxy has now.
    pub async fn put_occupancy(&self, occupancy: &Occupancy) -> Result<(), Error> {
        self.send(Method::PUT, "/v1/occupancy", Some(occupancy), ANSWER_LIMIT).await.map(drop)
    }

    /// The proxy routes by the directory `seq` from now on, and this is what it has, every earlier decision included.
    pub async fn post_applied(&self, seq: u64, occupancy: &Occupancy) -> Result<(), Error> {
        let body = serde_json::json!({ "seq": seq, "occupancy": occupancy });
        self.send(Method::POST, "/v1/applied", Some(&body), ANSWER_LIMIT).await.map(drop)
    }

    /// The directory, at once when it is another than `after`, else when it changes; none when it has not changed for
    /// a while.
    pub async fn directory(&self, after: u64) -> Result<Option<Directory>, Error> {
        let path = format!("/v1/directory?after={after}&timeoutSeconds={}", LONG_POLL.as_secs());
        let answer = self.send::<()>(Method::GET, &path, None, LONG_POLL + ANSWER_LIMIT).await?;
        let directory: Option<Directory> = answer.map(|body| parse(&path, &body)).transpose()?;
        Ok(directory.filter(|directory| directory.seq != after))
    }

    /// What the agent knows, as it says it.
    pub async fn state(&self) -> Result<serde_json::Value, Error> {
        let answer = self.send::<()>(Method::GET, "/v1/state", None, ANSWER_LIMIT).await?;
        parse("/v1/state", &answer.unwrap_or_default())
    }

    /// Sends a request; none is an answer without content.
    async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
        limit: Duration,
    ) -> Result<Option<Bytes>, Error> {
        let what = format!("{method} {path}");
        let unreadable = |source| Error::Unreadable { what: what.clone(), source };
        let bytes = body.map(serde_json::to_vec).transpose().map_err(|error| unreadable(error.into()))?;
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(bytes.unwrap_or_default()))
            .map_err(|error| unreadable(error.into()))?;
        let exchange = async {
            let unreachable = |source| Error::Unreachable { what: what.clone(), source };
            let answer = self.http.request(request).await.map_err(unreachable)?;
            let status = answer.status();
            let body =
                Limited::new(answer.into_body(), BODY_LIMIT_BYTES).collect().await.map_err(unreadable)?.to_bytes();
            if !status.is_success() {
                let body = String::from_utf8_lossy(&body).into_owned();
                return Err(Error::Refused { what: what.clone(), status, body });
            }
            Ok((status != StatusCode::NO_CONTENT).then_some(body))
        };
        let slow = |_| Error::Slow { what: what.clone(), limit };
        tokio::time::timeout(limit, exchange).await.map_err(slow)?
    }
}

fn parse<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|source| Error::Unreadable { what: what.to_owned(), source: source.into() })
}

/// Serial numbers for reports. All games that speak to one agent, one after another, share them.
#[derive(Debug, Clone, Default)]
pub struct Serials(Arc<AtomicU64>);

impl Serials {
    /// A number greater than all before it.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}
