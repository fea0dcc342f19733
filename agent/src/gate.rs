//! A proxy's readiness gate: a TCP listener that is there while the proxy may take new players. The kubelet's probe dials it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{info, warn};

/// How long to wait before a listener that could not be had is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Listens on `address` for as long as `open` says so. Ends when the sender of `open` is gone.
pub async fn run(address: SocketAddr, mut open: watch::Receiver<bool>) {
    while open.wait_for(|open| *open).await.is_ok() {
        let listener = match TcpListener::bind(address).await {
            Ok(listener) => listener,
            Err(error) => {
                warn!(%address, %error, "cannot open the readiness gate; trying again");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        info!(%address, "readiness gate is open");
        tokio::select! {
            () = accept(&listener) => {}
            closed = open.wait_for(|open| !*open) => {
                if closed.is_err() {
                    return;
                }
            }
        }
        info!(%address, "readiness gate is closed");
    }
}

/// Takes connections and drops them: that one was taken is all that a probe asks.
async fn accept(listener: &TcpListener) {
    loop {
        if let Err(error) = listener.accept().await {
            // Out of file descriptors, usually: the listener is still good.
            warn!(%error, "could not take a probe's connection");
            tokio::time::sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    async fn becomes(address: SocketAddr, open: bool) {
        let turned = async {
            while TcpStream::connect(address).await.is_ok() != open {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), turned).await.expect("the gate turns in time");
    }

    #[tokio::test]
    async fn opens_and_closes_again_and_again() {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a free port").local_addr().expect("an address");
        let open = watch::Sender::new(false);
        let gate = tokio::spawn(run(free, open.subscribe()));
        becomes(free, false).await;
        for turn in [true, false, true, false] {
            open.send_replace(turn);
            becomes(free, turn).await;
        }
        drop(open);
        gate.await.expect("ends with its sender");
    }
}
