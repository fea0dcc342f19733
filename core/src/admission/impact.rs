//! What an edit or a delete does to running pods and the people on them.

use super::Finding;
use crate::pod_hash::PodHash;

/// What runs below an object now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Impact {
    /// Pods that are not terminal and not on their way out.
    pub pods: usize,
    /// People on them, as last reported.
    pub people: u64,
    /// Pods labelled occupied: people, or nobody can say.
    pub occupied: usize,
}

/// An edit that changes what a group's pods are made from.
pub fn replacement(kind: &'static str, group: &str, old: &PodHash, new: &PodHash, impact: Impact) -> Option<Finding> {
    (old != new && impact.pods > 0).then(|| Finding::PodsReplaced {
        kind,
        group: group.to_owned(),
        pods: impact.pods,
        people: impact.people,
    })
}

/// A delete of something that people are on. Never refused: it drains.
pub fn deletion(kind: &'static str, name: &str, impact: Impact) -> Option<Finding> {
    (impact.people > 0 || impact.occupied > 0).then(|| Finding::DeletesOccupied {
        kind,
        name: name.to_owned(),
        pods: impact.pods,
        people: impact.people,
    })
}

/// Lowering a persistent group's `replicas` below ordinals that people are on (L-08): the highest go first, whoever is there.
pub fn shrink(replicas: i32, occupied_ordinals: impl IntoIterator<Item = u32>) -> Option<Finding> {
    let mut ordinals: Vec<u32> =
        occupied_ordinals.into_iter().filter(|ordinal| i64::from(*ordinal) >= i64::from(replicas)).collect();
    ordinals.sort_unstable();
    (!ordinals.is_empty()).then_some(Finding::ReplicasBelowOccupied { replicas, ordinals })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn hash(text: &str) -> PodHash {
        text.parse().unwrap()
    }

    const A: &str = "aaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbb";

    #[rstest]
    #[case::same_pods(A, A, 3, false)]
    #[case::other_pods(A, B, 3, true)]
    #[case::nothing_runs(A, B, 0, false)]
    fn warns_of_a_replacement(#[case] old: &str, #[case] new: &str, #[case] pods: usize, #[case] want: bool) {
        let impact = Impact { pods, people: 7, occupied: 0 };
        assert_eq!(replacement("ServerGroup", "lobby", &hash(old), &hash(new), impact).is_some(), want);
    }

    #[rstest]
    #[case::empty(Impact { pods: 2, people: 0, occupied: 0 }, false)]
    #[case::people(Impact { pods: 2, people: 3, occupied: 1 }, true)]
    #[case::nobody_can_say(Impact { pods: 2, people: 0, occupied: 1 }, true)]
    fn warns_of_a_delete(#[case] impact: Impact, #[case] want: bool) {
        assert_eq!(deletion("Network", "main", impact).is_some(), want);
    }

    #[rstest]
    #[case::above(2, &[2, 0, 3], Some(vec![2, 3]))]
    #[case::below(2, &[0, 1], None)]
    #[case::to_zero(0, &[0], Some(vec![0]))]
    fn warns_of_a_shrink(#[case] replicas: i32, #[case] occupied: &[u32], #[case] want: Option<Vec<u32>>) {
        let want = want.map(|ordinals| Finding::ReplicasBelowOccupied { replicas, ordinals });
        assert_eq!(shrink(replicas, occupied.iter().copied()), want);
    }
}
