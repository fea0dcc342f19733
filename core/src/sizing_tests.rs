//! The sizing rule as a table, and what holds for every group.

use super::*;
use crate::member::testing::{at, member};
use crate::phase::Phase;
use proptest::prelude::*;
use rstest::rstest;

/// 1 to 5 servers of 20 slots, 10 of them spare, five minutes of patience.
const POLICY: Policy = Policy {
    min_replicas: 1,
    max_replicas: 5,
    spare_slots: 10,
    max_players: 20,
    stabilization: Duration::from_mins(5),
    max_unavailable: 1,
};

fn policy(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = POLICY;
    change(&mut policy);
    policy
}

fn nothing() -> Reservations {
    Reservations::default()
}

fn creating(creates: u32) -> Reservations {
    Reservations { creates, ..Reservations::default() }
}

fn deleting(names: &[&str]) -> Reservations {
    Reservations { deletes: names.iter().map(ToString::to_string).collect(), ..Reservations::default() }
}

fn retiring(names: &[&str]) -> Reservations {
    Reservations { retires: names.iter().map(ToString::to_string).collect(), ..Reservations::default() }
}

fn gone(names: &[&str]) -> Action {
    Action::Delete(names.iter().map(ToString::to_string).collect())
}

fn retire(name: &str) -> Action {
    Action::Retire(name.to_owned())
}

const ENOUGH: Option<Limit> = None;
#[expect(clippy::unnecessary_wraps, reason = "stands in a table of options")]
fn ceiling(wanted: u32, granted: u32) -> Option<Limit> {
    Some(Limit::Ceiling { wanted, granted })
}

#[rstest]
// Growing.
#[case::an_empty_group_gets_its_minimum(vec![], nothing(), policy(|p| { p.min_replicas = 3; p.spare_slots = 0; }), Action::Create(3), ENOUGH)]
#[case::no_minimum_and_no_spare_slots_need_nothing(vec![], nothing(), policy(|p| { p.min_replicas = 0; p.spare_slots = 0; }), Action::Keep, ENOUGH)]
#[case::spare_slots_need_servers(vec![], nothing(), policy(|p| { p.min_replicas = 0; p.spare_slots = 41; }), Action::Create(3), ENOUGH)]
#[case::the_larger_need_wins(vec![], nothing(), policy(|p| { p.min_replicas = 2; p.spare_slots = 60; }), Action::Create(3), ENOUGH)]
#[case::enough_is_enough(vec![member("a").players(10)], nothing(), POLICY, Action::Keep, ENOUGH)]
#[case::one_player_too_many(vec![member("a").players(11)], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::servers_coming_up_count_as_free(vec![member("a").players(20), member("b").coming_up()], nothing(), POLICY, Action::Keep, ENOUGH)]
#[case::creates_not_seen_yet_count_as_free(vec![member("a").players(20)], creating(1), POLICY, Action::Keep, ENOUGH)]
#[case::creates_not_seen_yet_count_as_alive(vec![], creating(1), POLICY, Action::Keep, ENOUGH)]
#[case::deletes_not_seen_yet_are_gone(vec![member("a")], deleting(&["a"]), POLICY, Action::Create(1), ENOUGH)]
#[case::deleted_servers_are_gone(vec![member("a").with(|m| m.deleting = true)], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::silent_servers_have_no_room(vec![member("a").silent()], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::a_moment_of_silence_makes_no_server(vec![member("a").players(6).silent_for(Duration::from_secs(12))], nothing(), POLICY, Action::Keep, ENOUGH)]
#[case::nor_does_a_replacement_that_is_slow_to_load(vec![member("a").players(6).with(|m| m.condemned = true), member("b").coming_up().silent().with(|m| m.slots = 20)], nothing(), POLICY, Action::Keep, ENOUGH)]
#[case::a_full_server_is_full_when_silent(vec![member("a").players(11).silent_for(Duration::from_secs(12))], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::lost_pods_have_no_room(vec![member("a").with(|m| m.sessions_gone = true)], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::failed_servers_are_replaced(vec![member("a").failed(at(0))], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::draining_servers_are_replaced(vec![member("a").with(|m| m.phase = Phase::Draining)], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::servers_on_departing_nodes_are_replaced(vec![member("a").players(3).with(|m| m.condemned = true)], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::servers_with_closing_doors_are_replaced(vec![member("a").players(3).with(|m| m.closing = true)], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::generations_do_not_matter_for_room(vec![member("a").old().players(11), member("b")], nothing(), policy(|p| p.spare_slots = 30), Action::Create(1), ENOUGH)]
// The ceiling.
#[case::no_room_left(vec![member("a").players(20), member("b").players(20)], nothing(), policy(|p| p.max_replicas = 2), Action::Keep, ceiling(1, 0))]
#[case::some_room_left(vec![member("a").players(20)], nothing(), policy(|p| { p.max_replicas = 2; p.spare_slots = 40; }), Action::Create(1), ceiling(2, 1))]
#[case::creates_not_seen_yet_use_the_room(vec![member("a").players(20)], creating(1), policy(|p| { p.max_replicas = 2; p.spare_slots = 40; }), Action::Keep, ceiling(1, 0))]
#[case::a_lowered_ceiling_sheds_at_once(vec![member("a"), member("b"), member("c").with(|m| m.empty_for = None)], nothing(), policy(|p| p.max_replicas = 1), gone(&["a", "b"]), ENOUGH)]
#[case::shedding_takes_nobody_s_server(vec![member("a").players(1), member("b"), member("c").players(1)], nothing(), policy(|p| p.max_replicas = 1), gone(&["b"]), ENOUGH)]
#[case::shedding_has_nothing_to_take(vec![member("a").players(1), member("b").players(1)], nothing(), policy(|p| p.max_replicas = 1), Action::Keep, ENOUGH)]
#[case::shedding_goes_on_while_slots_are_short(vec![member("a").players(20), member("b").players(20), member("c").coming_up()], nothing(), policy(|p| { p.max_replicas = 2; p.spare_slots = 40; }), gone(&["c"]), ceiling(1, 0))]
#[case::shedding_never_counts_one_twice(vec![member("a"), member("b")], deleting(&["a"]), policy(|p| p.max_replicas = 1), Action::Keep, ENOUGH)]
#[case::shedding_leaves_retiring_servers_to_retire(vec![member("a").with(|m| m.retire = true), member("b").players(1)], nothing(), policy(|p| p.max_replicas = 1), Action::Keep, ENOUGH)]
// Updates.
#[case::a_first_new_server(vec![member("a").old()], nothing(), POLICY, Action::Create(1), ENOUGH)]
#[case::only_one_first_new_server(vec![member("a").old()], creating(1), POLICY, Action::Keep, ENOUGH)]
#[case::no_room_for_a_first_new_server(vec![member("a").old().players(1)], nothing(), policy(|p| p.max_replicas = 1), Action::Keep, Some(Limit::ColdStart))]
#[case::a_refused_cold_start_lets_idle_servers_go(vec![member("a").old(), member("b").old()], nothing(), policy(|p| p.max_replicas = 2), gone(&["a"]), Some(Limit::ColdStart))]
#[case::a_refused_cold_start_with_short_slots_stops(vec![member("a").old().players(15), member("b").old().players(15)], nothing(), policy(|p| { p.max_replicas = 2; p.spare_slots = 15; }), Action::Keep, ceiling(1, 0))]
#[case::a_new_ready_server_retires_an_old_one(vec![member("a").old().players(3), member("b")], nothing(), POLICY, retire("a"), ENOUGH)]
#[case::one_at_a_time(vec![member("a").old().players(3), member("b"), member("c").old().players(1)], retiring(&["c"]), POLICY, Action::Keep, ENOUGH)]
#[case::slots_come_before_updates(vec![member("a").old().players(20), member("b").players(20)], nothing(), POLICY, Action::Create(1), ENOUGH)]
// Shrinking.
#[case::an_idle_server_goes(vec![member("a"), member("b").players(1)], nothing(), POLICY, gone(&["a"]), ENOUGH)]
#[case::one_at_a_time_for_lack_of_demand(vec![member("a"), member("b"), member("c")], nothing(), POLICY, gone(&["a"]), ENOUGH)]
#[case::not_below_the_minimum(vec![member("a"), member("b")], nothing(), policy(|p| p.min_replicas = 2), Action::Keep, ENOUGH)]
#[case::not_while_a_create_is_outstanding(vec![member("a"), member("b")], creating(1), POLICY, Action::Keep, ENOUGH)]
#[case::not_before_its_time(vec![member("a").with(|m| m.empty_for = Some(Duration::from_secs(299))), member("b").players(1)], nothing(), POLICY, Action::Keep, ENOUGH)]
#[case::not_the_last_spare_slots(vec![member("a"), member("b").players(11)], nothing(), POLICY, Action::Keep, ENOUGH)]
#[case::slots_coming_up_are_not_spare_yet(vec![member("a"), member("b").coming_up()], nothing(), POLICY, Action::Keep, ENOUGH)]
#[case::a_retiring_server_is_no_spare(vec![member("a"), member("b").with(|m| m.retire = true)], nothing(), POLICY, Action::Keep, ENOUGH)]
#[case::during_an_update_only_old_ones_go(vec![member("new"), member("old").old().coming_up()], nothing(), policy(|p| p.spare_slots = 0), Action::Keep, ENOUGH)]
#[case::an_old_one_goes_during_an_update(vec![member("a").old(), member("b").old().with(|m| m.retire = true), member("c")], nothing(), POLICY, gone(&["a"]), ENOUGH)]
fn sizes(
    #[case] members: Vec<Member>,
    #[case] reserved: Reservations,
    #[case] policy: Policy,
    #[case] action: Action,
    #[case] limited: Option<Limit>,
) {
    let sizing = decide(&members, &reserved, &policy);
    assert_eq!((sizing.action, sizing.limited), (action, limited));
}

#[rstest]
#[case::never_open(vec![member("a").coming_up().with(|m| m.condemned = true)], nothing(), &["a"])]
#[case::was_open(vec![member("a").with(|m| m.condemned = true)], nothing(), &[])]
#[case::asked_for_already(vec![member("a").coming_up().with(|m| m.condemned = true)], deleting(&["a"]), &[])]
#[case::deleted_already(vec![member("a").coming_up().with(|m| { m.condemned = true; m.deleting = true; })], nothing(), &[])]
#[case::all_of_them(vec![member("a").coming_up().with(|m| m.condemned = true), member("b").coming_up().with(|m| m.condemned = true)], nothing(), &["a", "b"])]
fn condemns(#[case] members: Vec<Member>, #[case] reserved: Reservations, #[case] want: &[&str]) {
    assert_eq!(decide(&members, &reserved, &POLICY).condemn, want);
}

fn any_member() -> impl Strategy<Value = Member> {
    (
        prop_oneof![
            Just(Phase::Pending),
            Just(Phase::Starting),
            Just(Phase::Ready),
            Just(Phase::Retiring),
            Just(Phase::Draining),
            Just(Phase::Terminating),
            Just(Phase::Failed)
        ],
        any::<[bool; 7]>(),
        0_u32..21,
        0_u32..21,
        0_i64..100,
        0_u64..60,
    )
        .prop_map(|(phase, facts, players, slots, created, silent)| {
            let [current, stale, was_registered, retire, deleting, condemned, closing] = facts;
            member("").with(|m| {
                (m.phase, m.current, m.stale, m.was_registered) = (phase, current, stale, was_registered);
                (m.retire, m.deleting, m.condemned, m.closing) = (retire, deleting, condemned, closing);
                (m.slots, m.players, m.created_at) = (slots, players.min(slots), at(created));
                m.silent_for = Duration::from_secs(silent);
            })
        })
}

fn any_group() -> impl Strategy<Value = (Vec<Member>, Reservations, Policy)> {
    let members = prop::collection::vec(any_member(), 0..12);
    let policy =
        (0_u32..6, 0_u32..6, 0_u32..60, 1_u32..25, 0_u32..3).prop_map(|(min, more, spare, players, unavailable)| {
            policy(|p| {
                (p.min_replicas, p.max_replicas) = (min, (min + more).max(1));
                (p.spare_slots, p.max_players, p.max_unavailable) = (spare, players, unavailable);
            })
        });
    (members, 0_u32..4, any::<[bool; 12]>(), policy).prop_map(|(mut members, creates, pending, policy)| {
        let mut reserved = creating(creates);
        for (i, (m, pending)) in members.iter_mut().zip(pending).enumerate() {
            m.name = format!("m{i}");
            if pending {
                reserved.deletes.insert(m.name.clone());
            }
        }
        (members, reserved, policy)
    })
}

proptest! {
    #[test]
    fn never_grows_over_the_ceiling((members, reserved, policy) in any_group()) {
        if let Action::Create(n) = decide(&members, &reserved, &policy).action {
            let alive = members.iter().filter(|m| m.counts() && !m.deleting && !reserved.deletes.contains(&m.name)).count();
            prop_assert!(n > 0);
            prop_assert!(alive + size(reserved.creates) + size(n) <= size(policy.max_replicas));
        }
    }

    #[test]
    fn never_deletes_a_server_that_somebody_may_be_on((members, reserved, policy) in any_group()) {
        let sizing = decide(&members, &reserved, &policy);
        let mut names = sizing.condemn;
        if let Action::Delete(chosen) = sizing.action {
            prop_assert!(!chosen.is_empty());
            names.extend(chosen);
        }
        for name in names {
            let m = members.iter().find(|m| m.name == name).unwrap();
            prop_assert!(!m.was_registered || !m.may_have_players());
            prop_assert!(!reserved.deletes.contains(&name), "asked for twice");
        }
    }

    #[test]
    fn never_shrinks_below_the_minimum((members, reserved, policy) in any_group()) {
        if let Action::Delete(chosen) = decide(&members, &reserved, &policy).action {
            let alive = members.iter().filter(|m| m.counts() && !m.deleting && !reserved.deletes.contains(&m.name)).count();
            prop_assert!(alive + size(reserved.creates) - chosen.len() >= size(policy.min_replicas));
        }
    }

    /// Growing and shrinking do not chase each other: after a create is done nothing is deleted for lack of demand.
    #[test]
    fn a_create_is_not_undone((mut members, reserved, policy) in any_group()) {
        if let Action::Create(n) = decide(&members, &reserved, &policy).action {
            for i in 0..n {
                members.push(member(&format!("new{i}")).coming_up());
            }
            let next = decide(&members, &reserved, &policy).action;
            prop_assert!(!matches!(next, Action::Delete(_)), "{next:?}");
        }
    }
}
