//! Answers evictions.
//!
//! ```text
//! review ─► facts of the request ─┐                       ┌─► allow
//! pod cache ─► facts of the pod ──┼─► core::eviction::judge ┼─► 429 at once, recorded beside it
//! age of the cache ───────────────┘                       └─► empty but open: wait for the seal, then judge again
//! ```
//! The verdict is read from the watch cache alone. The validating hook runs before the pod is loaded and holds no lock, so
//! the leader can seal the pod while its eviction waits here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use spawnery_api::names::annotation;
use spawnery_api::view::PodView;
use spawnery_core::eviction::request::EvictionRequest;
use spawnery_core::eviction::{CAUSE, CAUSE_MESSAGE, CacheFacts, Denial, PodFacts, RequestFacts, Verdict, Why, judge};

use crate::App;
use crate::record::Record;
use crate::review::{Answer, Cause, Refusal, Request};

/// The annotation by which the descheduler names itself on the Evictions it posts.
const REQUESTED_BY: &str = "requested-by";
const DESCHEDULER: &str = "descheduler";
/// A record from further in the future than this was not written by a clock that means anything.
const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// What the body says, beside the names, which come from the URL: clients leave them out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Body {
    uid: Option<String>,
    dry_run: bool,
    descheduler: bool,
}

impl Body {
    fn read(request: &Request<'_>) -> Self {
        let eviction: Value =
            request.object.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(Value::Null);
        let text = |pointer: &str| eviction.pointer(pointer).and_then(Value::as_str);
        Self {
            uid: text("/deleteOptions/preconditions/uid").map(str::to_owned),
            dry_run: eviction
                .pointer("/deleteOptions/dryRun")
                .and_then(Value::as_array)
                .is_some_and(|values| !values.is_empty()),
            descheduler: text(&format!("/metadata/annotations/{REQUESTED_BY}"))
                .is_some_and(|name| name.contains(DESCHEDULER)),
        }
    }
}

/// Answers one eviction; `gives_up` is when the API server stops waiting for us.
pub(crate) async fn evict(app: &App, request: &Request<'_>, gives_up: Instant) -> Answer {
    let body = Body::read(request);
    let (verdict, pod) = verdict(app, request, &body, gives_up);
    let Verdict::Deny(denial) = verdict else {
        return answer(verdict);
    };
    if let (true, Some(pod)) = (denial.record, &pod) {
        tracing::info!(
            namespace = request.namespace,
            name = request.name,
            uid = pod.uid(),
            user = request.username,
            verdict = verdict.label(),
            "refused an eviction"
        );
        record(app, request, pod);
    }
    match (denial.hold, pod) {
        (Some(hold), Some(pod)) => answer(held(app, request, &body, &pod, hold, gives_up).await.unwrap_or(verdict)),
        _ => answer(verdict),
    }
}

fn verdict(app: &App, request: &Request<'_>, body: &Body, gives_up: Instant) -> (Verdict, Option<Arc<PodView>>) {
    let now = app.clock.now();
    let pod = app.stores.pods.get(&request.namespace, &request.name);
    let facts = pod.as_ref().map(|pod| pod_facts(pod, app.clock.wall()));
    let request_facts = RequestFacts {
        uid: body.uid.clone(),
        dry_run: request.dry_run || body.dry_run,
        descheduler: body.descheduler,
        queued: pod.as_ref().and_then(|pod| app.recorder.queued(pod.uid(), now)),
        patience: gives_up.saturating_duration_since(now),
    };
    let cache = CacheFacts {
        fresh: app.stores.fresh(now),
        managed_namespace: facts.is_some() || app.stores.is_managed(&request.namespace),
    };
    (judge(facts.as_ref(), &request_facts, cache), pod)
}

fn pod_facts(pod: &PodView, now: Timestamp) -> PodFacts {
    PodFacts {
        managed: pod.is_managed(),
        uid: pod.uid().to_owned(),
        terminal: pod.is_terminal(),
        terminating: pod.is_terminating(),
        sealed: pod.is_sealed(),
        occupied: pod.is_occupied(),
        recorded: pod.annotation(annotation::EVICTION_REQUESTED).and_then(|text| age(text, now)),
    }
}

fn age(text: &str, now: Timestamp) -> Option<Duration> {
    let at = EvictionRequest::from_annotation(text).ok()?.at;
    match Duration::try_from(now.duration_since(at)) {
        Ok(age) => Some(age),
        Err(_) if at.duration_since(now).unsigned_abs() <= CLOCK_SKEW => Some(Duration::ZERO),
        Err(_) => None,
    }
}

fn record(app: &App, request: &Request<'_>, pod: &PodView) {
    let record = Record {
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        uid: pod.uid().to_owned(),
        request: EvictionRequest::new(app.clock.wall(), &request.username),
    };
    app.recorder.record(record, app.clock.now());
}

/// Waits until the verdict is another one, at most `hold`. `None` if it stayed what it was.
async fn held(
    app: &App,
    request: &Request<'_>,
    body: &Body,
    pod: &PodView,
    hold: Duration,
    gives_up: Instant,
) -> Option<Verdict> {
    let Ok(_place) = app.holds.try_acquire() else {
        app.metrics.held("no-room", Duration::ZERO);
        return None;
    };
    let since = app.clock.now();
    let ends = tokio::time::Instant::from_std(since + hold);
    let ticket = app.waiters.join(pod.uid());
    loop {
        let mut changed = std::pin::pin!(ticket.changed());
        changed.as_mut().enable();
        match verdict(app, request, body, gives_up).0 {
            Verdict::Deny(Denial { why: Why::Open, .. }) => {}
            verdict => {
                let outcome = if matches!(verdict, Verdict::Allow(_)) { "released" } else { "occupied" };
                app.metrics.held(outcome, app.clock.now().saturating_duration_since(since));
                return Some(verdict);
            }
        }
        if tokio::time::timeout_at(ends, changed).await.is_err() {
            app.metrics.held("expired", app.clock.now().saturating_duration_since(since));
            return None;
        }
    }
}

fn answer(verdict: Verdict) -> Answer {
    match verdict {
        Verdict::Allow(allow) => {
            let warnings = allow.warning().map(str::to_owned).into_iter().collect();
            Answer { warnings, ..Answer::allow(allow.label()) }
        }
        Verdict::Deny(denial) => {
            let causes = vec![Cause { reason: CAUSE, message: CAUSE_MESSAGE.to_owned(), field: String::new() }];
            let refusal = Refusal { code: 429, reason: "TooManyRequests", message: denial.message(), causes };
            Answer { refusal: Some(refusal), ..Answer::allow(verdict.label()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[rstest]
    #[case::a_minute_ago("2026-11-29T11:59:00Z", Some(Duration::from_mins(1)))]
    #[case::now("2026-11-29T12:00:00Z", Some(Duration::ZERO))]
    #[case::a_clock_a_little_ahead("2026-11-29T12:00:30Z", Some(Duration::ZERO))]
    #[case::a_clock_far_ahead("2026-11-29T13:00:00Z", None)]
    fn reads_the_age_of_a_record(#[case] time: &str, #[case] want: Option<Duration>) {
        let text = EvictionRequest::new(at(time), "me").to_annotation();
        assert_eq!(age(&text, at("2026-11-29T12:00:00Z")), want);
    }

    #[test]
    fn a_record_that_cannot_be_read_has_no_age() {
        assert_eq!(age("yesterday", at("2026-11-29T12:00:00Z")), None);
    }
}
