use std::time::{Duration, Instant};

use rstest::rstest;

use super::{Capabilities, Generation, Ledger, PodUid, Rejected, Report, Role, Rules, ServerCount};

const ONE: Generation = Generation(1);
const TWO: Generation = Generation(2);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn uid(name: &str) -> PodUid {
    PodUid::from(name)
}

fn players(players: i32, slots: i32) -> Report {
    Report { players, slots, ..Report::default() }
}

fn through(server: &str, players: i32, connecting: i32) -> Report {
    let on = ServerCount { server: server.into(), players, connecting };
    Report { players: 1, slots: 100, nonce: 0, servers: vec![on] }
}

/// A ledger that leads since `t0`, with a server `s` and two proxies, all connected at `t0`.
fn ledger(t0: Instant) -> Ledger {
    let mut ledger = Ledger::new(Rules::default(), Some(t0));
    ledger.declare(&uid("s"), Role::Server, "s", "lobby");
    ledger.declare(&uid("p"), Role::Proxy, "p", "edge");
    ledger.declare(&uid("q"), Role::Proxy, "q", "edge");
    for pod in ["s", "p", "q"] {
        ledger.connect(&uid(pod), ONE, t0);
        ledger.hello(&uid(pod), ONE, false, Capabilities::default(), t0);
    }
    ledger
}

#[rstest]
#[case::count(players(3, 20), Ok(()))]
#[case::full(players(20, 20), Ok(()))]
#[case::no_slots_nobody(players(0, 0), Ok(()))]
#[case::negative_players(players(-1, 20), Err(Rejected::Negative))]
#[case::negative_slots(players(0, -1), Err(Rejected::Negative))]
#[case::more_than_slots(players(21, 20), Err(Rejected::MoreThanSlots { players: 21, slots: 20 }))]
#[case::negative_on_a_server(through("s", -1, 0), Err(Rejected::Negative))]
#[case::negative_on_the_way(through("s", 0, -1), Err(Rejected::Negative))]
fn takes_or_rejects(#[case] report: Report, #[case] want: Result<(), Rejected>) {
    let t0 = Instant::now();
    let mut ledger = ledger(t0);
    assert_eq!(ledger.report(&uid("p"), ONE, &report, t0).map(|_| ()), want);
    assert_eq!(ledger.get(&uid("p")).and_then(super::Entry::last_count).is_some(), want.is_ok());
}

#[test]
fn a_replaced_session_is_not_listened_to_and_cannot_end_its_successor() {
    let t0 = Instant::now();
    let mut ledger = ledger(t0);
    ledger.connect(&uid("s"), TWO, t0);
    assert_eq!(ledger.report(&uid("s"), ONE, &players(0, 20), t0), Err(Rejected::NotCurrent));
    assert!(!ledger.disconnect(&uid("s"), ONE, t0));
    assert!(ledger.get(&uid("s")).is_some_and(super::Entry::connected));
    assert!(ledger.disconnect(&uid("s"), TWO, t0));
}

#[test]
fn readiness_and_emptiness_pass_to_a_replacing_session_and_not_to_a_later_one() {
    let t0 = Instant::now();
    let mut ledger = ledger(t0);
    ledger.hello(&uid("s"), ONE, true, Capabilities::default(), t0);
    ledger.report(&uid("s"), ONE, &players(0, 20), t0).unwrap();
    ledger.connect(&uid("s"), TWO, t0 + secs(1));
    ledger.hello(&uid("s"), TWO, false, Capabilities::default(), t0 + secs(1));
    assert!(ledger.get(&uid("s")).unwrap().ready(), "nothing lowers readiness on a live stream");
    assert_eq!(ledger.empty_for(&uid("s"), t0 + secs(3)), Some(secs(3)));

    ledger.disconnect(&uid("s"), TWO, t0 + secs(4));
    assert!(!ledger.get(&uid("s")).unwrap().ready());
    ledger.connect(&uid("s"), Generation(3), t0 + secs(5));
    assert_eq!(ledger.empty_for(&uid("s"), t0 + secs(5)), None);
}

#[rstest]
#[case::nobody(0, 0, 0, 0)]
#[case::own_agent_alone(4, 0, 0, 4)]
#[case::proxies_alone(0, 2, 1, 3)]
#[case::proxies_lag(4, 2, 1, 4)]
#[case::own_agent_lags(2, 2, 1, 3)]
fn a_server_counts_the_larger_view(#[case] own: i32, #[case] p: i32, #[case] q: i32, #[case] want: u32) {
    let t0 = Instant::now();
    let mut ledger = ledger(t0);
    ledger.report(&uid("s"), ONE, &players(own, 20), t0).unwrap();
    ledger.report(&uid("p"), ONE, &through("s", p, 0), t0).unwrap();
    ledger.report(&uid("q"), ONE, &through("s", 0, q), t0).unwrap();
    assert_eq!(ledger.players(&uid("s"), t0), Some(want));
    assert_eq!(ledger.occupied(&uid("s"), t0), want > 0);
}

#[test]
fn sums_follow_every_report_and_the_end_of_a_proxy() {
    let t0 = Instant::now();
    let mut ledger = ledger(t0);
    assert_eq!(ledger.report(&uid("p"), ONE, &through("s", 2, 1), t0), Ok(vec!["s".to_owned()]));
    assert_eq!(ledger.report(&uid("p"), ONE, &through("s", 2, 1), t0), Ok(vec![]), "unchanged");
    ledger.report(&uid("q"), ONE, &through("s", 5, 0), t0).unwrap();
    assert_eq!(ledger.by_proxies("s"), 8);
    ledger.report(&uid("p"), ONE, &through("other", 1, 0), t0).unwrap();
    assert_eq!((ledger.by_proxies("s"), ledger.by_proxies("other")), (5, 1));
    assert_eq!(ledger.forget(&uid("q")), vec!["s".to_owned()]);
    assert_eq!(ledger.by_proxies("s"), 0);
}

#[rstest]
#[case::fresh_zero(true, Some(0), 9, false)]
#[case::stale_zero_of_a_routable(true, Some(0), 10, true)]
#[case::stale_zero_of_one_never_routable(false, Some(0), 10, false)]
#[case::stale_people_stay_people(false, Some(3), 3600, true)]
#[case::never_heard_routable(true, None, 0, true)]
#[case::never_heard_never_routable(false, None, 0, false)]
fn unknown_is_occupied_where_it_was_ever_routable(
    #[case] routable: bool,
    #[case] count: Option<i32>,
    #[case] age: u64,
    #[case] want: bool,
) {
    let t0 = Instant::now();
    let mut ledger = ledger(t0);
    if routable {
        ledger.mark_routable(&uid("s"));
    }
    if let Some(count) = count {
        ledger.report(&uid("s"), ONE, &players(count, 20), t0).unwrap();
    }
    assert_eq!(ledger.occupied(&uid("s"), t0 + secs(age)), want);
}

#[test]
fn a_pod_nobody_declared_is_occupied() {
    let t0 = Instant::now();
    assert!(ledger(t0).occupied(&uid("stranger"), t0));
}

#[rstest]
#[case::just_taken_over(0, 0)]
#[case::before_the_hard_deadline_and_backoff(644, 0)]
#[case::after(645, 645)]
fn a_pod_not_yet_seen_is_charged_nothing_before_it_had_to_be_back(#[case] after: u64, #[case] down: u64) {
    let t0 = Instant::now();
    let mut ledger = Ledger::new(Rules::default(), Some(t0));
    ledger.declare(&uid("s"), Role::Server, "s", "lobby");
    assert_eq!(ledger.stream_down_for(&uid("s"), t0 + secs(after)), secs(down));
    assert_eq!(ledger.stream_down_for(&uid("stranger"), t0 + secs(after)), secs(down));
}

#[rstest]
#[case::killed_while_talking(2, 0)]
#[case::frozen_and_cut(10, 10)]
#[case::silent_for_long_is_charged_no_more_than_a_frozen_one(300, 10)]
fn a_stream_cut_for_silence_is_down_since_the_last_word(#[case] silent: u64, #[case] down: u64) {
    let t0 = Instant::now();
    let mut ledger = ledger(t0);
    ledger.report(&uid("s"), ONE, &players(0, 20), t0).unwrap();
    let cut = t0 + secs(silent);
    ledger.disconnect(&uid("s"), ONE, cut);
    assert_eq!(ledger.stream_down_for(&uid("s"), cut), secs(down));
    ledger.connect(&uid("s"), TWO, cut + secs(1));
    ledger.hello(&uid("s"), TWO, true, Capabilities::default(), cut + secs(1));
    assert_eq!(ledger.stream_down_for(&uid("s"), cut + secs(60)), Duration::ZERO);
}

#[test]
fn a_stream_on_which_nobody_has_said_hello_tells_nothing_and_stops_no_clock() {
    let t0 = Instant::now();
    let mut ledger = ledger(t0);
    let introduced = |ledger: &Ledger| ledger.get(&uid("s")).is_some_and(super::Entry::introduced);
    ledger.disconnect(&uid("s"), ONE, t0 + secs(1));
    ledger.connect(&uid("s"), TWO, t0 + secs(4));
    assert!(!introduced(&ledger));
    assert_eq!(ledger.stream_down_for(&uid("s"), t0 + secs(5)), secs(4));
    ledger.disconnect(&uid("s"), TWO, t0 + secs(6));
    assert_eq!(ledger.stream_down_for(&uid("s"), t0 + secs(9)), secs(8));
    ledger.connect(&uid("s"), Generation(3), t0 + secs(10));
    ledger.hello(&uid("s"), Generation(3), true, Capabilities::default(), t0 + secs(11));
    assert!(introduced(&ledger));
    assert_eq!(ledger.stream_down_for(&uid("s"), t0 + secs(12)), Duration::ZERO);
    ledger.connect(&uid("s"), Generation(4), t0 + secs(13));
    assert!(introduced(&ledger), "a session that replaces a live one goes on where that was");
}

#[test]
fn after_a_take_over_a_stream_without_a_hello_is_as_if_the_agent_had_not_been_seen() {
    let t0 = Instant::now();
    let mut ledger = Ledger::new(Rules::default(), Some(t0));
    ledger.declare(&uid("s"), Role::Server, "s", "lobby");
    ledger.connect(&uid("s"), ONE, t0 + secs(5));
    assert_eq!(ledger.stream_down_for(&uid("s"), t0 + secs(30)), Duration::ZERO);
    ledger.disconnect(&uid("s"), ONE, t0 + secs(31));
    assert_eq!(ledger.stream_down_for(&uid("s"), t0 + secs(60)), Duration::ZERO);
}

#[test]
fn emptiness_begins_at_the_first_zero_and_ends_with_a_player_on_the_way() {
    let t0 = Instant::now();
    let mut ledger = ledger(t0);
    ledger.report(&uid("s"), ONE, &players(0, 20), t0).unwrap();
    ledger.report(&uid("s"), ONE, &players(0, 20), t0 + secs(5)).unwrap();
    assert_eq!(ledger.empty_for(&uid("s"), t0 + secs(6)), Some(secs(6)));
    for server in ledger.report(&uid("p"), ONE, &through("s", 0, 1), t0 + secs(7)).unwrap() {
        ledger.note_emptiness(&uid(&server), t0 + secs(7));
    }
    assert_eq!(ledger.empty_for(&uid("s"), t0 + secs(7)), None);
}
