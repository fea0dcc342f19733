use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use spawnery_core::door::{ChangeKind, Introduction, Out, ServerWant, WantDoor};
use spawnery_core::ledger::{Capabilities, PodUid, Report, Role};
use tokio_util::sync::CancellationToken;

use super::{Hub, HubConfig, Next, Session};
use crate::channel::metrics::ChannelMetrics;

fn leading() -> Arc<Hub> {
    let hub = Hub::new(HubConfig::default(), ChannelMetrics::default());
    hub.lead(3, || true);
    hub.listed();
    hub
}

fn want(name: &str, door: WantDoor) -> ServerWant {
    ServerWant {
        uid: name.into(),
        namespace: "game".into(),
        name: name.into(),
        group: "lobby".into(),
        address: format!("{name}:25565"),
        was_routable: door == WantDoor::Open,
        door,
    }
}

fn open(hub: &Arc<Hub>, name: &str, role: Role) -> Session {
    let who = Introduction { uid: name.into(), name: name.into(), group: "group".into(), role };
    hub.open("game", who)
}

fn report(players: i32) -> Report {
    Report { players, slots: 20, ..Report::default() }
}

fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

#[tokio::test]
async fn a_join_wakes_its_controller_once_for_each_kind_however_often_it_changes() {
    let hub = leading();
    let mut changes = hub.changes();
    hub.want(want("lobby-a", WantDoor::Closed));
    let server = open(&hub, "lobby-a", Role::Server);
    server.hello(false, Capabilities::default());
    for players in 0..20 {
        server.report(&report(players)).unwrap();
    }
    let mut kinds = Vec::new();
    while let Some(change) = changes.next().now_or_never() {
        assert_eq!((change.namespace.as_str(), change.name.as_str()), ("game", "lobby-a"));
        kinds.push(change.kind);
    }
    kinds.sort_unstable();
    let all = [ChangeKind::Connected, ChangeKind::Count, ChangeKind::Occupied, ChangeKind::Door];
    assert_eq!(kinds, all);
    server.report(&report(3)).unwrap();
    assert_eq!(changes.next().await.kind, ChangeKind::Count);
}

#[tokio::test(start_paused = true)]
async fn time_alone_wakes_the_controller_of_a_silent_agent() {
    let hub = leading();
    let stop = CancellationToken::new();
    let (running, stopping) = (Arc::clone(&hub), stop.clone());
    let task = tokio::spawn(async move { running.run(stopping).await });
    hub.want(want("lobby-a", WantDoor::Open));
    let server = open(&hub, "lobby-a", Role::Server);
    server.report(&report(0)).unwrap();
    assert!(!hub.server(&"lobby-a".into(), now()).occupied);
    let mut changes = hub.changes();
    let change = tokio::time::timeout(Duration::from_secs(11), changes.next()).await.unwrap();
    assert_eq!(change.kind, ChangeKind::Count);
    assert_eq!(changes.next().await.kind, ChangeKind::Occupied);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn proxies_get_the_full_directory_again_every_half_minute() {
    let hub = leading();
    let stop = CancellationToken::new();
    let (running, stopping) = (Arc::clone(&hub), stop.clone());
    tokio::spawn(async move { running.run(stopping).await });
    let proxy = open(&hub, "edge-1", Role::Proxy);
    assert!(matches!(proxy.next(), Next::Send(Out::FullSync { .. })));
    assert_eq!(proxy.next(), Next::Wait);
    proxy.woken().await;
    let begun = tokio::time::Instant::now();
    while proxy.next() == Next::Wait {
        proxy.woken().await;
    }
    assert!(begun.elapsed() >= Duration::from_secs(29), "{:?}", begun.elapsed());
    stop.cancel();
}

#[tokio::test]
async fn a_directory_change_wakes_every_proxy_of_its_namespace_and_no_other() {
    let hub = leading();
    let here = [open(&hub, "edge-1", Role::Proxy), open(&hub, "edge-2", Role::Proxy)];
    let who = Introduction { uid: "far".into(), name: "far".into(), group: "edge".into(), role: Role::Proxy };
    let elsewhere = hub.open("other", who);
    for session in here.iter().chain([&elsewhere]) {
        assert!(matches!(session.next(), Next::Send(Out::FullSync { .. })));
        _ = session.woken().now_or_never();
    }
    hub.want(want("lobby-a", WantDoor::Open));
    for session in &here {
        assert!(session.woken().now_or_never().is_some());
        assert!(matches!(session.next(), Next::Send(Out::Register { .. })));
    }
    assert_eq!(elsewhere.next(), Next::Wait);
}

#[tokio::test]
async fn what_is_fed_before_it_leads_is_there_when_it_does_and_nothing_is_said_before() {
    let hub = Hub::new(HubConfig::default(), ChannelMetrics::default());
    hub.want(want("lobby-a", WantDoor::Open));
    let proxy = open(&hub, "edge-1", Role::Proxy);
    assert_eq!(proxy.next(), Next::NotLeading);
    hub.lead(4, || true);
    assert_eq!(proxy.next(), Next::Wait, "not everything is listed");
    hub.listed();
    assert!(matches!(proxy.next(), Next::Send(Out::FullSync { servers, .. }) if servers.len() == 1));
    assert_eq!(hub.epoch(), 4);
}

#[tokio::test]
async fn confirmations_of_another_leaders_directory_are_none() {
    let hub = leading();
    hub.want(want("lobby-a", WantDoor::Open));
    let proxy = open(&hub, "edge-1", Role::Proxy);
    proxy.hello(false, Capabilities { directory_revisions: true, ..Capabilities::default() });
    assert!(matches!(proxy.next(), Next::Send(Out::FullSync { .. })));
    hub.want(want("lobby-a", WantDoor::Closed));
    let Next::Send(Out::Unregister { revision, .. }) = proxy.next() else {
        panic!("no unregister");
    };
    let door = || hub.server(&"lobby-a".into(), now()).door.to_string();
    proxy.directory_applied(2, revision.0);
    assert!(door().starts_with("Closing"), "{}", door());
    proxy.directory_applied(3, revision.0);
    assert!(door().starts_with("Closed"), "{}", door());
}

/// A renewal may cross a redial on the wire. Were the live one not the one that counts, the pod would be unknown until the
/// next renewal, minutes later.
#[test]
fn of_sessions_that_open_at_once_the_one_that_is_kept_is_the_one_that_counts() {
    const ROUNDS: usize = 2000;
    const AT_ONCE: usize = 4;
    let hub = leading();
    let begin = std::sync::Barrier::new(AT_ONCE);
    for round in 0..ROUNDS {
        let sessions: Vec<Session> = std::thread::scope(|scope| {
            let dial = || {
                begin.wait();
                open(&hub, "lobby-a", Role::Server)
            };
            let dialling: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(dial)).collect();
            dialling.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let kept: Vec<_> = sessions.iter().filter(|session| session.replaced().now_or_never().is_none()).collect();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].report(&report(0)), Ok(()), "round {round}");
    }
}

#[tokio::test]
async fn pods_that_are_gone_leave_nothing_behind() {
    let hub = leading();
    for round in 0..10 {
        let name = format!("lobby-{round}");
        let uid = PodUid::from(name.as_str());
        hub.want(want(&name, WantDoor::Open));
        let session = open(&hub, &name, Role::Server);
        if round % 2 == 0 {
            drop(session);
            hub.forget(&uid);
        } else {
            hub.forget(&uid);
            drop(session);
        }
        // An agent whose pod no controller ever spoke of.
        drop(open(&hub, "stranger", Role::Server));
    }
    let state = hub.state.lock();
    assert!(state.homes.is_empty(), "{:?}", state.homes);
    assert!(state.sessions.is_empty());
    assert!(state.realms.values().all(spawnery_core::door::Realm::is_empty));
}
