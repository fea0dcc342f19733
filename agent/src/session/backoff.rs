//! How long to wait before the next attempt to reach the operator.

use std::time::Duration;

/// First delay; upstream's.
pub const FIRST: Duration = Duration::from_secs(1);
/// Longest delay before jitter; upstream's.
pub const CAP: Duration = Duration::from_secs(30);

/// Delays that double from [`FIRST`] to [`CAP`], each ±10 %, for ever; back to the start once the operator was heard.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    attempt: u32,
}

impl Backoff {
    /// Delays from `first` to `cap`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, attempt: 0 }
    }

    /// The delay before the next attempt; `jitter` from 0 to 1 spreads it over ±10 %.
    pub fn next_delay(&mut self, jitter: f64) -> Duration {
        let factor = 1u32.checked_shl(self.attempt).unwrap_or(u32::MAX);
        self.attempt = self.attempt.saturating_add(1).min(31);
        spread(self.first.saturating_mul(factor).min(self.cap), jitter)
    }

    /// The operator was heard.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// `duration` ±10 %, by `jitter` from 0 (less) to 1 (more).
pub fn spread(duration: Duration, jitter: f64) -> Duration {
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.5 };
    duration.mul_f64(0.9 + 0.2 * jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_the_cap_and_never_gives_up() {
        let mut backoff = Backoff::new(FIRST, CAP);
        let delays: Vec<u64> = (0..100).map(|_| backoff.next_delay(0.5).as_secs()).collect();
        assert_eq!(delays.get(..7), Some(&[1, 2, 4, 8, 16, 30, 30][..]));
        assert!(delays.iter().skip(5).all(|delay| *delay == 30));
        backoff.reset();
        assert_eq!(backoff.next_delay(0.5), FIRST);
    }

    #[test]
    fn jitter_is_a_tenth_either_way() {
        assert_eq!(spread(Duration::from_secs(10), 0.0), Duration::from_secs(9));
        assert_eq!(spread(Duration::from_secs(10), 1.0), Duration::from_secs(11));
        assert_eq!(spread(Duration::from_secs(10), f64::NAN), Duration::from_secs(10));
    }
}
