//! Between our words and the protocol's.

use std::time::Duration;

use spawnery_proto::v1alpha1 as pb;

use super::{Entry, Incoming, Mark, Outgoing, Tally};

/// The agent's version, as people see it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a server's operator said; `None` for what this version does not know.
pub fn from_operator_to_server(message: pb::OperatorToServer) -> Option<Incoming> {
    use pb::operator_to_server::Message as M;
    Some(match message.message? {
        M::ReportInterval(m) => report_interval(m),
        M::SessionDeadline(m) => session_deadline(m),
        M::ReportNow(m) => Incoming::ReportNow { nonce: m.nonce },
        M::Door(m) => door(m),
        M::KeepAlive(m) => Incoming::KeepAlive { epoch: m.epoch },
        M::Release(m) => Incoming::Release { epoch: m.epoch },
    })
}

/// What a proxy's operator said; `None` for what this version does not know.
pub fn from_operator_to_proxy(message: pb::OperatorToProxy) -> Option<Incoming> {
    use pb::operator_to_proxy::Message as M;
    Some(match message.message? {
        M::FullSync(m) => Incoming::FullSync {
            servers: m.servers.into_iter().map(entry).collect(),
            mark: Mark { revision: m.revision, epoch: m.epoch },
        },
        M::RegisterServer(m) => {
            Incoming::Register { server: entry(m.server?), mark: Mark { revision: m.revision, epoch: m.epoch } }
        }
        M::UnregisterServer(m) => {
            Incoming::Unregister { name: m.name, mark: Mark { revision: m.revision, epoch: m.epoch } }
        }
        M::DrainPlayers(m) => Incoming::Drain { from_server: m.from_server, to_groups: m.to_groups, epoch: m.epoch },
        M::ReportInterval(m) => report_interval(m),
        M::SessionDeadline(m) => session_deadline(m),
        M::SetReady(m) => Incoming::SetReady { ready: m.ready, epoch: m.epoch },
        M::ReportNow(m) => Incoming::ReportNow { nonce: m.nonce },
        M::Door(m) => door(m),
        M::KeepAlive(m) => Incoming::KeepAlive { epoch: m.epoch },
        M::Release(m) => Incoming::Release { epoch: m.epoch },
    })
}

fn entry(server: pb::RegisteredServer) -> Entry {
    Entry { name: server.name, address: server.address, group: server.group }
}

fn report_interval(message: pb::ReportInterval) -> Incoming {
    Incoming::ReportInterval(seconds(message.seconds))
}

fn session_deadline(message: pb::SessionDeadline) -> Incoming {
    Incoming::SessionDeadline {
        renew_after: seconds(message.renew_after_seconds),
        hard_deadline: seconds(message.hard_deadline_seconds),
    }
}

fn door(message: pb::Door) -> Incoming {
    Incoming::Door { open: message.open, mark: Mark { revision: message.revision, epoch: message.epoch } }
}

/// At least a second: an interval of nothing would be a busy loop.
fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default().max(1))
}

/// A server's message; `None` for what only proxies say.
pub fn to_server_message(message: Outgoing) -> Option<pb::ServerMessage> {
    use pb::server_message::Message as M;
    let message = match message {
        Outgoing::Hello { ready, capabilities } => M::Hello(hello(ready, capabilities)),
        Outgoing::Ready => M::Ready(pb::Ready {}),
        Outgoing::Count { tally, nonce } => M::PlayerCount(count(&tally, nonce)),
        Outgoing::DoorApplied { open, mark } => M::DoorApplied(door_applied(open, mark)),
        Outgoing::DirectoryApplied(_) => return None,
    };
    Some(pb::ServerMessage { message: Some(message) })
}

/// A proxy's message; `None` for what only servers say.
pub fn to_proxy_message(message: Outgoing) -> Option<pb::ProxyMessage> {
    use pb::proxy_message::Message as M;
    let message = match message {
        // `ready` is the servers' field; a proxy's readiness is its gate.
        Outgoing::Hello { capabilities, .. } => M::Hello(hello(false, capabilities)),
        Outgoing::Count { tally, nonce } => M::PlayerCount(count(&tally, nonce)),
        Outgoing::DirectoryApplied(mark) => {
            M::DirectoryApplied(pb::DirectoryApplied { revision: mark.revision, epoch: mark.epoch })
        }
        Outgoing::DoorApplied { open, mark } => M::DoorApplied(door_applied(open, mark)),
        Outgoing::Ready => return None,
    };
    Some(pb::ProxyMessage { message: Some(message) })
}

fn hello(ready: bool, capabilities: Vec<String>) -> pb::Hello {
    pb::Hello { version: VERSION.to_owned(), ready, capabilities }
}

fn door_applied(open: bool, mark: Mark) -> pb::DoorApplied {
    pb::DoorApplied { revision: mark.revision, open, epoch: mark.epoch }
}

fn count(tally: &Tally, nonce: u64) -> pb::PlayerCount {
    let servers = tally.servers().iter().map(|(server, on)| pb::ServerOccupancy {
        server: server.clone(),
        players: number(on.players),
        connecting: number(on.connecting),
    });
    pb::PlayerCount {
        players: number(tally.players()),
        slots: number(tally.slots()),
        nonce,
        servers: servers.collect(),
    }
}

/// The protocol's integers are signed; no pod has two thousand million players.
fn number(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_version_does_not_know_is_none() {
        assert_eq!(from_operator_to_server(pb::OperatorToServer { message: None }), None);
        assert_eq!(from_operator_to_proxy(pb::OperatorToProxy { message: None }), None);
        let nameless = pb::operator_to_proxy::Message::RegisterServer(pb::RegisterServer::default());
        assert_eq!(from_operator_to_proxy(pb::OperatorToProxy { message: Some(nameless) }), None);
    }

    #[test]
    fn each_role_says_only_what_is_its_own() {
        assert_eq!(to_server_message(Outgoing::DirectoryApplied(Mark::default())), None);
        assert_eq!(to_proxy_message(Outgoing::Ready), None);
    }

    #[test]
    fn intervals_of_nothing_are_a_second() {
        let zero = pb::operator_to_server::Message::ReportInterval(pb::ReportInterval { seconds: -3 });
        let got = from_operator_to_server(pb::OperatorToServer { message: Some(zero) });
        assert_eq!(got, Some(Incoming::ReportInterval(Duration::from_secs(1))));
    }
}
