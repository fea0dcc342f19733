//! How many players were lost with a server, and to what.
//!
//! Players count as lost when the process that they played on ended, or was removed, while they were the last that was
//! reported of it. That is what the server lost: a proxy may have found them another one. Whoever left or was moved before
//! the end is in no count any more, and a server of which nobody knew how many were on it counts as what was last known.

use crate::occupancy::SealReason;

/// What players were lost to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The node is gone or does not answer, or was so while their server was not heard.
    NodeLost,
    /// Somebody deleted the pod past us, and its grace was over first, or it had none.
    PodDeleted,
    /// The game's process ended in a pod that nobody deleted: it crashed, ran out of memory, or the kubelet ended it.
    GameEnded,
    /// The deadline that the owner declared has passed.
    Deadline,
    /// An administrator let the pod go whoever was on it.
    Override,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::NodeLost, Self::PodDeleted, Self::GameEnded, Self::Deadline, Self::Override];

    /// As it stands in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodeLost => "NodeLost",
            Self::PodDeleted => "PodDeleted",
            Self::GameEnded => "GameEnded",
            Self::Deadline => "Deadline",
            Self::Override => "Override",
        }
    }

    /// For people.
    pub const fn told(self) -> &'static str {
        match self {
            Self::NodeLost => "its node is gone or did not answer",
            Self::PodDeleted => "somebody deleted its pod, and they could not be moved in time",
            Self::GameEnded => "its game ended with them on it",
            Self::Deadline => "the deadline of its drain had passed",
            Self::Override => "an administrator let its pod go whoever was on it",
        }
    }
}

/// The pod, as the API server shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pod {
    /// It is there.
    Here,
    /// Somebody deleted it.
    Going,
    /// It is gone.
    Gone,
}

/// What is known of a server and how it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Players last reported on it, before whatever ended.
    pub players: u32,
    /// It was being removed already, so that those who were on it are counted.
    pub counted: bool,
    /// Its pod.
    pub pod: Pod,
    /// The process of its game has ended since this was last asked, whether or not another one runs by now.
    pub game_ended: bool,
    /// Its removal begins now, under this seal.
    pub removed: Option<SealReason>,
    /// Its node is gone or does not answer, or was so while the server was not heard.
    pub node_down: bool,
}

/// Players who were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// How many were last reported; at least one.
    pub players: u32,
    /// What to.
    pub cause: Cause,
}

/// Decides who is lost now. A node that fails explains every other end: nobody could be moved off it.
pub fn decide(facts: &Facts) -> Option<Lost> {
    if facts.counted || facts.players == 0 {
        return None;
    }
    let cause = match (facts.pod, facts.game_ended, facts.removed) {
        (Pod::Gone, _, _)
        | (Pod::Going, true, _)
        // Nobody's deadline: the pod's grace is what was over.
        | (Pod::Going, false, Some(SealReason::Deadline)) => Cause::PodDeleted,
        (Pod::Here, true, _) => Cause::GameEnded,
        (Pod::Here, false, Some(SealReason::Deadline)) => Cause::Deadline,
        (Pod::Here | Pod::Going, false, Some(SealReason::Override)) => Cause::Override,
        (Pod::Here | Pod::Going, false, Some(SealReason::Empty) | None) => return None,
    };
    let cause = if facts.node_down { Cause::NodeLost } else { cause };
    Some(Lost { players: facts.players, cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::collections::BTreeSet;

    /// Three players, and nothing happens to them.
    const PLAYED_ON: Facts =
        Facts { players: 3, counted: false, pod: Pod::Here, game_ended: false, removed: None, node_down: false };
    const CRASHED: Facts = Facts { game_ended: true, ..PLAYED_ON };
    const GONE: Facts = Facts { pod: Pod::Gone, ..PLAYED_ON };
    const GOING: Facts = Facts { pod: Pod::Going, ..PLAYED_ON };

    const fn removed(seal: SealReason) -> Facts {
        Facts { removed: Some(seal), ..PLAYED_ON }
    }

    #[rstest]
    #[case::they_play_on(PLAYED_ON, None)]
    #[case::a_node_that_is_silent_may_still_hold_them(Facts { node_down: true, ..PLAYED_ON }, None)]
    #[case::they_are_being_moved_off_a_deleted_pod(GOING, None)]
    #[case::the_game_ended(CRASHED, Some(Cause::GameEnded))]
    #[case::the_node_crashed_and_is_back(Facts { node_down: true, ..CRASHED }, Some(Cause::NodeLost))]
    #[case::the_game_ended_in_a_deleted_pod(Facts { pod: Pod::Going, ..CRASHED }, Some(Cause::PodDeleted))]
    #[case::the_pod_is_gone(GONE, Some(Cause::PodDeleted))]
    #[case::the_pod_is_gone_with_its_node(Facts { node_down: true, ..GONE }, Some(Cause::NodeLost))]
    #[case::the_grace_was_over(Facts { removed: Some(SealReason::Deadline), ..GOING }, Some(Cause::PodDeleted))]
    #[case::kubernetes_gives_a_dead_node_up(Facts { removed: Some(SealReason::Deadline), node_down: true, ..GOING }, Some(Cause::NodeLost))]
    #[case::the_deadline_passed(removed(SealReason::Deadline), Some(Cause::Deadline))]
    #[case::an_administrator_said_so(removed(SealReason::Override), Some(Cause::Override))]
    #[case::an_administrator_said_so_of_a_deleted_pod(Facts { removed: Some(SealReason::Override), ..GOING }, Some(Cause::Override))]
    #[case::an_old_count_of_a_pod_that_is_known_to_be_empty(removed(SealReason::Empty), None)]
    #[case::everybody_left_before_the_crash(Facts { players: 0, ..CRASHED }, None)]
    #[case::everybody_was_moved_before_the_pod_went(Facts { players: 0, ..GONE }, None)]
    #[case::everybody_was_moved_before_the_deadline(Facts { players: 0, ..removed(SealReason::Deadline) }, None)]
    #[case::its_removal_was_counted(Facts { counted: true, ..GONE }, None)]
    #[case::its_removal_was_counted_and_the_game_ends(Facts { counted: true, ..CRASHED }, None)]
    fn losses(#[case] facts: Facts, #[case] cause: Option<Cause>) {
        assert_eq!(decide(&facts), cause.map(|cause| Lost { players: 3, cause }));
    }

    #[test]
    fn every_cause_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
        assert_eq!(names.len(), Cause::ALL.len());
    }
}
