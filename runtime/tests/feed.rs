//! Feeds against a scripted API server: what is listed and watched, deletes, relists, silence.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::feed::Feed;
use spawnery_runtime::keys::{KeyStream, keys};

/// What the server answers to one request, in order.
#[derive(Debug, Clone)]
enum Answer {
    List(&'static [&'static str], u64),
    /// Lines of a watch; then the stream stays open and silent, or ends.
    Watch(Vec<Value>, After),
    Status(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Ends,
    Silent,
    /// A bookmark every minute.
    Lives,
}

fn object(name: &str, version: u64) -> Value {
    let metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string()});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

fn event(kind: &str, name: &str, version: u64) -> Value {
    json!({"type": kind, "object": object(name, version)})
}

fn bookmark(version: u64) -> Value {
    let metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
    json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}})
}

fn gone() -> Value {
    json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}})
}

type Requests = Arc<Mutex<Vec<String>>>;

fn server(script: Vec<Answer>) -> (Client, Requests) {
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    let service = tower::service_fn(move |request: Request<Body>| {
        seen.lock().push(request.uri().query().unwrap_or_default().to_owned());
        let answer = script.lock().pop_front();
        async move {
            // So that what one answer wakes is read before the next is there.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (code, body) = match answer {
                // The script is over: nothing more is heard.
                None => std::future::pending().await,
                Some(Answer::List(names, version)) => {
                    let items: Vec<Value> = names.iter().map(|name| object(name, version)).collect();
                    let metadata = json!({"resourceVersion": version.to_string()});
                    let list =
                        json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items});
                    (200, body(list.to_string(), After::Ends))
                }
                Some(Answer::Status(code)) => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
                    (code, body(status.to_string(), After::Ends))
                }
                Some(Answer::Watch(lines, after)) => {
                    (200, body(lines.iter().fold(String::new(), |text, line| text + &line.to_string() + "\n"), after))
                }
            };
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Response::builder().status(code).body(body)?)
        }
    });
    (Client::new(service, "default"), requests)
}

fn body(text: String, after: After) -> UnsyncBoxBody<Bytes, Infallible> {
    let first = futures::stream::iter([Ok(Frame::data(text.into()))]);
    match after {
        After::Ends => StreamBody::new(first).boxed_unsync(),
        After::Silent => StreamBody::new(first.chain(futures::stream::pending())).boxed_unsync(),
        After::Lives => {
            let every_minute = futures::stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_mins(1)).await;
                Some((Ok(Frame::data(format!("{}\n", bookmark(2)).into())), ()))
            });
            StreamBody::new(first.chain(every_minute)).boxed_unsync()
        }
    }
}

struct Fixture {
    feed: Feed<ConfigMap>,
    woken: KeyStream<ObjectRef<ConfigMap>>,
    requests: Requests,
}

fn follow(script: Vec<Answer>) -> Fixture {
    let (client, requests) = server(script);
    let (wake, woken) = keys();
    let (feed, task) = Feed::<ConfigMap>::builder("configmaps", Api::all(client))
        .labels("app=x")
        .wake(&wake, |object| [ObjectRef::from_obj(object)])
        .build(Clock::system());
    tokio::spawn(task.run());
    Fixture { feed, woken, requests }
}

impl Fixture {
    async fn woken(&mut self, count: usize) -> Vec<String> {
        let names = (&mut self.woken).take(count).map(|key| key.name).collect::<Vec<_>>();
        let mut names = tokio::time::timeout(Duration::from_mins(10), names).await.expect("in time");
        names.sort();
        names
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.feed.all().iter().filter_map(|object| object.metadata.name.clone()).collect();
        names.sort();
        names
    }
}

#[tokio::test(start_paused = true)]
async fn deletes_wake_as_changes_do() {
    let mut fixture = follow(vec![
        Answer::List(&["a", "b"], 1),
        Answer::Watch(vec![event("DELETED", "a", 2), event("ADDED", "c", 3), event("MODIFIED", "b", 4)], After::Silent),
    ]);
    assert_eq!(fixture.woken(2).await, ["a", "b"]);
    assert_eq!(fixture.woken(3).await, ["a", "b", "c"]);
    assert_eq!(fixture.names(), ["b", "c"]);
    assert!(fixture.requests.lock().iter().all(|query| query.contains("labelSelector=app%3Dx")));
}

#[tokio::test(start_paused = true)]
async fn a_relist_wakes_what_went_meanwhile() {
    let mut fixture =
        follow(vec![Answer::List(&["a", "b"], 1), Answer::Watch(vec![gone()], After::Ends), Answer::List(&["b"], 9)]);
    assert_eq!(fixture.woken(2).await, ["a", "b"]);
    assert_eq!(fixture.woken(2).await, ["a", "b"]);
    assert_eq!(fixture.names(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_ended_watch_goes_on_from_the_last_version_seen() {
    let mut fixture = follow(vec![
        Answer::List(&["a"], 1),
        Answer::Watch(vec![bookmark(5)], After::Ends),
        Answer::Status(500),
        Answer::Watch(vec![event("ADDED", "b", 6)], After::Silent),
    ]);
    assert_eq!(fixture.woken(2).await, ["a", "b"]);
    let requests = fixture.requests.lock().clone();
    assert!(requests.iter().skip(2).all(|query| query.contains("resourceVersion=5")), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_keep_a_quiet_feed_fresh() {
    let limit = Duration::from_secs(90);
    let fixture = follow(vec![Answer::List(&["a"], 1), Answer::Watch(vec![], After::Lives)]);
    assert!(!fixture.feed.fresh(Clock::system().now(), limit), "nothing is known yet");
    fixture.feed.wait_synced().await;
    for _ in 0..240 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(fixture.feed.fresh(Clock::system().now(), limit));
    }
    assert_eq!(fixture.requests.lock().len(), 2, "no list beside the first");
}

#[tokio::test(start_paused = true)]
async fn silence_ages_a_feed() {
    let limit = Duration::from_secs(90);
    let fixture = follow(vec![Answer::List(&["a"], 1), Answer::Watch(vec![bookmark(2)], After::Silent)]);
    fixture.feed.wait_synced().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!fixture.feed.fresh(Clock::system().now(), limit), "the relist is not answered either");
    assert_eq!(fixture.names(), ["a"], "an aged store still answers");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_replaced_by_a_list_before_the_store_is_distrusted() {
    let fixture = follow(vec![
        Answer::List(&["a"], 1),
        Answer::Watch(vec![], After::Silent),
        Answer::List(&["a", "b"], 7),
        Answer::Watch(vec![], After::Silent),
    ]);
    fixture.feed.wait_synced().await;
    let step = Duration::from_secs(1);
    for _ in 0..140 {
        tokio::time::sleep(step).await;
        assert!(fixture.feed.fresh(Clock::system().now(), Duration::from_secs(90)));
    }
    assert_eq!(fixture.names(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_does_not_stop_the_others() {
    let mut broken = event("ADDED", "broken", 2);
    broken["object"]["data"] = json!("not a map");
    let (client, _) =
        server(vec![Answer::List(&["a"], 1), Answer::Watch(vec![broken, event("ADDED", "b", 3)], After::Silent)]);
    let (wake, mut woken) = keys();
    let (_feed, task) = Feed::<ConfigMap>::guarded("configmaps", Api::all(client))
        .wake(&wake, |object| [ObjectRef::from_obj(object)])
        .build(Clock::system());
    tokio::spawn(task.run());
    let names: Vec<_> = (&mut woken).take(2).map(|key| key.name).collect().await;
    assert_eq!(names, ["a", "b"]);
}
