//! Connections: accepting them, their handshakes, and ending those that nobody uses.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Future;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::ChannelConfig;
use super::metrics::ChannelMetrics;

/// Connections whose handshake is done and that wait to be served.
const BACKLOG: usize = 64;
/// Pause after an accept that failed for want of resources.
const PAUSE: Duration = Duration::from_millis(50);

/// One connection, as its streams know it.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) peer: SocketAddr,
    streams: Arc<AtomicUsize>,
    kill: CancellationToken,
}

impl Connection {
    pub(super) fn new(peer: SocketAddr) -> Self {
        Self { peer, streams: Arc::default(), kill: CancellationToken::new() }
    }

    /// Counts a stream for as long as the answer lives: the connection is in use.
    pub(super) fn stream(&self) -> InUse {
        self.streams.fetch_add(1, Ordering::Relaxed);
        InUse(Arc::clone(&self.streams))
    }

    /// Ends the connection, whatever its peer does or does not read.
    pub(super) fn kill(&self) {
        self.kill.cancel();
    }

    /// Ends the connection when it has carried no stream for `idle`.
    async fn reap(self, idle: Duration) {
        let mut unused = false;
        loop {
            // Half of it twice: a connection that is unused at two looks in a row.
            tokio::select! {
                () = self.kill.cancelled() => return,
                () = tokio::time::sleep(idle / 2) => {}
            }
            let used = self.streams.load(Ordering::Relaxed) > 0;
            if !used && unused {
                return self.kill();
            }
            unused = !used;
        }
    }
}

/// A stream in use.
#[derive(Debug)]
pub(super) struct InUse(Arc<AtomicUsize>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where agents connect.
pub(super) struct Listener {
    socket: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
    config: ChannelConfig,
    metrics: ChannelMetrics,
}

impl Listener {
    pub(super) fn new(
        listener: TcpListener,
        tls: Arc<ServerConfig>,
        config: ChannelConfig,
        metrics: ChannelMetrics,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            socket: tokio::net::TcpListener::from_std(listener)?,
            acceptor: TlsAcceptor::from(tls),
            config,
            metrics,
        })
    }

    /// Connections whose handshake succeeded, until `stop`. Handshakes run beside each other and hold nobody up.
    pub(super) fn accept(self, stop: CancellationToken) -> ReceiverStream<io::Result<Io>> {
        let (ready, incoming) = mpsc::channel(BACKLOG);
        let room = Arc::new(Semaphore::new(self.config.connections));
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = stop.cancelled() => return,
                    accepted = self.socket.accept() => accepted,
                };
                let Ok((tcp, peer)) = accepted else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                    self.metrics.connection_refused();
                    tracing::warn!(%peer, "closed a connection: too many are open");
                    continue;
                };
                let open = OpenConnection::new(permit, self.metrics.clone());
                let shake = shake_hands(self.acceptor.clone(), self.config, open, tcp, peer);
                let (ready, metrics, stop) = (ready.clone(), self.metrics.clone(), stop.clone());
                tokio::spawn(async move {
                    let shaken = tokio::select! {
                        () = stop.cancelled() => return,
                        shaken = shake => shaken,
                    };
                    match shaken {
                        // The receiver is gone when the server has ended.
                        Ok(io) => _ = ready.send(Ok(io)).await,
                        Err(error) => {
                            metrics.handshake_failed();
                            tracing::debug!(%peer, %error, "TLS handshake failed");
                        }
                    }
                });
            }
        });
        ReceiverStream::new(incoming)
    }
}

async fn shake_hands(
    acceptor: TlsAcceptor,
    config: ChannelConfig,
    open: OpenConnection,
    tcp: TcpStream,
    peer: SocketAddr,
) -> io::Result<Io> {
    tcp.set_nodelay(true)?;
    let tls = timeout(config.handshake, acceptor.accept(tcp)).await??;
    let connection = Connection::new(peer);
    let reap = connection.clone().reap(config.idle);
    let killed = Box::pin(connection.kill.clone().cancelled_owned());
    tokio::spawn(reap);
    Ok(Io { tls, connection, killed, _open: open })
}

/// Counts a connection for as long as it is open.
struct OpenConnection {
    metrics: ChannelMetrics,
    _permit: OwnedSemaphorePermit,
}

impl OpenConnection {
    fn new(permit: OwnedSemaphorePermit, metrics: ChannelMetrics) -> Self {
        metrics.connected();
        Self { metrics, _permit: permit }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.metrics.disconnected();
    }
}

/// A connection's bytes; reading fails once it was killed.
pub(super) struct Io {
    tls: TlsStream<TcpStream>,
    connection: Connection,
    killed: Pin<Box<WaitForCancellationFutureOwned>>,
    _open: OpenConnection,
}

impl Drop for Io {
    fn drop(&mut self) {
        self.connection.kill();
    }
}

impl Connected for Io {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.connection.clone()
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.killed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.tls).poll_read(cx, buf)
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}
