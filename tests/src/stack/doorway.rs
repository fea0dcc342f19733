//! A Service's stand-in: one address that leads to whichever replica takes connections.

use super::Replica;
use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// On loopback a connection is there at once, or refused at once.
const DIAL_LIMIT: Duration = Duration::from_secs(1);

/// Carries connections to replicas, each whole to one; closed when dropped.
#[derive(Debug)]
pub struct Doorway {
    address: SocketAddr,
    way: Arc<Way>,
    stop: CancellationToken,
    _ends_with_us: DropGuard,
}

/// Whether connections get through; the token of those that do.
type Way = Mutex<Option<CancellationToken>>;

impl Doorway {
    /// Opens a doorway at this address. Replicas are tried in turn; those that are frozen last, as a Service's would be
    /// taken out once their probes fail, but a frozen one alone still takes connections and says nothing.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn open(address: SocketAddr, replicas: &[Arc<Replica>]) -> Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("could not listen at {address}"))?;
        let (replicas, stop) = (replicas.to_vec(), CancellationToken::new());
        let way = Arc::new(Mutex::new(Some(stop.child_token())));
        tokio::spawn(stop.clone().run_until_cancelled_owned(serve(listener, replicas, Arc::clone(&way))));
        Ok(Self { address, way, stop: stop.clone(), _ends_with_us: stop.drop_guard() })
    }

    /// Cuts every connection, and lets none through until [`Doorway::unblock`]: the network in between is broken.
    pub fn block(&self) {
        if let Some(way) = self.way.lock().take() {
            way.cancel();
        }
    }

    /// Lets connections through again.
    pub fn unblock(&self) {
        self.way.lock().get_or_insert_with(|| self.stop.child_token());
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: TcpListener, replicas: Vec<Arc<Replica>>, way: Arc<Way>) {
    let replicas: Arc<[Arc<Replica>]> = replicas.into();
    let turn = AtomicUsize::new(0);
    loop {
        // An accept that fails (too many open files) is like a connection that did not get through.
        let Ok((from, _)) = listener.accept().await else { continue };
        let Some(way) = way.lock().clone() else { continue };
        let (replicas, turn) = (Arc::clone(&replicas), turn.fetch_add(1, Ordering::Relaxed));
        tokio::spawn(way.run_until_cancelled_owned(carry(from, replicas, turn)));
    }
}

async fn carry(mut from: TcpStream, replicas: Arc<[Arc<Replica>]>, turn: usize) {
    let mut order: Vec<&Arc<Replica>> = replicas.iter().collect();
    order.rotate_left(turn % replicas.len().max(1));
    order.sort_by_key(|replica| replica.is_frozen());
    for replica in order {
        if let Ok(Ok(mut to)) = timeout(DIAL_LIMIT, TcpStream::connect(replica.address())).await {
            // Small messages, each waited for; a socket that refuses is closed.
            let _ = (from.set_nodelay(true), to.set_nodelay(true));
            // Either side may break; both learn of it by the end of their connection.
            let _ = copy_bidirectional(&mut from, &mut to).await;
            return;
        }
    }
    // Nobody there: the connection is closed, which to the caller is the same as refused.
}
