//! Real handshakes over an in-memory pipe: versions, names, anchors, and a certificate exchanged under open connections.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::version::TLS12;
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, ServerConfig};
use rustls_pki_types::ServerName;
use spawnery_certs::parse;
use spawnery_certs::{Authority, ServingCert, agent_server_config, client_config, provider, webhook_server_config};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

const NAME: &str = "spawnery-operator.spawnery-system.svc";

/// The system's clock: rustls checks certificates against it in a handshake.
fn now() -> Timestamp {
    let since_epoch = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
    Timestamp::from_second(since_epoch.as_secs().cast_signed()).expect("in range")
}

fn names() -> Vec<String> {
    spawnery_certs::operator_names("spawnery-system")
}

async fn shake(
    server: Arc<ServerConfig>,
    client: ClientConfig,
    name: &str,
) -> std::io::Result<TlsStream<tokio::io::DuplexStream>> {
    let (near, far) = tokio::io::duplex(16 * 1024);
    let accept = tokio::spawn(async move { TlsAcceptor::from(server).accept(far).await });
    let name = ServerName::try_from(name.to_owned()).expect("a host name");
    let connected = TlsConnector::from(Arc::new(client)).connect(name, near).await;
    let accepted = accept.await.expect("no panic");
    accepted.and(connected)
}

fn client_of_version_12(ca_pem: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(parse::certificates(ca_pem));
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS12])
        .expect("suites for TLS 1.2")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

struct Served {
    ca: Authority,
    cert: Arc<ServingCert>,
}

fn served() -> Served {
    let ca = Authority::generate(now()).expect("a CA");
    let cert = ServingCert::empty();
    cert.set(&ca.leaf(now(), &names()).expect("a leaf")).expect("servable");
    Served { ca, cert }
}

#[tokio::test]
async fn the_agent_channel_speaks_tls_13_and_h2() {
    let Served { ca, cert } = served();
    let config = Arc::new(agent_server_config(cert).expect("a configuration"));
    let stream = shake(config, client_config(ca.cert_pem()).expect("an anchor"), NAME).await.expect("a handshake");
    assert_eq!(stream.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
}

#[tokio::test]
async fn tls_12_is_refused_on_the_agent_channel_and_taken_by_webhooks() {
    let Served { ca, cert } = served();
    let agents = Arc::new(agent_server_config(Arc::clone(&cert)).expect("a configuration"));
    shake(agents, client_of_version_12(ca.cert_pem()), NAME).await.expect_err("TLS 1.3 only");
    let webhooks = Arc::new(webhook_server_config(cert).expect("a configuration"));
    let stream = shake(webhooks, client_of_version_12(ca.cert_pem()), NAME).await.expect("TLS 1.2 is enough");
    assert_eq!(stream.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_2));
}

#[tokio::test]
async fn another_name_and_another_ca_are_refused() {
    let Served { ca, cert } = served();
    let config = Arc::new(agent_server_config(cert).expect("a configuration"));
    let client = client_config(ca.cert_pem()).expect("an anchor");
    shake(Arc::clone(&config), client, "spawnery-operator.elsewhere.svc").await.expect_err("another namespace");
    let other = Authority::generate(now()).expect("a CA");
    let stranger = client_config(other.cert_pem()).expect("an anchor");
    shake(Arc::clone(&config), stranger, NAME).await.expect_err("another CA");
    let both = format!("{}-----BEGIN NONSENSE\n{}", other.cert_pem(), ca.cert_pem());
    shake(config, client_config(&both).expect("anchors"), NAME).await.expect("any anchor of the bundle will do");
}

#[tokio::test]
async fn nothing_to_serve_fails_the_handshake_and_a_new_leaf_is_served_at_once() {
    let ca = Authority::generate(now()).expect("a CA");
    let cert = ServingCert::empty();
    let config = Arc::new(agent_server_config(Arc::clone(&cert)).expect("a configuration"));
    let client = || client_config(ca.cert_pem()).expect("an anchor");
    shake(Arc::clone(&config), client(), NAME).await.expect_err("no certificate yet");
    assert!(!cert.ready());

    let (first, second) = (ca.leaf(now(), &names()).expect("a leaf"), ca.leaf(now(), &names()).expect("a leaf"));
    cert.set(&first).expect("servable");
    let old = shake(Arc::clone(&config), client(), NAME).await.expect("served");
    cert.set(&second).expect("servable");
    let new = shake(config, client(), NAME).await.expect("served");
    let leaf_of = |stream: &TlsStream<tokio::io::DuplexStream>| {
        stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).cloned().expect("a leaf")
    };
    assert_eq!(leaf_of(&old), parse::certificate(&first.cert_pem).expect("DER"), "open connections keep theirs");
    assert_eq!(leaf_of(&new), parse::certificate(&second.cert_pem).expect("DER"));
}

#[test]
fn a_pair_that_does_not_belong_together_leaves_the_old_one_in_place() {
    let Served { ca, cert } = served();
    let before = cert.not_after();
    let mut broken = ca.leaf(now(), &names()).expect("a leaf");
    broken.key_pem = ca.key_pem().to_owned();
    cert.set(&broken).expect_err("another key");
    assert_eq!(cert.not_after(), before);
}

#[test]
fn a_bundle_without_a_certificate_is_no_anchor() {
    assert!(client_config("").is_err());
    assert!(client_config("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err());
}
