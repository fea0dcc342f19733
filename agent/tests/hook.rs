//! The pre-stop hook of an agent that has an operator, and of one that lost it.

mod common;

use common::{Agent, Operator, SERVER, ServerSession, within};
use serde_json::json;
use spawnery_proto::v1alpha1 as pb;
use spawnery_proto::v1alpha1::operator_to_server::Message as Say;

async fn put_count(agent: &Agent, players: u32) {
    assert_eq!(agent.call("PUT", "/v1/count", &json!({"players": players, "slots": 20})).await.0, 204);
}

/// An agent on whose server two players are, in a session of epoch 5.
async fn occupied() -> (Operator, Agent, ServerSession) {
    let mut operator = Operator::start().await;
    let agent = Agent::start(SERVER, &operator).await;
    let session = operator.server().await;
    session.greet().await;
    session.tell(Say::KeepAlive(pb::KeepAlive { epoch: 5 })).await;
    put_count(&agent, 2).await;
    agent.until("session", |state| state["connected"] == json!(true) && state["epoch"] == json!(5)).await;
    (operator, agent, session)
}

#[tokio::test]
async fn a_pod_with_people_is_held_up_until_its_leader_releases_it() {
    let (_operator, agent, mut session) = occupied().await;
    let hook = agent.pre_stop("?graceSeconds=600");
    // While it waits, the agent reports as before.
    for players in [1, 0] {
        put_count(&agent, players).await;
        while session.count().await.players != players.cast_signed() {}
    }
    assert!(!hook.is_finished(), "empty, but only the leader knows whether somebody is on the way");
    session.tell(Say::Release(pb::Release { epoch: 4 })).await;
    agent.until("fence", |state| state["fencedMessages"] == json!(1)).await;
    assert!(!hook.is_finished(), "an earlier leader releases nobody");
    session.tell(Say::Release(pb::Release { epoch: 5 })).await;
    assert_eq!(within("answer", hook).await.expect("no panic"), "Released");
    agent.until("release", |state| state["released"] == json!(true)).await;
}

#[tokio::test]
async fn a_release_is_for_good() {
    let (operator, agent, session) = occupied().await;
    session.tell(Say::Release(pb::Release { epoch: 5 })).await;
    agent.until("release", |state| state["released"] == json!(true)).await;
    operator.kill().await;
    agent.until("end of the session", |state| state["connected"] == json!(false)).await;
    assert_eq!(within("answer", agent.pre_stop("?graceSeconds=600")).await.expect("no panic"), "Released");
}

#[tokio::test]
async fn without_an_operator_the_pod_goes_when_it_is_empty() {
    let (operator, agent, _session) = occupied().await;
    let hook = agent.pre_stop("?graceSeconds=600");
    operator.kill().await;
    agent.until("end of the session", |state| state["connected"] == json!(false)).await;
    assert!(!hook.is_finished(), "two people are on it");
    put_count(&agent, 0).await;
    assert_eq!(within("answer", hook).await.expect("no panic"), "Empty");
}

#[tokio::test]
async fn the_grace_ends_every_wait() {
    let (_operator, agent, _session) = occupied().await;
    assert_eq!(within("answer", agent.pre_stop("?graceSeconds=6")).await.expect("no panic"), "GraceOver");
}
