//! A scripted API server behind a real client, and the webhook's router in front of it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::{Json, Router};
use http::Request;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use spawnery_api::names::{annotation, label};
use spawnery_certs::EvictionToken;
use spawnery_runtime::clock::Clock;
use spawnery_runtime::readiness::Readiness;
use spawnery_runtime::shutdown::Supervisor;
use spawnery_webhook::App;
use tokio::sync::mpsc;
use tower::ServiceExt as _;

/// Whose changes are not judged.
pub(crate) const OPERATOR: &str = "system:serviceaccount:spawnery-system:spawnery-operator";

/// The token that the leader wrote down.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Where the API server posts evictions.
pub(crate) fn evictions(query: &str) -> String {
    format!("/evictions/{TOKEN}?{query}")
}

const KINDS: [(&str, &str); 6] = [
    ("/api/v1/pods", "Pod"),
    ("/api/v1/namespaces", "Namespace"),
    ("/api/v1/configmaps", "ConfigMap"),
    ("/apis/spawnery.cloud/v1alpha1/networks", "Network"),
    ("/apis/spawnery.cloud/v1alpha1/servergroups", "ServerGroup"),
    ("/apis/spawnery.cloud/v1alpha1/proxygroups", "ProxyGroup"),
];

#[derive(Default)]
struct State {
    objects: HashMap<String, Vec<Value>>,
    watches: HashMap<String, Vec<mpsc::UnboundedSender<Bytes>>>,
    patches: Vec<(String, Value)>,
    down: bool,
}

/// The API server, the webhook's router and what goes on behind it.
pub(crate) struct World {
    state: Arc<Mutex<State>>,
    pub(crate) router: Router,
    supervisor: Supervisor,
    registry: Registry,
}

impl Drop for World {
    fn drop(&mut self) {
        self.supervisor.stop();
    }
}

impl World {
    /// A webhook whose caches show these objects.
    pub(crate) async fn with(objects: Vec<Value>) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        for object in objects {
            let path = path_of(&object);
            state.lock().objects.entry(path).or_default().push(object);
        }
        let server = Arc::clone(&state);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(answer(&server, request).await) }
        });
        let client = kube::Client::new(service, "default");
        let (readiness, supervisor) = (Readiness::new(), Supervisor::new());
        let (mut registry, clock) = (Registry::default(), Clock::system());
        let (app, tasks) = App::new(&client, None, OPERATOR.to_owned(), readiness.clone(), &mut registry, clock);
        let token = EvictionToken::parse(TOKEN.as_bytes()).unwrap();
        app.tokens().set(&token, clock.now());
        tasks.spawn(&supervisor);
        eventually("caches are full", || readiness.missing().is_empty()).await;
        let world = Self { state, router: spawnery_webhook::router(app), supervisor, registry };
        // The names of ConfigMaps are no matter of readiness.
        eventually("all kinds are watched", || world.state.lock().watches.len() == KINDS.len()).await;
        world
    }

    /// Changes an object as a watch shows it.
    pub(crate) fn apply(&self, object: &Value) {
        let line = json!({ "type": "MODIFIED", "object": object }).to_string() + "\n";
        let mut state = self.state.lock();
        if let Some(objects) = state.objects.get_mut(&path_of(object)) {
            objects.retain(|other| other["metadata"]["uid"] != object["metadata"]["uid"]);
            objects.push(object.clone());
        }
        for watch in state.watches.entry(path_of(object)).or_default() {
            let _ = watch.send(Bytes::from(line.clone()));
        }
    }

    /// From now on the API server answers nothing, and watches end.
    pub(crate) fn go_down(&self) {
        let mut state = self.state.lock();
        state.down = true;
        state.watches.clear();
    }

    /// Patches that arrived, as `(path, body)`.
    pub(crate) fn patches(&self) -> Vec<(String, Value)> {
        self.state.lock().patches.clone()
    }

    /// What a counter without labels says.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("spawnery_webhook_{name} ")));
        line.unwrap().parse().unwrap()
    }

    /// Posts a body.
    pub(crate) async fn post(&self, path: &str, content_type: Option<&str>, body: impl Into<Body>) -> (u16, Bytes) {
        let mut request = Request::builder().method("POST").uri(path);
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let response = self.router.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
        (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes())
    }

    /// Posts a review of an eviction as the API server does.
    pub(crate) async fn evict(&self, review: &Value) -> Value {
        self.review(&evictions("timeout=3s"), review).await
    }

    /// Posts a review and takes the response out of the answer.
    pub(crate) async fn review(&self, path: &str, review: &Value) -> Value {
        let (code, body) = self.post(path, Some("application/json"), review.to_string()).await;
        assert_eq!(code, 200, "{body:?}");
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["response"]["uid"], review["request"]["uid"], "the uid is echoed");
        answer["response"].clone()
    }
}

async fn answer(server: &Mutex<State>, request: Request<kube::client::Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if server.lock().down {
        return Response::builder().status(500).body(Body::empty()).unwrap();
    }
    if head.method == "PATCH" {
        let body = body.collect().await.unwrap().to_bytes();
        server.lock().patches.push((path, serde_json::from_slice(&body).unwrap()));
        return respond(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "x" } }));
    }
    if head.uri.query().unwrap_or_default().contains("watch=") {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        server.lock().watches.entry(path).or_default().push(sender);
        let lines = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
        return Response::new(Body::from_stream(futures::StreamExt::map(lines, Ok::<_, Infallible>)));
    }
    let items = server.lock().objects.get(&path).cloned().unwrap_or_default();
    let kind = KINDS.iter().find(|(known, _)| *known == path).map_or("Unknown", |(_, kind)| kind);
    respond(
        json!({ "apiVersion": "v1", "kind": format!("{kind}List"), "metadata": { "resourceVersion": "1" }, "items": items }),
    )
}

fn respond(body: Value) -> Response<Body> {
    axum::response::IntoResponse::into_response(Json(body))
}

fn path_of(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap();
    KINDS.iter().find(|(_, known)| *known == kind).map(|(path, _)| (*path).to_owned()).unwrap()
}

/// Waits for a condition, 10 s at most.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}: not within 10 s");
}

/// A Network `main` in `games`.
pub(crate) fn network() -> Value {
    json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Network",
        "metadata": { "name": "main", "namespace": "games", "uid": "n" },
        "spec": { "forwardingSecretRef": { "name": "forwarding" }, "defaults": { "resources": { "limits": { "memory": "1Gi" } } } },
        "status": { "onlinePlayers": 7 },
    })
}

/// A running pod of the group `lobby`, with more labels.
pub(crate) fn pod(name: &str, labels: &[(&str, &str)]) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "games", "uid": format!("uid-{name}"), "resourceVersion": "2",
            "labels": {
                label::MANAGED_BY: label::MANAGED_BY_VALUE, label::NETWORK: "main", label::GROUP: "lobby",
                label::ROLE: label::ROLE_SERVER,
            },
        },
        "spec": { "nodeName": "node-a", "containers": [] },
        "status": { "phase": "Running" },
    });
    for (key, value) in labels {
        pod["metadata"]["labels"][*key] = json!(value);
    }
    pod
}

/// The same with an annotation that shows an eviction request.
pub(crate) fn recorded(mut pod: Value, time: &str) -> Value {
    let text = json!({ "time": time, "requester": "somebody" }).to_string();
    pod["metadata"]["annotations"] = json!({ annotation::EVICTION_REQUESTED: text });
    pod
}
