//! What was written, and whether it still stands.
//!
//! Whoever may change registrations can make the API server call somebody else, or nobody, while the webhook answers our
//! own probe as ever: budgets would stay narrow, and empty pods be evicted unseen. So our own registration is watched.

use std::time::{Duration, Instant};

use kube::core::ObjectMeta;

use super::RESYNC;
use super::build::Registration;

/// At the soonest after the last write; twice as long for each write in a row that did not stand, up to [`RESYNC`].
/// Somebody who writes whenever we do must not keep us, and the API server, busy.
const AGAIN: Duration = Duration::from_secs(1);
/// A write that stood for so long ends such a row.
const STOOD: Duration = Duration::from_mins(1);

/// One kind of the registration, as the API server counts its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    uid: Option<String>,
    /// Of what is called and when; labels and owners do not count.
    generation: Option<i64>,
}

impl Held {
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        Self { uid: metadata.uid.clone(), generation: metadata.generation }
    }

    /// Whether it is as it was written. A watch may lag behind our own write, and then shows something older.
    fn stands(&self, seen: Option<&Self>) -> bool {
        seen.is_some_and(|seen| seen.uid == self.uid && seen.generation <= self.generation)
    }
}

/// The last write.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) registration: Registration,
    /// The validating one and the mutating one.
    pub(super) held: [Held; 2],
}

/// How soon what somebody has changed is written again.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The last write.
    at: Option<Instant>,
    /// For how long it stood, once it does not any more.
    stood: Option<Duration>,
    /// Writes in a row that did not stand.
    lost: u32,
}

impl Pace {
    pub(super) fn wrote(&mut self, now: Instant) {
        let since = |at: Instant| now.saturating_duration_since(at);
        match self.stood.take() {
            Some(stood) if stood < STOOD => self.lost = self.lost.saturating_add(1),
            Some(_) => self.lost = 0,
            None if self.at.is_some_and(|at| since(at) >= STOOD) => self.lost = 0,
            None => {}
        }
        if self.lost > 0 {
            tracing::warn!(writes = self.lost, "somebody else keeps changing our registration");
        }
        self.at = Some(now);
    }

    /// The last write does not stand: how long to wait.
    fn again(&mut self, now: Instant) -> Duration {
        let Some(at) = self.at else { return Duration::ZERO };
        let stood = *self.stood.get_or_insert_with(|| now.saturating_duration_since(at));
        let doublings = if stood < STOOD { self.lost.min(16) } else { 0 };
        let pause = AGAIN.saturating_mul(2_u32.saturating_pow(doublings)).min(RESYNC);
        (at + pause).saturating_duration_since(now)
    }
}

impl Written {
    /// Whether our watches show both kinds as they were written.
    pub(super) fn stands(&self, seen: &[Option<Held>; 2]) -> bool {
        self.held.iter().zip(seen).all(|(held, seen)| held.stands(seen.as_ref()))
    }

    /// After how long to write `wanted`, given what our watches show.
    pub(super) fn due(
        &self,
        wanted: &Registration,
        seen: &[Option<Held>; 2],
        pace: &mut Pace,
        now: Instant,
    ) -> Duration {
        if self.registration != *wanted {
            Duration::ZERO
        } else if self.stands(seen) {
            RESYNC
        } else {
            pace.again(now)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;
    use spawnery_certs::EvictionToken;

    use super::*;
    use crate::webhook_config::build::Target;

    fn registration(ca: &str) -> Registration {
        Registration {
            ca_bundle: ca.into(),
            token: EvictionToken::parse(&[b'a'; 64]).expect("64 digits"),
            target: Target::Url("https://127.0.0.1".to_owned()),
            namespaces: BTreeSet::new(),
            owner: None,
            operator_namespace: "ops".to_owned(),
        }
    }

    fn held(uid: &str, generation: i64) -> Held {
        Held { uid: Some(uid.to_owned()), generation: Some(generation) }
    }

    #[rstest]
    #[case::as_written("PEM", [Some(held("a", 3)), Some(held("b", 3))], 0, RESYNC)]
    #[case::our_watch_lags("PEM", [Some(held("a", 2)), Some(held("b", 3))], 0, RESYNC)]
    #[case::something_else_is_wanted("NEW", [Some(held("a", 3)), Some(held("b", 3))], 0, Duration::ZERO)]
    #[case::changed_long_after("PEM", [Some(held("a", 4)), Some(held("b", 3))], 5000, Duration::ZERO)]
    #[case::changed_at_once("PEM", [Some(held("a", 3)), Some(held("b", 4))], 300, Duration::from_millis(700))]
    #[case::deleted("PEM", [Some(held("a", 3)), None], 5000, Duration::ZERO)]
    #[case::made_anew("PEM", [Some(held("c", 1)), Some(held("b", 3))], 5000, Duration::ZERO)]
    fn is_written_again(
        #[case] ca: &str,
        #[case] seen: [Option<Held>; 2],
        #[case] after_ms: u64,
        #[case] want: Duration,
    ) {
        let at = Instant::now();
        let held = ["a", "b"].map(|uid| held(uid, 3));
        let written = Written { registration: registration("PEM"), held };
        let mut pace = Pace::default();
        pace.wrote(at);
        assert_eq!(written.due(&registration(ca), &seen, &mut pace, at + Duration::from_millis(after_ms)), want);
    }

    #[test]
    fn who_writes_against_us_is_answered_later_and_later() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..11 {
            pace.wrote(now);
            waits.push(pace.again(now).as_secs());
            now += pace.again(now);
            assert_eq!(pace.again(now), Duration::ZERO, "then it is due");
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        pace.wrote(now);
        now += STOOD;
        assert_eq!(pace.again(now), Duration::ZERO, "a minute's quiet is the end of it");
        pace.wrote(now);
        assert_eq!(pace.again(now), AGAIN);
    }
}
