//! What agents say, message by message.

use std::sync::Arc;

use spawnery_proto::v1alpha1::{ProxyMessage, ServerMessage, proxy_message, server_message};
use tonic::Streaming;

use super::ChannelConfig;
use super::listener::{Connection, InUse};
use super::metrics::ChannelMetrics;
use super::outbound::Ends;
use crate::hub::Session;
use crate::hub::wire;

/// A message that an agent sends.
pub(super) trait Heard: Send + 'static {
    /// Tells the hub. Branches that we do not know are ignored.
    fn tell(self, session: &Session);
}

impl Heard for ServerMessage {
    fn tell(self, session: &Session) {
        use server_message::Message;
        match self.message {
            Some(Message::Hello(hello)) => session.hello(hello.ready, wire::capabilities(&hello.capabilities)),
            Some(Message::Ready(_)) => session.ready(),
            Some(Message::PlayerCount(count)) => report(session, count),
            Some(Message::DoorApplied(applied)) => session.door_applied(applied.epoch, applied.open, applied.revision),
            None => session.heard(),
        }
    }
}

impl Heard for ProxyMessage {
    fn tell(self, session: &Session) {
        use proxy_message::Message;
        match self.message {
            Some(Message::Hello(hello)) => session.hello(false, wire::capabilities(&hello.capabilities)),
            Some(Message::PlayerCount(count)) => report(session, count),
            Some(Message::DirectoryApplied(applied)) => session.directory_applied(applied.epoch, applied.revision),
            Some(Message::DoorApplied(applied)) => session.door_applied(applied.epoch, applied.open, applied.revision),
            Some(Message::PlayerJoinedServer(joined)) => {
                tracing::debug!(name = session.who().name, server = joined.server, "player joined");
                session.heard();
            }
            Some(Message::Heartbeat(_)) | None => session.heard(),
        }
    }
}

fn report(session: &Session, count: spawnery_proto::v1alpha1::PlayerCount) {
    if let Err(error) = session.report(&wire::report(count)) {
        tracing::debug!(name = session.who().name, %error, "report rejected");
    }
}

/// Reads until the agent is done, its link breaks, or the session is ended. A peer that then does not take the end of
/// its stream loses the connection: what it does not read must not keep a session alive.
pub(super) async fn read<In: Heard>(
    session: Arc<Session>,
    mut inbound: Streaming<In>,
    ends: Ends,
    connection: Connection,
    in_use: InUse,
    config: ChannelConfig,
    metrics: ChannelMetrics,
) {
    let deadline = tokio::time::sleep(config.hard_deadline);
    tokio::pin!(deadline);
    loop {
        let message = tokio::select! {
            biased;
            () = ends.finished() => break,
            () = session.replaced() => break,
            () = &mut deadline => break,
            message = inbound.message() => message,
        };
        match message {
            Ok(Some(message)) => message.tell(&session),
            Ok(None) => break,
            Err(status) => {
                tracing::debug!(name = session.who().name, %status, "session broke");
                break;
            }
        }
    }
    ends.read_to_the_end();
    if tokio::time::timeout(config.grace, ends.finished()).await.is_err() {
        metrics.session_cut(session.who().role);
        connection.kill();
    }
    drop(in_use);
}
