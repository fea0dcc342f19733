//! Events (events.k8s.io/v1) that never hold up and never fail a reconcile.
//!
//! A recorder puts an occurrence into a bounded queue; one task writes it. kube's own recorder leaves the note out of its
//! aggregation key, so that a changed text is lost, and has no budget and no time limit.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::client::{CALL, CallError, deadline};
use crate::clock::Clock;

/// Kubernetes refuses a longer note.
const NOTE_BYTES: usize = 1024;
/// Ends a note that was cut.
const CUT: &str = " ...";
/// Occurrences that wait to be written; more are dropped and counted.
const QUEUE: usize = 1024;
/// Equal occurrences within this time become one event with a count, as client-go has it.
const SERIES: Duration = Duration::from_mins(6);
/// Series remembered at most.
const SERIES_BOUND: usize = 4096;

/// Importance of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Something happened as it should.
    Normal,
    /// Somebody may have to look.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

#[derive(Debug)]
struct Occurrence {
    reporter: &'static str,
    kind: EventType,
    regarding: ObjectReference,
    reason: String,
    action: String,
    note: String,
}

/// How many occurrences were written, merged and lost.
#[derive(Debug, Default)]
pub struct EventCounts {
    /// New events and counts of series that the API server accepted.
    pub written: AtomicU64,
    /// Over the budget of their object or of the process, or found the queue full.
    pub dropped: AtomicU64,
    /// Refused by the API server, or not answered in time.
    pub failed: AtomicU64,
}

/// Makes recorders; cheap to clone.
#[derive(Debug, Clone)]
pub struct Events {
    queue: mpsc::Sender<Occurrence>,
    counts: Arc<EventCounts>,
}

/// Records for one reporting controller; cheap to clone.
#[derive(Debug, Clone)]
pub struct Recorder {
    reporter: &'static str,
    events: Events,
}

impl Events {
    /// The queue's two ends; `instance` names this process (pod name).
    pub fn start(client: Client, instance: String, clock: Clock) -> (Self, EventsTask) {
        let (sender, queue) = mpsc::channel(QUEUE);
        let counts = Arc::new(EventCounts::default());
        let task = EventsTask {
            queue,
            client,
            instance,
            clock,
            counts: Arc::clone(&counts),
            series: HashMap::new(),
            // A reconcile that fails for ever on one object must not fill etcd; a burst over many objects may.
            per_object: RateLimiter::keyed(Quota::per_minute(PER_OBJECT_A_MINUTE).allow_burst(PER_OBJECT_BURST)),
            overall: RateLimiter::direct(Quota::per_second(OVERALL_A_SECOND).allow_burst(OVERALL_BURST)),
        };
        (Self { queue: sender, counts }, task)
    }

    /// A recorder that reports as `reporter`.
    pub fn recorder(&self, reporter: &'static str) -> Recorder {
        Recorder { reporter, events: self.clone() }
    }

    /// For metrics.
    pub fn counts(&self) -> Arc<EventCounts> {
        Arc::clone(&self.counts)
    }
}

const fn at_least_one(n: u32) -> NonZeroU32 {
    match NonZeroU32::new(n) {
        Some(n) => n,
        None => NonZeroU32::MIN,
    }
}

const PER_OBJECT_A_MINUTE: NonZeroU32 = at_least_one(6);
const PER_OBJECT_BURST: NonZeroU32 = at_least_one(25);
const OVERALL_A_SECOND: NonZeroU32 = at_least_one(50);
const OVERALL_BURST: NonZeroU32 = at_least_one(500);

impl Recorder {
    /// Something happened as it should.
    pub fn normal(&self, regarding: &ObjectReference, reason: &str, action: &str, note: impl Into<String>) {
        self.record(EventType::Normal, regarding, reason, action, note.into());
    }

    /// Somebody may have to look.
    pub fn warning(&self, regarding: &ObjectReference, reason: &str, action: &str, note: impl Into<String>) {
        self.record(EventType::Warning, regarding, reason, action, note.into());
    }

    /// Either of the two.
    pub fn record(&self, kind: EventType, regarding: &ObjectReference, reason: &str, action: &str, note: String) {
        let occurrence = Occurrence {
            reporter: self.reporter,
            kind,
            regarding: regarding.clone(),
            reason: reason.to_owned(),
            action: action.to_owned(),
            note: cut(note),
        };
        if self.events.queue.try_send(occurrence).is_err() {
            self.events.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Cuts a note to what Kubernetes accepts, in bytes, on a character's boundary, and marks the cut.
fn cut(mut note: String) -> String {
    if note.len() > NOTE_BYTES {
        note.truncate(note.floor_char_boundary(NOTE_BYTES - CUT.len()));
        note.push_str(CUT);
    }
    note
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    reporter: &'static str,
    kind: EventType,
    object: String,
    reason: String,
    action: String,
    note: String,
}

#[derive(Debug)]
struct Series {
    namespace: String,
    name: String,
    count: i32,
    last: Instant,
}

/// Writes what recorders queue.
pub struct EventsTask {
    queue: mpsc::Receiver<Occurrence>,
    client: Client,
    instance: String,
    clock: Clock,
    counts: Arc<EventCounts>,
    series: HashMap<SeriesKey, Series>,
    per_object: DefaultKeyedRateLimiter<String>,
    overall: DefaultDirectRateLimiter,
}

impl std::fmt::Debug for EventsTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventsTask").field("series", &self.series.len()).finish_non_exhaustive()
    }
}

impl EventsTask {
    /// Writes until every recorder is gone.
    ///
    /// # Errors
    /// None; the type is that of supervised tasks.
    pub async fn run(mut self) -> anyhow::Result<()> {
        while let Some(occurrence) = self.queue.recv().await {
            let (reason, object) = (occurrence.reason.clone(), occurrence.regarding.name.clone());
            let counter = match self.write(occurrence).await {
                Ok(true) => &self.counts.written,
                Ok(false) => &self.counts.dropped,
                Err(error) => {
                    tracing::debug!(
                        reason,
                        object,
                        error = &error as &dyn std::error::Error,
                        "could not write an event"
                    );
                    &self.counts.failed
                }
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// `false` when the budget is spent.
    async fn write(&mut self, occurrence: Occurrence) -> Result<bool, CallError> {
        let now = self.clock.now();
        let object = object_key(&occurrence.regarding);
        if self.per_object.check_key(&object).is_err() || self.overall.check().is_err() {
            return Ok(false);
        }
        self.forget(now);
        let key = SeriesKey {
            reporter: occurrence.reporter,
            kind: occurrence.kind,
            object,
            reason: occurrence.reason.clone(),
            action: occurrence.action.clone(),
            note: occurrence.note.clone(),
        };
        if let Some(series) = self.series.get_mut(&key) {
            series.count = series.count.saturating_add(1);
            series.last = now;
            let again = EventSeries { count: series.count, last_observed_time: MicroTime(self.clock.wall()) };
            let events: Api<Event> = Api::namespaced(self.client.clone(), &series.namespace);
            let patch = Patch::Merge(serde_json::json!({ "series": again }));
            match deadline(CALL, events.patch(&series.name, &PatchParams::default(), &patch)).await {
                Ok(_) => return Ok(true),
                // Events expire; then it is written anew below.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let event = self.event(occurrence);
        let (namespace, name) =
            (event.metadata.namespace.clone().unwrap_or_default(), event.metadata.name.clone().unwrap_or_default());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        deadline(CALL, events.create(&PostParams::default(), &event)).await?;
        self.series.insert(key, Series { namespace, name, count: 1, last: now });
        Ok(true)
    }

    fn event(&self, occurrence: Occurrence) -> Event {
        let time = self.clock.wall();
        let regarding = occurrence.regarding;
        let suffix: u32 = rand::random();
        Event {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{}.{:x}{suffix:08x}",
                    regarding.name.as_deref().unwrap_or("unnamed"),
                    time.as_microsecond()
                )),
                // Events about cluster-wide objects live in `default`.
                namespace: Some(regarding.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(time)),
            reporting_controller: Some(occurrence.reporter.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            action: Some(occurrence.action),
            reason: Some(occurrence.reason),
            regarding: Some(regarding),
            note: Some(occurrence.note),
            type_: Some(occurrence.kind.as_str().to_owned()),
            ..Event::default()
        }
    }

    fn forget(&mut self, now: Instant) {
        if self.series.len() >= SERIES_BOUND {
            self.series.clear();
            self.per_object.retain_recent();
        }
        self.series.retain(|_, series| now.saturating_duration_since(series.last) < SERIES);
    }
}

fn object_key(object: &ObjectReference) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}/{}/{}", part(&object.kind), part(&object.namespace), part(&object.name), part(&object.uid))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Method, Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use parking_lot::Mutex;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::short("short".to_owned(), 5)]
    #[case::exactly_fits("x".repeat(1024), 1024)]
    #[case::too_long("x".repeat(1025), 1024)]
    #[case::never_cuts_a_character_in_two("é".repeat(600), 1024)]
    #[case::odd_boundary(format!("x{}", "é".repeat(600)), 1023)]
    fn cuts_notes(#[case] note: String, #[case] bytes: usize) {
        let cut = cut(note.clone());
        assert_eq!((cut.len(), cut == note || cut.ends_with(CUT)), (bytes, true));
    }

    type Calls = Arc<Mutex<Vec<(Method, serde_json::Value)>>>;

    /// An API server that accepts every event and remembers it.
    fn accepting() -> (Client, Calls) {
        let calls = Calls::default();
        let seen = Arc::clone(&calls);
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                seen.lock().push((parts.method, serde_json::from_slice(&body)?));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Response::new(Body::from(body.to_vec())))
            }
        });
        (Client::new(service, "default"), calls)
    }

    fn pod() -> ObjectReference {
        ObjectReference {
            kind: Some("Pod".into()),
            name: Some("a".into()),
            namespace: Some("ns".into()),
            ..Default::default()
        }
    }

    async fn recorded(record: impl Fn(&Recorder)) -> (Vec<(Method, serde_json::Value)>, Arc<EventCounts>) {
        let (client, calls) = accepting();
        let (events, task) = Events::start(client, "me".into(), Clock::system());
        let counts = events.counts();
        record(&events.recorder("server"));
        drop(events);
        tokio::time::timeout(Duration::from_secs(10), task.run()).await.expect("ends in time").expect("never fails");
        let calls = std::mem::take(&mut *calls.lock());
        (calls, counts)
    }

    #[tokio::test]
    async fn equal_occurrences_become_a_series_and_other_texts_do_not() {
        let (calls, _) = recorded(|recorder| {
            recorder.normal(&pod(), "PodCreated", "CreatePod", "one");
            recorder.normal(&pod(), "PodCreated", "CreatePod", "one");
            recorder.normal(&pod(), "PodCreated", "CreatePod", "two");
        })
        .await;
        let methods: Vec<_> = calls.iter().map(|(method, _)| method.as_str()).collect();
        assert_eq!(methods, ["POST", "PATCH", "POST"]);
        let field = |call: usize, path: &str| calls[call].1.pointer(path).cloned();
        assert_eq!(field(0, "/action"), Some("CreatePod".into()));
        assert_eq!(field(0, "/reportingController"), Some("server".into()));
        assert_eq!(field(1, "/series/count"), Some(2.into()));
        assert_eq!(field(2, "/note"), Some("two".into()));
    }

    #[tokio::test]
    async fn one_object_cannot_spend_everything() {
        let (calls, counts) = recorded(|recorder| {
            (0..100).for_each(|n| recorder.warning(&pod(), "Broken", "Sync", format!("try {n}")));
        })
        .await;
        assert_eq!(calls.len(), 25);
        assert_eq!(counts.dropped.load(Ordering::Relaxed), 75);
    }
}
