//! The lines that players, proxies and servers say to each other.

use std::{fmt, io, str::FromStr};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// What a player says, through its proxy, to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Let me in; the name is mine.
    Join {
        /// The player's name, without spaces.
        player: String,
    },
    /// I am going, of my own accord.
    Leave,
}

/// What a server, or the proxy in its place, says to a player.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// You are on this server now.
    On {
        /// The server's name.
        server: String,
        /// How it came to that.
        how: Arrival,
    },
    /// You cannot come in.
    Refused {
        /// Why, for people.
        why: String,
    },
    /// Answer to [`Request::Leave`]: farewell.
    Bye,
}

/// How a player came to be on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It asked to join.
    Joined,
    /// Its proxy moved it, while the server that it was on still played with it.
    Moved,
    /// The server that it was on went away under it, and its proxy found another.
    Rescued,
}

impl Arrival {
    fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Moved => "moved",
            Self::Rescued => "rescued",
        }
    }
}

/// A line that is not part of the game.
#[derive(Debug, thiserror::Error)]
#[error("not a line of the game: {0:?}")]
pub struct NotALine(String);

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join { player } => write!(f, "JOIN {player}"),
            Self::Leave => write!(f, "LEAVE"),
        }
    }
}

impl FromStr for Request {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        match line.split_once(' ') {
            Some(("JOIN", player)) => Ok(Self::Join { player: player.to_owned() }),
            None if line == "LEAVE" => Ok(Self::Leave),
            _ => Err(NotALine(line.to_owned())),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On { server, how } => write!(f, "ON {} {server}", how.as_str()),
            Self::Refused { why } => write!(f, "REFUSED {why}"),
            Self::Bye => write!(f, "BYE"),
        }
    }
}

impl FromStr for Answer {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let on = |how, server: &str| Self::On { server: server.to_owned(), how };
        match line.split_once(' ') {
            Some(("ON", rest)) => match rest.split_once(' ') {
                Some(("joined", server)) => Ok(on(Arrival::Joined, server)),
                Some(("moved", server)) => Ok(on(Arrival::Moved, server)),
                Some(("rescued", server)) => Ok(on(Arrival::Rescued, server)),
                _ => Err(NotALine(line.to_owned())),
            },
            Some(("REFUSED", why)) => Ok(Self::Refused { why: why.to_owned() }),
            None if line == "BYE" => Ok(Self::Bye),
            _ => Err(NotALine(line.to_owned())),
        }
    }
}

/// A connection that carries lines.
#[derive(Debug)]
pub struct Link {
    incoming: Lines<BufReader<OwnedReadHalf>>,
    outgoing: OwnedWriteHalf,
}

impl Link {
    /// Takes over a connection.
    pub fn new(stream: TcpStream) -> Self {
        // Small lines, each one waited for: without this the kernel holds them back. A socket that refuses is closed.
        let _ = stream.set_nodelay(true);
        let (read, outgoing) = stream.into_split();
        Self { incoming: BufReader::new(read).lines(), outgoing }
    }

    /// Sends one line.
    pub async fn send(&mut self, line: impl fmt::Display) -> io::Result<()> {
        self.outgoing.write_all(format!("{line}\n").as_bytes()).await
    }

    /// The next line; none when the other side has closed. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the connection broke, or the line is not one of the game's.
    pub async fn next<T: FromStr<Err = NotALine>>(&mut self) -> io::Result<Option<T>> {
        let line = self.incoming.next_line().await?;
        line.map(|line| line.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::join(Request::Join { player: "alex".into() }, "JOIN alex")]
    #[case::leave(Request::Leave, "LEAVE")]
    fn requests_keep_their_meaning(#[case] request: Request, #[case] line: &str) {
        assert_eq!(request.to_string(), line);
        assert_eq!(line.parse::<Request>().unwrap(), request);
    }

    #[rstest]
    #[case::joined(Answer::On { server: "lobby-a".into(), how: Arrival::Joined }, "ON joined lobby-a")]
    #[case::moved(Answer::On { server: "lobby-a".into(), how: Arrival::Moved }, "ON moved lobby-a")]
    #[case::rescued(Answer::On { server: "lobby-a".into(), how: Arrival::Rescued }, "ON rescued lobby-a")]
    #[case::refused(Answer::Refused { why: "no room left".into() }, "REFUSED no room left")]
    #[case::bye(Answer::Bye, "BYE")]
    fn answers_keep_their_meaning(#[case] answer: Answer, #[case] line: &str) {
        assert_eq!(answer.to_string(), line);
        assert_eq!(line.parse::<Answer>().unwrap(), answer);
    }

    #[rstest]
    #[case::nothing("")]
    #[case::unknown("HELLO")]
    #[case::half("ON joined")]
    fn other_lines_are_refused(#[case] line: &str) {
        assert!(line.parse::<Answer>().is_err());
        assert!(line.parse::<Request>().is_err());
    }
}
