//! The floor: the `PodDisruptionBudget` that stands under a dead webhook.
//!
//! One budget a group selects the pods labelled occupied and not sealed and asks for more of them than can exist, so it
//! allows no disruption at any time and has no lag when a label flips: the API server reads labels live, and a status that
//! is always zero cannot be stale. (A count that follows occupancy has a hole: one pod empties, the next fills before the
//! disruption controller has looked, L-81.) With a live webhook empty pods stay outside, because the webhook closes their
//! door first; without one nothing would close it, so the budget then covers every pod of the group that is not sealed.

use std::collections::BTreeMap;

/// `minAvailable` of every budget: an integer far above the pods a cluster can hold.
pub const MIN_AVAILABLE: i32 = 1_000_000;
/// `unhealthyPodEvictionPolicy` of every budget: an unready pod may have people on it too.
pub const UNHEALTHY_POD_EVICTION_POLICY: &str = "IfHealthyBudget";
/// The leader believes in the webhook again after so many answers in a row, one a second.
pub const ANSWERS_TO_NARROW: u32 = 3;

/// Which pods of a group the budget covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// Occupied pods that are not sealed: a webhook answers.
    Occupied,
    /// All pods that are not sealed: no webhook answers.
    Unsealed,
}

/// What budgets have to cover while nobody leads, so what a leader that ends leaves behind: a pod on which people arrive then
/// is labelled by nobody, and nobody widens when the webhook ends too.
pub const LEADERLESS: Width = Width::Unsealed;

/// The leader's view of the webhook, one probe after the other.
///
/// Starts silent: a leader that has not heard the webhook yet does not rely on it. Widens at the first silent probe and
/// narrows after [`ANSWERS_TO_NARROW`] answers in a row, so a flapping webhook keeps the budgets wide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sight {
    answers_in_a_row: u32,
}

impl Sight {
    /// The view after one more probe.
    #[must_use]
    pub fn after(self, answered: bool) -> Self {
        let answers_in_a_row = if answered { self.answers_in_a_row.saturating_add(1) } else { 0 };
        Self { answers_in_a_row }
    }

    /// What the budgets should cover.
    pub fn width(self) -> Width {
        if self.answers_in_a_row >= ANSWERS_TO_NARROW { Width::Occupied } else { Width::Unsealed }
    }
}

/// The label keys and values that select a group's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLabels<'a> {
    /// Labels that every pod of the group carries for its whole life.
    pub identity: &'a [(&'a str, &'a str)],
    /// Key of the label whose value `true` says that people are on the pod.
    pub occupied: &'a str,
    /// Key of the label whose presence says that the pod is sealed.
    pub sealed: &'a str,
}

/// What a budget says, ready to be written into `policy/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// `spec.minAvailable`.
    pub min_available: i32,
    /// `spec.unhealthyPodEvictionPolicy`.
    pub unhealthy_pod_eviction_policy: &'static str,
    /// `spec.selector.matchLabels`.
    pub match_labels: BTreeMap<String, String>,
    /// Keys for `spec.selector.matchExpressions` with the operator `DoesNotExist`.
    pub must_not_exist: Vec<String>,
}

/// The budget of one group.
pub fn budget(labels: &GroupLabels<'_>, width: Width) -> Budget {
    let mut match_labels: BTreeMap<String, String> =
        labels.identity.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    match width {
        Width::Occupied => {
            match_labels.insert(labels.occupied.to_owned(), "true".to_owned());
        }
        Width::Unsealed => {}
    }
    Budget {
        min_available: MIN_AVAILABLE,
        unhealthy_pod_eviction_policy: UNHEALTHY_POD_EVICTION_POLICY,
        match_labels,
        must_not_exist: vec![labels.sealed.to_owned()],
    }
}

impl Budget {
    /// Whether the budget's selector selects a pod with these labels, as the API server evaluates it.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.must_not_exist.iter().all(|key| !labels.contains_key(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const LABELS: GroupLabels<'static> =
        GroupLabels { identity: &[("group", "lobby"), ("role", "server")], occupied: "occupied", sealed: "sealed" };

    fn pod(more: &[(&str, &str)]) -> BTreeMap<String, String> {
        LABELS.identity.iter().chain(more).map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[rstest]
    #[case::occupied(Width::Occupied, pod(&[("occupied", "true")]), true)]
    #[case::empty(Width::Occupied, pod(&[]), false)]
    #[case::sealed_by_a_deadline(Width::Occupied, pod(&[("occupied", "true"), ("sealed", "true")]), false)]
    #[case::wide_empty(Width::Unsealed, pod(&[]), true)]
    #[case::wide_occupied(Width::Unsealed, pod(&[("occupied", "true")]), true)]
    #[case::wide_sealed(Width::Unsealed, pod(&[("sealed", "true")]), false)]
    #[case::another_group(Width::Unsealed, BTreeMap::from([("group".into(), "x".into()), ("role".into(), "server".into())]), false)]
    fn covers(#[case] width: Width, #[case] labels: BTreeMap<String, String>, #[case] want: bool) {
        assert_eq!(budget(&LABELS, width).selects(&labels), want);
    }

    #[test]
    fn allows_no_disruption_whatever_the_count() {
        for width in [Width::Occupied, Width::Unsealed] {
            let budget = budget(&LABELS, width);
            assert_eq!(budget.min_available, MIN_AVAILABLE);
            assert_eq!(budget.unhealthy_pod_eviction_policy, "IfHealthyBudget");
        }
    }

    #[test]
    fn without_a_leader_it_covers_pods_that_nobody_labels() {
        assert!(budget(&LABELS, LEADERLESS).selects(&pod(&[])));
        assert_eq!(Sight::default().width(), LEADERLESS, "and the next leader begins where the last one left off");
    }

    #[rstest]
    #[case::before_the_first_probe(&[], Width::Unsealed)]
    #[case::one_answer_is_not_enough(&[true], Width::Unsealed)]
    #[case::answers(&[true, true, true], Width::Occupied)]
    #[case::one_silent_probe_widens(&[true, true, true, true, false], Width::Unsealed)]
    #[case::flapping_stays_wide(&[true, true, false, true, true, false, true, true], Width::Unsealed)]
    #[case::back(&[true, true, true, false, true, true, true], Width::Occupied)]
    fn sees_the_webhook(#[case] probes: &[bool], #[case] want: Width) {
        assert_eq!(probes.iter().fold(Sight::default(), |sight, answered| sight.after(*answered)).width(), want);
    }
}
