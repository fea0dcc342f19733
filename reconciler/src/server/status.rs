//! When a changed status is worth a write.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use spawnery_api::names::condition;
use spawnery_api::v1alpha1::ServerStatus;

/// How far apart writes are that carry only what changes all the time.
pub(crate) const APART: Duration = Duration::from_secs(1);

/// When to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Nothing changed.
    Never,
    /// Now.
    Now,
    /// Not before then, together with what changes until then.
    At(Timestamp),
}

/// Decides when to write `next` over `current`. Counts, the state of the door and a first `Pending` wait for others of
/// their kind; everything else is written at once. `last` is when the status was last written.
pub(crate) fn when(
    current: Option<&ServerStatus>,
    next: &ServerStatus,
    last: Option<Timestamp>,
    now: Timestamp,
) -> Write {
    let nothing = ServerStatus::default();
    let current = current.unwrap_or(&nothing);
    if current == next {
        return Write::Never;
    }
    let due = last.and_then(|last| last.saturating_add(APART).ok()).unwrap_or(now);
    if *current == settled(current, next) && due > now { Write::At(due) } else { Write::Now }
}

/// `next` with all that may wait as it is in `current`.
fn settled(current: &ServerStatus, next: &ServerStatus) -> ServerStatus {
    if current.phase.is_empty() && next.phase == "Pending" {
        return current.clone();
    }
    let aside = |condition: &&Condition| condition.type_ == condition::DOOR_NOT_ENFORCED;
    let mut conditions: Vec<Condition> =
        next.conditions.iter().filter(|condition| !aside(condition)).cloned().collect();
    conditions.extend(current.conditions.iter().filter(aside).cloned());
    conditions.sort_by_key(|condition| position(current, &condition.type_));
    ServerStatus {
        players: current.players,
        slots: current.slots,
        players_updated_at: current.players_updated_at.clone(),
        door: current.door.clone(),
        conditions,
        ..next.clone()
    }
}

fn position(status: &ServerStatus, kind: &str) -> usize {
    status.conditions.iter().position(|condition| condition.type_ == kind).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;
    use spawnery_api::conditions::{Desired, set};

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
    fn ago(milliseconds: i64) -> Option<Timestamp> {
        Timestamp::from_millisecond(NOW.as_millisecond() - milliseconds).ok()
    }

    fn ready(change: impl FnOnce(&mut ServerStatus)) -> ServerStatus {
        let mut status = ServerStatus { phase: "Ready".to_owned(), registered: true, ..ServerStatus::default() };
        set(&mut status.conditions, Desired::new(condition::READY, true, "ReadyGatePassed"), NOW);
        change(&mut status);
        status
    }

    fn counted(status: &mut ServerStatus) {
        status.players = 3;
        status.players_updated_at = Some(Time(NOW));
    }

    #[rstest]
    #[case::equal(ready(|_| ()), ago(0), Write::Never)]
    #[case::a_count_long_after(ready(counted), ago(1000), Write::Now)]
    #[case::a_count_soon_after(ready(counted), ago(400), Write::At(ago(-600).unwrap()))]
    #[case::a_first_count(ready(counted), None, Write::Now)]
    #[case::a_door_soon_after(ready(|s| s.door = Some("Open".to_owned())), ago(0), Write::At(ago(-1000).unwrap()))]
    #[case::a_phase_soon_after(ready(|s| s.phase = "Draining".to_owned()), ago(0), Write::Now)]
    #[case::a_phase_and_a_count(ready(|s| { s.phase = "Draining".to_owned(); counted(s); }), ago(0), Write::Now)]
    #[case::registration_soon_after(ready(|s| s.registered = false), ago(0), Write::Now)]
    #[case::a_condition_soon_after(ready(|s| { set(&mut s.conditions, Desired::new(condition::DRAINING, true, "Retiring"), NOW); }), ago(0), Write::Now)]
    #[case::an_aside_soon_after(ready(|s| { set(&mut s.conditions, Desired::new(condition::DOOR_NOT_ENFORCED, true, "AgentCannotClose"), NOW); }), ago(0), Write::At(ago(-1000).unwrap()))]
    fn writes(#[case] next: ServerStatus, #[case] last: Option<Timestamp>, #[case] want: Write) {
        assert_eq!(when(Some(&ready(|_| ())), &next, last, NOW), want);
    }

    #[test]
    fn a_first_pending_waits_for_the_pod_to_run() {
        let pending = ServerStatus { phase: "Pending".to_owned(), pod_name: "a".to_owned(), ..ServerStatus::default() };
        assert_eq!(when(None, &pending, ago(200), NOW), Write::At(ago(-800).unwrap()));
        let starting = ServerStatus { phase: "Starting".to_owned(), ..pending };
        assert_eq!(when(None, &starting, ago(200), NOW), Write::Now);
    }
}
