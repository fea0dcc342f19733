//! Agents that behave as told.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use spawnery_proto::capability;
use spawnery_proto::v1alpha1::operator_to_proxy::Message as ToProxy;
use spawnery_proto::v1alpha1::operator_to_server::Message as ToServer;
use spawnery_proto::v1alpha1::{
    DirectoryApplied, Hello, OperatorToProxy, OperatorToServer, PlayerCount, ProxyMessage, ServerMessage,
    proxy_message, server_message,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_stream::Stream as _;
use tokio_stream::wrappers::WatchStream;
use tonic::{Status, Streaming};

use super::rig::{EPOCH, INTERVAL, LIMIT};

/// An agent's end of one session.
pub(super) struct Agent<Say, Hear> {
    say: Option<mpsc::UnboundedSender<Say>>,
    hears: Streaming<Hear>,
    gate: watch::Sender<bool>,
    pub(super) directory: BTreeSet<String>,
}

impl<Say, Hear> Agent<Say, Hear> {
    pub(super) fn new(say: mpsc::UnboundedSender<Say>, hears: Streaming<Hear>, gate: watch::Sender<bool>) -> Self {
        Self { say: Some(say), hears, gate, directory: BTreeSet::new() }
    }

    pub(super) fn say(&self, message: impl Into<Said<Say>>) {
        let Said(message) = message.into();
        self.say.as_ref().expect("not finished").send(message).unwrap_or_else(|_| panic!("the stream is up"));
    }

    /// The process stops: nothing is read or written any more.
    pub(super) fn freeze(&self, frozen: bool) {
        self.gate.send_replace(frozen);
    }

    /// The agent is done and says so.
    pub(super) fn finish(&mut self) {
        self.say = None;
    }

    /// How the stream ends; `None` = well.
    pub(super) async fn end(&mut self) -> Option<Status> {
        loop {
            match timeout(LIMIT, self.hears.message()).await.expect("the stream ends") {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }
}

impl Agent<ServerMessage, OperatorToServer> {
    pub(super) async fn hear(&mut self) -> ToServer {
        let heard = timeout(LIMIT, self.hears.message()).await.expect("in time").expect("no end");
        heard.and_then(|heard| heard.message).expect("a message")
    }

    pub(super) fn count(&self, players: i32, slots: i32, nonce: u64) {
        let count = PlayerCount { players, slots, nonce, servers: Vec::new() };
        self.say(ServerMessage { message: Some(server_message::Message::PlayerCount(count)) });
    }

    /// Answers the next request for a count.
    pub(super) async fn answer_requests(&mut self, players: i32) {
        loop {
            if let ToServer::ReportNow(now) = self.hear().await {
                return self.count(players, 20, now.nonce);
            }
        }
    }
}

impl Agent<ProxyMessage, OperatorToProxy> {
    pub(super) async fn hear(&mut self) -> ToProxy {
        let heard = timeout(LIMIT, self.hears.message()).await.expect("in time").expect("no end");
        heard.and_then(|heard| heard.message).expect("a message")
    }

    /// Obeys and confirms until nothing more is said.
    pub(super) async fn settle(&mut self) {
        let mut waits = LIMIT;
        while let Ok(heard) = timeout(waits, self.hears.message()).await {
            let Some(message) = heard.expect("no end").and_then(|heard| heard.message) else {
                continue;
            };
            waits = INTERVAL / 2;
            let revision = match message {
                ToProxy::FullSync(all) => {
                    self.directory = all.servers.into_iter().map(|server| server.name).collect();
                    all.revision
                }
                ToProxy::RegisterServer(one) => {
                    self.directory.extend(one.server.map(|server| server.name));
                    one.revision
                }
                ToProxy::UnregisterServer(one) => {
                    self.directory.remove(&one.name);
                    one.revision
                }
                ToProxy::ReportNow(now) => {
                    self.count(now.nonce);
                    continue;
                }
                _ => continue,
            };
            self.count(0);
            let applied = DirectoryApplied { revision, epoch: EPOCH };
            self.say(ProxyMessage { message: Some(proxy_message::Message::DirectoryApplied(applied)) });
        }
    }

    fn count(&self, nonce: u64) {
        let count = PlayerCount { players: 0, slots: 500, nonce, servers: Vec::new() };
        self.say(ProxyMessage { message: Some(proxy_message::Message::PlayerCount(count)) });
    }
}

/// A message of either kind of agent.
pub(super) struct Said<M>(M);

impl From<ServerMessage> for Said<ServerMessage> {
    fn from(message: ServerMessage) -> Self {
        Self(message)
    }
}

impl From<ProxyMessage> for Said<ProxyMessage> {
    fn from(message: ProxyMessage) -> Self {
        Self(message)
    }
}

impl From<Hello> for Said<ServerMessage> {
    fn from(hello: Hello) -> Self {
        Self(ServerMessage { message: Some(server_message::Message::Hello(hello)) })
    }
}

impl From<Hello> for Said<ProxyMessage> {
    fn from(hello: Hello) -> Self {
        Self(ProxyMessage { message: Some(proxy_message::Message::Hello(hello)) })
    }
}

/// The Hello of an agent of ours that cannot refuse newcomers.
pub(super) fn hello() -> Hello {
    let can = capability::ALL.iter().filter(|named| **named != capability::DOOR);
    Hello { version: "test".into(), ready: true, capabilities: can.map(ToString::to_string).collect() }
}

/// Bytes that stop flowing while the process is frozen.
pub(super) struct Gated {
    io: TlsStream<TcpStream>,
    frozen: watch::Receiver<bool>,
    changes: WatchStream<bool>,
}

impl Gated {
    pub(super) fn new(io: TlsStream<TcpStream>, frozen: watch::Receiver<bool>) -> Self {
        let changes = WatchStream::from_changes(frozen.clone());
        Self { io, frozen, changes }
    }
}

impl AsyncRead for Gated {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while let Poll::Ready(Some(_)) = Pin::new(&mut self.changes).as_mut().poll_next(cx) {}
        if *self.frozen.borrow() {
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if *self.frozen.borrow() {
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
