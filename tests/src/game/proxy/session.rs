//! One player's way through the proxy.

use super::{
    Inner,
    table::{PlayerId, Target},
};
use crate::game::wire::{Answer, Arrival, Link, Request};
use std::{collections::BTreeSet, io, sync::Arc, time::Duration};
use tokio::{
    net::TcpStream,
    time::{interval, timeout},
};

/// Whoever connects says who it is, or is a probe.
const JOIN_LIMIT: Duration = Duration::from_secs(5);
/// A server that has not taken a player after this long is gone.
const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// How soon a player that could not be moved is tried again.
const MOVE_RETRY: Duration = Duration::from_millis(250);

/// Serves one connection to its end.
pub(super) async fn run(proxy: Arc<Inner>, id: PlayerId, stream: TcpStream) {
    let mut session = Session { proxy: &proxy, id, player: String::new(), client: Link::new(stream) };
    // A connection that breaks is a player that went.
    if let Err(error) = session.serve().await {
        tracing::debug!(proxy = proxy.config.name, player = session.player, %error, "connection ended");
    }
    proxy.decide(|table| table.left(id));
}

struct Session<'a> {
    proxy: &'a Inner,
    id: PlayerId,
    player: String,
    client: Link,
}

impl Session<'_> {
    async fn serve(&mut self) -> io::Result<()> {
        let Ok(Some(Request::Join { player })) = timeout(JOIN_LIMIT, self.client.next()).await? else {
            return Ok(());
        };
        self.player = player;
        let first = self.proxy.decide(|table| table.join(self.id));
        let first = match first {
            Ok(target) => target,
            Err(why) => return self.client.send(Answer::Refused { why: why.to_string() }).await,
        };
        let Some(server) = self.connect_to_any(first, Arrival::Joined, BTreeSet::new()).await? else {
            return self.client.send(Answer::Refused { why: "no server took you".into() }).await;
        };
        self.play(server).await
    }

    async fn play(&mut self, mut server: Link) -> io::Result<()> {
        let mut swapped = self.proxy.swapped.subscribe();
        let mut retry = interval(MOVE_RETRY);
        loop {
            tokio::select! {
                request = self.client.next() => match request? {
                    Some(Request::Join { .. }) => return Ok(()),
                    Some(Request::Leave) | None => {
                        // It goes now; the server hears of it by this line, or by the end of the connection.
                        let _ = server.send(Request::Leave).await;
                        return self.client.send(Answer::Bye).await;
                    }
                },
                answer = server.next() => {
                    // A server has nothing to say to somebody who is on it, but its end.
                    if let Ok(Some(Answer::On { .. })) = answer {
                        continue;
                    }
                    let Some(next) = self.rescue().await? else { return Ok(()) };
                    server = next;
                },
                Ok(()) = swapped.changed() => self.move_off(&mut server).await?,
                _ = retry.tick(), if self.proxy.table.lock().is_to_move(self.id) => self.move_off(&mut server).await?,
            }
        }
    }

    /// The server under the player is gone.
    async fn rescue(&mut self) -> io::Result<Option<Link>> {
        // The directory may still name the dead server. Trying it again costs a refused connection, no player.
        match self.proxy.decide(|table| table.rescue(self.id, &BTreeSet::new())) {
            Ok(target) => self.connect_to_any(target, Arrival::Rescued, BTreeSet::new()).await,
            Err(_) => Ok(None),
        }
    }

    /// Moves the player if its server is to become empty and another takes it; the old one plays on until then.
    async fn move_off(&mut self, server: &mut Link) -> io::Result<()> {
        let Some(target) = self.proxy.decide(|table| table.move_off(self.id)) else { return Ok(()) };
        if let Ok(next) = self.connect(&target).await {
            self.proxy.decide(|table| table.arrived(self.id));
            // The old server hears of it by this line, or by the end of the connection.
            let _ = server.send(Request::Leave).await;
            *server = next;
            self.client.send(Answer::On { server: target.server, how: Arrival::Moved }).await
        } else {
            self.proxy.decide(|table| table.not_arrived(self.id));
            Ok(())
        }
    }

    /// Connects to the target, or to another when that does not take the player; none when nothing is left to try.
    async fn connect_to_any(
        &mut self,
        mut target: Target,
        how: Arrival,
        mut tried: BTreeSet<String>,
    ) -> io::Result<Option<Link>> {
        loop {
            match self.connect(&target).await {
                Ok(server) => {
                    self.proxy.decide(|table| table.arrived(self.id));
                    self.client.send(Answer::On { server: target.server, how }).await?;
                    return Ok(Some(server));
                }
                Err(error) => {
                    tracing::debug!(server = target.server, player = self.player, %error, "did not take the player");
                    tried.insert(target.server);
                }
            }
            match self.proxy.decide(|table| table.rescue(self.id, &tried)) {
                Ok(next) => target = next,
                Err(_) => return Ok(None),
            }
        }
    }

    /// Connects the player to a server; good when the server has let it in.
    async fn connect(&self, target: &Target) -> io::Result<Link> {
        self.proxy.faults.dialing.pass().await;
        timeout(DIAL_LIMIT, async {
            let mut server = Link::new(TcpStream::connect(target.address).await?);
            server.send(Request::Join { player: self.player.clone() }).await?;
            match server.next().await? {
                Some(Answer::On { .. }) => Ok(server),
                Some(Answer::Refused { why }) => Err(io::Error::other(why)),
                Some(Answer::Bye) | None => Err(io::ErrorKind::ConnectionReset.into()),
            }
        })
        .await?
    }
}
