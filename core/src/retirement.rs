//! Which server is replaced next when the group asks for something else than it was made from.

use crate::member::Member;
use crate::phase::Phase;
use crate::sizing::Reservations;

/// The one server to retire now, if any: needs a ready current server to go to and a budget of `max_unavailable` that the
/// servers already retiring have not used up. Known-empty servers first, then the oldest, then by name.
pub fn select<'a>(members: &'a [Member], reserved: &Reservations, max_unavailable: u32) -> Option<&'a Member> {
    let refuge = members
        .iter()
        .any(|m| m.current && m.phase == Phase::Ready && !m.leaving() && !reserved.deletes.contains(&m.name));
    if !refuge {
        return None;
    }
    let used = members.iter().filter(|m| m.retire || reserved.retires.contains(&m.name)).count();
    if used >= usize::try_from(max_unavailable.max(1)).unwrap_or(usize::MAX) {
        return None;
    }
    members
        .iter()
        .filter(|m| m.phase == Phase::Ready && !m.current && !m.leaving() && !m.deleting)
        .filter(|m| !m.retire && !reserved.deletes.contains(&m.name) && !reserved.retires.contains(&m.name))
        .min_by_key(|m| (!m.known_empty(), m.created_at, m.name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::testing::{at, member};
    use rstest::rstest;

    fn reserve(deletes: &[&str], retires: &[&str]) -> Reservations {
        Reservations {
            creates: 0,
            deletes: deletes.iter().map(ToString::to_string).collect(),
            retires: retires.iter().map(ToString::to_string).collect(),
        }
    }

    #[rstest]
    #[case::nothing_stale(vec![member("new")], reserve(&[], &[]), 1, None)]
    #[case::a_stale_one(vec![member("new"), member("old").old()], reserve(&[], &[]), 1, Some("old"))]
    #[case::nowhere_to_go(vec![member("new").coming_up(), member("old").old()], reserve(&[], &[]), 1, None)]
    #[case::refuge_is_about_to_go(vec![member("new"), member("old").old()], reserve(&["new"], &[]), 1, None)]
    #[case::refuge_is_on_a_departing_node(vec![member("new").with(|m| m.condemned = true), member("old").old()], reserve(&[], &[]), 1, None)]
    #[case::refuge_has_its_door_closed(vec![member("new").with(|m| m.closing = true), member("old").old()], reserve(&[], &[]), 1, None)]
    #[case::budget_used(vec![member("new"), member("old").old(), member("r").old().with(|m| m.retire = true)], reserve(&[], &[]), 1, None)]
    #[case::budget_used_by_a_failed_retiree(vec![member("new"), member("old").old(), member("r").old().failed(at(0)).with(|m| m.retire = true)], reserve(&[], &[]), 1, None)]
    #[case::budget_used_by_a_reservation(vec![member("new"), member("old").old(), member("r").old()], reserve(&[], &["r"]), 1, None)]
    #[case::budget_of_two(vec![member("new"), member("old").old(), member("r").old().with(|m| m.retire = true)], reserve(&[], &[]), 2, Some("old"))]
    #[case::budget_of_zero_is_one(vec![member("new"), member("old").old()], reserve(&[], &[]), 0, Some("old"))]
    #[case::empty_before_older(vec![member("new"), member("old").old().players(2), member("idle").old().with(|m| m.created_at = at(9))], reserve(&[], &[]), 1, Some("idle"))]
    #[case::silent_is_not_known_empty(vec![member("new"), member("a").old().silent(), member("b").old().with(|m| m.created_at = at(9))], reserve(&[], &[]), 1, Some("b"))]
    #[case::then_the_oldest(vec![member("new"), member("a").old().with(|m| m.created_at = at(9)), member("b").old()], reserve(&[], &[]), 1, Some("b"))]
    #[case::then_by_name(vec![member("new"), member("b").old(), member("a").old()], reserve(&[], &[]), 1, Some("a"))]
    #[case::not_one_about_to_go(vec![member("new"), member("old").old()], reserve(&["old"], &[]), 1, None)]
    #[case::not_one_on_a_departing_node(vec![member("new"), member("old").old().with(|m| m.condemned = true)], reserve(&[], &[]), 1, None)]
    #[case::not_one_coming_up(vec![member("new"), member("old").old().coming_up()], reserve(&[], &[]), 1, None)]
    fn selects(
        #[case] members: Vec<Member>,
        #[case] reserved: Reservations,
        #[case] max_unavailable: u32,
        #[case] want: Option<&str>,
    ) {
        assert_eq!(select(&members, &reserved, max_unavailable).map(|m| m.name.as_str()), want);
    }
}
