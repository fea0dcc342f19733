//! Reports from inside a game pod who is on it, and carries out doors and drains.
//!
//! ```text
//!                 ┌───────────────────────────── agent ──────────────────────────────┐
//! game ─ ping ───►│ pinger ──┐                                                       │
//! game ─ HTTP ───►│ local ───┼─► State (one lock) ─► Outbox ─► keeper ─► stream ─────┼─► operator
//! game ◄ long poll│ ◄── seq ─┤        ▲                          │                   │   (gRPC, TLS 1.3, pinned CA)
//! kubelet ─ TCP ─►│ gate ◄───┤        └────── what was heard ◄───┘ ◄─────────────────┼──
//! kubelet ─ HTTP ►│ hook ◄───┘                                                       │
//!                 └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Decisions are [`session`]'s and need no socket; `keeper` moves messages, `dial` opens streams.
//!
//! # What is promised about order
//!
//! 1. **Hello first.** Nothing is said on a stream before it, and nothing else before the operator has spoken there.
//! 2. **A count is said in its place.** Everything goes through one lock into one queue, which one stream reads: the order
//!    of the answers of the local API is the order of the counts on the stream. An answer means that the count is queued,
//!    or kept for the next session; whoever waits for it before letting a player in is never reported too late.
//! 3. **Count before confirmation.** `DirectoryApplied` and `DoorApplied` follow, on the same stream, the count that the
//!    game took after it had carried out what they confirm. A player sent to a server before the directory left it is in
//!    that count, as `connecting` or as a player.
//! 4. **Confirmed is what the game carried out.** With an adapter, a sequence number is confirmed by the game and settles
//!    only what was handed out up to it; numbers of an earlier life of the agent settle nothing.
//! 5. **An answer to a question is counted after it.** `ReportNow` is answered by a ping begun afterwards, by an adapter's
//!    next confirmation, or, where the game says each change before it happens, by what it has said.
//! 6. **Earlier leaders are not heard.** A message of an epoch lower than the highest heard changes nothing and is no sign
//!    of life.
//! 7. **A new stream starts from the present.** The old one is used until the operator has spoken on the new one; then
//!    what waited for the old one is dropped, and the count as it is now is the first thing said.
//! 8. **Unknown is silence.** A game that cannot be counted is not reported, and what is not reported is occupied.

pub mod args;
mod clock;
pub mod dial;
pub mod gate;
pub mod hook;
pub mod keeper;
pub mod local;
pub mod pinger;
pub mod session;
pub mod shared;
pub mod slp;
pub mod supervise;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::dial::Dialer;
use crate::keeper::Keeper;
use crate::local::Local;
use crate::session::deadlines::Timing;
use crate::session::state::{Character, State};
use crate::shared::Shared;

/// What is left to do when stopping may take this long.
const GRACE: Duration = Duration::from_secs(2);

/// What kind of agent to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// The pod's name.
    pub name: String,
    /// Role, count source and adapter.
    pub character: Character,
    /// Slots where a count does not say.
    pub slots: Option<u32>,
    /// The game to ping, by host and port.
    pub ping: Option<(String, u16)>,
    /// How often to ping it.
    pub ping_interval: Duration,
    /// Where the local API listens.
    pub local_listen: SocketAddr,
    /// Where the readiness gate listens; proxies only.
    pub gate: Option<SocketAddr>,
    /// Where the pre-stop hook listens.
    pub hook: SocketAddr,
    /// How to reach the operator.
    pub dialer: Dialer,
    /// Clocks of the session.
    pub timing: Timing,
}

/// Why the agent cannot run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The local API has no place to listen.
    #[error("could not listen on {address} for the local API")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The local API ended.
    #[error("the local API ended")]
    Local(#[source] std::io::Error),
    /// Something ended that never ends.
    #[error("{0} ended")]
    Ended(&'static str),
}

/// How long the first word to the operator waits for the game's first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// Runs an agent until `stop`. Reaching the operator is tried for ever; only what is local can fail.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), RunError> {
    let Options { name, character, slots, ping, ping_interval, local_listen, gate, hook, dialer, timing } = options;
    let shared = Arc::new(Shared::new(State::new(character, clock::first_seq())));
    let listener =
        local::bind(local_listen).await.map_err(|source| RunError::Listen { address: local_listen, source })?;
    info!(name, role = ?character.role, local = %local_listen, "agent runs");

    let tracker = TaskTracker::new();
    let keeper = Keeper::new(Arc::clone(&shared), dialer, timing, tracker.clone());
    let api = local::serve(listener, Local::new(Arc::clone(&shared), &name, slots), stop.clone());
    let asked_once = CancellationToken::new();
    if ping.is_none() {
        asked_once.cancel();
    }
    let session = async {
        // An agent that begins beside a game which runs must not say first that the game has not loaded: the server would
        // count as one that lost its readiness.
        tokio::select! {
            _ = tokio::time::timeout(FIRST_ANSWER, asked_once.cancelled()) => {}
            () = stop.cancelled() => {}
        }
        keeper.run(stop.clone()).await;
    };
    let pings = async {
        match ping {
            Some((host, port)) => {
                pinger::run(Arc::clone(&shared), host, port, ping_interval, asked_once.clone()).await;
            }
            None => std::future::pending().await,
        }
    };
    let gates = async {
        match gate {
            Some(address) => gate::run(address, shared.gate()).await,
            None => std::future::pending().await,
        }
    };
    let hooks = hook::run(hook, Arc::clone(&shared), stop.clone());
    let ended = tokio::select! {
        biased;
        () = session => if stop.is_cancelled() { Ok(()) } else { Err(RunError::Ended("the session")) },
        served = api => if stop.is_cancelled() { Ok(()) } else {
            served.map_err(RunError::Local).and(Err(RunError::Ended("the local API")))
        },
        () = pings => Err(RunError::Ended("the pinger")),
        () = gates => Err(RunError::Ended("the readiness gate")),
        () = hooks => if stop.is_cancelled() { Ok(()) } else { Err(RunError::Ended("the pre-stop hook")) },
    };
    tracker.close();
    // The last counts may still be on their way; nobody waits longer than this for them.
    let _flushed = tokio::time::timeout(GRACE, tracker.wait()).await;
    info!("agent stops");
    ended
}
