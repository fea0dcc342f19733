//! Callers against a scripted API server.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use spawnery_core::ledger::Role;

use super::{Accepted, Authenticate, KubeAuthenticator, PodIdentity, Refusal};
use crate::channel::metrics::ChannelMetrics;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

#[derive(Default)]
struct Asked {
    reviews: AtomicUsize,
    pods: AtomicUsize,
}

/// What the API server says of each token and pod.
fn review(token: &str) -> Option<Value> {
    let audience = json!(["spawnery-operator"]);
    let user = |account: &str, pod: &str, uid: &str| {
        json!({
            "username": format!("system:serviceaccount:game:{account}"),
            "extra": {
                "authentication.kubernetes.io/pod-name": [pod],
                "authentication.kubernetes.io/pod-uid": [uid],
            },
        })
    };
    let yes = |user: Value| json!({"authenticated": true, "audiences": audience, "user": user});
    Some(match token {
        _ if token == "server" || token.starts_with("renewed-") => yes(user("spawnery-server", "lobby-a", "uid-a")),
        "fast" => yes(user("spawnery-server", "lobby-fast", "uid-fast")),
        "proxy" => yes(user("spawnery-proxy", "edge-1", "uid-e")),
        "server-account-of-a-proxy" => yes(user("spawnery-server", "edge-1", "uid-e")),
        "replaced-pod" => yes(user("spawnery-server", "lobby-a", "uid-of-the-pod-before")),
        "foreign-pod" => yes(user("spawnery-server", "foreign", "uid-f")),
        "deleted-pod" => yes(user("spawnery-server", "deleted", "uid-d")),
        "other-account" => yes(user("default", "lobby-a", "uid-a")),
        "unbound" => yes(json!({"username": "system:serviceaccount:game:spawnery-server"})),
        "person" => yes(json!({"username": "kubernetes-admin"})),
        "other-audience" => {
            json!({"authenticated": true, "audiences": ["https://kubernetes.default.svc"],
                   "user": user("spawnery-server", "lobby-a", "uid-a")})
        }
        "no-audience-echoed" => json!({"authenticated": true, "user": user("spawnery-server", "lobby-a", "uid-a")}),
        "outage" => return None,
        _ => json!({"authenticated": false, "error": "token has expired"}),
    })
}

fn pod(name: &str) -> Option<Value> {
    let (uid, labels) = match name {
        "lobby-fast" => (
            "uid-fast",
            json!({"spawnery.cloud/managed-by": "spawnery-operator",
            "spawnery.cloud/role": "server", "spawnery.cloud/group": "lobby"}),
        ),
        "lobby-a" => (
            "uid-a",
            json!({"spawnery.cloud/managed-by": "spawnery-operator",
            "spawnery.cloud/role": "server", "spawnery.cloud/group": "lobby"}),
        ),
        "foreign" => ("uid-f", json!({"spawnery.cloud/role": "server"})),
        _ => return None,
    };
    Some(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "game", "uid": uid, "labels": labels}}),
    )
}

async fn answer(asked: Arc<Asked>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let respond = |code: StatusCode, body: Value| {
        let body = Body::from(serde_json::to_vec(&body).unwrap());
        Ok(Response::builder().status(code).header("content-type", "application/json").body(body).unwrap())
    };
    let failure = |code: StatusCode| {
        respond(
            code,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                             "message": "as scripted", "code": code.as_u16()}),
        )
    };
    if path.ends_with("/tokenreviews") {
        asked.reviews.fetch_add(1, Ordering::SeqCst);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let asked: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(asked["spec"]["audiences"], json!(["spawnery-operator"]));
        tokio::task::yield_now().await;
        return match review(asked["spec"]["token"].as_str().unwrap()) {
            Some(status) => respond(
                StatusCode::CREATED,
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
                       "spec": {}, "status": status}),
            ),
            None => failure(StatusCode::INTERNAL_SERVER_ERROR),
        };
    }
    asked.pods.fetch_add(1, Ordering::SeqCst);
    match path.strip_prefix("/api/v1/namespaces/game/pods/").and_then(pod) {
        Some(pod) => respond(StatusCode::OK, pod),
        None => failure(StatusCode::NOT_FOUND),
    }
}

/// Our cache knows two pods; `lobby-fast` is faster than the watch.
fn known(namespace: &str, name: &str) -> Option<PodIdentity> {
    let (uid, role) = match (namespace, name) {
        ("game", "lobby-a") => ("uid-a", Role::Server),
        ("game", "edge-1") => ("uid-e", Role::Proxy),
        _ => return None,
    };
    Some(PodIdentity { uid: uid.into(), group: "lobby".into(), role, managed: true })
}

fn authenticator() -> (KubeAuthenticator, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let server = Arc::clone(&asked);
    let service = tower::service_fn(move |request| answer(Arc::clone(&server), request));
    let client = kube::Client::new(service, "game");
    (KubeAuthenticator::new(client, known, ChannelMetrics::default()), asked)
}

#[rstest]
#[case::a_servers_own_token("server", Role::Server, Ok("lobby-a"))]
#[case::a_proxys_own_token("proxy", Role::Proxy, Ok("edge-1"))]
#[case::a_pod_that_the_cache_does_not_show_yet("fast", Role::Server, Ok("lobby-fast"))]
#[case::no_token("", Role::Server, Err(Refusal::NoToken))]
#[case::expired("expired", Role::Server, Err(Refusal::TokenNotAccepted))]
#[case::of_another_audience("other-audience", Role::Server, Err(Refusal::TokenNotAccepted))]
#[case::of_a_server_that_ignores_audiences("no-audience-echoed", Role::Server, Err(Refusal::TokenNotAccepted))]
#[case::a_server_as_a_proxy("server", Role::Proxy, Err(Refusal::WrongAccount))]
#[case::a_proxy_as_a_server("proxy", Role::Server, Err(Refusal::WrongAccount))]
#[case::another_account("other-account", Role::Server, Err(Refusal::WrongAccount))]
#[case::a_person("person", Role::Server, Err(Refusal::WrongAccount))]
#[case::not_bound_to_a_pod("unbound", Role::Server, Err(Refusal::NotBound))]
#[case::of_the_pod_before("replaced-pod", Role::Server, Err(Refusal::NoSuchPod))]
#[case::of_a_pod_that_is_gone("deleted-pod", Role::Server, Err(Refusal::NoSuchPod))]
#[case::of_a_pod_that_is_not_ours("foreign-pod", Role::Server, Err(Refusal::NotOurPod))]
#[case::of_a_pod_of_the_other_role("server-account-of-a-proxy", Role::Server, Err(Refusal::NotOurPod))]
#[case::when_nobody_can_be_asked("outage", Role::Server, Err(Refusal::Unavailable))]
#[tokio::test]
async fn judges(#[case] token: &str, #[case] role: Role, #[case] want: Result<&str, Refusal>) {
    let (authenticator, _) = authenticator();
    let judged = authenticator.authenticate(token, role, PEER).await;
    let names = judged.as_ref().map(|Accepted { namespace, who }| (namespace.as_str(), who.name.as_str()));
    assert_eq!(names.map_err(|refusal| *refusal), want.map(|name| ("game", name)));
}

#[tokio::test]
async fn one_review_serves_all_who_ask_at_once_and_for_a_while() {
    let (authenticator, asked) = authenticator();
    let all = (0..50).map(|_| authenticator.authenticate("server", Role::Server, PEER));
    assert!(futures::future::join_all(all).await.iter().all(Result::is_ok));
    assert_eq!(asked.reviews.load(Ordering::SeqCst), 1);
    assert_eq!(asked.pods.load(Ordering::SeqCst), 0, "the cache knows the pod");
}

#[tokio::test(start_paused = true)]
async fn reviews_are_believed_for_a_minute_refused_ones_for_ten_seconds_outages_never() {
    let (authenticator, asked) = authenticator();
    let mut reviews = Vec::new();
    for (token, seconds) in [("server", 59), ("server", 2), ("bad", 9), ("bad", 2), ("outage", 0), ("outage", 0)] {
        _ = authenticator.authenticate(token, Role::Server, PEER).await;
        tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
        reviews.push(asked.reviews.load(Ordering::SeqCst));
    }
    _ = authenticator.authenticate("server", Role::Server, PEER).await;
    _ = authenticator.authenticate("bad", Role::Server, PEER).await;
    reviews.push(asked.reviews.load(Ordering::SeqCst));
    assert_eq!(reviews, [1, 1, 2, 2, 3, 4, 6]);
}

#[tokio::test(start_paused = true)]
async fn only_refused_reviews_are_charged_and_only_to_their_peer() {
    let (authenticator, asked) = authenticator();
    for index in 0..5 {
        let refused = authenticator.authenticate(&format!("bad-{index}"), Role::Server, PEER).await;
        assert_eq!(refused.err(), Some(Refusal::TokenNotAccepted));
    }
    let limited = authenticator.authenticate("server", Role::Server, PEER).await;
    assert_eq!(limited.err(), Some(Refusal::RateLimited));
    let cached = authenticator.authenticate("bad-0", Role::Server, PEER).await;
    assert_eq!(cached.err(), Some(Refusal::TokenNotAccepted), "what is remembered costs nothing");
    let other = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 10));
    for index in 0..20 {
        let renewed = format!("renewed-{index}");
        assert!(authenticator.authenticate(&renewed, Role::Server, other).await.is_ok());
    }
    assert_eq!(asked.reviews.load(Ordering::SeqCst), 5 + 20);
}
