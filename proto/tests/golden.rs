//! Each message against bytes derived by hand from the protobuf wire format, never printed by the code under test.
//!
//! A tag is `(field << 3) | wire type` as a varint: field 1 varint is `08`, field 1 length-delimited `0a`, and so on by
//! eight; fields of ours are `c03e`/`c23e` (1000 varint/length-delimited), `c83e`/`ca3e` (1001), `d23e` (1002) and
//! `da3e` (1003).

use prost::Message;
use spawnery_proto::v1alpha1::{
    DirectoryApplied, Door, DoorApplied, DrainPlayers, FullSync, Heartbeat, Hello, KeepAlive, OperatorToProxy,
    OperatorToServer, PlayerCount, PlayerJoinedServer, ProxyMessage, Ready, RegisterServer, RegisteredServer, Release,
    ReportInterval, ReportNow, ServerMessage, ServerOccupancy, SessionDeadline, SetReady, UnregisterServer,
    operator_to_proxy, operator_to_server, proxy_message, server_message,
};

/// Hex with spaces for the reader's sake.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).expect("a hex digit")).expect("below 16"))
        .collect();
    assert!(digits.len().is_multiple_of(2), "odd number of hex digits in {hex}");
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| (byte << 4) | digit)).collect()
}

/// Encodes to exactly these bytes, and these bytes decode to exactly this message.
#[allow(clippy::needless_pass_by_value)] // cases read better without a `&` each
fn golden<M: Message + Default + PartialEq + std::fmt::Debug>(hex: &str, message: M) {
    let want = bytes(hex);
    assert_eq!(message.encode_to_vec(), want, "encoding of {message:?}");
    assert_eq!(M::decode(want.as_slice()).expect("golden bytes decode"), message, "decoding of {hex}");
}

fn lobby() -> RegisteredServer {
    RegisteredServer { name: "lobby-a2".into(), address: "10.0.0.7:25565".into(), group: "lobby".into() }
}

/// `lobby()`, 33 bytes.
const LOBBY: &str = "0a 08 6c6f6262792d6132  12 0e 31302e302e302e373a3235353635  1a 05 6c6f626279";

#[test]
fn upstream_messages_without_additions() {
    golden("08 05", ReportInterval { seconds: 5 });
    golden("08 e003  10 d804", SessionDeadline { renew_after_seconds: 480, hard_deadline_seconds: 600 });
    golden("0a 05 302e322e30  10 01", Hello { version: "0.2.0".into(), ready: true, capabilities: vec![] });
    golden("08 0c  10 64", PlayerCount { players: 12, slots: 100, ..Default::default() });
    golden("", Ready {});
    golden("", Heartbeat {});
    golden(
        "0a 04 616c6578  12 08 6c6f6262792d6132",
        PlayerJoinedServer { player: "alex".into(), server: "lobby-a2".into() },
    );
    golden(LOBBY, lobby());
    golden(&format!("0a 21 {LOBBY}"), FullSync { servers: vec![lobby()], revision: 0, epoch: 0 });
    golden(&format!("0a 21 {LOBBY}"), RegisterServer { server: Some(lobby()), revision: 0, epoch: 0 });
    golden("0a 08 6c6f6262792d6132", UnregisterServer { name: "lobby-a2".into(), revision: 0, epoch: 0 });
    golden(
        "0a 08 6c6f6262792d6132  12 05 6c6f626279  12 03 687562",
        DrainPlayers { from_server: "lobby-a2".into(), to_groups: vec!["lobby".into(), "hub".into()], epoch: 0 },
    );
    golden("08 01", SetReady { ready: true, epoch: 0 });
    golden("", SetReady { ready: false, epoch: 0 });
}

#[test]
fn negative_numbers_are_ten_byte_varints() {
    golden("08 ffffffffffffffffff01  10 14", PlayerCount { players: -1, slots: 20, ..Default::default() });
}

#[test]
fn additions_to_upstream_messages() {
    golden(
        "0a 05 302e322e30  10 01  c23e 04 646f6f72  c23e 0a 6b6565702d616c697665",
        Hello { version: "0.2.0".into(), ready: true, capabilities: vec!["door".into(), "keep-alive".into()] },
    );
    golden(
        "08 0c  10 64  c03e 07  ca3e 0e 0a 08 6c6f6262792d6132 10 03 18 01  ca3e 03 0a 01 62",
        PlayerCount {
            players: 12,
            slots: 100,
            nonce: 7,
            servers: vec![
                ServerOccupancy { server: "lobby-a2".into(), players: 3, connecting: 1 },
                ServerOccupancy { server: "b".into(), players: 0, connecting: 0 },
            ],
        },
    );
    golden(&format!("0a 21 {LOBBY}  c03e ac02  c83e 02"), FullSync { servers: vec![lobby()], revision: 300, epoch: 2 });
    golden(
        &format!("0a 21 {LOBBY}  c03e ac02  c83e 02"),
        RegisterServer { server: Some(lobby()), revision: 300, epoch: 2 },
    );
    golden(
        "0a 08 6c6f6262792d6132  c03e ad02  c83e 02",
        UnregisterServer { name: "lobby-a2".into(), revision: 301, epoch: 2 },
    );
    golden(
        "0a 01 61  12 01 62  c83e 02",
        DrainPlayers { from_server: "a".into(), to_groups: vec!["b".into()], epoch: 2 },
    );
    golden("08 01  c83e 02", SetReady { ready: true, epoch: 2 });
}

#[test]
fn messages_of_ours() {
    golden("0a 01 61  10 03  18 01", ServerOccupancy { server: "a".into(), players: 3, connecting: 1 });
    golden("08 ac02  10 02", DirectoryApplied { revision: 300, epoch: 2 });
    golden("08 01  10 09  18 02", Door { open: true, revision: 9, epoch: 2 });
    golden("08 09  10 01  18 02", DoorApplied { revision: 9, open: true, epoch: 2 });
    golden("08 ffffffffffffffffff01", ReportNow { nonce: u64::MAX });
    golden("08 02", KeepAlive { epoch: 2 });
    golden("08 02", Release { epoch: 2 });
}

#[test]
fn server_message_branches() {
    use server_message::Message as M;
    let wrap = |message| ServerMessage { message: Some(message) };
    golden("0a 02 10 01", wrap(M::Hello(Hello { ready: true, ..Default::default() })));
    golden("12 00", wrap(M::Ready(Ready {})));
    golden("1a 04 08 0c 10 64", wrap(M::PlayerCount(PlayerCount { players: 12, slots: 100, ..Default::default() })));
    golden("c23e 06 08 09 10 01 18 02", wrap(M::DoorApplied(DoorApplied { revision: 9, open: true, epoch: 2 })));
}

#[test]
fn operator_to_server_branches() {
    use operator_to_server::Message as M;
    let wrap = |message| OperatorToServer { message: Some(message) };
    golden("0a 02 08 05", wrap(M::ReportInterval(ReportInterval { seconds: 5 })));
    golden(
        "12 06 08 e003 10 d804",
        wrap(M::SessionDeadline(SessionDeadline { renew_after_seconds: 480, hard_deadline_seconds: 600 })),
    );
    golden("c23e 02 08 07", wrap(M::ReportNow(ReportNow { nonce: 7 })));
    golden("ca3e 06 08 01 10 09 18 02", wrap(M::Door(Door { open: true, revision: 9, epoch: 2 })));
    golden("d23e 02 08 02", wrap(M::KeepAlive(KeepAlive { epoch: 2 })));
    golden("da3e 02 08 02", wrap(M::Release(Release { epoch: 2 })));
}

#[test]
fn proxy_message_branches() {
    use proxy_message::Message as M;
    let wrap = |message| ProxyMessage { message: Some(message) };
    golden("0a 07 0a 05 302e322e30", wrap(M::Hello(Hello { version: "0.2.0".into(), ..Default::default() })));
    golden("12 04 08 0c 10 64", wrap(M::PlayerCount(PlayerCount { players: 12, slots: 100, ..Default::default() })));
    golden(
        "1a 06 0a 01 61 12 01 62",
        wrap(M::PlayerJoinedServer(PlayerJoinedServer { player: "a".into(), server: "b".into() })),
    );
    golden("22 00", wrap(M::Heartbeat(Heartbeat {})));
    golden("c23e 05 08 ac02 10 02", wrap(M::DirectoryApplied(DirectoryApplied { revision: 300, epoch: 2 })));
    golden("ca3e 04 08 09 18 02", wrap(M::DoorApplied(DoorApplied { revision: 9, open: false, epoch: 2 })));
}

#[test]
fn operator_to_proxy_branches() {
    use operator_to_proxy::Message as M;
    let wrap = |message| OperatorToProxy { message: Some(message) };
    let tiny = RegisteredServer { name: "a".into(), address: "b".into(), group: "c".into() };
    golden("0a 07 c03e ac02 c83e 02", wrap(M::FullSync(FullSync { servers: vec![], revision: 300, epoch: 2 })));
    golden(
        "12 0b 0a 09 0a 01 61 12 01 62 1a 01 63",
        wrap(M::RegisterServer(RegisterServer { server: Some(tiny), revision: 0, epoch: 0 })),
    );
    golden("1a 03 0a 01 61", wrap(M::UnregisterServer(UnregisterServer { name: "a".into(), revision: 0, epoch: 0 })));
    golden(
        "22 06 0a 01 61 12 01 62",
        wrap(M::DrainPlayers(DrainPlayers { from_server: "a".into(), to_groups: vec!["b".into()], epoch: 0 })),
    );
    golden("2a 02 08 05", wrap(M::ReportInterval(ReportInterval { seconds: 5 })));
    golden(
        "32 06 08 e003 10 d804",
        wrap(M::SessionDeadline(SessionDeadline { renew_after_seconds: 480, hard_deadline_seconds: 600 })),
    );
    golden("3a 02 08 01", wrap(M::SetReady(SetReady { ready: true, epoch: 0 })));
    golden("c23e 02 08 07", wrap(M::ReportNow(ReportNow { nonce: 7 })));
    golden("ca3e 04 10 09 18 02", wrap(M::Door(Door { open: false, revision: 9, epoch: 2 })));
    golden("d23e 02 08 02", wrap(M::KeepAlive(KeepAlive { epoch: 2 })));
    golden("da3e 02 08 02", wrap(M::Release(Release { epoch: 2 })));
}

#[test]
fn a_branch_of_the_future_is_no_message() {
    // Field 1500 (tag 12002 = e2 5d), length-delimited, one byte of content: neither side may end the stream over it.
    let unknown = bytes("e25d 01 07");
    assert_eq!(OperatorToProxy::decode(unknown.as_slice()).expect("unknown branch"), OperatorToProxy { message: None });
    assert_eq!(ServerMessage::decode(unknown.as_slice()).expect("unknown branch"), ServerMessage { message: None });
    assert_eq!(
        OperatorToServer::decode(unknown.as_slice()).expect("unknown branch"),
        OperatorToServer { message: None }
    );
    assert_eq!(ProxyMessage::decode(unknown.as_slice()).expect("unknown branch"), ProxyMessage { message: None });
}

#[test]
fn an_unknown_field_beside_known_ones_is_skipped() {
    let count = PlayerCount::decode(bytes("08 0c  10 64  e05d 07").as_slice()).expect("unknown field");
    assert_eq!(count, PlayerCount { players: 12, slots: 100, nonce: 0, servers: vec![] });
}
