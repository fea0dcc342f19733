//! Minecraft's server list ping: asks a game how many are on, as a player's server list would.
//!
//! A client of our own, as small as the question: handshake with next state 1, status request, and the JSON that comes back.
//! [`request`] and [`Status::read`] do no input or output, so that the agent ([`ping`]) and the readiness probe
//! (`spawnery-slp`, which has no runtime) ask in the same words.

use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::session::Tally;

/// How long a game may take to answer, connection included; upstream's.
pub const LIMIT: Duration = Duration::from_secs(4);
/// Protocol version announced; upstream's. Games answer a status request whatever it says.
const PROTOCOL: i32 = 771;
/// Largest answer taken. One with the largest icon and long texts has some 50 KB.
const LARGEST: usize = 256 * 1024;
/// The answer is read in pieces of this size.
pub const PIECE: usize = 16 * 1024;

/// Why a game's count is unknown.
#[derive(Debug, Error)]
pub enum PingError {
    /// No connection, or it broke off.
    #[error("could not ask the game: {0}")]
    Io(#[from] std::io::Error),
    /// No answer in time.
    #[error("the game did not answer within {0:?}")]
    TooSlow(Duration),
    /// The answer is not one to a status request.
    #[error("the game's answer is not a status: {0}")]
    NotAStatus(&'static str),
    /// The answer's JSON is not what the protocol says.
    #[error("the game's status cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

/// A game's answer.
#[derive(Debug, Deserialize)]
pub struct Status {
    /// Every game has it, and something that only looks like one has not.
    version: serde_json::Value,
    players: Option<Players>,
}

#[derive(Debug, Deserialize)]
struct Players {
    online: i64,
    max: i64,
}

impl Status {
    /// Reads an answer from its beginning; `None` while there is more to come.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, PingError> {
        let Some((length, rest)) = read_varint(bytes)? else { return Ok(None) };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LARGEST {
            return Err(PingError::NotAStatus("longer than 256 KiB"));
        }
        let Some(packet) = rest.get(..length) else { return Ok(None) };
        let short = PingError::NotAStatus("shorter than it says");
        let Some((kind, packet)) = read_varint(packet)? else { return Err(short) };
        if kind != 0 {
            return Err(PingError::NotAStatus("packet of another kind"));
        }
        let Some((length, packet)) = read_varint(packet)? else { return Err(short) };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Self::of_json(packet.get(..length).ok_or(PingError::NotAStatus("text longer than its packet"))?).map(Some)
    }

    fn of_json(json: &[u8]) -> Result<Self, PingError> {
        let status: Self = serde_json::from_slice(json)?;
        if status.version.is_null() {
            return Err(PingError::NotAStatus("no version"));
        }
        Ok(status)
    }

    /// The count. Players who cannot be counted are unknown, not nobody.
    pub fn tally(&self) -> Result<Tally, PingError> {
        let players = self.players.as_ref().ok_or(PingError::NotAStatus("no players"))?;
        let online = u32::try_from(players.online).map_err(|_| PingError::NotAStatus("players.online out of range"))?;
        let max = u32::try_from(players.max.max(0)).map_err(|_| PingError::NotAStatus("players.max out of range"))?;
        Ok(Tally::new(online, max))
    }
}

/// Asks the game at `host`:`port`, at most [`LIMIT`] long.
pub async fn ping(host: &str, port: u16) -> Result<Tally, PingError> {
    let asked = async {
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&request(host, port)).await?;
        let mut answer = Vec::with_capacity(PIECE);
        loop {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            if let Some(status) = Status::read(&answer)? {
                return status.tally();
            }
        }
    };
    tokio::time::timeout(LIMIT, asked).await.map_err(|_| PingError::TooSlow(LIMIT))?
}

/// Handshake (protocol, host, port, next state 1) and status request.
pub fn request(host: &str, port: u16) -> Vec<u8> {
    let mut handshake = vec![0x00];
    push_varint(&mut handshake, PROTOCOL);
    // The protocol's limit is 255 characters; host names have no more.
    let host = host.as_bytes().get(..255).unwrap_or(host.as_bytes());
    push_varint(&mut handshake, i32::try_from(host.len()).unwrap_or_default());
    handshake.extend_from_slice(host);
    handshake.extend_from_slice(&port.to_be_bytes());
    handshake.push(0x01);
    let mut bytes = Vec::with_capacity(handshake.len() + 4);
    push_varint(&mut bytes, i32::try_from(handshake.len()).unwrap_or_default());
    bytes.extend_from_slice(&handshake);
    bytes.extend_from_slice(&[0x01, 0x00]);
    bytes
}

/// Seven bits a byte, the lowest first; the high bit says that more follow.
fn push_varint(bytes: &mut Vec<u8>, value: i32) {
    let mut value = value.cast_unsigned();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// A number and what follows it; `None` while there is more to come.
fn read_varint(bytes: &[u8]) -> Result<Option<(i32, &[u8])>, PingError> {
    let mut value: u32 = 0;
    for place in 0..5_usize {
        let Some(byte) = bytes.get(place) else { return Ok(None) };
        value |= u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok(Some((value.cast_signed(), bytes.get(place + 1..).unwrap_or_default())));
        }
    }
    Err(PingError::NotAStatus("number longer than five bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use tokio::net::TcpListener;

    /// Frames `json` as a status answer.
    fn framed(json: &str) -> Vec<u8> {
        let mut packet = vec![0x00];
        push_varint(&mut packet, i32::try_from(json.len()).expect("short"));
        packet.extend_from_slice(json.as_bytes());
        let mut bytes = Vec::new();
        push_varint(&mut bytes, i32::try_from(packet.len()).expect("short"));
        bytes.extend_from_slice(&packet);
        bytes
    }

    /// A game that reads the whole request and then says `answer`; gives back what was asked.
    async fn scripted(answer: Vec<u8>) -> (Result<Tally, PingError>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let wanted = request("127.0.0.1", port);
        let game = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("the ping");
            let mut asked = vec![0; wanted.len()];
            stream.read_exact(&mut asked).await.expect("handshake and request");
            stream.write_all(&answer).await.expect("room for an answer");
            asked
        });
        let got = ping("127.0.0.1", port).await;
        (got, game.await.expect("no panic"))
    }

    #[test]
    fn asks_as_the_protocol_says() {
        // Length 16, packet 0, protocol 771 = 0x83 0x06, host of 9, port 25565 = 0x63dd, next state 1; then 1, 0.
        let want = [&[0x10, 0x00, 0x83, 0x06, 0x09][..], b"localhost", &[0x63, 0xdd, 0x01, 0x01, 0x00]].concat();
        assert_eq!(request("localhost", 25565), want);
    }

    #[tokio::test]
    async fn counts_what_the_game_says() {
        let json = r#"{"version":{"name":"1.12.2","protocol":340},"players":{"max":20,"online":3},"description":{"text":"a"}}"#;
        let (got, _) = scripted(framed(json)).await;
        assert_eq!(got.expect("a status"), Tally::new(3, 20));
    }

    #[tokio::test]
    async fn reads_an_answer_longer_than_one_packet_on_the_wire() {
        let json =
            format!(r#"{{"version":{{}},"players":{{"max":1,"online":1}},"favicon":"{}"}}"#, "x".repeat(200_000));
        let (got, _) = scripted(framed(&json)).await;
        assert_eq!(got.expect("a status"), Tally::new(1, 1));
    }

    #[rstest]
    #[case::more_than_slots(r#"{"version":{},"players":{"max":2,"online":3}}"#, Some((3, 3)))]
    #[case::unlimited(r#"{"version":{},"players":{"max":-1,"online":3}}"#, Some((3, 3)))]
    #[case::negative(r#"{"version":{},"players":{"max":2,"online":-1}}"#, None)]
    #[case::hidden(r#"{"version":{}}"#, None)]
    #[case::no_version(r#"{"players":{"max":2,"online":0}}"#, None)]
    #[case::not_json("hello", None)]
    fn what_counts(#[case] json: &str, #[case] want: Option<(u32, u32)>) {
        let tally = Status::of_json(json.as_bytes()).and_then(|status| status.tally());
        assert_eq!(tally.ok(), want.map(|(players, slots)| Tally::new(players, slots)));
    }

    #[rstest]
    #[case::closes_at_once(vec![])]
    #[case::breaks_off(framed(r#"{"version":{}}"#)[..5].to_vec())]
    #[case::too_long(vec![0xff, 0xff, 0xff, 0x07])]
    #[case::endless_number(vec![0xff; 6])]
    #[case::another_packet(vec![0x02, 0x01, 0x00])]
    #[case::text_longer_than_packet(vec![0x02, 0x00, 0x7f])]
    #[case::negative_length(vec![0xff, 0xff, 0xff, 0xff, 0x0f])]
    #[tokio::test]
    async fn nonsense_is_unknown(#[case] answer: Vec<u8>) {
        let (got, _) = scripted(answer).await;
        got.expect_err("not a status");
    }

    #[test]
    fn a_part_of_an_answer_is_none_yet() {
        let whole = framed(r#"{"version":{},"players":{"max":20,"online":3}}"#);
        for length in 0..whole.len() {
            assert!(matches!(Status::read(&whole[..length]), Ok(None)), "after {length} bytes");
        }
        let more = [whole.as_slice(), &[0xff; 9]].concat();
        assert!(matches!(Status::read(&more), Ok(Some(_))), "what follows is another's");
    }

    #[tokio::test(start_paused = true)]
    async fn a_game_that_says_nothing_is_unknown_after_the_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let begun = tokio::time::Instant::now();
        // Never accepted: the kernel takes the connection and nobody answers.
        assert!(matches!(ping("127.0.0.1", port).await, Err(PingError::TooSlow(_))));
        assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
    }

    #[tokio::test]
    async fn nobody_there_is_unknown() {
        let port =
            TcpListener::bind("127.0.0.1:0").await.expect("a free port").local_addr().expect("an address").port();
        assert!(matches!(ping("127.0.0.1", port).await, Err(PingError::Io(_))));
    }
}
