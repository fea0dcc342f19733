use super::*;
use proptest::prelude::*;
use rstest::rstest;

const SERVER: Newcomer = Newcomer::Server { slots: 20 };

fn place(people: u32, servers: u32) -> Place {
    Place { people, servers, slots: servers * 20, ..Place::default() }
}

fn proxies(siblings: u32, proxies: u32) -> Place {
    Place { siblings, proxies, ..Place::default() }
}

fn scores(newcomer: Newcomer, places: &[Place]) -> Vec<u32> {
    let scale = places.iter().fold(Scale::default(), Scale::with);
    places.iter().map(|place| score(newcomer, place, &scale).get()).collect()
}

#[rstest]
#[case::an_empty_node(SERVER, Place::default(), Ok(()))]
#[case::a_departing_node(SERVER, Place { departing: true, ..Place::default() }, Err(Refusal::Departing))]
#[case::proxies_keep_off_departing_nodes_too(Newcomer::Proxy, Place { departing: true, ..Place::default() }, Err(Refusal::Departing))]
#[case::no_budget_is_no_limit(SERVER, Place { slots: 4000, ..Place::default() }, Ok(()))]
#[case::the_last_slots(SERVER, Place { budget: Some(100), slots: 80, ..Place::default() }, Ok(()))]
#[case::one_slot_too_many(SERVER, Place { budget: Some(100), slots: 81, ..Place::default() }, Err(Refusal::OverBudget))]
#[case::a_budget_of_nothing(SERVER, Place { budget: Some(0), ..Place::default() }, Err(Refusal::OverBudget))]
#[case::a_server_that_does_not_say(Newcomer::Server { slots: 0 }, Place { budget: Some(100), slots: 100, ..Place::default() }, Ok(()))]
#[case::already_beyond_the_budget(Newcomer::Server { slots: 0 }, Place { budget: Some(100), slots: 101, ..Place::default() }, Err(Refusal::OverBudget))]
#[case::proxies_have_no_slots(Newcomer::Proxy, Place { budget: Some(0), ..Place::default() }, Ok(()))]
#[case::departing_binds_longest(SERVER, Place { departing: true, budget: Some(0), ..Place::default() }, Err(Refusal::Departing))]
#[case::numbers_beyond_reason(SERVER, Place { budget: Some(u32::MAX), slots: u32::MAX, ..Place::default() }, Ok(()))]
fn admits(#[case] newcomer: Newcomer, #[case] place: Place, #[case] want: Result<(), Refusal>) {
    assert_eq!(admit(newcomer, &place), want);
}

#[rstest]
#[case::nobody_under_way(Newcomer::Proxy, UnderWay::default(), Place::default(), false)]
#[case::a_sibling(Newcomer::Proxy, UnderWay { siblings: 1, slots: 0 }, Place::default(), true)]
#[case::servers_do_not_matter_to_proxies(Newcomer::Proxy, UnderWay { siblings: 0, slots: 90 }, Place::default(), false)]
#[case::no_budget(SERVER, UnderWay { siblings: 1, slots: 90 }, Place::default(), false)]
#[case::room_for_all(SERVER, UnderWay { siblings: 0, slots: 40 }, Place { budget: Some(100), slots: 40, ..Place::default() }, false)]
#[case::room_for_one_of_them(SERVER, UnderWay { siblings: 0, slots: 41 }, Place { budget: Some(100), slots: 40, ..Place::default() }, true)]
#[case::no_room_anyway(SERVER, UnderWay { siblings: 0, slots: 40 }, Place { budget: Some(100), slots: 90, ..Place::default() }, false)]
#[case::departing_anyway(SERVER, UnderWay { siblings: 0, slots: 90 }, Place { departing: true, budget: Some(100), ..Place::default() }, false)]
fn waits_only_where_it_matters(
    #[case] newcomer: Newcomer,
    #[case] under_way: UnderWay,
    #[case] place: Place,
    #[case] want: bool,
) {
    assert_eq!(depends(newcomer, under_way, &place), want);
}

#[rstest]
#[case::nothing_anywhere(&[place(0, 0), place(0, 0)], &[0, 0])]
#[case::to_the_people(&[place(30, 2), place(3, 9), place(0, 9), place(0, 0)], &[10, 3, 1, 0])]
#[case::one_player_beats_many_empty_servers(&[place(1, 1), place(0, 50)], &[10, 1])]
#[case::to_the_servers_while_nobody_plays(&[place(0, 4), place(0, 2), place(0, 0)], &[10, 5, 0])]
#[case::not_where_all_must_leave(&[Place { departing: true, ..place(90, 3) }, place(1, 1)], &[0, 3])]
fn packs_servers_by_people(#[case] places: &[Place], #[case] want: &[u32]) {
    assert_eq!(scores(SERVER, places), want);
}

#[rstest]
#[case::nothing_anywhere(&[proxies(0, 0), proxies(0, 0)], &[10, 10])]
#[case::away_from_the_own_group(&[proxies(1, 1), proxies(0, 0)], &[0, 10])]
#[case::other_groups_matter_less(&[proxies(1, 1), proxies(0, 3), proxies(0, 0)], &[1, 8, 10])]
#[case::to_the_fewest(&[proxies(4, 4), proxies(2, 2), proxies(1, 1)], &[0, 5, 7])]
#[case::not_where_all_must_leave(&[Place { departing: true, ..proxies(0, 0) }, proxies(1, 1)], &[0, 0])]
fn spreads_proxies(#[case] places: &[Place], #[case] want: &[u32]) {
    assert_eq!(scores(Newcomer::Proxy, places), want);
}

fn any_place() -> impl Strategy<Value = Place> {
    let counts = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    (any::<bool>(), any::<Option<u32>>(), any::<u32>(), counts).prop_map(
        |(departing, budget, slots, (people, servers, siblings, proxies))| Place {
            departing,
            budget,
            slots,
            people,
            servers,
            siblings,
            proxies,
        },
    )
}

proptest! {
    #[test]
    fn scores_stay_in_range(places in prop::collection::vec(any_place(), 1..20)) {
        for newcomer in [SERVER, Newcomer::Proxy] {
            prop_assert!(scores(newcomer, &places).into_iter().all(|score| score <= Score::MAX));
        }
    }

    /// More people never make a node less wanted, more proxies never more.
    #[test]
    fn scores_follow_what_they_are_about(places in prop::collection::vec(any_place(), 2..20)) {
        let (servers, proxies) = (scores(SERVER, &places), scores(Newcomer::Proxy, &places));
        for (a, one) in places.iter().enumerate() {
            for (b, other) in places.iter().enumerate().filter(|(_, other)| one.departing == other.departing) {
                if (one.people, one.servers) > (other.people, other.servers) && one.servers >= other.servers {
                    prop_assert!(servers[a] >= servers[b], "{one:?} {other:?}");
                }
                if one.siblings >= other.siblings && one.proxies >= other.proxies {
                    prop_assert!(proxies[a] <= proxies[b], "{one:?} {other:?}");
                }
            }
        }
    }

    /// A node with people on it always goes before one without.
    #[test]
    fn people_come_first(places in prop::collection::vec(any_place(), 2..20)) {
        let scores = scores(SERVER, &places);
        let of = |peopled: bool| {
            let some = places.iter().zip(&scores).filter(move |(place, _)| !place.departing && (place.people > 0) == peopled);
            some.map(|(_, score)| *score)
        };
        if let (Some(least), Some(most)) = (of(true).min(), of(false).max()) {
            prop_assert!(least > most);
        }
    }
}
