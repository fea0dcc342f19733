//! A server's agent against an operator: greeting, counts, renewal, silence, restarts.

mod common;

use std::time::Duration;

use common::{Agent, Operator, SERVER, TIMING, within};
use serde_json::json;
use spawnery_agent::session::state::{Character, Source};
use spawnery_certs::Authority;
use spawnery_proto::v1alpha1 as pb;
use spawnery_proto::v1alpha1::operator_to_server::Message as Say;
use spawnery_proto::v1alpha1::server_message::Message as Heard;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

async fn put_count(agent: &Agent, players: u32) {
    assert_eq!(agent.call("PUT", "/v1/count", &json!({"players": players, "slots": 20})).await.0, 204);
}

fn count(players: i32) -> Heard {
    Heard::PlayerCount(pb::PlayerCount { players, slots: 20, ..Default::default() })
}

#[tokio::test]
async fn hello_is_first_with_token_and_capabilities() {
    let mut operator = Operator::start().await;
    let agent = Agent::start(SERVER, &operator).await;
    let mut session = operator.server().await;
    assert_eq!(session.authorization, "Bearer first");
    let Some(Heard::Hello(hello)) = session.hello.message.take() else { panic!("a Hello first") };
    assert_eq!(hello.capabilities, ["report-now", "keep-alive", "release"]);
    assert!(!hello.ready && !hello.version.is_empty());

    assert_eq!(agent.state().await["connected"], json!(false), "not before the operator has spoken");
    agent.call("PUT", "/v1/ready", &json!({"ready": true})).await;
    put_count(&agent, 2).await;
    session.greet().await;
    assert_eq!(session.heard().await, Some(Heard::Ready(pb::Ready {})));
    assert_eq!(session.heard().await, Some(count(2)), "recorded before, said now");
    agent.until("session", |state| state["connected"] == json!(true)).await;
    agent.stop().await.expect("a clean end");
    assert_eq!(session.heard().await, None, "half-closed");
}

#[tokio::test]
async fn counts_are_said_at_once_and_at_the_interval() {
    let mut operator = Operator::start().await;
    let agent = Agent::start(SERVER, &operator).await;
    let mut session = operator.server().await;
    session.tell(Say::ReportInterval(pb::ReportInterval { seconds: 1 })).await;
    for players in [1, 2, 5] {
        put_count(&agent, players).await;
        let said = async { while session.count().await.players != players.cast_signed() {} };
        within("count", said).await;
    }
    let again = session.count().await;
    assert_eq!(again.players, 5, "nothing changed: the interval says it again");
}

#[tokio::test]
async fn an_unknown_count_is_not_said_and_no_question_answered() {
    let mut operator = Operator::start().await;
    let agent = Agent::start(SERVER, &operator).await;
    let mut session = operator.server().await;
    session.tell(Say::ReportInterval(pb::ReportInterval { seconds: 1 })).await;
    session.tell(Say::ReportNow(pb::ReportNow { nonce: 7 })).await;
    put_count(&agent, 4).await;
    assert_eq!(session.heard().await, Some(count(4)), "nothing before it");
    session.tell(Say::ReportNow(pb::ReportNow { nonce: 8 })).await;
    let answered = async { while session.count().await.nonce != 8 {} };
    within("answer", answered).await;
}

#[tokio::test]
async fn renewal_overlaps_and_no_count_is_lost() {
    let mut operator = Operator::start().await;
    let agent = Agent::start(SERVER, &operator).await;
    let mut old = operator.server().await;
    old.tell(Say::ReportInterval(pb::ReportInterval { seconds: 30 })).await;
    old.tell(Say::SessionDeadline(pb::SessionDeadline { renew_after_seconds: 1, hard_deadline_seconds: 60 })).await;
    agent.rotate_token("second");
    let mut new = operator.server().await;
    assert_eq!(new.authorization, "Bearer second", "the token is read anew");
    put_count(&agent, 1).await;
    assert_eq!(old.heard().await, Some(count(1)), "the old stream is used until the operator speaks on the new one");
    new.greet().await;
    assert_eq!(new.heard().await, Some(count(1)));
    assert_eq!(old.heard().await, None, "half-closed only now");
    put_count(&agent, 2).await;
    assert_eq!(new.heard().await, Some(count(2)));
}

#[tokio::test]
async fn silence_after_a_keep_alive_is_redialled() {
    let mut operator = Operator::start().await;
    let agent = Agent::start(SERVER, &operator).await;
    let session = operator.server().await;
    session.greet().await;
    session.tell(Say::KeepAlive(pb::KeepAlive { epoch: 1 })).await;
    agent.until("epoch", |state| state["epoch"] == json!(1)).await;
    let begun = tokio::time::Instant::now();
    let second = operator.server().await;
    let silent = begun.elapsed();
    assert!(silent + Duration::from_millis(100) >= TIMING.silence, "not before the silence was long enough");
    assert!(silent < TIMING.unanswered / 2, "the bound of operators that send no keep-alives is not this one's");
    second.greet().await;
    agent.until("session", |state| state["connected"] == json!(true)).await;
}

#[tokio::test]
async fn an_operator_that_sends_no_keep_alives_may_be_silent() {
    let mut operator = Operator::start().await;
    let _agent = Agent::start(SERVER, &operator).await;
    let session = operator.server().await;
    session.greet().await;
    session
        .tell(Say::SessionDeadline(pb::SessionDeadline { renew_after_seconds: 480, hard_deadline_seconds: 600 }))
        .await;
    assert!(!operator.another_server_within(TIMING.silence * 3).await);
}

#[tokio::test]
async fn keep_alives_of_an_earlier_leader_are_silence() {
    let mut operator = Operator::start().await;
    let _agent = Agent::start(SERVER, &operator).await;
    let session = operator.server().await;
    session.greet().await;
    session.tell(Say::KeepAlive(pb::KeepAlive { epoch: 5 })).await;
    let old_leader = async {
        let mut ticks = tokio::time::interval(TIMING.silence / 6);
        loop {
            ticks.tick().await;
            let stale = Say::KeepAlive(pb::KeepAlive { epoch: 4 });
            if session.try_say(pb::OperatorToServer { message: Some(stale) }).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        redialled = operator.server() => redialled.greet().await,
        () = old_leader => {}
    }
}

#[tokio::test]
async fn a_restarted_operator_is_found_again() {
    let mut operator = Operator::start().await;
    let agent = Agent::start(SERVER, &operator).await;
    let session = operator.server().await;
    session.greet().await;
    agent.until("session", |state| state["connected"] == json!(true)).await;
    drop(session);
    let (address, ca) = operator.kill().await;
    agent.until("loss", |state| state["connected"] == json!(false)).await;
    put_count(&agent, 3).await;
    let mut operator = Operator::at(address, ca).await;
    let mut session = operator.server().await;
    session.greet().await;
    assert_eq!(session.heard().await, Some(count(3)), "recorded while there was no session");
}

#[tokio::test]
async fn an_operator_of_another_ca_is_refused_until_the_bundle_names_it() {
    let mut operator = Operator::start().await;
    let stranger = Authority::generate(common::now()).expect("a CA");
    let trusted = operator.ca.cert_pem().to_owned();
    let agent = Agent::start_with(SERVER, &operator, |options| {
        std::fs::write(&options.dialer.ca_file, stranger.cert_pem()).expect("written");
    })
    .await;
    assert!(!operator.another_server_within(TIMING.backoff_cap * 3).await);
    agent.rotate_bundle(&format!("{}{trusted}", stranger.cert_pem()));
    let session = operator.server().await;
    session.greet().await;
    agent.until("session", |state| state["connected"] == json!(true)).await;
}

#[tokio::test]
async fn a_missing_token_is_waited_for() {
    let mut operator = Operator::start().await;
    let agent = Agent::start_with(SERVER, &operator, |options| {
        std::fs::remove_file(&options.dialer.token_file).expect("removed");
    })
    .await;
    assert!(!operator.another_server_within(TIMING.backoff_cap * 3).await);
    agent.rotate_token("late");
    assert_eq!(operator.server().await.authorization, "Bearer late");
}

/// A game that answers pings with the count it is told; `None` takes connections and says nothing.
async fn game(players: watch::Receiver<Option<u32>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let Some(online) = *players.borrow() else { continue };
            let json = format!(r#"{{"version":{{}},"players":{{"online":{online},"max":20}}}}"#);
            let length = u8::try_from(json.len()).expect("short enough for one byte");
            let mut asked = [0; 2];
            if stream.read_exact(&mut asked).await.is_ok() {
                let _gone = stream.write_all(&[&[length + 2, 0, length], json.as_bytes()].concat()).await;
            }
        }
    });
    port
}

#[tokio::test]
async fn a_game_is_counted_by_ping_and_counted_anew_for_a_question() {
    let mut operator = Operator::start().await;
    let players = watch::Sender::new(None);
    let port = game(players.subscribe()).await;
    let pinged = Character { source: Source::Ping, ..SERVER };
    let agent = Agent::start_with(pinged, &operator, |options| {
        options.ping = Some(("127.0.0.1".to_owned(), port));
    })
    .await;
    let mut session = operator.server().await;
    session.greet().await;
    agent.until("session", |state| state["connected"] == json!(true)).await;
    assert_eq!(agent.state().await["ready"], json!(false));
    players.send_replace(Some(0));
    assert_eq!(session.heard().await, Some(Heard::Ready(pb::Ready {})), "the first answer says that it has loaded");
    assert_eq!(session.heard().await, Some(count(0)));
    players.send_replace(Some(3));
    session.tell(Say::ReportNow(pb::ReportNow { nonce: 9 })).await;
    let answer = async {
        loop {
            let count = session.count().await;
            if count.nonce == 9 {
                return count;
            }
        }
    };
    assert_eq!(within("answer", answer).await.players, 3, "counted after the question");
    players.send_replace(None);
    agent.until("unknown count", |state| state["players"].is_null()).await;
}

/// Were it to say first that the game has not loaded, the server would count as one that lost its readiness.
#[tokio::test]
async fn an_agent_that_begins_beside_a_running_game_says_so_in_its_first_word() {
    let mut operator = Operator::start().await;
    let port = game(watch::Sender::new(Some(3)).subscribe()).await;
    let pinged = Character { source: Source::Ping, ..SERVER };
    let _agent = Agent::start_with(pinged, &operator, |options| {
        options.ping = Some(("127.0.0.1".to_owned(), port));
    })
    .await;
    let hello = operator.server().await.hello.message;
    assert!(matches!(&hello, Some(Heard::Hello(hello)) if hello.ready), "{hello:?}");
}

#[tokio::test]
async fn a_game_that_says_nothing_keeps_no_agent_from_its_operator() {
    let mut operator = Operator::start().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = silent.local_addr().expect("an address").port();
    let pinged = Character { source: Source::Ping, ..SERVER };
    let _agent = Agent::start_with(pinged, &operator, |options| {
        options.ping = Some(("127.0.0.1".to_owned(), port));
    })
    .await;
    let hello = operator.server().await.hello.message;
    assert!(matches!(&hello, Some(Heard::Hello(hello)) if !hello.ready), "{hello:?}");
}
