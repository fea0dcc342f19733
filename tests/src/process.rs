//! Child processes that cannot outlive us, and what a test may do to them.
//!
//! Linux can kill a child when its parent dies (`PR_SET_PDEATHSIG`), but "parent" means the *thread* that made it, and
//! threads of tests end early. So each child has a keeper thread of its own: it starts the child, waits for its end and
//! reports it. The keeper ends with the child or with our process, whichever is first, and in the second case, be it a
//! panic, Ctrl-C or SIGKILL, the kernel kills the child.

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::{
    fs::File,
    io::{ErrorKind, Read as _, Seek as _, SeekFrom},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, ExitStatus},
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::sync::watch;

use crate::eventually::eventually;
pub use crate::launch::Launch;

/// How long a killed process may take to be gone. SIGKILL needs a scheduling turn; two busy cores may take a while.
const REAP_LIMIT: Duration = Duration::from_secs(5);
/// A keeper only waits.
const KEEPER_STACK_BYTES: usize = 128 * 1024;
/// As much of a log's end as a tail looks at.
const TAIL_BYTES: u64 = 128 * 1024;

impl Launch {
    /// Starts the process.
    ///
    /// # Errors
    /// When a file cannot be opened or the program cannot be started. A program that is not there ends with exit code
    /// 127 and a line in the log.
    pub fn start(&self) -> Result<Process> {
        let command = self.command().with_context(|| format!("could not prepare {}", self.name()))?;
        let (ended, _) = watch::channel(None);
        let shared = Arc::new(Shared { state: Mutex::default(), ended_sync: Condvar::new(), ended });
        let (started, starts) = mpsc::sync_channel(1);
        let keeper = Arc::clone(&shared);
        std::thread::Builder::new()
            .name(format!("keep {}", self.name()))
            .stack_size(KEEPER_STACK_BYTES)
            .spawn(move || keep(command, &started, &keeper))
            .with_context(|| format!("could not start a thread for {}", self.name()))?;
        let pid = starts
            .recv()
            .context("the keeper ended early")?
            .with_context(|| format!("could not start {} ({})", self.name(), self.program().display()))?;
        Ok(Process { launch: self.clone(), pid, shared })
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    ended_sync: Condvar,
    ended: watch::Sender<Option<ExitStatus>>,
}

#[derive(Debug, Default)]
struct State {
    /// The process was waited for, so its number may belong to somebody else: no signal may be sent any more.
    reaped: bool,
}

fn keep(mut command: Command, started: &mpsc::SyncSender<std::io::Result<Pid>>, shared: &Shared) {
    let (mut child, pid) = match spawn(&mut command) {
        Ok(both) => both,
        Err(error) => {
            // The starter waits for this message; it cannot be gone.
            let _ = started.send(Err(error));
            return;
        }
    };
    drop(command); // closes our copies of the log
    let _ = started.send(Ok(pid));
    // Look without reaping first: until the lock is held, somebody may be sending a signal to this number.
    while let Err(rustix::io::Errno::INTR) =
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    let mut state = shared.state.lock();
    // What the process started ends with it; it is normal that nothing is left.
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    // It has ended and is ours, so waiting cannot fail; if it does, nobody shall take that for success.
    let status = child.wait().unwrap_or_else(|_| ExitStatus::from_raw(255 << 8));
    state.reaped = true;
    drop(state);
    shared.ended.send_replace(Some(status));
    shared.ended_sync.notify_all();
}

fn spawn(command: &mut Command) -> std::io::Result<(Child, Pid)> {
    let child = command.spawn()?;
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = number.ok_or_else(|| std::io::Error::new(ErrorKind::InvalidData, "a pid that is none"))?;
    Ok((child, pid))
}

/// A running child process. It is killed when this is dropped, and when our process ends in whatever way.
#[derive(Debug)]
pub struct Process {
    launch: Launch,
    pid: Pid,
    shared: Arc<Shared>,
}

impl Process {
    /// The name in messages.
    pub fn name(&self) -> &str {
        self.launch.name()
    }

    /// Its process number, which is also its group's.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// How it was started; starting that again is a restart.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The file that holds what it printed.
    pub fn log_path(&self) -> Option<&Path> {
        self.launch.log_path()
    }

    /// How it ended, if it has.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        *self.shared.ended.borrow()
    }

    /// Whether it has not ended. A frozen process is running.
    pub fn is_running(&self) -> bool {
        self.exit_status().is_none()
    }

    /// Asks it to end (SIGTERM). A frozen process hears that when it is thawed.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Kills it (SIGKILL), frozen or not. [`Process::wait`] says when it is gone.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)
    }

    /// Stops it in its tracks (SIGSTOP): sockets stay open, nothing answers.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on (SIGCONT).
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal to the process and what it started; does nothing when it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let state = self.shared.state.lock();
        if state.reaped {
            return Ok(());
        }
        let sent = rustix::process::kill_process_group(self.pid, signal);
        sent.with_context(|| format!("could not send {signal:?} to {}", self.name()))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it has not ended after `limit`; the message holds the end of its log.
    pub async fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        let mut ended = self.shared.ended.subscribe();
        match tokio::time::timeout(limit, ended.wait_for(Option::is_some)).await {
            Ok(Ok(status)) => Ok(status.unwrap_or_default()),
            Ok(Err(_)) => bail!("the keeper of {} is gone", self.name()),
            Err(_) => bail!("{} has not ended after {limit:?}\n{}", self.name(), self.tail(20)),
        }
    }

    /// Asks it to end, and kills it when it has not after `limit`.
    pub async fn stop(&self, limit: Duration) -> Result<ExitStatus> {
        self.terminate()?;
        self.thaw()?;
        if let Ok(status) = self.wait(limit).await {
            return Ok(status);
        }
        self.kill()?;
        self.wait(REAP_LIMIT).await
    }

    /// The last lines that it printed.
    pub fn tail(&self, lines: usize) -> String {
        self.log_path().map(|path| tail(path, lines)).unwrap_or_default()
    }

    /// Waits until `text` is in its log.
    ///
    /// # Errors
    /// When it has not come after `limit`; the message holds the end of the log. At once when the process has ended.
    pub async fn wait_for_log(&self, text: &str, limit: Duration) -> Result<()> {
        let path = self.log_path().with_context(|| format!("{} has no log", self.name()))?;
        let found = || async {
            // The order matters: a process may print and end between the two looks.
            let running = self.is_running();
            let log = std::fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
            if String::from_utf8_lossy(&log).contains(text) {
                return Ok(true);
            }
            ensure!(!running, "{} has not printed {text:?}\n{}", self.name(), self.tail(20));
            Ok(false)
        };
        let found = eventually(limit, &format!("{text:?} in the log of {}", self.name()), found).await?;
        ensure!(found, "{} ended without printing {text:?}\n{}", self.name(), self.tail(20));
        Ok(())
    }

    /// Resident memory in bytes, of the process alone: a binary's pages that others have mapped too count fully.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.with_context(|| format!("{} has ended", self.name()))?;
        let kilobytes =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
        let kilobytes: u64 = kilobytes.with_context(|| format!("no VmRSS of {}", self.name()))?;
        Ok(kilobytes * 1024)
    }

    /// Processor time that it has used, in user and kernel mode, with what it waited for.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.with_context(|| format!("{} has ended", self.name()))?;
        // The name in parentheses may hold spaces; fields after it are counted from 3, utime is 14 and stime 15.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, or this succeeds: the child is ours.
        let _ = self.kill();
        let mut state = self.shared.state.lock();
        while !state.reaped {
            if self.shared.ended_sync.wait_for(&mut state, REAP_LIMIT).timed_out() {
                tracing::warn!(name = self.name(), pid = self.pid(), "killed, but not gone yet");
                return;
            }
        }
    }
}

/// The last lines of a file, or why they cannot be had.
pub fn tail(path: &Path, lines: usize) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) => {
            let all: Vec<&str> = text.lines().collect();
            all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
        }
        Err(error) => format!("({}: {error})", path.display()),
    }
}
