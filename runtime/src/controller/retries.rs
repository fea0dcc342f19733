//! When an object that could not be reconciled is tried again, and which wake-ups wait for that.
//!
//! kube's scheduler lets every wake-up overtake a delayed retry. An object whose write is refused would so be tried at each
//! report of an agent, however long the delay has grown.

use std::collections::HashMap;
use std::time::Duration;

use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use rand::Rng as _;
use tokio::time::Instant;

use super::{ReconcileError, Settings};

/// After a failure that may pass by itself wake-ups wait at most so long: they may be the sign that it has passed.
const BRIEFLY: Duration = Duration::from_secs(1);

/// Objects remembered at most; beyond it the oldest failures are forgotten.
const BOUND: usize = 10_000;

/// What a failure belongs to: once any of it is another, wake-ups come through again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Occasion {
    uid: Option<String>,
    /// Count of edits of the spec.
    generation: Option<i64>,
    deleting: bool,
    /// Of [`super::Era`].
    era: u64,
}

impl Occasion {
    fn of<K: Resource>(object: &K, era: u64) -> Self {
        let meta = object.meta();
        Self { uid: meta.uid.clone(), generation: meta.generation, deleting: meta.deletion_timestamp.is_some(), era }
    }
}

#[derive(Debug)]
struct Failed {
    occasion: Occasion,
    /// In a row.
    times: u32,
    at: Instant,
    held_until: Instant,
}

/// A failure, as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    /// Which one in a row.
    pub(super) attempt: u32,
    /// When to try again.
    pub(super) delay: Duration,
}

/// Failures in a row by object.
#[derive(Debug)]
pub(super) struct Retries {
    settings: Settings,
    failed: Mutex<HashMap<String, Failed>>,
}

impl Retries {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, failed: Mutex::default() }
    }

    /// How long an object that is woken now still has to wait, if it has to.
    pub(super) fn held<K: Resource<DynamicType = ()>>(&self, object: &K, era: u64) -> Option<Duration> {
        let mut failed = self.failed.lock();
        let key = key(object);
        let last = failed.get(&key)?;
        if last.occasion != Occasion::of(object, era) {
            failed.remove(&key);
            return None;
        }
        let left = last.held_until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    pub(super) fn failed<K, E>(&self, object: &K, error: &E, era: u64) -> Failure
    where
        K: Resource<DynamicType = ()>,
        E: ReconcileError,
    {
        let (key, now) = (key(object), Instant::now());
        let mut failed = self.failed.lock();
        if failed.len() >= BOUND && !failed.contains_key(&key) {
            let oldest = failed.iter().min_by_key(|(_, failed)| failed.at).map(|(key, _)| key.clone());
            oldest.map(|oldest| failed.remove(&oldest));
        }
        let attempt = failed.get(&key).map_or(0, |failed| failed.times).saturating_add(1);
        let delay = delay(&self.settings, attempt);
        let held = if error.retryable() { delay.min(BRIEFLY) } else { delay };
        let occasion = Occasion::of(object, era);
        failed.insert(key, Failed { occasion, times: attempt, at: now, held_until: now + held });
        Failure { attempt, delay }
    }

    pub(super) fn succeeded<K: Resource<DynamicType = ()>>(&self, object: &K) {
        self.failed.lock().remove(&key(object));
    }
}

fn key<K: Resource<DynamicType = ()>>(object: &K) -> String {
    ObjectRef::from_obj(object).to_string()
}

/// Half to all of a delay that doubles with each failure in a row, so that failures spread out.
fn delay(settings: &Settings, attempt: u32) -> Duration {
    ceiling(settings, attempt).mul_f64(rand::rng().random_range(0.5..=1.0))
}

fn ceiling(settings: &Settings, attempt: u32) -> Duration {
    let doubled = settings.first_retry.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
    doubled.min(settings.last_retry)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use rstest::rstest;

    use super::*;
    use crate::controller::tests::Told;

    #[rstest]
    #[case::first(1, 100)]
    #[case::doubles(3, 400)]
    #[case::is_capped(20, 30_000)]
    #[case::never_overflows(u32::MAX, 30_000)]
    fn delays_grow(#[case] attempt: u32, #[case] milliseconds: u64) {
        assert_eq!(ceiling(&Settings::named("test"), attempt), Duration::from_millis(milliseconds));
    }

    const REFUSED: Told = Told { retryable: false };
    const UNREACHABLE: Told = Told { retryable: true };

    fn object(change: impl FnOnce(&mut ConfigMap)) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("a".to_owned());
        object.metadata.uid = Some("u".to_owned());
        object.metadata.generation = Some(1);
        change(&mut object);
        object
    }

    fn failing(times: u32, error: &Told) -> Retries {
        let retries = Retries::new(Settings::named("test"));
        for attempt in 1..=times {
            assert_eq!(retries.failed(&object(|_| ()), error, 0).attempt, attempt);
        }
        retries
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_holds_wake_ups_for_as_long_as_the_delay() {
        let retries = failing(20, &REFUSED);
        let left = retries.held(&object(|_| ()), 0).expect("held");
        assert!(left >= Duration::from_secs(15), "{left:?}");
        tokio::time::advance(left).await;
        assert_eq!(retries.held(&object(|_| ()), 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_by_itself_holds_them_for_a_second() {
        let retries = failing(20, &UNREACHABLE);
        assert_eq!(retries.held(&object(|_| ()), 0), Some(BRIEFLY));
        let first = failing(1, &UNREACHABLE).held(&object(|_| ()), 0).expect("held");
        assert!(first <= Duration::from_millis(100), "{first:?}");
    }

    #[rstest]
    #[case::another_object_of_that_name(object(|object| object.metadata.uid = Some("v".to_owned())), 0)]
    #[case::an_edit(object(|object| object.metadata.generation = Some(2)), 0)]
    #[case::its_end(object(|object| object.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH.into())), 0)]
    #[case::another_era(object(|_| ()), 1)]
    #[tokio::test(start_paused = true)]
    async fn news_are_not_held(#[case] object: ConfigMap, #[case] era: u64) {
        let retries = failing(20, &REFUSED);
        assert_eq!(retries.held(&object, era), None);
        assert_eq!(retries.failed(&object, &REFUSED, era).attempt, 1, "it starts over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_forgives_failures() {
        let retries = failing(2, &REFUSED);
        retries.succeeded(&object(|_| ()));
        assert_eq!(retries.held(&object(|_| ()), 0), None);
        assert_eq!(retries.failed(&object(|_| ()), &REFUSED, 0).attempt, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn remembers_only_so_many() {
        let retries = Retries::new(Settings::named("test"));
        for n in 0..=BOUND {
            tokio::time::advance(Duration::from_nanos(1)).await;
            let _ = retries.failed(&object(|object| object.metadata.name = Some(format!("a{n}"))), &REFUSED, 0);
        }
        assert_eq!(retries.failed.lock().len(), BOUND);
        assert_eq!(retries.held(&object(|object| object.metadata.name = Some("a0".to_owned())), 0), None);
    }
}
