//! A readiness probe: pings a game as a player's server list does. Exit status 0 when it answers, 1 when it does not, 2 for
//! flags that cannot be read; flags, limits and status are upstream's.
//!
//! The kubelet starts it every few seconds beside a game that needs the processor, so there is no runtime in it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use spawnery_agent::slp::{LIMIT, PIECE, PingError, Status, request};

const USAGE: &str = "usage: spawnery-slp [--host HOST] [--port PORT] [--timeout DURATION]
  --host HOST         host to ping (127.0.0.1)
  --port PORT         TCP port to ping (25565)
  --timeout DURATION  deadline for the whole ping, as in 4s or 500ms (4s)";

fn main() -> ExitCode {
    let probe = match Probe::parse(std::env::args().skip(1)) {
        Ok(probe) => probe,
        Err(problem) => {
            eprintln!("spawnery-slp: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match probe.ping() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spawnery-slp: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What to ask, and for how long.
#[derive(Debug, PartialEq, Eq)]
struct Probe {
    host: String,
    port: u16,
    limit: Duration,
}

impl Probe {
    /// Reads flags as upstream's do: one dash or two, the value after `=` or as the next argument; what follows the flags
    /// is ignored.
    fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut probe = Self { host: "127.0.0.1".to_owned(), port: 25565, limit: LIMIT };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let flag = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
            let Some(flag) = flag.filter(|flag| !flag.is_empty()) else { break };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            if !["host", "port", "timeout"].contains(&name) {
                return Err(format!("unknown flag --{name}"));
            }
            let value = value.or_else(|| arguments.next()).ok_or_else(|| format!("--{name} needs a value"))?;
            match name {
                "host" => probe.host = value,
                "port" => {
                    let port = value.parse().ok().filter(|port| *port > 0);
                    probe.port = port.ok_or_else(|| format!("--port {value}: accepted: 1 to 65535"))?;
                }
                _ => {
                    let limit = duration(&value).filter(|limit| !limit.is_zero());
                    probe.limit =
                        limit.ok_or_else(|| format!("--timeout {value}: accepted: as in 4s, 500ms, 1m30s"))?;
                }
            }
        }
        Ok(probe)
    }

    /// Asks, and takes no longer than the limit for all of it but the resolver.
    fn ping(&self) -> Result<Status, PingError> {
        let until = Instant::now().checked_add(self.limit);
        let left = || {
            let left = until.map_or(self.limit, |until| until.saturating_duration_since(Instant::now()));
            Some(left).filter(|left| !left.is_zero()).ok_or(PingError::TooSlow(self.limit))
        };
        let in_time = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => PingError::TooSlow(self.limit),
            _ => PingError::Io(error),
        };
        let mut stream = self.connect(&left)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(left()?))?;
        stream.write_all(&request(&self.host, self.port)).map_err(in_time)?;
        let (mut answer, mut piece) = (Vec::new(), [0; PIECE]);
        loop {
            stream.set_read_timeout(Some(left()?))?;
            let read = stream.read(&mut piece).map_err(in_time)?;
            if read == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            answer.extend(piece.iter().take(read));
            if let Some(status) = Status::read(&answer)? {
                return Ok(status);
            }
        }
    }

    fn connect(&self, left: &impl Fn() -> Result<Duration, PingError>) -> Result<TcpStream, PingError> {
        let addresses: Vec<SocketAddr> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        let mut failed = std::io::Error::new(std::io::ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, left()?) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed.into())
    }
}

/// A duration as upstream's flag takes it: numbers with units, one after the other.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(unit)?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(end)?;
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::net::{Shutdown, TcpListener};
    use std::sync::mpsc::{Sender, channel};
    use std::thread::JoinHandle;

    fn probe(host: &str, port: u16, milliseconds: u64) -> Probe {
        Probe { host: host.to_owned(), port, limit: Duration::from_millis(milliseconds) }
    }

    #[rstest]
    #[case::as_the_kubelet_calls_it("--host 127.0.0.1 --port 25565", probe("127.0.0.1", 25565, 4000))]
    #[case::nothing("", probe("127.0.0.1", 25565, 4000))]
    #[case::one_dash_and_equals("-host=game -port=1 --timeout=1m0.5s", probe("game", 1, 60_500))]
    #[case::milliseconds("-timeout 500ms", probe("127.0.0.1", 25565, 500))]
    #[case::what_follows_is_ignored("--port 1 more --port 2", probe("127.0.0.1", 1, 4000))]
    fn flags(#[case] line: &str, #[case] want: Probe) {
        assert_eq!(Probe::parse(line.split_whitespace().map(str::to_owned)), Ok(want));
    }

    #[rstest]
    #[case("--help", "--help")]
    #[case("--port", "needs a value")]
    #[case("--port 0", "1 to 65535")]
    #[case("--port game", "1 to 65535")]
    #[case("--timeout 4", "4s")]
    #[case("--timeout 0s", "4s")]
    #[case("--timeout 4parsecs", "4s")]
    #[case("--timeout -1s", "4s")]
    fn refuses(#[case] line: &str, #[case] says: &str) {
        let refused = Probe::parse(line.split_whitespace().map(str::to_owned)).unwrap_err();
        assert!(refused.contains(says), "{refused}");
    }

    /// A game that takes one connection, says `answer` on it in two pieces, and holds it until it is told to let go.
    fn game(answer: &'static [u8]) -> (u16, Sender<()>, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (let_go, told) = channel();
        let game = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (first, second) = answer.split_at(answer.len() / 2);
            stream.write_all(first).unwrap();
            stream.write_all(second).unwrap();
            // Nothing is ever said there; its end is the sign.
            let _ = told.recv();
            // A connection that is closed while a question lies unread is reset, and takes with it what was answered.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        (port, let_go, game)
    }

    #[rstest]
    #[case::with_players(b"\x30\x00\x2e{\"version\":{},\"players\":{\"max\":20,\"online\":3}}", true)]
    #[case::that_hides_its_players(b"\x10\x00\x0e{\"version\":{}}", true)]
    #[case::of_something_else(b"HTTP/1.1 400 Bad Request\r\n\r\n", false)]
    #[case::without_a_version(b"\x04\x00\x02{}", false)]
    fn an_answer(#[case] answer: &'static [u8], #[case] answers: bool) {
        let (port, let_go, game) = game(answer);
        drop(let_go);
        assert_eq!(probe("127.0.0.1", port, 4000).ping().is_ok(), answers);
        game.join().unwrap();
    }

    #[test]
    fn a_game_that_says_nothing_does_not_answer() {
        let (port, let_go, game) = game(b"");
        assert!(matches!(probe("127.0.0.1", port, 100).ping(), Err(PingError::TooSlow(_))));
        drop(let_go);
        game.join().unwrap();
    }

    #[test]
    fn nobody_there_does_not_answer() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(matches!(probe("127.0.0.1", port, 4000).ping(), Err(PingError::Io(_))));
    }
}
