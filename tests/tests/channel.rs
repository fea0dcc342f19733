//! Who may speak to the operator, against the real API server's tokens.

#![expect(clippy::indexing_slicing, reason = "JSON that lacks a key gives null")]

use anyhow::{Context as _, Result, ensure};
use futures::{FutureExt as _, future::BoxFuture};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Pod, ServiceAccount},
};
use kube::{Api, ResourceExt as _, api::DeleteParams, api::PostParams};
use rcgen::{KeyPair, SigningKey as _};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use spawnery_api::names::{object, volume};
use spawnery_proto::{AgentServiceClient, v1alpha1 as proto};
use spawnery_tests::{
    eventually,
    runner::Role,
    stack::{Arena, SmallNetwork, StackOptions},
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpSocket, time::timeout};
use tokio_rustls::TlsConnector;
use tonic::{Code, Request, transport::Endpoint};

const LIMIT: Duration = Duration::from_secs(30);
/// The name that agents expect the operator's certificate to have.
const OPERATOR: &str = "spawnery-operator.spawnery-system.svc";
const AN_HOUR: i64 = 3600;

#[tokio::test(flavor = "multi_thread")]
async fn only_a_pods_own_fresh_token_of_the_right_role_is_accepted() -> Result<()> {
    Arena::run("channel", StackOptions::default(), async |arena| {
        arena.start(&SmallNetwork { lobbies: 2, ..arena.network() }).await?;
        let door = Door::of(&arena).await?;
        let registered = arena.registered().await?;
        ensure!(registered.len() == 2, "{registered:?}");
        let server = running(&arena, Role::Server).await?;
        let proxy = running(&arena, Role::Proxy).await?;
        let foreign = foreign_pod(&arena).await?;
        let gone = foreign_pod(&arena).await?;

        let of_server = door.token(object::SERVER_SERVICE_ACCOUNT, volume::TOKEN_AUDIENCE, Some(&server)).await?;
        let of_proxy = door.token(object::PROXY_SERVICE_ACCOUNT, volume::TOKEN_AUDIENCE, Some(&proxy)).await?;
        let other_audience = door.token(object::SERVER_SERVICE_ACCOUNT, "somebody-else", Some(&server)).await?;
        let unbound = door.token(object::SERVER_SERVICE_ACCOUNT, volume::TOKEN_AUDIENCE, None).await?;
        let of_foreign = door.token(object::SERVER_SERVICE_ACCOUNT, volume::TOKEN_AUDIENCE, Some(&foreign)).await?;
        let of_gone = door.token(object::SERVER_SERVICE_ACCOUNT, volume::TOKEN_AUDIENCE, Some(&gone)).await?;
        let now = arena.pods().delete(&gone.name_any(), &DeleteParams::default().grace_period(0)).await;
        now.context("could not delete a pod")?;
        let expired = arena.resigned(&of_server, -2 * AN_HOUR)?;
        let (unsigned, _) = of_server.rsplit_once('.').context("not a token")?;
        let forged = format!("{unsigned}.{}", encode(&[7; 64]));

        let table = [
            ("no token", Role::Server, None, Code::Unauthenticated),
            ("not a token", Role::Server, Some("x"), Code::Unauthenticated),
            ("a forged signature", Role::Server, Some(&forged), Code::Unauthenticated),
            ("expired", Role::Server, Some(&expired), Code::Unauthenticated),
            ("of another audience", Role::Server, Some(&other_audience), Code::Unauthenticated),
            ("of no pod", Role::Server, Some(&unbound), Code::Unauthenticated),
            ("of a pod that is not ours", Role::Server, Some(&of_foreign), Code::Unauthenticated),
            ("of a pod that is gone", Role::Server, Some(&of_gone), Code::Unauthenticated),
            ("a server as a proxy", Role::Proxy, Some(&of_server), Code::Unauthenticated),
            ("a proxy as a server", Role::Server, Some(&of_proxy), Code::Unauthenticated),
        ];
        for (index, (case, role, token, want)) in table.into_iter().enumerate() {
            // Each from an address of its own: a peer may not be refused more than a few times.
            let peer = Ipv4Addr::new(127, 1, 0, u8::try_from(index + 1)?);
            let code = door.open(peer, role, token).await?;
            ensure!(code == want, "{case}: {code:?}");
        }
        ensure!(door.tls_1_2().await.is_err(), "TLS 1.2 was spoken");

        // The same way of making tokens and of dialling is accepted where nothing is wrong.
        let fresh = arena.resigned(&of_server, 0)?;
        let code = door.open(Ipv4Addr::new(127, 1, 1, 1), Role::Server, Some(&fresh)).await?;
        ensure!(code == Code::Ok, "a good token: {code:?}");

        ensure!(arena.registered().await? == registered, "the server did not go on");
        for name in registered {
            let losses = arena.servers().get_status(&name).await?.status.map(|status| status.readiness_losses);
            ensure!(losses == Some(0), "{name}: {losses:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_refused_again_and_again_is_limited_and_nobody_else() -> Result<()> {
    Arena::run("limited", StackOptions::default(), async |arena| {
        arena.start(&arena.network()).await?;
        let door = Door::of(&arena).await?;
        let server = running(&arena, Role::Server).await?;
        let good = door.token(object::SERVER_SERVICE_ACCOUNT, volume::TOKEN_AUDIENCE, Some(&server)).await?;
        let (bad, other) = (Ipv4Addr::new(127, 1, 0, 1), Ipv4Addr::new(127, 1, 0, 2));
        let mut codes = Vec::new();
        for attempt in 0..7 {
            codes.push(door.open(bad, Role::Server, Some(&format!("wrong-{attempt}"))).await?);
        }
        ensure!(codes[..5].iter().all(|code| *code == Code::Unauthenticated), "{codes:?}");
        ensure!(codes[6] == Code::ResourceExhausted, "{codes:?}");
        let code = door.open(other, Role::Server, Some(&good)).await?;
        ensure!(code == Code::Ok, "another peer: {code:?}");
        Ok(())
    })
    .await
}

/// Where agents knock.
struct Door {
    address: SocketAddr,
    ca: String,
    accounts: Api<ServiceAccount>,
}

impl Door {
    async fn of(arena: &Arena) -> Result<Self> {
        let client = arena.stack().cluster().client().await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), arena.namespace());
        let map = maps.get(object::CA_CONFIG_MAP).await?;
        let ca = map.data.and_then(|mut data| data.remove(object::CA_KEY)).context("no CA")?;
        let accounts = Api::namespaced(client, arena.namespace());
        Ok(Self { address: arena.leader().await?.address(), ca, accounts })
    }

    async fn token(&self, account: &str, audience: &str, pod: Option<&Pod>) -> Result<String> {
        let bound_object_ref = pod.map(|pod| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        });
        let audiences = vec![audience.to_owned()];
        let spec = TokenRequestSpec { audiences, bound_object_ref, expiration_seconds: Some(AN_HOUR) };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = self.accounts.create_token_request(account, &PostParams::default(), &request).await?;
        Ok(answer.status.context("a token request without an answer")?.token)
    }

    /// Opens a session from `peer`; the code with which it is refused, or `Ok` after the operator's first message.
    fn open<'a>(&'a self, peer: Ipv4Addr, role: Role, token: Option<&'a str>) -> BoxFuture<'a, Result<Code>> {
        // A client's futures are large.
        self.try_open(peer, role, token).boxed()
    }

    async fn try_open(&self, peer: Ipv4Addr, role: Role, token: Option<&str>) -> Result<Code> {
        let tls = self.dial(peer, spawnery_certs::client::client_config(&self.ca)?).await?;
        let mut io = Some(TokioIo::new(tls));
        let connect = tower::service_fn(move |_| {
            let io = io.take().context("dialled twice").map_err(std::io::Error::other);
            async move { io }
        });
        let channel = Endpoint::from_static("http://operator").connect_with_connector(connect).await?;
        let mut client = AgentServiceClient::new(channel);
        let opened = match role {
            Role::Server => {
                let request = request(futures::stream::pending::<proto::ServerMessage>(), token)?;
                match timeout(LIMIT, client.server_session(request)).await? {
                    Ok(hears) => timeout(LIMIT, hears.into_inner().message()).await?.map(|heard| heard.is_some()),
                    Err(status) => Err(status),
                }
            }
            Role::Proxy => {
                let request = request(futures::stream::pending::<proto::ProxyMessage>(), token)?;
                match timeout(LIMIT, client.proxy_session(request)).await? {
                    Ok(hears) => timeout(LIMIT, hears.into_inner().message()).await?.map(|heard| heard.is_some()),
                    Err(status) => Err(status),
                }
            }
        };
        match opened {
            Ok(spoken) => {
                ensure!(spoken, "a session without a word");
                Ok(Code::Ok)
            }
            Err(status) => Ok(status.code()),
        }
    }

    async fn tls_1_2(&self) -> Result<()> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in spawnery_certs::parse::certificates(&self.ca) {
            roots.add(certificate)?;
        }
        let builder = rustls::ClientConfig::builder_with_provider(spawnery_certs::provider());
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS12])?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        self.dial(Ipv4Addr::new(127, 1, 1, 2), config).await.map(drop)
    }

    async fn dial(
        &self,
        peer: Ipv4Addr,
        config: rustls::ClientConfig,
    ) -> Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(IpAddr::V4(peer), 0))?;
        let tcp = timeout(LIMIT, socket.connect(self.address)).await??;
        let name = ServerName::try_from(OPERATOR)?;
        Ok(timeout(LIMIT, TlsConnector::from(Arc::new(config)).connect(name, tcp)).await??)
    }
}

fn request<S>(says: S, token: Option<&str>) -> Result<Request<S>> {
    let mut request = Request::new(says);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    }
    Ok(request)
}

/// A pod of the network that runs.
async fn running(arena: &Arena, role: Role) -> Result<Pod> {
    let pods = arena.stack().runner().pods_in(arena.namespace(), role);
    let pod = pods.first().context("no such pod runs")?;
    Ok(arena.pods().get(&pod.facts().name).await?)
}

/// A pod with the servers' account that nobody but this test knows.
async fn foreign_pod(arena: &Arena) -> Result<Pod> {
    let pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "generateName": "foreign-" },
        "spec": {
            "serviceAccountName": object::SERVER_SERVICE_ACCOUNT,
            "containers": [{ "name": "main", "image": "nothing" }],
        },
    }))?;
    let made = arena.pods().create(&PostParams::default(), &pod).await?;
    eventually(LIMIT, "a foreign pod", || async { Ok(arena.pods().get(&made.name_any()).await?) }).await
}

/// Tokens that the API server did not issue, under the cluster's own key.
trait Resign {
    fn resigned(&self, token: &str, shift_seconds: i64) -> Result<String>;
}

impl Resign for Arena {
    /// The same token with its times moved, signed as the API server would.
    fn resigned(&self, token: &str, shift_seconds: i64) -> Result<String> {
        let pem = std::fs::read_to_string(self.stack().cluster().directory().join("tokens.key"))?;
        let key = KeyPair::from_pem(&pem)?;
        let mut parts = token.split('.');
        let header = parts.next().context("a token without a header")?;
        let claims = decode(parts.next().context("a token without claims")?)?;
        let mut claims: Value = serde_json::from_slice(&claims)?;
        for time in ["exp", "iat", "nbf"] {
            let at = claims[time].as_i64().with_context(|| format!("a token without {time}"))?;
            claims[time] = json!(at + shift_seconds);
        }
        let signed = format!("{header}.{}", encode(&serde_json::to_vec(&claims)?));
        let signature = plain_signature(&key.sign(signed.as_bytes())?)?;
        Ok(format!("{signed}.{}", encode(&signature)))
    }
}

/// An ECDSA signature of P-256 as tokens carry it, from its DER form: two numbers of 32 bytes.
fn plain_signature(der: &[u8]) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    let mut rest = der.get(2..).context("no sequence")?;
    for _ in 0..2 {
        let [2, length, after @ ..] = rest else { anyhow::bail!("no number") };
        let (number, after) = after.split_at_checked(usize::from(*length)).context("a number cut short")?;
        let digits = number.iter().skip_while(|byte| **byte == 0).copied().collect::<Vec<u8>>();
        plain.resize(plain.len() + 32_usize.checked_sub(digits.len()).context("a number too long")?, 0);
        plain.extend(digits);
        rest = after;
    }
    Ok(plain)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64 for URLs, without padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - chunk.len()));
        for sextet in 0..=chunk.len() {
            text.push(char::from(ALPHABET[bits >> (18 - 6 * sextet) & 63]));
        }
    }
    text
}

fn decode(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_usize, 0);
    for letter in text.bytes() {
        let sextet = ALPHABET.iter().position(|known| *known == letter).context("not base64")?;
        (bits, count) = ((bits << 6 | sextet) & 0xffff, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff)?);
        }
    }
    Ok(bytes)
}
