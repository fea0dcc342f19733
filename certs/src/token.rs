//! The token that ends the path of eviction reviews.
//!
//! Webhooks have no way to know the API server: by default it shows no credentials. A review of an eviction begins a drain,
//! so its path ends in a secret that only the API server is told, by the registration:
//!
//! ```text
//! leader: Secret, key eviction-token ──► registration: /evictions/TOKEN ──► API server ──┐
//!                    └──► EvictionTokens of each webhook replica ◄── accepts() ◄─────────┘
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use subtle::{Choice, ConstantTimeEq as _};

use crate::issue::IssueError;
use crate::provider::provider;

/// Random bytes of a token.
const BYTES: usize = 32;
/// For how long a token that was replaced is still taken: until the leader, which looks every minute, has registered the new
/// one, and every API server knows it.
pub const OVERLAP: Duration = Duration::from_mins(5);

/// 256 random bits as 64 lower-case hexadecimal digits. Left out of `Debug`, compared in constant time.
#[derive(Clone)]
pub struct EvictionToken(Arc<str>);

impl EvictionToken {
    /// A new one.
    ///
    /// # Errors
    /// [`IssueError::Random`] when the system has no randomness to give.
    pub fn generate() -> Result<Self, IssueError> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut bytes = [0_u8; BYTES];
        provider().secure_random.fill(&mut bytes).map_err(|_| IssueError::Random)?;
        let digit = |value: u8| DIGITS.get(usize::from(value)).map_or('0', |digit| char::from(*digit));
        Ok(Self(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect::<String>().into()))
    }

    /// A token as stored; `None` for anything but 64 digits.
    pub fn parse(stored: &[u8]) -> Option<Self> {
        let digits = stored.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let text = std::str::from_utf8(stored).ok().filter(|_| digits && stored.len() == 2 * BYTES)?;
        Some(Self(text.into()))
    }

    /// The digits, for the Secret and the registration and for nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn is(&self, presented: &str) -> Choice {
        self.0.as_bytes().ct_eq(presented.as_bytes())
    }
}

impl fmt::Debug for EvictionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EvictionToken(..)")
    }
}

impl PartialEq for EvictionToken {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0).into()
    }
}

impl Eq for EvictionToken {}

#[derive(Debug)]
struct Known {
    current: EvictionToken,
    /// The one before, and until when it is taken.
    before: Option<(EvictionToken, Instant)>,
}

/// The tokens that a replica takes. None at first: whoever asks is a stranger until [`EvictionTokens::set`].
#[derive(Debug, Default)]
pub struct EvictionTokens {
    known: ArcSwapOption<Known>,
}

impl EvictionTokens {
    /// No token yet.
    pub fn empty() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Takes `token` from now on, and the one before it for [`OVERLAP`] more.
    pub fn set(&self, token: &EvictionToken, now: Instant) {
        self.known.rcu(|known| {
            let before = match known {
                Some(known) if known.current == *token => return Some(Arc::clone(known)),
                Some(known) => Some((known.current.clone(), now + OVERLAP)),
                None => None,
            };
            Some(Arc::new(Known { current: token.clone(), before }))
        });
    }

    /// Whether there is a token.
    pub fn ready(&self) -> bool {
        self.known.load().is_some()
    }

    /// Whether `presented` is a token that is taken at `now`. How long that takes says nothing about the tokens.
    pub fn accepts(&self, presented: &str, now: Instant) -> bool {
        let known = self.known.load();
        let Some(known) = &*known else {
            return false;
        };
        let no = Choice::from(0);
        let before = known
            .before
            .as_ref()
            .map_or(no, |(token, until)| token.is(presented) & Choice::from(u8::from(now < *until)));
        (known.current.is(presented) | before).into()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn token(digit: char) -> EvictionToken {
        let text: String = std::iter::repeat_n(digit, 64).collect();
        EvictionToken::parse(text.as_bytes()).expect("64 digits")
    }

    #[test]
    fn a_new_one_is_like_no_other_and_reads_back() {
        let (one, other) = (EvictionToken::generate().expect("random"), EvictionToken::generate().expect("random"));
        assert_ne!(one, other);
        assert_eq!(EvictionToken::parse(one.reveal().as_bytes()), Some(one.clone()));
        assert_eq!(format!("{one:?}"), "EvictionToken(..)", "tokens stay out of logs");
    }

    #[rstest]
    #[case::nothing(b"")]
    #[case::too_short(&[b'a'; 63])]
    #[case::too_long(&[b'a'; 65])]
    #[case::upper_case(&[b'A'; 64])]
    #[case::a_line_end(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n")]
    #[case::a_slash(&[b'/'; 64])]
    #[case::no_text(&[0xff; 64])]
    fn what_is_stored_and_is_none_is_not_taken(#[case] stored: &[u8]) {
        assert_eq!(EvictionToken::parse(stored), None);
    }

    #[test]
    fn whoever_knows_no_token_is_a_stranger() {
        let now = Instant::now();
        let tokens = EvictionTokens::default();
        assert!(!tokens.ready() && !tokens.accepts("", now));
        tokens.set(&token('a'), now);
        assert!(tokens.ready() && tokens.accepts(token('a').reveal(), now));
        for stranger in ["", "a", token('b').reveal(), &"a".repeat(63), &"a".repeat(65)] {
            assert!(!tokens.accepts(stranger, now), "{stranger}");
        }
    }

    #[test]
    fn a_token_that_was_replaced_is_taken_a_little_longer() {
        let begin = Instant::now();
        let tokens = EvictionTokens::default();
        tokens.set(&token('a'), begin);
        tokens.set(&token('b'), begin);
        // The Secret is seen again and again, and says the same.
        tokens.set(&token('b'), begin + OVERLAP);
        let taken = |digit, at| tokens.accepts(token(digit).reveal(), at);
        assert!(taken('a', begin + Duration::from_secs(299)) && taken('b', begin + Duration::from_secs(299)));
        assert!(!taken('a', begin + OVERLAP) && taken('b', begin + OVERLAP));
        tokens.set(&token('c'), begin);
        assert!(!taken('a', begin) && taken('b', begin) && taken('c', begin));
    }
}
