//! The channel from outside: real TLS, real gRPC, a fake authenticator, agents that behave as told.

mod agent;
mod rig;

use std::time::Duration;

use rstest::rstest;
use spawnery_core::door::{DoorView, WantDoor};
use spawnery_core::ledger::Role;
use spawnery_proto::v1alpha1::operator_to_proxy::Message as ToProxy;
use spawnery_proto::v1alpha1::operator_to_server::Message as ToServer;
use spawnery_proto::v1alpha1::{FullSync, ReportInterval, SessionDeadline, SetReady};
use tonic::Code;

use agent::hello;
use rig::{EPOCH, Rig, quick, tls_1_2};

#[tokio::test]
async fn a_proxy_hears_the_interval_the_deadline_and_then_the_directory() {
    let rig = Rig::start(quick());
    rig.want("lobby-b", WantDoor::Open);
    rig.want("lobby-a", WantDoor::Open);
    rig.observe("edge-1");
    rig.hub.set_ready(&"edge-1".into(), true);
    rig.hub.drain("game", "lobby-b");
    let mut proxy = rig.proxy("edge-1").await;
    proxy.say(hello());
    assert_eq!(proxy.hear().await, ToProxy::ReportInterval(ReportInterval { seconds: 1 }));
    let deadline = SessionDeadline { renew_after_seconds: 480, hard_deadline_seconds: 600 };
    assert_eq!(proxy.hear().await, ToProxy::SessionDeadline(deadline));
    let ToProxy::FullSync(FullSync { servers, revision, epoch }) = proxy.hear().await else {
        panic!("no full list");
    };
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!((names.as_slice(), revision, epoch), (["lobby-a", "lobby-b"].as_slice(), 3, EPOCH));
    let ToProxy::DrainPlayers(drain) = proxy.hear().await else {
        panic!("no drain");
    };
    assert_eq!((drain.from_server.as_str(), drain.to_groups.as_slice()), ("lobby-b", ["lobby".to_owned()].as_slice()));
    assert_eq!(proxy.hear().await, ToProxy::SetReady(SetReady { ready: true, epoch: EPOCH }));
}

#[tokio::test]
async fn a_server_is_closed_emptied_and_known_to_be() {
    let rig = Rig::start(quick());
    rig.want("lobby-a", WantDoor::Open);
    rig.observe("edge-1");
    let mut proxy = rig.proxy("edge-1").await;
    proxy.say(hello());
    let mut server = rig.server("lobby-a").await;
    server.say(hello());
    server.count(2, 20, 0);
    proxy.settle().await;
    rig.eventually("two players are counted", || rig.view("lobby-a").players == Some(2)).await;
    assert!(rig.view("lobby-a").ready);

    rig.want("lobby-a", WantDoor::Closed);
    assert!(matches!(rig.view("lobby-a").door, DoorView::Closing { .. }));
    proxy.settle().await;
    rig.eventually("the proxy's confirmation", || matches!(rig.view("lobby-a").door, DoorView::Closed { .. })).await;
    server.count(0, 20, 0);
    server.answer_requests(0).await;
    proxy.settle().await;
    rig.eventually("the door is empty", || rig.view("lobby-a").door == DoorView::Empty).await;
    assert!(rig.hub.claim_seal(&"lobby-a".into(), false));
    rig.hub.mark_sealed(&"lobby-a".into());
    rig.want("lobby-a", WantDoor::Open);
    assert_eq!(rig.hub.directory("game"), Vec::<String>::new(), "a seal is final");
}

#[tokio::test]
async fn a_newer_session_of_the_same_pod_takes_over() {
    let rig = Rig::start(quick());
    rig.want("lobby-a", WantDoor::Closed);
    let mut old = rig.server("lobby-a").await;
    old.say(hello());
    rig.eventually("ready", || rig.view("lobby-a").ready).await;
    let mut new = rig.server("lobby-a").await;
    new.hear().await;
    assert_eq!(old.end().await.map(|status| status.code()), Some(Code::Unavailable));
    assert!(rig.view("lobby-a").connected && rig.view("lobby-a").ready, "the end of the old one changes nothing");
    new.finish();
    rig.eventually("the new one is the last", || !rig.view("lobby-a").connected).await;
    assert_eq!(new.end().await.map(|status| status.code()), None, "an agent that is done is let go in peace");
}

#[tokio::test]
async fn a_session_ends_at_its_deadline() {
    let config = rig::Times { hard_deadline: Duration::from_millis(300), ..quick() };
    let rig = Rig::start(config);
    let mut server = rig.server("lobby-a").await;
    assert_eq!(server.end().await.map(|status| status.code()), Some(Code::Unavailable));
    rig.eventually("it is gone", || !rig.view("lobby-a").connected).await;
}

#[tokio::test]
async fn a_frozen_agent_is_cut_and_charged_from_its_last_word() {
    let rig = Rig::start(quick());
    rig.want("lobby-a", WantDoor::Open);
    let server = rig.server("lobby-a").await;
    server.say(hello());
    server.count(0, 20, 0);
    rig.eventually("it is heard", || rig.view("lobby-a").players == Some(0)).await;
    server.freeze(true);
    rig.eventually("its stream is cut", || !rig.view("lobby-a").connected).await;
    let view = rig.view("lobby-a");
    assert!(view.stream_down_for >= rig::INTERVAL * 3 / 2, "{view:?}");
    rig.eventually("its count is not believed", || rig.view("lobby-a").players.is_none()).await;
    assert!(rig.view("lobby-a").occupied, "unknown is occupied");
    assert_eq!(rig.hub.directory("game"), ["lobby-a"], "only a controller takes it out");
}

#[tokio::test]
async fn a_whole_groups_change_cuts_nobody() {
    let rig = Rig::start(quick());
    rig.observe("edge-1");
    let mut proxy = rig.proxy("edge-1").await;
    proxy.say(hello());
    proxy.settle().await;
    for index in 0..500 {
        rig.want(&format!("lobby-{index:03}"), WantDoor::Open);
    }
    proxy.settle().await;
    assert_eq!(proxy.directory.len(), 500);
    for index in 0..500 {
        rig.want(&format!("lobby-{index:03}"), WantDoor::Closed);
    }
    proxy.settle().await;
    assert_eq!(proxy.directory.len(), 0);
    let closed = |index: usize| matches!(rig.view(&format!("lobby-{index:03}")).door, DoorView::Closed { .. });
    rig.eventually("all are closed", || (0..500).all(closed)).await;
    assert!(rig.proxy_view("edge-1").connected);
}

#[tokio::test]
async fn reports_that_cannot_be_are_dropped_and_the_session_goes_on() {
    let rig = Rig::start(quick());
    rig.want("lobby-a", WantDoor::Closed);
    let server = rig.server("lobby-a").await;
    server.say(hello());
    server.count(21, 20, 0);
    server.count(-1, 20, 0);
    server.say(spawnery_proto::v1alpha1::ServerMessage { message: None });
    server.count(3, 20, 0);
    rig.eventually("the one that can be is taken", || rig.view("lobby-a").players == Some(3)).await;
    assert!(rig.metrics_text().contains("spawnery_agent_rejected_reports_total{role=\"server\"} 2"));
}

#[tokio::test]
async fn an_agent_that_wants_it_hears_something_in_every_silence() {
    let rig = Rig::start(quick());
    rig.want("lobby-a", WantDoor::Closed);
    let mut server = rig.server("lobby-a").await;
    server.say(hello());
    for _ in 0..2 {
        server.hear().await;
    }
    for _ in 0..2 {
        assert!(matches!(server.hear().await, ToServer::KeepAlive(alive) if alive.epoch == EPOCH));
    }
}

#[tokio::test]
async fn without_the_lease_nothing_is_said() {
    let rig = Rig::start(quick());
    rig.observe("edge-1");
    let mut proxy = rig.proxy("edge-1").await;
    proxy.say(hello());
    proxy.settle().await;
    rig.lose_lease();
    rig.want("lobby-a", WantDoor::Open);
    assert_eq!(proxy.end().await.map(|status| status.code()), Some(Code::Unavailable));
    assert!(proxy.directory.is_empty(), "{:?}", proxy.directory);
    let refused = rig.try_open(Role::Proxy, Some("edge-1")).await;
    assert_eq!(refused.err().map(|status| status.code()), Some(Code::Unavailable));
}

#[rstest]
#[case::no_token(None, Code::Unauthenticated)]
#[case::not_accepted(Some("refuse"), Code::Unauthenticated)]
#[case::nobody_to_ask(Some("outage"), Code::Unavailable)]
#[case::too_often(Some("limited"), Code::ResourceExhausted)]
#[tokio::test]
async fn who_is_not_accepted_is_told_a_code_and_nothing_more(#[case] token: Option<&str>, #[case] want: Code) {
    let rig = Rig::start(quick());
    let refused = rig.try_open(Role::Server, token).await.expect_err("refused");
    assert_eq!(refused.code(), want);
    assert!(!refused.message().contains("pod"), "{}", refused.message());
    let mut accepted = rig.server("lobby-a").await;
    accepted.hear().await;
}

#[tokio::test]
async fn only_tls_1_3_is_spoken_and_the_server_goes_on() {
    let rig = Rig::start(quick());
    let refused = rig.handshake(tls_1_2(&rig.ca)).await;
    assert!(refused.is_err());
    rig.plain_bytes().await;
    let mut accepted = rig.server("lobby-a").await;
    accepted.hear().await;
    rig.eventually("the failures are counted", || {
        rig.metrics_text().contains("spawnery_agent_handshake_failures_total 2")
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_ended() {
    let config = rig::Times { idle: Duration::from_millis(200), ..quick() };
    let rig = Rig::start(config);
    let mut used = rig.server("lobby-a").await;
    used.say(hello());
    used.hear().await;
    rig.eventually("it is there", || rig.view("lobby-a").connected).await;
    let idle = rig.handshake(spawnery_certs::client::client_config(&rig.ca).unwrap()).await;
    rig::reads_the_end(idle.unwrap()).await;
    assert!(rig.view("lobby-a").connected, "one that is used stays");
}

#[tokio::test]
async fn when_the_process_ends_sessions_end_and_it_does_not_wait_for_them() {
    let rig = Rig::start(quick());
    let mut server = rig.server("lobby-a").await;
    server.hear().await;
    let ((), end) = tokio::join!(rig.stop(), server.end());
    assert_eq!(end.map(|status| status.code()), Some(Code::Unavailable));
}
