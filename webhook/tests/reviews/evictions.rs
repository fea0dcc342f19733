//! Evictions, as recorded from real clients, through the router.

use std::time::Duration;

use crate::world::{TOKEN, World, eventually, evictions, network, pod, recorded};
use rstest::rstest;
use serde_json::{Value, json};
use spawnery_api::names::{annotation, label};
use spawnery_core::eviction::{CAUSE, DESCHEDULER_PHRASE, Why};
use tokio::time::Instant;

const OCCUPIED: (&str, &str) = (label::OCCUPIED, "true");
const SEALED: (&str, &str) = (label::SEALED, "true");

fn recording(name: &str) -> Value {
    let text = match name {
        "v1" => include_str!("data/eviction-v1.json"),
        "v1beta1" => include_str!("data/eviction-v1beta1.json"),
        _ => include_str!("data/eviction-bare.json"),
    };
    serde_json::from_str(text).unwrap()
}

/// The recorded eviction, of another pod.
fn of(pod: &str) -> Value {
    let mut review = recording("v1");
    review["request"]["name"] = json!(pod);
    review["request"]["object"]["metadata"]["name"] = json!(pod);
    review
}

fn with_options(pod: &str, options: &Value) -> Value {
    let mut review = of(pod);
    review["request"]["object"]["deleteOptions"] = options.clone();
    review
}

fn by_descheduler(pod: &str) -> Value {
    let mut review = of(pod);
    review["request"]["object"]["metadata"]["annotations"] =
        json!({ "requested-by": "sigs.k8s.io/descheduler", "reason": "low node utilization" });
    review
}

fn objects() -> Vec<Value> {
    let mut ended = pod("ended", &[OCCUPIED]);
    ended["status"]["phase"] = json!("Failed");
    let mut ending = pod("ending", &[OCCUPIED]);
    ending["metadata"]["deletionTimestamp"] = json!("2026-11-29T12:00:00Z");
    vec![
        network(),
        pod("lobby-abcd", &[OCCUPIED]),
        pod("empty", &[]),
        pod("sealed", &[SEALED]),
        pod("deadline", &[OCCUPIED, SEALED]),
        ended,
        ending,
    ]
}

fn assert_refused(response: &Value, why: Why) {
    assert_eq!(response["allowed"], false, "{response}");
    let status = &response["status"];
    assert_eq!((status["code"].as_u64(), status["reason"].as_str()), (Some(429), Some("TooManyRequests")));
    assert_eq!(status["message"], why.message());
    assert_eq!(status["details"]["causes"].as_array().unwrap().len(), 1);
    assert_eq!(status["details"]["causes"][0]["reason"], CAUSE);
    assert_eq!(status["details"].get("retryAfterSeconds"), None, "client-go would repeat the call by itself");
}

#[rstest]
#[case::policy_v1(recording("v1"))]
#[case::policy_v1beta1(recording("v1beta1"))]
#[case::object_without_a_name(recording("bare"))]
#[case::object_missing({ let mut review = recording("v1"); review["request"]["object"] = Value::Null; review })]
#[case::object_of_another_type({ let mut review = recording("v1"); review["request"]["object"] = json!("x"); review })]
#[case::options_of_another_type(with_options("lobby-abcd", &json!([1])))]
#[case::uid_of_this_pod(with_options("lobby-abcd", &json!({"preconditions": {"uid": "uid-lobby-abcd"}})))]
#[tokio::test(start_paused = true)]
async fn an_occupied_pod_is_refused_and_recorded(#[case] review: Value) {
    let world = World::with(objects()).await;
    let response = world.evict(&review).await;
    assert_refused(&response, Why::Occupied);
    assert_eq!(response["auditAnnotations"]["decision"], "occupied");
    eventually("the request is recorded", || !world.patches().is_empty()).await;
    let (path, patch) = world.patches().remove(0);
    assert_eq!(path, "/api/v1/namespaces/games/pods/lobby-abcd/status");
    assert_eq!(patch["metadata"]["uid"], "uid-lobby-abcd", "no other pod of that name is written to");
    let record: Value =
        serde_json::from_str(patch["metadata"]["annotations"][annotation::EVICTION_REQUESTED].as_str().unwrap())
            .unwrap();
    assert_eq!(record["requester"], review["request"]["userInfo"]["username"]);
    assert!(record["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
}

#[rstest]
#[case::sealed(of("sealed"), "sealed")]
#[case::sealed_though_occupied(of("deadline"), "sealed")]
#[case::missing(of("nobody"), "unknown")]
#[case::ended(of("ended"), "terminal")]
#[case::ending(of("ending"), "terminating")]
#[case::uid_of_another_pod(with_options("lobby-abcd", &json!({"preconditions": {"uid": "gone"}})), "other-pod")]
#[case::dry_run_of_a_sealed_pod(with_options("sealed", &json!({"dryRun": ["All"]})), "sealed")]
#[case::another_namespace({ let mut review = of("empty"); review["request"]["namespace"] = json!("else"); review }, "unknown")]
#[tokio::test(start_paused = true)]
async fn these_pass_and_leave_nothing_behind(#[case] review: Value, #[case] decision: &str) {
    let world = World::with(objects()).await;
    let response = world.evict(&review).await;
    assert_eq!(
        (response["allowed"].as_bool(), response["auditAnnotations"]["decision"].as_str()),
        (Some(true), Some(decision))
    );
    settle().await;
    assert_eq!(world.patches(), []);
}

#[rstest]
#[case::in_the_body(|pod: &str| with_options(pod, &json!({"dryRun": ["All"]})))]
#[case::in_the_query(|pod: &str| { let mut review = of(pod); review["request"]["dryRun"] = json!(true); review })]
#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing(#[case] dry: fn(&str) -> Value) {
    let world = World::with(objects()).await;
    let begin = Instant::now();
    assert_refused(&world.evict(&dry("lobby-abcd")).await, Why::Occupied);
    let empty = world.evict(&dry("empty")).await;
    assert_eq!(empty["allowed"], true);
    assert!(empty["warnings"][0].as_str().unwrap().contains("door"), "{empty}");
    assert_eq!(begin.elapsed(), Duration::ZERO, "nobody waits for a dry run");
    settle().await;
    assert_eq!(world.patches(), []);
}

#[tokio::test(start_paused = true)]
async fn the_descheduler_reads_its_phrase() {
    let world = World::with(objects()).await;
    let response = world.evict(&by_descheduler("lobby-abcd")).await;
    assert!(response["status"]["message"].as_str().unwrap().contains(DESCHEDULER_PHRASE));
    let other = world.evict(&of("lobby-abcd")).await;
    assert!(!other["status"]["message"].as_str().unwrap().contains(DESCHEDULER_PHRASE));
}

#[rstest]
#[case::long_timeout("timeout=10s", 1_500)]
#[case::the_usual_one("timeout=3s", 1_500)]
#[case::short("timeout=1s", 500)]
#[case::no_time_to_hold("timeout=400ms", 0)]
#[tokio::test(start_paused = true)]
async fn an_empty_pod_is_held_but_never_too_long(#[case] query: &str, #[case] want_ms: u64) {
    let world = World::with(objects()).await;
    let begin = Instant::now();
    let response = world.review(&evictions(query), &of("empty")).await;
    assert_refused(&response, Why::Open);
    let held = begin.elapsed();
    assert!(held >= Duration::from_millis(want_ms) && held < Duration::from_millis(want_ms + 10), "held {held:?}");
    eventually("the request is recorded", || world.patches().len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_seal_ends_the_hold() {
    let world = World::with(objects()).await;
    let begin = Instant::now();
    let sealed = async {
        tokio::time::sleep(Duration::from_millis(40)).await;
        // A change of another pod wakes nobody, one that is not the seal changes nothing.
        world.apply(&pod("lobby-abcd", &[OCCUPIED, SEALED]));
        world.apply(&recorded(pod("empty", &[]), "2026-11-29T12:00:00Z"));
        tokio::time::sleep(Duration::from_millis(40)).await;
        world.apply(&pod("empty", &[SEALED]));
    };
    let review = of("empty");
    let (response, ()) = tokio::join!(world.evict(&review), sealed);
    assert_eq!(
        (response["allowed"].as_bool(), response["auditAnnotations"]["decision"].as_str()),
        (Some(true), Some("sealed"))
    );
    let held = begin.elapsed();
    assert!((Duration::from_millis(80)..Duration::from_millis(120)).contains(&held), "held {held:?}");
}

#[tokio::test(start_paused = true)]
async fn somebody_who_got_in_ends_the_hold_too() {
    let world = World::with(objects()).await;
    let joined = async {
        tokio::time::sleep(Duration::from_millis(40)).await;
        world.apply(&pod("empty", &[OCCUPIED]));
    };
    let review = of("empty");
    let (response, ()) = tokio::join!(world.evict(&review), joined);
    assert_refused(&response, Why::Occupied);
}

#[tokio::test(start_paused = true)]
async fn requests_are_recorded_at_once_and_then_once_a_minute() {
    let world = World::with(objects()).await;
    let review = of("lobby-abcd");
    let begin = Instant::now();
    let mut written = Vec::new();
    // As kubectl drain asks: every 5 s, for two minutes and a bit.
    while begin.elapsed() < Duration::from_secs(130) {
        assert_refused(&world.evict(&review).await, Why::Occupied);
        settle().await;
        while written.len() < world.patches().len() {
            written.push(begin.elapsed().as_secs());
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(written, [0, 60, 120]);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_replica_counts() {
    let world = World::with(objects()).await;
    let now = spawnery_runtime::clock::Clock::system().wall().to_string();
    world.apply(&recorded(pod("lobby-abcd", &[OCCUPIED]), &now));
    settle().await;
    assert_refused(&world.evict(&of("lobby-abcd")).await, Why::Occupied);
    settle().await;
    assert_eq!(world.patches(), []);
}

#[tokio::test(start_paused = true)]
async fn a_request_after_the_leader_cleared_the_record_is_written_at_once() {
    let world = World::with(objects()).await;
    let review = of("lobby-abcd");
    world.evict(&review).await;
    settle().await;
    let now = spawnery_runtime::clock::Clock::system().wall().to_string();
    world.apply(&recorded(pod("lobby-abcd", &[OCCUPIED]), &now));
    settle().await;
    world.apply(&pod("lobby-abcd", &[OCCUPIED]));
    settle().await;
    world.evict(&review).await;
    settle().await;
    assert_eq!(world.patches().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_old_cache_refuses_what_it_does_not_know() {
    let world = World::with(objects()).await;
    world.go_down();
    assert_eq!(world.evict(&of("new")).await["allowed"], true, "still fresh");
    tokio::time::sleep(Duration::from_secs(91)).await;
    assert_refused(&world.evict(&of("new")).await, Why::Unsure);
    assert_refused(&world.evict(&of("lobby-abcd")).await, Why::Occupied);
    assert_eq!(world.evict(&of("sealed")).await["allowed"], true, "a seal is final");
    let mut elsewhere = of("new");
    elsewhere["request"]["namespace"] = json!("kube-system");
    assert_eq!(world.evict(&elsewhere).await["allowed"], true, "no Network there");
}

/// Anybody in the cluster can post a review; only the API server is told where to.
#[rstest]
#[case::no_token("/evictions?timeout=3s".to_owned())]
#[case::empty("/evictions/?timeout=3s".to_owned())]
#[case::another(format!("/evictions/{}?timeout=3s", "0".repeat(64)))]
#[case::a_part_of_it(format!("/evictions/{}?timeout=3s", &TOKEN[1..]))]
#[case::more_than_it(format!("/evictions/{TOKEN}0?timeout=3s"))]
#[case::below_it(format!("/evictions/{TOKEN}/x?timeout=3s"))]
#[case::no_text("/evictions/%ff?timeout=3s".to_owned())]
#[tokio::test(start_paused = true)]
async fn a_review_of_a_stranger_is_not_answered_and_leaves_nothing_behind(#[case] path: String) {
    let world = World::with(objects()).await;
    let (code, body) = world.post(&path, Some("application/json"), of("lobby-abcd").to_string()).await;
    assert_eq!((code, &*body), (404, &b""[..]));
    settle().await;
    assert_eq!(world.patches(), []);
    assert_eq!(world.counted("unknown_paths_total"), 1);
    world.evict(&of("lobby-abcd")).await;
    eventually("the same review on the right path is recorded", || world.patches().len() == 1).await;
    assert_eq!(world.counted("unknown_paths_total"), 1);
}

/// Lets everything that is ready run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}
