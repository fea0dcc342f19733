//! Which servers a group gives up when it has too many.

use crate::member::Member;
use std::cmp::Reverse;

/// The first `n` of `pool` to delete: only servers that count and that surely nobody is on; those that never took a player
/// first, then the youngest, then by name.
pub fn deletable<'a>(pool: impl IntoIterator<Item = &'a Member>, n: usize) -> Vec<&'a Member> {
    let mut chosen: Vec<&Member> =
        pool.into_iter().filter(|m| m.counts() && !m.deleting && !m.may_have_players()).collect();
    chosen.sort_by_key(|m| (m.was_registered, Reverse(m.created_at), m.name.clone()));
    chosen.truncate(n);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::testing::{at, member};
    use crate::phase::Phase;
    use proptest::prelude::*;
    use rstest::rstest;

    fn names(chosen: &[&Member]) -> Vec<String> {
        chosen.iter().map(|m| m.name.clone()).collect()
    }

    #[rstest]
    #[case::never_registered_first(vec![member("a").with(|m| m.created_at = at(9)), member("b").with(|m| m.was_registered = false)], 2, &["b", "a"])]
    #[case::then_the_youngest(vec![member("a"), member("b").with(|m| m.created_at = at(5))], 2, &["b", "a"])]
    #[case::then_by_name(vec![member("b"), member("a")], 2, &["a", "b"])]
    #[case::no_more_than_asked_for(vec![member("b"), member("a")], 1, &["a"])]
    #[case::never_one_with_players(vec![member("a").players(1), member("b")], 2, &["b"])]
    #[case::never_a_silent_one(vec![member("a").silent()], 1, &[])]
    #[case::a_silent_one_that_never_took_players(vec![member("a").coming_up()], 1, &["a"])]
    #[case::not_one_that_leaves_already(vec![member("a").with(|m| m.phase = Phase::Draining), member("b").with(|m| m.closing = true)], 2, &[])]
    #[case::not_one_that_is_deleted_already(vec![member("a").with(|m| m.deleting = true)], 1, &[])]
    #[case::not_a_failed_one(vec![member("a").failed(at(0))], 1, &[])]
    fn order(#[case] pool: Vec<Member>, #[case] n: usize, #[case] want: &[&str]) {
        assert_eq!(names(&deletable(&pool, n)), want);
    }

    proptest! {
        #[test]
        fn nobody_is_on_what_goes(facts in prop::collection::vec((0_u32..3, any::<bool>(), any::<bool>()), 0..20), n in 0_usize..20) {
            let pool: Vec<Member> = facts.iter().enumerate().map(|(i, (players, stale, registered))| {
                member(&format!("m{i}")).players(*players).with(|m| { m.stale = *stale; m.was_registered = *registered; })
            }).collect();
            let chosen = deletable(&pool, n);
            prop_assert!(chosen.len() <= n);
            prop_assert!(chosen.iter().all(|m| !m.may_have_players()));
        }
    }
}
