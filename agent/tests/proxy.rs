//! A proxy's agent against an operator: directory, confirmations, fence, gate, doors.

mod common;

use common::{Agent, Operator, PROXY, ProxySession, within};
use serde_json::{Value, json};
use spawnery_agent::session::state::{Adapter, Character};
use spawnery_proto::v1alpha1 as pb;
use spawnery_proto::v1alpha1::operator_to_proxy::Message as Say;
use spawnery_proto::v1alpha1::proxy_message::Message as Heard;
use tokio::net::TcpStream;

/// What the game learns once it is another than `after`.
async fn directory(agent: &Agent, after: u64) -> (u64, Value) {
    let (status, body) = agent.call("GET", &format!("/v1/directory?after={after}"), &Value::Null).await;
    assert_eq!(status, 200);
    (body.get("seq").and_then(Value::as_u64).expect("a number"), body)
}

/// The directory once it has reached `revision`.
async fn reached(agent: &Agent, revision: u64) -> (u64, Value) {
    let mut after = 0;
    let wait = async {
        loop {
            let (seq, body) = directory(agent, after).await;
            if body.get("revision") == Some(&json!(revision)) {
                return (seq, body);
            }
            after = seq;
        }
    };
    within("revision", wait).await
}

fn occupancy(on_a: u32, connecting: u32) -> Value {
    json!({"players": on_a, "slots": 100, "servers": {"a": {"players": on_a, "connecting": connecting}}})
}

async fn applied(agent: &Agent, seq: u64, occupancy: &Value) {
    assert_eq!(agent.call("POST", "/v1/applied", &json!({"seq": seq, "occupancy": occupancy})).await.0, 204);
}

fn count(on_a: i32, connecting: i32, nonce: u64) -> Heard {
    let servers = vec![pb::ServerOccupancy { server: "a".into(), players: on_a, connecting }];
    Heard::PlayerCount(pb::PlayerCount { players: on_a, slots: 100, nonce, servers })
}

fn confirmed(revision: u64, epoch: u64) -> Heard {
    Heard::DirectoryApplied(pb::DirectoryApplied { revision, epoch })
}

async fn started(character: Character) -> (Operator, Agent, ProxySession) {
    let mut operator = Operator::start().await;
    let agent = Agent::start(character, &operator).await;
    let session = operator.proxy().await;
    session.greet().await;
    (operator, agent, session)
}

#[tokio::test]
async fn the_count_goes_before_the_confirmation() {
    let (_operator, agent, mut session) = started(PROXY).await;
    session.sync(&["a", "b"], 7, 1).await;
    let (seq, body) = reached(&agent, 7).await;
    let names: Vec<&str> =
        body["servers"].as_array().into_iter().flatten().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!((names, &body["revision"]), (vec!["a", "b"], &json!(7)));
    applied(&agent, seq, &occupancy(0, 0)).await;
    assert_eq!(session.heard().await, Some(count(0, 0, 0)));
    assert_eq!(session.heard().await, Some(confirmed(7, 1)));

    // A player is on the way to a, and a leaves the directory: the operator must know of the player first.
    assert_eq!(agent.call("PUT", "/v1/occupancy", &occupancy(0, 1)).await.0, 204);
    session.tell(Say::UnregisterServer(pb::UnregisterServer { name: "a".into(), revision: 8, epoch: 1 })).await;
    let (seq, body) = directory(&agent, seq).await;
    assert_eq!((body["servers"].as_array().map(Vec::len), &body["revision"]), (Some(1), &json!(8)));
    applied(&agent, seq, &occupancy(0, 1)).await;
    assert_eq!(session.heard().await, Some(count(0, 1, 0)), "said when it was known");
    assert_eq!(session.heard().await, Some(count(0, 1, 0)), "and once more before the confirmation");
    assert_eq!(session.heard().await, Some(confirmed(8, 1)));
}

#[tokio::test]
async fn without_an_adapter_the_directory_is_confirmed_at_once() {
    let (_operator, _agent, mut session) = started(Character { adapter: Adapter::None, ..PROXY }).await;
    session.sync(&["a"], 7, 1).await;
    assert_eq!(session.heard().await, Some(confirmed(7, 1)));
}

#[tokio::test]
async fn an_adapter_counts_anew_for_a_question() {
    let (_operator, agent, mut session) = started(PROXY).await;
    let (seq, _) = directory(&agent, 0).await;
    session.tell(Say::ReportNow(pb::ReportNow { nonce: 5 })).await;
    let (seq, _) = directory(&agent, seq).await;
    applied(&agent, seq, &occupancy(2, 0)).await;
    assert_eq!(session.heard().await, Some(count(2, 0, 0)));
    assert_eq!(session.heard().await, Some(count(2, 0, 5)));
}

#[tokio::test]
async fn an_earlier_leader_is_not_heard_also_on_a_new_stream() {
    let (mut operator, agent, session) = started(PROXY).await;
    session.sync(&["a"], 7, 3).await;
    let (seq, _) = reached(&agent, 7).await;
    applied(&agent, seq, &occupancy(0, 0)).await;
    drop(session);

    let mut session = operator.proxy().await;
    session.greet().await;
    session.sync(&["z"], 900, 2).await;
    session.tell(Say::SetReady(pb::SetReady { ready: false, epoch: 2 })).await;
    agent.until("two dropped messages", |state| state["fencedMessages"] == json!(2)).await;
    let state = agent.state().await;
    assert_eq!(
        (&state["servers"][0]["name"], &state["epoch"], &state["gateOpen"]),
        (&json!("a"), &json!(3), &json!(true))
    );
    session.sync(&["b"], 1, 4).await;
    let (seq, body) = directory(&agent, seq).await;
    assert_eq!(body["servers"][0]["name"], json!("b"));
    applied(&agent, seq, &occupancy(0, 0)).await;
    assert_eq!(session.heard().await, Some(count(0, 0, 0)));
    let next = within("confirmation", async {
        loop {
            match session.heard().await {
                Some(Heard::PlayerCount(_)) => {}
                other => return other,
            }
        }
    })
    .await;
    assert_eq!(next, Some(confirmed(1, 4)), "and never one of epoch 2");
}

async fn gate_is(agent: &Agent, open: bool) {
    let turned = async {
        while TcpStream::connect(agent.gate).await.is_ok() != open {
            tokio::task::yield_now().await;
        }
    };
    within(if open { "open gate" } else { "closed gate" }, turned).await;
}

#[tokio::test]
async fn the_gate_opens_with_the_first_directory_and_closes_when_told() {
    let (mut operator, agent, session) = started(PROXY).await;
    session.sync(&[], 1, 1).await;
    let (seq, _) = reached(&agent, 1).await;
    gate_is(&agent, false).await;
    applied(&agent, seq, &occupancy(0, 0)).await;
    gate_is(&agent, true).await;
    session.tell(Say::SetReady(pb::SetReady { ready: false, epoch: 1 })).await;
    gate_is(&agent, false).await;
    let (_, body) = directory(&agent, seq).await;
    assert_eq!(body["accepting"], json!(false));
    session.tell(Say::SetReady(pb::SetReady { ready: true, epoch: 1 })).await;
    gate_is(&agent, true).await;
    drop(session);
    let _session = operator.proxy().await;
    agent.until("loss", |state| state["connected"] == json!(false)).await;
    gate_is(&agent, true).await;
}

#[tokio::test]
async fn a_door_is_confirmed_by_a_game_that_refuses_newcomers() {
    let (_operator, agent, mut session) = started(Character { door_enforced: true, ..PROXY }).await;
    let (seq, _) = directory(&agent, 0).await;
    session.tell(Say::Door(pb::Door { open: false, revision: 4, epoch: 1 })).await;
    let (seq, body) = directory(&agent, seq).await;
    assert_eq!((&body["doorOpen"], &body["accepting"]), (&json!(false), &json!(false)));
    applied(&agent, seq, &occupancy(1, 0)).await;
    assert_eq!(session.heard().await, Some(count(1, 0, 0)));
    let door = pb::DoorApplied { revision: 4, open: false, epoch: 1 };
    assert_eq!(session.heard().await, Some(Heard::DoorApplied(door)));
}

#[tokio::test]
async fn drains_reach_the_game() {
    let (_operator, agent, session) = started(PROXY).await;
    let drain = pb::DrainPlayers { from_server: "a".into(), to_groups: vec!["lobby".into(), "hub".into()], epoch: 1 };
    session.tell(Say::DrainPlayers(drain)).await;
    let drained = json!([{"fromServer": "a", "toGroups": ["lobby", "hub"]}]);
    agent.until("drain", |state| state["drains"] == drained).await;
}
