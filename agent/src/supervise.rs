//! Running the game as a child: for images in which one container holds game and agent.
//!
//! ```text
//! kubelet ─ SIGTERM ─► spawnery-agent run ─ SIGTERM ─► game       the agent reports until the game has ended,
//!                            ▲ └─ exits with the game's status    so players who leave while it saves are counted
//!                            └── orphans of the game, reaped      (process 1 of the container inherits them)
//! ```
//!
//! The agent never stands in the game's way: what it cannot do is logged and tried again, and the game goes on.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, set_child_subreaper, wait};
use thiserror::Error;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::Options;

/// An agent that has failed is started again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// Signals that wait to be handed on. More than one of a kind at a time means nothing.
const SIGNALS: usize = 16;
/// What a shell says of a command that is not there.
const NOT_FOUND: u8 = 127;
/// What a shell says of a command that cannot be run.
const NOT_EXECUTABLE: u8 = 126;
/// What a shell adds to the number of the signal that ended a command.
const BY_SIGNAL: i32 = 128;

/// Why there is no game.
#[derive(Debug, Error)]
pub enum SuperviseError {
    /// Nothing to run.
    #[error("there is no command to run; accepted: spawnery-agent run [FLAGS] -- COMMAND [ARGUMENTS]")]
    NoCommand,
    /// It cannot be started.
    #[error("could not start {}", command.display())]
    Start {
        /// What.
        command: OsString,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Signals cannot be taken.
    #[error("could not listen for signals")]
    Signals(#[source] std::io::Error),
}

impl SuperviseError {
    /// The status to exit with, as a shell would.
    pub fn status(&self) -> u8 {
        match self {
            Self::Start { source, .. } if source.kind() == ErrorKind::NotFound => NOT_FOUND,
            Self::Start { .. } => NOT_EXECUTABLE,
            Self::NoCommand | Self::Signals(_) => 1,
        }
    }
}

/// Runs `command` and an agent beside it until the command has ended; gives back the status to exit with.
pub async fn run(options: Options, command: Vec<OsString>) -> Result<u8, SuperviseError> {
    // Before there is a child, so that no end of one is missed.
    let mut ended = signal(SignalKind::child()).map_err(SuperviseError::Signals)?;
    let mut signals = handed_on().map_err(SuperviseError::Signals)?;
    // Process 1 inherits orphans anyway; elsewhere this makes it so.
    if let Err(error) = set_child_subreaper(Some(rustix::process::getpid())) {
        warn!(%error, "orphans of the game will not be reaped");
    }
    let game = start(command)?;
    let pid = Pid::from_child(&game);
    info!(pid = pid.as_raw_nonzero(), "the game runs");
    let stop = CancellationToken::new();
    let agent = tokio::spawn(report(options, stop.clone()));
    let status = loop {
        tokio::select! {
            _ = ended.recv() => if let Some(status) = reap(pid) { break status },
            Some(signal) = signals.recv() => hand_on(pid, signal),
        }
    };
    info!(status = exit_status(status), "the game has ended");
    stop.cancel();
    if let Err(error) = agent.await {
        warn!(%error, "the agent ended badly");
    }
    Ok(exit_status(status))
}

fn start(command: Vec<OsString>) -> Result<Child, SuperviseError> {
    let mut words = command.into_iter();
    let command = words.next().ok_or(SuperviseError::NoCommand)?;
    let started = Command::new(&command).args(words).spawn();
    started.map_err(|source| SuperviseError::Start { command, source })
}

/// Runs agents, one after the other, until `stop`.
async fn report(options: Options, stop: CancellationToken) {
    while let Err(error) = crate::run(options.clone(), stop.clone()).await {
        let error = anyhow::Error::from(error);
        warn!(error = format!("{error:#}"), "the agent failed, the game goes on; starting it again");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// The signals that are the game's, as they come.
fn handed_on() -> std::io::Result<mpsc::Receiver<Signal>> {
    let kinds = [
        (SignalKind::terminate(), Signal::TERM),
        (SignalKind::interrupt(), Signal::INT),
        (SignalKind::hangup(), Signal::HUP),
        (SignalKind::quit(), Signal::QUIT),
        (SignalKind::user_defined1(), Signal::USR1),
        (SignalKind::user_defined2(), Signal::USR2),
        (SignalKind::window_change(), Signal::WINCH),
    ];
    let (tx, rx) = mpsc::channel(SIGNALS);
    for (kind, name) in kinds {
        tokio::spawn(pass(signal(kind)?, name, tx.clone()));
    }
    Ok(rx)
}

async fn pass(mut signals: Signals, name: Signal, to: mpsc::Sender<Signal>) {
    while signals.recv().await.is_some() {
        if to.send(name).await.is_err() {
            return;
        }
    }
}

fn hand_on(game: Pid, signal: Signal) {
    info!(signal = signal.as_raw(), "handing a signal on to the game");
    if let Err(error) = kill_process(game, signal) {
        warn!(%error, signal = signal.as_raw(), "could not hand a signal on");
    }
}

/// Takes every child that has ended; gives back the game's end.
fn reap(game: Pid) -> Option<WaitStatus> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == game {
            ended = Some(status);
        }
    }
    ended
}

/// The status that stands for a command's end, as a shell has it.
fn exit_status(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| BY_SIGNAL + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
