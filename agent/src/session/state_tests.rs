use rstest::rstest;

use super::*;
use crate::session::OnServer;

const SERVER: Character =
    Character { role: Role::Server, source: Source::Local, adapter: Adapter::None, door_enforced: false };
const PINGED: Character = Character { source: Source::Ping, ..SERVER };
const PROXY: Character = Character { role: Role::Proxy, adapter: Adapter::External, ..SERVER };
const BARE_PROXY: Character = Character { adapter: Adapter::None, ..PROXY };

const START: u64 = 1000;

fn live(character: Character) -> State {
    let mut state = State::new(character, START);
    let hello = state.hello();
    state.begin(&hello);
    state
}

fn said(state: &mut State) -> Vec<Outgoing> {
    std::iter::from_fn(|| state.next_outgoing()).collect()
}

fn mark(revision: u64) -> Mark {
    Mark { revision, epoch: 3 }
}

fn entry(name: &str) -> Entry {
    Entry { name: name.into(), address: "127.0.0.9:25565".into(), group: "lobby".into() }
}

fn sync(names: &[&str], mark: Mark) -> Incoming {
    Incoming::FullSync { servers: names.iter().map(|name| entry(name)).collect(), mark }
}

fn count(players: u32) -> Outgoing {
    Outgoing::Count { tally: Tally::new(players, 20), nonce: 0 }
}

fn answer(players: u32, nonce: u64) -> Outgoing {
    Outgoing::Count { tally: Tally::new(players, 20), nonce }
}

fn capabilities(character: Character) -> Vec<String> {
    match State::new(character, 0).hello() {
        Outgoing::Hello { capabilities, .. } => capabilities,
        other => panic!("the first message is a Hello, not {other:?}"),
    }
}

#[test]
fn capabilities_are_what_the_agent_can_do() {
    assert_eq!(capabilities(SERVER), ["report-now", "keep-alive", "release"]);
    assert_eq!(capabilities(PROXY), ["directory-revisions", "report-now", "server-occupancy", "keep-alive", "release"]);
    let doored = Character { adapter: Adapter::External, door_enforced: true, ..SERVER };
    assert_eq!(capabilities(doored), ["report-now", "door", "keep-alive", "release"]);
}

#[test]
fn the_count_goes_before_the_confirmation() {
    let mut state = live(PROXY);
    state.counted(Some(Tally::new(1, 20)), None);
    state.hear(&sync(&["a"], mark(7)));
    assert_eq!(said(&mut state), [count(1)], "nothing is confirmed before the game has applied it");
    let on_a = BTreeMap::from([("a".to_owned(), OnServer { players: 0, connecting: 1 })]);
    let tally = Tally::new(2, 20).with_servers(on_a);
    state.applied(state.seq(), tally.clone(), None).expect("a number that was handed out");
    assert_eq!(said(&mut state), [Outgoing::Count { tally, nonce: 0 }, Outgoing::DirectoryApplied(mark(7))]);
}

#[test]
fn an_unchanged_count_goes_before_the_confirmation_too() {
    let mut state = live(PROXY);
    state.counted(Some(Tally::new(1, 20)), None);
    said(&mut state);
    state.hear(&sync(&[], mark(7)));
    state.applied(state.seq(), Tally::new(1, 20), None).expect("handed out");
    assert_eq!(said(&mut state), [count(1), Outgoing::DirectoryApplied(mark(7))]);
}

#[test]
fn a_game_that_is_behind_confirms_what_it_has() {
    let mut state = live(PROXY);
    state.hear(&sync(&["a", "b"], mark(1)));
    let first = state.seq();
    state.hear(&Incoming::Unregister { name: "a".into(), mark: mark(2) });
    state.applied(first, Tally::new(0, 20), None).expect("handed out");
    assert_eq!(said(&mut state), [count(0), Outgoing::DirectoryApplied(mark(1))]);
    state.applied(state.seq(), Tally::new(0, 20), None).expect("handed out");
    assert_eq!(said(&mut state), [count(0), Outgoing::DirectoryApplied(mark(2))]);
    assert_eq!(state.servers().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn numbers_of_an_earlier_life_confirm_nothing_and_numbers_ahead_are_refused() {
    let mut state = live(PROXY);
    state.hear(&sync(&[], mark(1)));
    state.applied(START - 5, Tally::new(0, 20), None).expect("old, so harmless");
    assert_eq!(said(&mut state), [count(0)]);
    let ahead = state.seq() + 1;
    assert_eq!(state.applied(ahead, Tally::new(0, 20), None), Err(AheadOfUs { newest: START + 1 }));
}

#[test]
fn without_an_adapter_orders_are_confirmed_at_once() {
    let mut state = live(BARE_PROXY);
    state.hear(&sync(&["a"], mark(1)));
    assert_eq!(said(&mut state), [Outgoing::DirectoryApplied(mark(1))], "unknown count: no count");
    state.counted(Some(Tally::new(4, 20)), None);
    state.hear(&Incoming::Unregister { name: "a".into(), mark: mark(2) });
    assert_eq!(said(&mut state), [count(4), Outgoing::DirectoryApplied(mark(2))]);
}

#[test]
fn upstreams_directory_has_no_numbers_and_gets_no_confirmation() {
    let mut state = live(BARE_PROXY);
    state.hear(&sync(&["a"], Mark::default()));
    assert_eq!(said(&mut state), []);
    assert!(state.gate_open(), "applied all the same");
}

#[test]
fn lower_epochs_are_dropped_whatever_they_say() {
    let mut state = live(BARE_PROXY);
    state.hear(&sync(&["a"], mark(9)));
    said(&mut state);
    let seq = state.seq();
    let old = Mark { revision: 100, epoch: 2 };
    let dropped = [
        sync(&["z"], old),
        Incoming::Register { server: entry("z"), mark: old },
        Incoming::Unregister { name: "a".into(), mark: old },
        Incoming::Drain { from_server: "a".into(), to_groups: vec!["b".into()], epoch: 2 },
        Incoming::SetReady { ready: false, epoch: 2 },
        Incoming::Door { open: false, mark: old },
        Incoming::KeepAlive { epoch: 2 },
        sync(&["z"], Mark::default()),
    ];
    for message in &dropped {
        assert_eq!(state.hear(message), Heard::Fenced, "{message:?}");
    }
    assert_eq!((state.seq(), state.fenced()), (seq, dropped.len() as u64));
    assert_eq!(said(&mut state), []);
    assert!(state.accepting() && state.gate_open());
    assert_eq!(state.servers().count(), 1);
    let newer = Mark { revision: 1, epoch: 4 };
    assert_eq!(state.hear(&sync(&[], newer)), Heard::Fresh);
    assert_eq!(said(&mut state), [Outgoing::DirectoryApplied(newer)]);
    state.end();
    assert_eq!(state.hear(&Incoming::KeepAlive { epoch: 3 }), Heard::Fenced, "the fence outlives the stream");
}

#[test]
fn the_count_is_said_on_a_change_and_not_again() {
    let mut state = live(SERVER);
    assert_eq!(said(&mut state), [], "unknown: nothing");
    state.counted(Some(Tally::new(3, 20)), None);
    state.counted(Some(Tally::new(3, 20)), None);
    assert_eq!(said(&mut state), [count(3)]);
    state.report();
    assert_eq!(said(&mut state), [count(3)], "the interval says it again");
    state.counted(None, None);
    state.report();
    assert_eq!(said(&mut state), [], "unknown again: nothing, and silence is unknown");
}

#[test]
fn a_late_count_changes_nothing() {
    let mut state = live(SERVER);
    assert!(state.counted(Some(Tally::new(1, 20)), Some(20)));
    assert!(!state.counted(Some(Tally::new(0, 20)), Some(19)), "sent before, read after");
    assert_eq!(said(&mut state), [count(1)]);
    assert!(state.counted(Some(Tally::new(2, 20)), None), "without a serial it counts as the newest");
    assert!(state.counted(Some(Tally::new(3, 20)), Some(20)), "the same serial may be sent again");
}

#[test]
fn a_late_confirmation_confirms_with_the_newer_count() {
    let mut state = live(PROXY);
    state.hear(&sync(&[], mark(1)));
    state.counted(Some(Tally::new(5, 20)), Some(20));
    state.applied(state.seq(), Tally::new(0, 20), Some(19)).expect("handed out");
    assert_eq!(said(&mut state), [count(5), Outgoing::DirectoryApplied(mark(1))]);
}

#[test]
fn a_question_is_answered_by_the_pushed_count_or_not_at_all() {
    let mut state = live(SERVER);
    state.hear(&Incoming::ReportNow { nonce: 8 });
    assert_eq!(said(&mut state), [], "unknown");
    state.counted(Some(Tally::new(2, 20)), None);
    state.hear(&Incoming::ReportNow { nonce: 9 });
    assert_eq!(said(&mut state), [count(2), answer(2, 9)]);
}

#[test]
fn an_adapter_is_asked_to_count_anew() {
    let mut state = live(PROXY);
    state.counted(Some(Tally::new(0, 20)), None);
    let before = state.seq();
    state.hear(&Incoming::ReportNow { nonce: 8 });
    state.hear(&Incoming::ReportNow { nonce: 9 });
    assert_eq!(said(&mut state), [count(0)], "the old count is no answer");
    state.applied(before, Tally::new(0, 20), None).expect("handed out");
    assert_eq!(said(&mut state), [], "counted before the question");
    state.applied(state.seq(), Tally::new(1, 20), None).expect("handed out");
    assert_eq!(said(&mut state), [count(1), answer(1, 9)]);
}

#[test]
fn a_ping_answers_only_questions_put_before_it_began() {
    let mut state = live(PINGED);
    state.hear(&Incoming::ReportNow { nonce: 1 });
    let asked = state.question();
    state.hear(&Incoming::ReportNow { nonce: 2 });
    state.pinged(Some(Tally::new(0, 20)), asked);
    assert_eq!(said(&mut state), [Outgoing::Ready, count(0)], "2 was put while the ping was on its way");
    let asked = state.question();
    state.pinged(Some(Tally::new(0, 20)), asked);
    assert_eq!(said(&mut state), [answer(0, 2)]);
    assert_eq!(state.question(), None);
}

#[test]
fn an_unanswered_ping_is_unknown_and_answers_nothing() {
    let mut state = live(PINGED);
    state.pinged(Some(Tally::new(0, 20)), None);
    state.hear(&Incoming::ReportNow { nonce: 1 });
    said(&mut state);
    state.pinged(None, state.question());
    state.report();
    assert_eq!(said(&mut state), []);
    assert_eq!(state.tally(), None);
}

#[test]
fn ready_is_said_once_a_stream() {
    let mut state = State::new(SERVER, START);
    let before = state.hello();
    state.loaded(true);
    state.begin(&before);
    assert_eq!(said(&mut state), [Outgoing::Ready], "loaded between Hello and the operator's first word");
    state.loaded(true);
    assert_eq!(said(&mut state), []);
    let hello = state.hello();
    assert!(matches!(hello, Outgoing::Hello { ready: true, .. }));
    state.begin(&hello);
    assert_eq!(said(&mut state), []);
}

#[test]
fn a_new_stream_starts_from_the_present() {
    let mut state = live(PROXY);
    state.hear(&sync(&["a"], mark(1)));
    state.hear(&Incoming::ReportNow { nonce: 5 });
    state.counted(Some(Tally::new(1, 20)), None);
    let hello = state.hello();
    state.begin(&hello);
    assert_eq!(said(&mut state), [count(1)]);
    state.applied(state.seq(), Tally::new(1, 20), None).expect("handed out");
    assert_eq!(said(&mut state), [], "what the old stream asked is not answered on the new one");
    state.end();
    state.counted(Some(Tally::new(2, 20)), None);
    assert!(!state.has_outgoing());
    state.begin(&hello);
    assert_eq!(said(&mut state), [count(2)], "recorded for the next session");
}

#[rstest]
#[case::first_sync_applied(&[sync(&[], mark(1))], true, true)]
#[case::not_applied_yet(&[sync(&[], mark(1))], false, false)]
#[case::no_sync(&[Incoming::Register { server: entry("a"), mark: mark(1) }], true, false)]
#[case::told_no(&[sync(&[], mark(1)), Incoming::SetReady { ready: false, epoch: 3 }], true, false)]
#[case::told_no_before(&[Incoming::SetReady { ready: false, epoch: 3 }, sync(&[], mark(1))], true, false)]
#[case::told_yes_before_a_sync(&[Incoming::SetReady { ready: true, epoch: 3 }], true, false)]
#[case::told_yes_again(&[sync(&[], mark(1)), Incoming::SetReady { ready: false, epoch: 3 }, Incoming::SetReady { ready: true, epoch: 3 }], true, true)]
fn gate(#[case] heard: &[Incoming], #[case] applied: bool, #[case] open: bool) {
    let mut state = live(PROXY);
    for message in heard {
        state.hear(message);
    }
    if applied {
        state.applied(state.seq(), Tally::new(0, 20), None).expect("handed out");
    }
    assert_eq!(state.gate_open(), open);
    state.end();
    assert_eq!(state.gate_open(), open, "losing the stream changes nothing");
}

#[test]
fn drains_come_and_go() {
    let mut state = live(PROXY);
    let drain = |to: &[&str]| Incoming::Drain {
        from_server: "a".into(),
        to_groups: to.iter().map(|group| (*group).to_owned()).collect(),
        epoch: 3,
    };
    state.hear(&drain(&["lobby", "hub"]));
    assert_eq!(state.drains().collect::<Vec<_>>(), [("a", &["lobby".to_owned(), "hub".to_owned()][..])]);
    let seq = state.seq();
    state.hear(&drain(&["lobby"]));
    assert!(state.seq() > seq, "told again: the game looks again");
    state.hear(&drain(&[]));
    assert_eq!(state.drains().count(), 0);
    state.hear(&drain(&["lobby"]));
    state.hear(&sync(&[], mark(2)));
    assert_eq!(state.drains().count(), 0, "what is still in force is said again after a whole directory");
}

#[test]
fn the_door_is_confirmed_when_the_game_refuses_newcomers() {
    let mut state = live(Character { door_enforced: true, ..PROXY });
    state.hear(&Incoming::Door { open: false, mark: mark(4) });
    assert!(!state.accepting() && !state.door_open());
    assert_eq!(said(&mut state), []);
    state.applied(state.seq(), Tally::new(0, 20), None).expect("handed out");
    assert_eq!(said(&mut state), [count(0), Outgoing::DoorApplied { open: false, mark: mark(4) }]);
}

#[test]
fn a_door_that_nobody_enforces_is_not_confirmed() {
    let mut state = live(SERVER);
    state.hear(&Incoming::Door { open: false, mark: mark(4) });
    assert_eq!(said(&mut state), []);
    assert!(!state.door_open(), "shown all the same");
}
