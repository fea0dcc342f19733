//! When a changed status is worth a write.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use spawnery_api::conditions::Status;
use spawnery_api::names::condition;
use spawnery_api::v1alpha1::ServerStatus;

/// How far apart writes are that carry only what changes all the time.
pub(crate) const APART: Duration = Duration::from_secs(1);

/// How long a step of a server that players could never reach waits for the next one: most are through their start sooner,
/// and are written once for all of it. Whoever looks still sees each step within 2 s.
pub(crate) const START_SETTLES: Duration = Duration::from_millis(1500);

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

/// What was written before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct History {
    /// When the status, or the pod, was last written.
    pub(crate) written: Option<Timestamp>,
    /// Since when the status as it should be is not the one that is written.
    pub(crate) differs_since: Timestamp,
}

/// Decides when to write `next` over `current`. Counts and the state of the door wait for others of their kind, the steps of
/// a start for the next one; everything else is written at once.
pub(crate) fn when(current: Option<&ServerStatus>, next: &ServerStatus, history: History, now: Timestamp) -> Write {
    let nothing = ServerStatus::default();
    let current = current.unwrap_or(&nothing);
    if current == next {
        return Write::Never;
    }
    let due = if starts(current, next) {
        history.differs_since.saturating_add(START_SETTLES).ok()
    } else if *current == settled(current, next) {
        history.written.and_then(|written| written.saturating_add(APART).ok())
    } else {
        None
    };
    due.filter(|due| *due > now).map_or(Write::Now, Write::At)
}

/// Whether nothing but the start of a server that players could never reach goes on.
fn starts(current: &ServerStatus, next: &ServerStatus) -> bool {
    fn news(status: &ServerStatus) -> impl Iterator<Item = &Condition> {
        status.conditions.iter().filter(|told| match told.type_.as_str() {
            condition::READY => false,
            condition::ACCEPTED => told.status != Status::True.as_str(),
            _ => true,
        })
    }
    let unknown = !current.was_registered && !next.was_registered;
    unknown && matches!(next.phase.as_str(), "Pending" | "Starting") && news(current).eq(news(next))
}

/// `next` with all that may wait as it is in `current`.
fn settled(current: &ServerStatus, next: &ServerStatus) -> ServerStatus {
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
    fn writes(#[case] next: ServerStatus, #[case] written: Option<Timestamp>, #[case] want: Write) {
        let history = History { written, differs_since: NOW };
        assert_eq!(when(Some(&ready(|_| ())), &next, history, NOW), want);
    }

    fn starting(phase: &str, change: impl FnOnce(&mut ServerStatus)) -> ServerStatus {
        let mut status = ServerStatus { phase: phase.to_owned(), pod_name: "a".to_owned(), ..ServerStatus::default() };
        set(&mut status.conditions, Desired::new(condition::ACCEPTED, true, "Accepted"), NOW);
        set(&mut status.conditions, Desired::new(condition::READY, false, "PodPending"), NOW);
        change(&mut status);
        status
    }

    fn refused(status: &mut ServerStatus) {
        set(&mut status.conditions, Desired::new(condition::ACCEPTED, false, "NetworkNotFound"), NOW);
    }

    fn draining(status: &mut ServerStatus) {
        set(&mut status.conditions, Desired::new(condition::DRAINING, true, "NodeDraining"), NOW);
    }

    const WAITS: Write = Write::At(Timestamp::constant(1_800_000_001, 0));

    /// Half a second after it began to differ.
    #[rstest]
    #[case::the_first_look(None, starting("Pending", |_| ()), WAITS)]
    #[case::the_pod_runs(Some(starting("Pending", |_| ())), starting("Starting", |_| ()), WAITS)]
    #[case::the_agent_counts(Some(starting("Starting", |_| ())), starting("Starting", counted), WAITS)]
    #[case::it_is_ready(Some(starting("Starting", |_| ())), ready(|status| status.was_registered = true), Write::Now)]
    #[case::it_came_to_nothing(Some(starting("Starting", |_| ())), starting("Failed", |_| ()), Write::Now)]
    #[case::it_is_not_accepted(Some(starting("Pending", |_| ())), starting("Pending", refused), Write::Now)]
    #[case::it_is_accepted_after_all(Some(starting("Pending", refused)), starting("Pending", |_| ()), Write::Now)]
    #[case::it_has_to_go(Some(starting("Starting", |_| ())), starting("Starting", draining), Write::Now)]
    #[case::it_starts_again(Some(ready(|status| status.was_registered = true)), starting("Starting", |status| status.was_registered = true), Write::Now)]
    fn steps_of_a_start(#[case] current: Option<ServerStatus>, #[case] next: ServerStatus, #[case] want: Write) {
        let differs_since = ago(500).unwrap();
        assert_eq!(when(current.as_ref(), &next, History { written: None, differs_since }, NOW), want);
    }

    #[test]
    fn a_start_that_takes_its_time_shows_each_step() {
        let history = History { written: ago(1600), differs_since: ago(1500).unwrap() };
        let pending = starting("Pending", |_| ());
        assert_eq!(when(None, &pending, history, NOW), Write::Now);
        assert_eq!(when(Some(&pending), &starting("Starting", |_| ()), history, NOW), Write::Now);
    }
}
