//! Time as shells read it, in one place; decisions get it as a parameter.

use std::time::Instant;

use jiff::Timestamp;

/// Source of monotonic and wall-clock time.
///
/// Monotonic time follows tokio's clock, so tests that pause and advance it move every deadline with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock(());

impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self(())
    }

    /// Monotonic: for durations, deadlines and leases.
    pub fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// Wall clock: for what is written into objects and compared with certificates.
    #[allow(clippy::disallowed_methods)] // the one place that is meant to read it
    pub fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}
