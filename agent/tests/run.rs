//! `spawnery-agent run` with real processes: signals, statuses, orphans.

#![allow(clippy::disallowed_methods)] // waits between looks at processes, with a limit

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};

/// Nothing in these tests takes so long; what does has failed.
const LIMIT: Duration = Duration::from_secs(20);

/// An agent whose game is a shell that runs `script`; nobody answers where its operator should be.
fn agent(local: &str, script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spawnery-agent"));
    command.env_clear().args(["run", "--server", "a", "--operator-endpoint", "127.0.0.1:1", "--count-source", "local"]);
    command.args(["--local-listen", local, "--hook-listen", "127.0.0.1:0", "--", "/bin/sh", "-c", script]);
    command
}

/// Ended with the test, whatever becomes of it.
struct Running {
    process: Child,
    says: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("an agent");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let (line, says) = channel();
        // Ends with the output, so with the processes that write to it.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|said| line.send(said)));
        Self { process, says }
    }

    /// The game's next line.
    fn line(&self) -> String {
        self.says.recv_timeout(LIMIT).expect("a line in time")
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }

    /// The status with which it exits.
    fn status(&mut self) -> Option<i32> {
        eventually("end", || self.process.try_wait().expect("it is ours").map(|status| status.code()))
    }
}

fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    let mut look = look;
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < LIMIT, "no {what} within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there, ended and not taken by its parent included.
fn exists(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid).exists()
}

#[rstest]
#[case::success("exit 0", 0)]
#[case::failure("exit 7", 7)]
#[case::by_a_signal("kill -KILL $$", 137)]
fn ends_with_the_games_status(#[case] script: &str, #[case] status: i32) {
    assert_eq!(Running::start(agent("127.0.0.1:0", script)).status(), Some(status));
}

#[rstest]
#[case::not_there("/no/such/game", 127)]
#[case::not_a_program("/etc/passwd", 126)]
fn a_game_that_cannot_start_is_told_as_a_shell_would(#[case] game: &str, #[case] status: i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spawnery-agent"));
    command.env_clear().args(["run", "--server", "a", "--operator-endpoint", "127.0.0.1:1", "--", game]);
    assert_eq!(Running::start(command).status(), Some(status));
}

#[rstest]
#[case::terminate("TERM", Signal::TERM)]
#[case::interrupt("INT", Signal::INT)]
#[case::hang_up("HUP", Signal::HUP)]
#[case::user("USR1", Signal::USR1)]
fn signals_are_the_games(#[case] name: &str, #[case] signal: Signal) {
    let script = format!("trap 'echo saved; exit 9' {name}; echo plays; while :; do sleep 0.05; done");
    let mut running = Running::start(agent("127.0.0.1:0", &script));
    assert_eq!(running.line(), "plays");
    running.signal(signal);
    assert_eq!(running.line(), "saved", "the game decides when it is done");
    assert_eq!(running.status(), Some(9));
}

#[test]
fn orphans_of_the_game_are_reaped() {
    // The inner shell ends at once, so what it leaves behind is nobody's child any more.
    let script = "sh -c 'sleep 0.2 & echo $!'; echo left; while :; do sleep 0.05; done";
    let mut running = Running::start(agent("127.0.0.1:0", script));
    let orphan = running.line();
    assert_eq!(running.line(), "left");
    eventually("end of the orphan", || (!exists(&orphan)).then_some(()));
    assert!(running.process.try_wait().expect("it is ours").is_none(), "the game goes on");
    running.signal(Signal::TERM);
    assert_eq!(running.status(), Some(143));
}

#[test]
fn an_agent_that_cannot_work_does_not_touch_the_game() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let local = taken.local_addr().expect("an address").to_string();
    let mut running = Running::start(agent(&local, "echo plays; sleep 1.5; echo still; exit 3"));
    assert_eq!((running.line(), running.line()), ("plays".to_owned(), "still".to_owned()));
    assert_eq!(running.status(), Some(3));
}
