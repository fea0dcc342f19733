//! The image that clusters install, without a cluster: its programs start and find each other in a root directory that
//! holds the image and nothing else.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests are tests")]

use anyhow::{Context as _, Result, bail, ensure};
use spawnery_certs::Authority;
use spawnery_tests::{
    image::{Root, product},
    target,
};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::OnceCell,
    time::timeout,
};

const NAME: &str = "local.test/spawnery-test:1";
const LIMIT: Duration = Duration::from_secs(20);
/// An address of this test alone; resolvers know no other port.
const DNS: (Ipv4Addr, u16) = (Ipv4Addr::new(127, 53, 65, 32), 53);

/// The image as the running profile builds it: its programs are those of the other tests, linked once more.
async fn archive() -> &'static [u8] {
    static ARCHIVE: OnceCell<Vec<u8>> = OnceCell::const_new();
    ARCHIVE.get_or_init(written).await
}

async fn written() -> Vec<u8> {
    fs::read(product::archive(NAME, &target::profile_name().unwrap()).await.unwrap()).unwrap()
}

async fn root() -> Root {
    Root::unpack(archive().await).unwrap()
}

/// What the chart, probes and games start.
fn names() -> Vec<&'static str> {
    product::PROGRAMS.iter().flat_map(|program| program.names().to_owned()).collect()
}

#[tokio::test]
async fn is_the_same_bytes_twice() {
    let (first, second) = (archive().await, written().await);
    for program in product::PROGRAMS {
        let read = |archive| fs::read(Root::unpack(archive).unwrap().file(&program.path())).unwrap();
        assert!(read(first) == read(&second), "two builds of {} differ; was its source edited?", program.path());
    }
    assert!(first == second, "two archives of the same programs differ");
}

#[tokio::test]
async fn every_program_starts_in_it() {
    assert_eq!(root().await.all_start().await.unwrap(), names());
}

#[tokio::test]
async fn holds_nothing_that_runs_anything_else() {
    let root = root().await;
    let mut programs = names();
    programs.push("spawnery");
    programs.sort_unstable();
    let list = |path: &str| {
        let entries = fs::read_dir(root.path().join(path)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(list(""), ["etc", "tmp", "usr"]);
    assert_eq!(list("usr/local/bin"), programs);
    assert_eq!(list("etc"), ["group", "nsswitch.conf", "passwd", "ssl"]);
}

/// The name of a Service is completed by a pod's search list, and DNS knows it only so.
#[tokio::test]
async fn programs_find_services_by_name() {
    let dns = match UdpSocket::bind(DNS).await {
        Ok(dns) => dns,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("not tried: a DNS server needs port 53, which this user may not have");
            return;
        }
        Err(error) => panic!("could not serve DNS at {DNS:?}: {error}"),
    };
    let answers = tokio::spawn(answer(dns, "spawnery-operator.spawnery-system.svc.cluster.local"));
    let operator = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = operator.local_addr().unwrap().port();
    let root = root().await;
    let resolver = format!(
        "nameserver {}\nsearch games.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5 timeout:1\n",
        DNS.0
    );
    fs::write(root.path().join("etc/resolv.conf"), resolver).unwrap();
    let authority = Authority::generate("2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
    fs::write(root.path().join("etc/ca.crt"), authority.cert_pem()).unwrap();
    fs::write(root.path().join("etc/token"), "token").unwrap();
    let log = root.path().join("log");
    let agent = root
        .launch(&product::AGENT.path())
        .args(["--server", "lobby-a2", "--ca-file", "/etc/ca.crt", "--token-file", "/etc/token"])
        .args(["--local-listen", "127.53.65.32:8090", "--operator-endpoint"])
        .arg(format!("spawnery-operator.spawnery-system.svc:{port}"))
        .log(&log);
    let _agent = agent.start().unwrap();
    let called = timeout(LIMIT, operator.accept()).await;
    answers.abort();
    assert!(matches!(called, Ok(Ok(_))), "the agent did not call; it says\n{}", fs::read_to_string(&log).unwrap());
}

/// Says 127.0.0.1 for one name and that there is no other.
async fn answer(dns: UdpSocket, name: &str) -> Result<()> {
    let mut packet = [0; 512];
    loop {
        let (bytes, from): (usize, SocketAddr) = dns.recv_from(&mut packet).await?;
        let reply = reply(&packet[..bytes], name)?;
        dns.send_to(&reply, from).await?;
    }
}

/// A reply to a question, by RFC 1035 §4: header of 12 bytes, the name as labels, type, class.
fn reply(packet: &[u8], known: &str) -> Result<Vec<u8>> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*packet.get(at).context("a question that breaks off")?);
        at += 1;
        if length == 0 {
            break;
        }
        ensure!(length < 64, "a question that points elsewhere");
        labels.push(
            String::from_utf8_lossy(packet.get(at..at + length).context("a label that breaks off")?).to_lowercase(),
        );
        at += length;
    }
    let Some(&[0, kind, 0, 1]) = packet.get(at..at + 4) else { bail!("a question of an unknown class") };
    let (found, address) = (labels.join(".") == known, kind == 1);
    let mut reply = packet[..2].to_vec();
    // A response, with recursion; code 3 says that there is no such name.
    reply.extend([0x81, if found { 0x80 } else { 0x83 }, 0, 1, 0, u8::from(found && address), 0, 0, 0, 0]);
    reply.extend(&packet[12..at + 4]);
    if found && address {
        // The name as asked, type A, class IN, 5 seconds, 4 bytes.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
        reply.extend(Ipv4Addr::LOCALHOST.octets());
    }
    Ok(reply)
}
