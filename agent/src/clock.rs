//! The clocks that the agent reads, in one place.

use std::time::{Instant, SystemTime};

/// Monotonic time; follows tokio's clock, so tests that pause it move every deadline.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Where this life's sequence numbers start: milliseconds since 1970 times a thousand. No earlier life got that far unless
/// it counted a thousand changes in every millisecond, and it stays below 2^53, beyond which JavaScript loses count.
#[allow(clippy::disallowed_methods)] // the one place that is meant to read it
pub(crate) fn first_seq() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or_default().saturating_mul(1000)
}
