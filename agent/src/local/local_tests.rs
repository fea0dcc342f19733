use axum::body::Body as HttpBody;
use axum::http::Request;
use http_body_util::BodyExt as _;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::session::{Incoming, Mark, Outgoing, Tally};

const SERVER: Character =
    Character { role: Role::Server, source: Source::Local, adapter: Adapter::None, door_enforced: false };
const PROXY: Character = Character { role: Role::Proxy, adapter: Adapter::External, ..SERVER };

fn shared(character: Character) -> Arc<Shared> {
    let shared = Arc::new(Shared::new(State::new(character, 1000)));
    shared.with(|state| {
        let hello = state.hello();
        state.begin(&hello);
    });
    shared
}

async fn call(shared: &Arc<Shared>, method: &str, path: &str, body: &str) -> (u16, Value) {
    let router = Local::new(Arc::clone(shared), "lobby-a2", None).router();
    let request = Request::builder().method(method).uri(path).body(HttpBody::from(body.to_owned())).expect("a request");
    let response = router.oneshot(request).await.expect("always an answer");
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn said(shared: &Shared) -> Vec<Outgoing> {
    shared.with(|state| std::iter::from_fn(|| state.next_outgoing()).collect())
}

fn count(players: u32, slots: u32) -> Outgoing {
    Outgoing::Count { tally: Tally::new(players, slots), nonce: 0 }
}

#[tokio::test]
async fn a_count_is_queued_before_its_answer() {
    let shared = shared(SERVER);
    assert_eq!(call(&shared, "PUT", "/v1/count", r#"{"players":3,"slots":20}"#).await.0, 204);
    assert_eq!(said(&shared), [count(3, 20)]);
    assert_eq!(call(&shared, "PUT", "/v1/count", r#"{"players":null}"#).await.0, 204);
    let (_, state) = call(&shared, "GET", "/v1/state", "").await;
    assert_eq!((&state["players"], &state["slots"]), (&Value::Null, &Value::Null));
    assert_eq!((&state["role"], &state["name"]), (&json!("server"), &json!("lobby-a2")));
}

#[tokio::test]
async fn a_late_count_is_answered_and_dropped() {
    let shared = shared(SERVER);
    call(&shared, "PUT", "/v1/count", r#"{"players":1,"slots":20,"serial":18446744073709551615}"#).await;
    let late = call(&shared, "PUT", "/v1/count", r#"{"players":0,"slots":20,"serial":18446744073709551614}"#).await;
    assert_eq!(late.0, 204);
    assert_eq!(said(&shared), [count(1, 20)]);
}

#[rstest]
#[case::negative("/v1/count", r#"{"players":-1,"slots":20}"#, "players", "-1")]
#[case::fraction("/v1/count", r#"{"players":1.5,"slots":20}"#, "players", "1.5")]
#[case::too_many("/v1/count", r#"{"players":2147483648,"slots":20}"#, "players", "2147483648")]
#[case::text("/v1/count", r#"{"players":"3","slots":20}"#, "players", "\"3\"")]
#[case::misspelled("/v1/count", r#"{"player":3,"slots":20}"#, "player", "3")]
#[case::not_an_object("/v1/count", "[3]", "the body", "[3]")]
#[case::servers_on_a_server("/v1/count", r#"{"players":3,"slots":20,"servers":{}}"#, "servers", "{}")]
#[case::ready_text("/v1/ready", r#"{"ready":"yes"}"#, "ready", "\"yes\"")]
#[tokio::test]
async fn refusals_name_field_value_and_what_is_accepted(
    #[case] path: &str,
    #[case] body: &str,
    #[case] field: &str,
    #[case] value: &str,
) {
    let shared = shared(SERVER);
    let (status, answer) = call(&shared, "PUT", path, body).await;
    let error = &answer["error"];
    assert_eq!((status, &error["field"], &error["value"]), (400, &json!(field), &json!(value)), "{answer}");
    assert!(error["accepted"].is_string() && error["message"].as_str().is_some_and(|text| text.contains(field)));
    assert_eq!(said(&shared), []);
}

#[tokio::test]
async fn what_is_missing_or_no_json_is_told() {
    let shared = shared(SERVER);
    let (status, answer) = call(&shared, "PUT", "/v1/count", r#"{"slots":20}"#).await;
    assert_eq!((status, &answer["error"]["field"]), (400, &json!("players")));
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("is missing")), "{answer}");
    let (status, answer) = call(&shared, "PUT", "/v1/count", r#"{"players":2}"#).await;
    assert_eq!((status, &answer["error"]["field"]), (400, &json!("slots")), "no limit is known for the pod");
    assert_eq!(call(&shared, "PUT", "/v1/count", "players=3").await.0, 400);
    assert_eq!(call(&shared, "GET", "/v1/nothing", "").await.0, 404);
    assert_eq!(call(&shared, "GET", "/v1/count", "").await.0, 405);
    let long = format!(r#"{{"players":1,"slots":1,"serial":{}1}}"#, " ".repeat(LARGEST_BODY));
    assert_eq!(call(&shared, "PUT", "/v1/count", &long).await.0, 413);
}

#[rstest]
#[case::count_by_ping(Character { source: Source::Ping, ..SERVER }, "PUT", "/v1/count", r#"{"players":1,"slots":2}"#)]
#[case::count_beside_an_adapter(PROXY, "PUT", "/v1/count", r#"{"players":1,"slots":2}"#)]
#[case::occupancy_of_a_server(SERVER, "PUT", "/v1/occupancy", r#"{"players":1,"slots":2}"#)]
#[case::ready_proxy(PROXY, "PUT", "/v1/ready", r#"{"ready":true}"#)]
#[case::applied_without_adapter(SERVER, "POST", "/v1/applied", r#"{"seq":1,"occupancy":{"players":1,"slots":2}}"#)]
#[tokio::test]
async fn what_is_not_for_this_agent_is_a_conflict(
    #[case] character: Character,
    #[case] method: &str,
    #[case] path: &str,
    #[case] body: &str,
) {
    let shared = shared(character);
    assert_eq!(call(&shared, method, path, body).await.0, 409);
    assert_eq!(said(&shared), []);
}

fn synced(shared: &Shared) -> u64 {
    shared.with(|state| {
        state.hear(&Incoming::FullSync { servers: vec![], mark: Mark { revision: 7, epoch: 1 } });
        state.seq()
    })
}

#[tokio::test]
async fn applied_says_the_count_and_then_the_confirmation() {
    let shared = shared(PROXY);
    let seq = synced(&shared);
    let body = json!({"seq": seq, "occupancy": {"players": 2, "slots": 100,
        "servers": {"a": {"players": 1, "connecting": 1}, "b": {"players": 1}}}});
    assert_eq!(call(&shared, "POST", "/v1/applied", &body.to_string()).await.0, 204);
    let [Outgoing::Count { tally, nonce: 0 }, Outgoing::DirectoryApplied(mark)] = &said(&shared)[..] else {
        panic!("a count and a confirmation");
    };
    assert_eq!(mark.revision, 7);
    assert_eq!(tally.servers().keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(tally.servers()["a"].connecting, 1);
}

#[rstest]
#[case::no_occupancy(json!({"seq": 1001}), 400, "occupancy")]
#[case::unknown_count(json!({"seq": 1001, "occupancy": {"players": null, "slots": 1}}), 400, "occupancy.players")]
#[case::nested(json!({"seq": 1001, "occupancy": {"players": 0, "slots": 1, "servers": {"a": {"players": -2}}}}), 400, "occupancy.servers.a.players")]
#[case::ahead(json!({"seq": 1002, "occupancy": {"players": 0, "slots": 1}}), 409, "seq")]
#[tokio::test]
async fn applied_refuses(#[case] body: Value, #[case] status: u16, #[case] field: &str) {
    let shared = shared(PROXY);
    synced(&shared);
    let (got, answer) = call(&shared, "POST", "/v1/applied", &body.to_string()).await;
    assert_eq!((got, &answer["error"]["field"]), (status, &json!(field)), "{answer}");
    assert_eq!(said(&shared), []);
}

#[tokio::test(start_paused = true)]
async fn the_directory_is_answered_when_it_changes_and_at_the_limit() {
    let shared = shared(PROXY);
    let seq = synced(&shared);
    let (_, first) = call(&shared, "GET", "/v1/directory?after=0", "").await;
    assert_eq!((&first["seq"], &first["revision"], &first["accepting"]), (&json!(seq), &json!(7), &json!(true)));

    let begun = tokio::time::Instant::now();
    let path = format!("/v1/directory?after={seq}&timeoutSeconds=20");
    let (status, same) = call(&shared, "GET", &path, "").await;
    assert_eq!((status, &same["seq"], begun.elapsed().as_secs()), (200, &json!(seq), 20));

    let waiter = tokio::spawn({
        let (shared, path) = (Arc::clone(&shared), path.clone());
        async move { call(&shared, "GET", &path, "").await }
    });
    shared.with(|state| state.hear(&Incoming::SetReady { ready: false, epoch: 1 }));
    let (_, changed) = waiter.await.expect("no panic");
    assert_eq!((&changed["seq"], &changed["accepting"]), (&json!(seq + 1), &json!(false)));
    let begun = tokio::time::Instant::now();
    let (_, stale) = call(&shared, "GET", "/v1/directory?after=999999", "").await;
    assert_eq!(stale["seq"], json!(seq + 1), "a number of another life is answered at once");
    assert_eq!(begun.elapsed().as_secs(), 0);
}

#[tokio::test]
async fn waiting_is_bounded() {
    let shared = shared(PROXY);
    let local = Local::new(Arc::clone(&shared), "proxy-x", None);
    let seq = shared.with(|state| state.seq());
    let all = Arc::clone(&local.waiters).acquire_many_owned(16).await.expect("free places");
    let ask = |query: String| {
        let request = Request::get(format!("/v1/directory{query}")).body(HttpBody::empty()).expect("a request");
        local.clone().router().oneshot(request)
    };
    assert_eq!(ask(format!("?after={seq}")).await.expect("an answer").status(), 429);
    drop(all);
    assert_eq!(ask(format!("?after={seq}&timeoutSeconds=0")).await.expect("an answer").status(), 200);
    assert_eq!(ask("?after=-1".to_owned()).await.expect("an answer").status(), 400);
    assert_eq!(ask("?since=1".to_owned()).await.expect("an answer").status(), 400);
}
