use rstest::rstest;
use serde_json::json;
use spawnery_api::names::condition::reason;

use super::*;

fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().unwrap()
}

fn degraded(message: &str) -> Desired {
    Desired::new(condition::DEGRADED, true, reason::PROXY_POD_REJECTED).message(message)
}

#[test]
fn a_first_false_is_no_news_and_each_flank_is() {
    let (mut status, mut events) = (ProxyGroupStatus::default(), Vec::new());
    let fine = || Desired::new(condition::DEGRADED, false, reason::PROXY_PODS_ADMITTED);
    flank(&mut status, fine(), now(), &mut events);
    assert_eq!(events, []);
    flank(&mut status, degraded("pods \"a-1\" is forbidden"), now(), &mut events);
    flank(&mut status, degraded("pods \"a-2\" is forbidden"), now(), &mut events);
    flank(&mut status, fine(), now(), &mut events);
    let told: Vec<_> = events.iter().map(|told| (told.warning, told.reason)).collect();
    assert_eq!(told, [(true, "ProxyPodBlocked"), (false, "ProxyPodsAdmitted")]);
}

#[test]
fn another_pods_name_alone_rewrites_nothing() {
    let (mut status, mut events) = (ProxyGroupStatus::default(), Vec::new());
    flank(&mut status, degraded("pods \"a-1\" is forbidden: hostPort"), now(), &mut events);
    let before = status.clone();
    flank(&mut status, degraded("pods \"a-2\" is forbidden: hostPort"), now(), &mut events);
    assert_eq!(status, before);
    flank(&mut status, degraded("pods \"a-2\" is forbidden: hostPath"), now(), &mut events);
    assert_ne!(status, before);
}

#[test]
fn a_first_true_is_news() {
    let (mut status, mut events) = (ProxyGroupStatus::default(), Vec::new());
    flank(&mut status, degraded("x"), now(), &mut events);
    assert_eq!(events.len(), 1);
}

fn status(change: impl FnOnce(&mut ProxyGroupStatus)) -> ProxyGroupStatus {
    let mut status = ProxyGroupStatus { phase: "Ready".to_owned(), ready_replicas: 2, ..ProxyGroupStatus::default() };
    change(&mut status);
    status
}

#[rstest]
#[case::nothing_changed(status(|_| {}), Some(0), Write::Never)]
#[case::counts_soon_after(status(|status| status.connected_players = 9), Some(400), Write::After(Duration::from_millis(600)))]
#[case::counts_later(status(|status| status.connected_players = 9), Some(1000), Write::Now)]
#[case::counts_for_the_first_time(status(|status| status.connected_players = 9), None, Write::Now)]
#[case::anything_else_at_once(status(|status| { status.connected_players = 9; status.ready_replicas = 1; }), Some(1), Write::Now)]
fn writes(#[case] next: ProxyGroupStatus, #[case] milliseconds_ago: Option<i64>, #[case] want: Write) {
    let last = milliseconds_ago.map(|milliseconds| now() - jiff::SignedDuration::from_millis(milliseconds));
    assert_eq!(when(Some(&status(|_| {})), &next, last, now()), want);
}

#[test]
fn times_are_whole_seconds() {
    let fine: Timestamp = "2026-11-29T12:00:00.75Z".parse().unwrap();
    assert_eq!(second(fine), now());
    assert_eq!(json!(second(fine).to_string()), json!("2026-11-29T12:00:00Z"));
}
