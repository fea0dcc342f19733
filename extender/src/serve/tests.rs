use http_body_util::BodyExt as _;
use kube::client::Body as ClientBody;
use serde_json::{Value, json};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::readiness::Readiness;
use tower::ServiceExt as _;

use super::*;
use crate::testing::pod_json;

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
