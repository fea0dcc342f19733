//! Between the hub's values and the protocol's messages.

use spawnery_core::door::{Listing, Out};
use spawnery_core::ledger::{Capabilities, Report, ServerCount};
use spawnery_proto::capability;
use spawnery_proto::v1alpha1 as proto;

/// What an agent named in its Hello; names that we do not know are skipped.
pub(crate) fn capabilities(named: &[String]) -> Capabilities {
    let has = |name: &str| named.iter().any(|said| said == name);
    Capabilities {
        directory_revisions: has(capability::DIRECTORY_REVISIONS),
        report_now: has(capability::REPORT_NOW),
        server_occupancy: has(capability::SERVER_OCCUPANCY),
        door: has(capability::DOOR),
        keep_alive: has(capability::KEEP_ALIVE),
        release: has(capability::RELEASE),
    }
}

/// A count off the wire.
pub(crate) fn report(count: proto::PlayerCount) -> Report {
    let servers = count.servers.into_iter().map(|on| ServerCount {
        server: on.server,
        players: on.players,
        connecting: on.connecting,
    });
    Report { players: count.players, slots: count.slots, nonce: count.nonce, servers: servers.collect() }
}

/// A message to a server; `None` for what only proxies are told.
pub(crate) fn to_server(out: &Out, epoch: u64) -> Option<proto::OperatorToServer> {
    use proto::operator_to_server::Message;
    let message = match out {
        &Out::Door { open, revision } => Message::Door(proto::Door { open, revision, epoch }),
        &Out::ReportNow { nonce } => Message::ReportNow(proto::ReportNow { nonce }),
        Out::Release => Message::Release(proto::Release { epoch }),
        Out::FullSync { .. } | Out::Register { .. } | Out::Unregister { .. } | Out::Drain { .. } | Out::SetReady(_) => {
            return None;
        }
    };
    Some(proto::OperatorToServer { message: Some(message) })
}

/// A message to a proxy.
pub(crate) fn to_proxy(out: Out, epoch: u64) -> proto::OperatorToProxy {
    use proto::operator_to_proxy::Message;
    let message = match out {
        Out::FullSync { revision, servers } => Message::FullSync(proto::FullSync {
            servers: servers.into_iter().map(registered).collect(),
            revision: revision.0,
            epoch,
        }),
        Out::Register { revision, server } => Message::RegisterServer(proto::RegisterServer {
            server: Some(registered(server)),
            revision: revision.0,
            epoch,
        }),
        Out::Unregister { revision, name } => {
            Message::UnregisterServer(proto::UnregisterServer { name, revision: revision.0, epoch })
        }
        Out::Drain { from_server, to_groups } => {
            Message::DrainPlayers(proto::DrainPlayers { from_server, to_groups, epoch })
        }
        Out::SetReady(ready) => Message::SetReady(proto::SetReady { ready, epoch }),
        Out::Door { open, revision } => Message::Door(proto::Door { open, revision, epoch }),
        Out::ReportNow { nonce } => Message::ReportNow(proto::ReportNow { nonce }),
        Out::Release => Message::Release(proto::Release { epoch }),
    };
    proto::OperatorToProxy { message: Some(message) }
}

fn registered(listing: Listing) -> proto::RegisteredServer {
    proto::RegisteredServer { name: listing.name, address: listing.address, group: listing.group }
}
