//! What was written, and whether it still stands.
//!
//! Whoever may change registrations can make the API server call somebody else, or nobody, while the webhook answers our
//! own probe as ever: budgets would stay narrow, and empty pods be evicted unseen. So our own registration is watched.

use std::time::{Duration, Instant};

use kube::core::ObjectMeta;

use super::RESYNC;
use super::build::Registration;

/// At the soonest after the last write. Somebody who writes whenever we do must not keep us busy.
const AGAIN: Duration = Duration::from_secs(1);

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
    pub(super) at: Instant,
}

impl Written {
    /// Whether our watches show both kinds as they were written.
    pub(super) fn stands(&self, seen: &[Option<Held>; 2]) -> bool {
        self.held.iter().zip(seen).all(|(held, seen)| held.stands(seen.as_ref()))
    }

    /// After how long to write `wanted`, given what our watches show.
    pub(super) fn due(&self, wanted: &Registration, seen: &[Option<Held>; 2], now: Instant) -> Duration {
        if self.registration != *wanted {
            Duration::ZERO
        } else if self.stands(seen) {
            RESYNC
        } else {
            (self.at + AGAIN).saturating_duration_since(now)
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
        let written = Written { registration: registration("PEM"), held, at };
        assert_eq!(written.due(&registration(ca), &seen, at + Duration::from_millis(after_ms)), want);
    }
}
