//! Players who were lost with a Server: what the decision about them needs, and what keeps it from being taken twice.
//!
//! ```text
//! counts ─► memory, status.players ─┐
//! pod: ends of the game's process ──┼─► core: Lost { players, cause } ─► status ─written─► counter, event, log
//! status.gameEnds, status.phase ────┘      (0 players, ends, phase) ◄┘
//! ```
//!
//! The status that says how an end was taken is the one that tells it as counted: `gameEnds` for a process, `Terminating`
//! for a removal, no players for a pod that is gone. Whoever leads next reads the same.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spawnery_api::names::event::{self, action};
use spawnery_core::loss::{self, Facts, Lost, Pod};
use spawnery_core::phase::Phase;

use super::observed::{Memory, Observed, PodSight};
use super::plan::{Plan, Told, signed, stamp};

/// How much later than the agent of its successor we may hear that a process has ended: a kubelet looks at its containers
/// once a second, and its word has to come through two watches.
const ENDS_SHOW_WITHIN: Duration = Duration::from_secs(10);

/// Players on the pod, by a count that holds for the process that runs: `None` where no agent has counted, or none since
/// players were lost with the process before.
pub(crate) fn reported(seen: &Observed<'_>) -> Option<u32> {
    let view = seen.view.as_ref().filter(|view| view.slots > 0 || view.players.is_some())?;
    let at = seen.now.saturating_sub(signed(view.silent_for)).unwrap_or(seen.now);
    let of_nobody = seen.memory.lost_at.is_some_and(|lost| at <= lost);
    (!of_nobody).then_some(view.last_players)
}

/// Writes into the plan who is lost now, and what tells that they are counted.
pub(crate) fn account(seen: &Observed<'_>, plan: &mut Plan, before: Option<Phase>, phase: Phase) {
    let ours = seen.pod.ours();
    let connected = seen.view.as_ref().is_some_and(|view| view.connected);
    let reported = reported(seen);
    let players = reported.unwrap_or_else(|| known(seen));
    plan.memory.node_down_at = node_down_at(seen, connected);
    let ended = ours.is_some_and(|pod| plan.status.game_ends.is_some_and(|counted| pod.game_ends > counted));
    let replaced = ended && ours.is_some_and(|pod| pod.game_runs);
    let facts = Facts {
        // Before anybody could get in there is nothing to say.
        players: match (plan.status.was_registered, replaced) {
            (true, true) => of_its_predecessor(seen),
            (true, false) => players,
            (false, _) => 0,
        },
        counted: before == Some(Phase::Terminating),
        pod: match &seen.pod {
            PodSight::Here(_) => Pod::Here,
            PodSight::Going(_) => Pod::Going,
            PodSight::Absent | PodSight::Foreign { .. } => Pod::Gone,
        },
        game_ended: ended,
        removed: ours.and_then(|pod| pod.sealed).filter(|_| phase == Phase::Terminating),
        node_down: plan.memory.node_down_at.is_some(),
    };
    if let Some(pod) = ours {
        plan.status.game_ends = Some(pod.game_ends);
        plan.status.node_name.clone_from(&pod.node);
    }
    plan.lost = loss::decide(&facts);
    let Some(lost) = plan.lost else {
        plan.memory.players = reported.or(seen.memory.players);
        if !connected {
            plan.memory.before_silence = Some((players, seen.now));
        }
        return;
    };
    // What is remembered of them stays as it is until they are counted, for this pass may not come to its end.
    if ended || facts.pod == Pod::Gone {
        plan.status.players = 0;
        plan.status.players_updated_at = Some(Time(stamp(seen.now)));
    }
    tell(plan, lost);
}

/// What to remember once it is written that players were lost at `now`.
pub(super) fn settled(memory: Memory, now: Timestamp) -> Memory {
    Memory { players: Some(0), before_silence: None, lost_at: Some(now), ..memory }
}

/// Players last known of by anybody who led.
fn known(seen: &Observed<'_>) -> u32 {
    let written = || seen.server.status.as_ref().and_then(|status| u32::try_from(status.players).ok());
    seen.memory.players.or_else(written).unwrap_or(0)
}

/// Players on the process that ended, where another one runs already: its agent may have counted by now.
fn of_its_predecessor(seen: &Observed<'_>) -> u32 {
    let before = seen.memory.before_silence.filter(|(_, at)| recent(*at, seen.now));
    before.map_or_else(|| known(seen), |(players, _)| players)
}

/// When the node was last down, or its server's agent not heard since. What a node that is back says of its pods comes a
/// moment after it is back.
fn node_down_at(seen: &Observed<'_>, connected: bool) -> Option<Timestamp> {
    let at = seen.memory.node_down_at;
    if seen.node_down || (at.is_some() && !connected) { Some(seen.now) } else { at.filter(|at| recent(*at, seen.now)) }
}

fn recent(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) <= signed(ENDS_SHOW_WITHIN)
}

fn tell(plan: &mut Plan, lost: Lost) {
    let players = match lost.players {
        1 => "1 player was".to_owned(),
        players => format!("{players} players were"),
    };
    let place = match plan.status.node_name.as_str() {
        "" => "an unknown node",
        node => node,
    };
    let note = format!("{players} lost, as last reported, on {place}: {}", lost.cause.told());
    plan.events.push(Told::warning(event::PLAYERS_LOST, action::SYNC_STATUS, note));
}
