//! Wake-ups against the growing delay, with a clock that jumps.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;

use super::*;
use crate::keys::keys;

#[derive(Debug, thiserror::Error)]
#[error("as told")]
pub(super) struct Told {
    pub(super) retryable: bool,
}

impl ReconcileError for Told {
    fn label(&self) -> &'static str {
        "told"
    }
    fn retryable(&self) -> bool {
        self.retryable
    }
}

#[derive(Default)]
struct Situation {
    tries: AtomicUsize,
    era: AtomicU64,
}

impl Era for Situation {
    fn era(&self) -> u64 {
        self.era.load(Ordering::Relaxed)
    }
}

fn object() -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some("a".to_owned());
    object.metadata.namespace = Some("games".to_owned());
    object
}

/// A controller whose every reconcile fails, woken ten times a second for a minute.
struct Busy {
    situation: Arc<Situation>,
    wake: KeySender<ObjectRef<ConfigMap>>,
}

impl Busy {
    fn start(retryable: bool) -> Self {
        let (wake, stream) = keys();
        let situation = Arc::<Situation>::default();
        let reconcile = move |_, situation: Arc<Situation>| async move {
            situation.tries.fetch_add(1, Ordering::Relaxed);
            Err::<Action, _>(Told { retryable })
        };
        let (queue, context) = ((wake.clone(), stream), Arc::clone(&situation));
        let (feed, observer): (_, Observer) = (Feed::of(vec![object()]), Arc::new(|_, _, _| ()));
        let settings = Settings::named("test");
        tokio::spawn(run(settings, feed, queue, context, reconcile, observer, CancellationToken::new()));
        Self { situation, wake }
    }

    async fn woken_for(&self, time: Duration) -> usize {
        let before = self.situation.tries.load(Ordering::Relaxed);
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            self.wake.send(ObjectRef::from_obj(&object()));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.situation.tries.load(Ordering::Relaxed) - before
    }
}

/// Doubling from 50 to 100 ms on to 15 to 30 s, a minute has room for 9 to 12 tries, and six hundred wake-ups for no more.
#[rstest]
#[case::refused(false, 8..=13)]
#[case::may_pass_by_itself(true, 55..=75)]
#[tokio::test(start_paused = true)]
async fn the_growing_delay_holds_against_wake_ups(
    #[case] retryable: bool,
    #[case] expected: std::ops::RangeInclusive<usize>,
) {
    let tries = Busy::start(retryable).woken_for(Duration::from_mins(1)).await;
    assert!(expected.contains(&tries), "{tries} tries");
}

#[tokio::test(start_paused = true)]
async fn another_era_lets_a_wake_up_through() {
    let busy = Busy::start(false);
    busy.woken_for(Duration::from_mins(1)).await;
    busy.situation.era.store(1, Ordering::Relaxed);
    let tries = busy.woken_for(Duration::from_millis(200)).await;
    assert!(tries >= 1, "nobody looked");
}
