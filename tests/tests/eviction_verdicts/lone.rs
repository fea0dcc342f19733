//! One webhook without a reconciler, shared by the tests of this binary.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use spawnery_api::names::{label, object};
use spawnery_certs::{Authority, EvictionToken, Pair, webhook_names};
use spawnery_tests::stack::{eviction_path, install};
use spawnery_tests::{Cluster, ClusterConfig, Launch, Namespace, Process, binary, eventually};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::OnceCell;

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
const PORT: u16 = 8443;
const HEALTH_PORT: u16 = 8081;
const METRICS_PORT: u16 = 8080;

/// A cluster with CRDs, roles and one webhook that the API server asks about everything.
pub(crate) struct Lone {
    pub(crate) cluster: Cluster,
    pub(crate) address: SocketAddr,
    pub(crate) ca_pem: String,
    token: EvictionToken,
    pub(crate) process: Process,
}

impl Lone {
    pub(crate) async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Lone> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    pub(crate) async fn start() -> Result<Self> {
        let config = ClusterConfig { nodes: vec!["node-a".to_owned()], ..ClusterConfig::default() };
        let cluster = Cluster::start(config).await?;
        install(&cluster).await?;
        let address = SocketAddr::from((cluster.free_address(), PORT));
        let authority = Authority::generate(now())?;
        let lone = Self {
            process: launch(&cluster, address).await?,
            address,
            ca_pem: authority.cert_pem().to_owned(),
            token: EvictionToken::generate()?,
            cluster,
        };
        lone.serve_with(&lone.leaf(&authority)?).await?;
        let register = registration(address, authority.cert_pem(), &lone.token);
        lone.cluster.apply(&register).await?;
        lone.wait_registered().await.with_context(|| lone.process.tail(30))?;
        Ok(lone)
    }

    pub(crate) fn leaf(&self, authority: &Authority) -> Result<Pair> {
        let mut names = webhook_names(object::OPERATOR_NAMESPACE);
        names.push(self.address.ip().to_string());
        Ok(authority.leaf(now(), &names)?)
    }

    /// Writes the webhook's Secret and waits until it is ready.
    pub(crate) async fn serve_with(&self, pair: &Pair) -> Result<()> {
        let data = [
            (object::CA_KEY, self.ca_pem.as_str()),
            (object::LEAF_KEY, &pair.cert_pem),
            (object::LEAF_PRIVATE_KEY, &pair.key_pem),
            (object::EVICTION_TOKEN_KEY, self.token.reveal()),
        ];
        let data: serde_json::Map<String, Value> =
            data.into_iter().map(|(key, pem)| (key.to_owned(), json!(ByteString(pem.as_bytes().to_vec())))).collect();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": object::WEBHOOK_TLS_SECRET, "namespace": object::OPERATOR_NAMESPACE },
            "data": data,
        });
        self.cluster.apply(&secret.to_string()).await?;
        let ready = format!("http://{}/readyz", SocketAddr::new(self.address.ip(), HEALTH_PORT));
        eventually(LIMIT, "the webhook to be ready", || async {
            let (code, body) = plain_get(&ready).await?;
            ensure!(code == 200, "{body}");
            Ok(())
        })
        .await
    }

    /// The API server takes a moment to know a new configuration.
    async fn wait_registered(&self) -> Result<()> {
        let broken = crate::objects::proxy_group("default", &["lobby", "lobby"]);
        eventually(LIMIT, "the API server to ask the webhook", || async {
            let output = self.cluster.try_apply_dry(&broken).await?;
            ensure!(!output.ok(), "a broken group was accepted");
            Ok(())
        })
        .await
    }

    /// Where the API server was told to post evictions.
    pub(crate) async fn eviction_path(&self) -> Result<String> {
        eviction_path(&self.client().await?).await
    }

    /// A counter of the webhook, 0 before it counted.
    pub(crate) async fn counted(&self, series: &str) -> Result<u64> {
        let (code, text) =
            plain_get(&format!("http://{}/metrics", SocketAddr::new(self.address.ip(), METRICS_PORT))).await?;
        ensure!(code == 200, "{text}");
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(value.map(str::parse).transpose()?.unwrap_or_default())
    }

    /// See [`patient_client`].
    pub(crate) async fn client(&self) -> Result<Client> {
        patient_client(&self.cluster).await
    }

    pub(crate) async fn pods(&self, namespace: &Namespace) -> Result<Api<Pod>> {
        Ok(Api::namespaced(self.client().await?, namespace.name()))
    }

    /// Creates a Network and waits until evictions of `pod`, an occupied pod of ours that it makes too, are refused: from
    /// then on the webhook's caches are known to show both.
    pub(crate) async fn occupied_pod(&self, namespace: &Namespace, pod: &str) -> Result<Api<Pod>> {
        let network = json!({
            "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Network",
            "metadata": { "name": "main", "namespace": namespace.name() },
            "spec": { "forwardingSecretRef": { "name": "forwarding" } },
        });
        self.cluster.apply(&network.to_string()).await?;
        self.make(namespace, &managed(pod, &[(label::OCCUPIED, "true")])).await?;
        self.wait_seen(namespace, pod, true).await?;
        self.pods(namespace).await
    }

    /// Creates a pod and waits until it runs.
    pub(crate) async fn make(&self, namespace: &Namespace, pod: &Value) -> Result<Pod> {
        let pods = self.pods(namespace).await?;
        let made = pods.create(&kube::api::PostParams::default(), &serde_json::from_value(pod.clone())?).await?;
        let name = made.metadata.name.clone().unwrap_or_default();
        eventually(LIMIT, "the pod to run", || async {
            let phase = pods.get(&name).await?.status.and_then(|status| status.phase);
            ensure!(phase.as_deref() == Some("Running"), "{phase:?}");
            Ok(())
        })
        .await?;
        Ok(made)
    }

    /// Waits until the webhook's cache shows a pod of ours as occupied, or as empty.
    pub(crate) async fn wait_seen(&self, namespace: &Namespace, pod: &str, occupied: bool) -> Result<()> {
        eventually(LIMIT, "the webhook to see the pod", || async {
            let answer = self.evict(namespace, pod, &json!({ "deleteOptions": { "dryRun": ["All"] } }), "").await?;
            let seen = if occupied { answer.code == 429 } else { answer.code == 201 && !answer.warnings.is_empty() };
            ensure!(seen, "{answer:?}");
            Ok(())
        })
        .await
    }

    /// Labels a pod, as the leader does: through its status.
    pub(crate) async fn label(&self, namespace: &Namespace, pod: &str, labels: &Value) -> Result<()> {
        let patch = json!({ "metadata": { "labels": labels } });
        let pods = self.pods(namespace).await?;
        pods.patch_subresource("status", pod, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Posts an Eviction; see [`evict`].
    pub(crate) async fn evict(&self, namespace: &Namespace, pod: &str, more: &Value, query: &str) -> Result<Answer> {
        evict(&self.client().await?, namespace, pod, more, query).await
    }
}

/// A client that shows answers as they come: kube's own repeats a call that was answered 429.
pub(crate) async fn patient_client(cluster: &Cluster) -> Result<Client> {
    let file = Kubeconfig::read_from(cluster.kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Posts an Eviction of `policy/v1` (or what `more` says) and tells what came back.
pub(crate) async fn evict(
    client: &Client,
    namespace: &Namespace,
    pod: &str,
    more: &Value,
    query: &str,
) -> Result<Answer> {
    let mut eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": pod, "namespace": namespace.name() },
    });
    if let (Some(eviction), Some(more)) = (eviction.as_object_mut(), more.as_object()) {
        eviction.extend(more.clone());
    }
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction{query}", namespace.name());
    let request =
        Request::post(path).header("content-type", "application/json").body(eviction.to_string().into_bytes())?;
    let response = client.send(request.map(kube::client::Body::from)).await?;
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    let retry_after = response.headers().get("retry-after").is_some();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(Answer { code, body: serde_json::from_slice(&body)?, warnings, retry_after })
}

/// What the API server said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
    pub(crate) retry_after: bool,
}

impl Answer {
    pub(crate) fn message(&self) -> &str {
        self.body.pointer("/message").and_then(Value::as_str).unwrap_or_default()
    }
}

/// A pod that says it is ours.
pub(crate) fn managed(name: &str, labels: &[(&str, &str)]) -> Value {
    let mut all = json!({
        label::MANAGED_BY: label::MANAGED_BY_VALUE, label::NETWORK: "main", label::GROUP: "lobby", label::ROLE: label::ROLE_SERVER,
    });
    for (key, value) in labels {
        all[*key] = json!(value);
    }
    pod(name, &all)
}

pub(crate) fn pod(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
        "spec": { "containers": [{ "name": "minecraft", "image": "example.test/game:1" }] },
    })
}

async fn launch(cluster: &Cluster, address: SocketAddr) -> Result<Process> {
    let account = cluster.service_account(object::OPERATOR_NAMESPACE, object::WEBHOOK).await?;
    Launch::new("webhook", binary("spawnery-webhook").await?)
        .arg(format!("--webhook-bind-address={address}"))
        .arg(format!("--kubeconfig={}", account.kubeconfig().display()))
        .arg(format!("--health-probe-bind-address={}", SocketAddr::new(address.ip(), HEALTH_PORT)))
        .arg(format!("--metrics-bind-address={}", SocketAddr::new(address.ip(), METRICS_PORT)))
        .args(["--log-level=info,spawnery=debug", "--shutdown-delay=3s", "--shutdown-grace=2s"])
        .log(cluster.log_dir().join("webhook.log"))
        .start()
}

/// What the reconciler registers, for every namespace.
fn registration(address: SocketAddr, ca_pem: &str, token: &EvictionToken) -> String {
    let hook = |name: &str, path: &str, groups: &str, resources: &[&str], operations: &[&str], policy: &str| {
        json!({
            "name": name, "failurePolicy": policy, "matchPolicy": "Equivalent", "timeoutSeconds": 3,
            "sideEffects": "NoneOnDryRun", "admissionReviewVersions": ["v1"],
            "clientConfig": { "url": format!("https://{address}{path}"), "caBundle": ByteString(ca_pem.as_bytes().to_vec()) },
            "rules": [{
                "apiGroups": [groups], "apiVersions": ["*"], "resources": resources, "operations": operations,
                "scope": "Namespaced",
            }],
        })
    };
    let kinds = ["networks", "proxygroups", "servergroups", "servers"];
    let mut pods = hook("pods.spawnery.cloud", "/mutate-pods", "", &["pods"], &["CREATE"], "Fail");
    pods["objectSelector"] = json!({ "matchLabels": { label::MANAGED_BY: label::MANAGED_BY_VALUE } });
    let configuration = |kind: &str, hooks: Vec<Value>| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": { "name": object::WEBHOOK_CONFIGURATION }, "webhooks": hooks,
        })
    };
    let validating = vec![
        // Fail instead of Ignore: what the webhook does not answer must not look like an allow here.
        hook(
            "evictions.spawnery.cloud",
            &format!("/evictions/{}", token.reveal()),
            "",
            &["pods/eviction"],
            &["CREATE"],
            "Fail",
        ),
        hook("objects.spawnery.cloud", "/validate", "spawnery.cloud", &kinds, &["CREATE", "UPDATE", "DELETE"], "Fail"),
    ];
    format!(
        "---\n{}\n---\n{}\n",
        configuration("ValidatingWebhookConfiguration", validating),
        configuration("MutatingWebhookConfiguration", vec![pods])
    )
}

pub(crate) fn now() -> jiff::Timestamp {
    #[allow(clippy::disallowed_methods)] // certificates are made for the real now
    jiff::Timestamp::now()
}

async fn plain_get(url: &str) -> Result<(u16, String)> {
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http::<http_body_util::Empty<Bytes>>();
    let answer = tokio::time::timeout(Duration::from_secs(2), client.get(url.parse()?)).await??;
    let code: StatusCode = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    Ok((code.as_u16(), String::from_utf8_lossy(&body).into_owned()))
}

/// `kubectl apply --dry-run=server`: the webhook is asked, nothing is stored.
pub(crate) trait DryApply {
    async fn try_apply_dry(&self, manifest: &str) -> Result<spawnery_tests::Output>;
}

impl DryApply for Cluster {
    async fn try_apply_dry(&self, manifest: &str) -> Result<spawnery_tests::Output> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), manifest)?;
        let path = file.path().display().to_string();
        self.kubectl(["create", "--dry-run=server", "-f", &path]).await
    }
}
