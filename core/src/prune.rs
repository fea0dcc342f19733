//! Which failed servers go before their retention is over: one is enough to look at.

use crate::member::Member;
use crate::phase::Phase;
use std::cmp::Reverse;

/// How many failed servers a group keeps.
pub const KEEP: usize = 1;

/// The failed servers to delete, all but the one worth looking at: of the newest generation, the oldest, then by name.
/// Servers on departing nodes, servers deleted already and servers with people on them are neither kept nor chosen: a delete
/// ends the wait of a drain for a place to move people to.
pub fn surplus_failed(members: &[Member]) -> Vec<&Member> {
    let candidate = |m: &&Member| m.phase == Phase::Failed && !m.condemned && !m.deleting && !m.occupied();
    let mut failed: Vec<&Member> = members.iter().filter(candidate).collect();
    failed.sort_by_key(|m| (Reverse(m.generation), m.created_at, m.name.clone()));
    failed.split_off(KEEP.min(failed.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::testing::{T0, at, member};
    use rstest::rstest;

    fn failed(name: &str) -> Member {
        member(name).failed(T0)
    }

    #[rstest]
    #[case::none(vec![member("a")], &[])]
    #[case::one_is_kept(vec![failed("a")], &[])]
    #[case::the_oldest_is_kept(vec![failed("a").with(|m| m.created_at = at(5)), failed("b"), failed("c").with(|m| m.created_at = at(9))], &["a", "c"])]
    #[case::of_the_newest_generation(vec![failed("a").old(), failed("b").with(|m| m.created_at = at(9))], &["a"])]
    #[case::then_by_name(vec![failed("b"), failed("a")], &["b"])]
    #[case::not_on_departing_nodes(vec![failed("a").with(|m| m.condemned = true), failed("b")], &[])]
    #[case::not_deleted_ones(vec![failed("a").with(|m| m.deleting = true), failed("b")], &[])]
    #[case::not_with_players(vec![failed("a"), failed("b").players(3)], &[])]
    #[case::not_with_players_who_may_be_there(vec![failed("a"), failed("b").silent()], &[])]
    #[case::with_players_who_went_with_the_pod(vec![failed("a"), failed("b").players(3).with(|m| m.sessions_gone = true)], &["b"])]
    #[case::silent_and_never_played_on(vec![failed("a"), failed("b").silent().with(|m| m.was_registered = false)], &["b"])]
    #[case::closing_doors_do_not_matter(vec![failed("a"), failed("b").with(|m| m.closing = true)], &["b"])]
    fn chooses(#[case] members: Vec<Member>, #[case] want: &[&str]) {
        let names: Vec<&str> = surplus_failed(&members).iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, want);
    }
}
