use http_body_util::BodyExt as _;
use kube::client::Body as ClientBody;
use rstest::rstest;
use serde_json::{Value, json};
use spawnery_core::placement::Newcomer;
use spawnery_runtime::clock::Clock;
use spawnery_runtime::readiness::Readiness;
use tower::ServiceExt as _;

use super::*;
use crate::testing::{node, people, plain, pod_json, server};

/// Nodes: full of people, a few people, nobody, and one that departs.
fn index() -> Index {
    let mut index = Index::new(vec![], Some(40));
    for name in ["busy", "calm", "empty"] {
        index.node_applied(&plain(name));
    }
    index.node_applied(&node("going", &json!({ "unschedulable": true }), &json!({})));
    for (pod, at, players) in [("a", "busy", 18), ("b", "busy", 9), ("c", "calm", 3)] {
        index.server_applied(&people(pod, players, 20));
        index.pod_applied(&server(pod, at));
    }
    index
}

fn nodes() -> Vec<NodeName<'static>> {
    serde_json::from_str(r#"["busy","going","new","calm","empty"]"#).unwrap()
}

fn known(role: &str) -> Basis {
    let pod = serde_json::from_value(pod_json("new", role, "gateway", "")).unwrap();
    Basis::Known(Asked::of(&pod).unwrap())
}

fn sifted(basis: &Basis) -> Value {
    serde_json::from_slice(&sift(&index(), basis.asked(), &nodes()).to_json(0).unwrap()).unwrap()
}

#[test]
fn a_server_goes_where_it_may() {
    let want = json!({
        "NodeNames": ["new", "calm", "empty"],
        "FailedAndUnresolvableNodes": {
            "busy": Refusal::OverBudget.message(),
            "going": Refusal::Departing.message(),
        },
    });
    assert_eq!(sifted(&known("server")), want);
}

#[test]
fn a_proxy_keeps_off_departing_nodes() {
    let sifted = sifted(&known("proxy"));
    assert_eq!(sifted["NodeNames"], json!(["busy", "new", "calm", "empty"]));
    assert_eq!(sifted["FailedAndUnresolvableNodes"], json!({ "going": Refusal::Departing.message() }));
}

#[rstest]
#[case::not_our_pod(Basis::Foreign)]
#[case::old_knowledge(Basis::Stale)]
fn what_we_do_not_know_is_left_to_the_scheduler(#[case] basis: Basis) {
    assert_eq!(sifted(&basis), json!({ "NodeNames": ["busy", "going", "new", "calm", "empty"] }));
    assert!(prioritize(&index(), &basis, &nodes()).iter().all(|scored| scored.score == 0));
}

#[test]
fn servers_are_drawn_to_people() {
    let nodes = nodes();
    let answer = prioritize(&index(), &known("server"), &nodes);
    let scores: Vec<(&str, u32)> = answer.iter().map(|line| (line.host.as_str(), line.score)).collect();
    assert_eq!(scores, [("busy", 10), ("going", 0), ("new", 0), ("calm", 3), ("empty", 0)]);
}

#[test]
fn a_pod_says_what_it_is() {
    assert!(matches!(known("server"), Basis::Known(asked) if asked.newcomer == Newcomer::Server { slots: 20 }));
    assert!(matches!(known("proxy"), Basis::Known(asked) if asked.newcomer == Newcomer::Proxy));
}

/// An extender whose watches have never heard anything.
fn deaf() -> Router {
    let silent = tower::service_fn(|_: http::Request<ClientBody>| {
        std::future::pending::<Result<http::Response<ClientBody>, std::io::Error>>()
    });
    let client = kube::Client::new(silent, "default");
    let args = clap::Parser::parse_from(["extender"]);
    let mut registry = prometheus_client::registry::Registry::default();
    let (app, _tasks) = App::new(&client, &args, &Readiness::new(), &mut registry, Clock::system());
    router(app)
}

async fn post(path: &str, body: impl Into<Body>) -> (u16, String) {
    let request = http::Request::post(path).body(body.into()).unwrap();
    let response = deaf().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn args(nodes: &Value) -> String {
    json!({ "Pod": pod_json("new", "server", "lobby", ""), "Nodes": null, "NodeNames": nodes }).to_string()
}

#[tokio::test]
async fn before_anything_is_known_everything_passes() {
    let body = args(&json!(["a", "b"]));
    assert_eq!(post("/filter", body.clone()).await, (200, r#"{"NodeNames":["a","b"]}"#.to_owned()));
    let want = r#"[{"Host":"a","Score":0},{"Host":"b","Score":0}]"#;
    assert_eq!(post("/prioritize", body).await, (200, want.to_owned()));
}

#[tokio::test]
async fn no_candidates_is_an_empty_list_and_never_null() {
    assert_eq!(post("/filter", args(&json!([]))).await, (200, r#"{"NodeNames":[]}"#.to_owned()));
    assert_eq!(post("/filter", args(&Value::Null)).await, (200, r#"{"NodeNames":[]}"#.to_owned()));
    assert_eq!(post("/prioritize", args(&Value::Null)).await, (200, "[]".to_owned()));
}

#[tokio::test]
async fn a_scheduler_that_sends_whole_nodes_is_told_what_to_set() {
    let body = json!({ "Pod": pod_json("new", "server", "lobby", ""), "Nodes": { "items": [] } }).to_string();
    let (status, answer) = post("/filter", body.clone()).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(status, 200);
    assert!(answer["Error"].as_str().unwrap().contains("nodeCacheCapable: true"), "{answer}");
    assert_eq!(post("/prioritize", body).await.0, 400);
}

#[tokio::test]
async fn what_is_no_call_is_refused() {
    assert_eq!(post("/filter", "{").await.0, 400);
    assert_eq!(post("/filter", vec![b' '; MAX_BODY_BYTES + 1]).await.0, 413);
    assert_eq!(post("/bind", "{}").await.0, 404);
}
