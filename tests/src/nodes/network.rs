//! The network of a cluster with real nodes: a namespace with a bridge in it and no way out.
//!
//! ```text
//!  10.77.0.1  control plane and tests ──┐
//!  10.77.1.N  whatever stands beside    │ bridge `nodes`
//!  10.77.0.11 node-a ── 10.244.1.0/24 ──┤
//!  10.77.0.12 node-b ── 10.244.2.0/24 ──┘      Services: 10.96.0.0/16, by way of a node
//! ```
//!
//! Namespaces belong to threads. Whoever is to be inside calls [`PrivateNetwork::enter`] on a thread of its own: threads and
//! processes that it starts are inside too, and nobody else is.

use crate::{command::run, eventually::eventually, launch::Launch, process::Process};
use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use rustix::thread::LinkNameSpaceType;
use std::{
    fs::File,
    net::Ipv4Addr,
    os::fd::AsFd as _,
    path::PathBuf,
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

/// The control plane's address, and the nodes' way to everything else.
pub const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Where pods of all nodes get their addresses.
pub const PODS: &str = "10.244.0.0/16";
/// Where Services get theirs.
pub const SERVICES: &str = "10.96.0.0/16";
/// The API server's Service, which is the first address of the range.
pub const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The cluster's name server.
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

const BRIDGE: &str = "nodes";
/// `ip` takes milliseconds; more on a busy machine.
const IP_LIMIT: Duration = Duration::from_secs(20);

/// A node's place in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// 1 for the first node.
    pub(super) number: u8,
}

impl Place {
    pub(super) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 10 + self.number)
    }

    /// Where the node's pods get their addresses.
    pub(super) fn pods(self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// The bridge's end of the node's cable.
    pub(super) fn port(self) -> String {
        format!("node{}", self.number)
    }

    /// The same after each boot: neighbours remember it for minutes.
    fn hardware_address(self) -> String {
        format!("02:77:00:00:00:{:02x}", self.number)
    }
}

/// A network namespace with the bridge, ours until this is dropped or our process ends.
#[derive(Debug)]
pub struct PrivateNetwork {
    /// Keeps the namespace alive until somebody else is in it.
    holder: Process,
    next: AtomicU8,
    /// Nodes whose cables are whole, in any order; the first by number is the way to Services.
    plugged: Mutex<Vec<Place>>,
}

impl PrivateNetwork {
    /// Makes the namespace, and the routes to `nodes` nodes that are not there yet.
    ///
    /// # Errors
    /// When we may not make namespaces, or `ip` fails.
    pub(super) async fn create(places: &[Place]) -> Result<Self> {
        let holder = Launch::new("network", "unshare").args(["--net", "sleep", "infinity"]).start()?;
        let network = Self { holder, next: AtomicU8::new(1), plugged: Mutex::default() };
        let outside = std::fs::read_link("/proc/self/ns/net").context("no network namespaces here")?;
        eventually(IP_LIMIT, "a network namespace", || async {
            ensure!(network.holder.is_running(), "`unshare --net` was refused");
            ensure!(std::fs::read_link(network.file())? != outside, "still in ours");
            Ok(())
        })
        .await?;
        let mut lines = vec![
            "link set lo up".to_owned(),
            format!("link add {BRIDGE} type bridge"),
            format!("addr add {CONTROL_PLANE}/24 dev {BRIDGE}"),
            format!("link set {BRIDGE} up"),
            // Every address here is ours, for processes beside the cluster that pods shall reach.
            "route add local 10.77.1.0/24 dev lo".to_owned(),
        ];
        lines.extend(places.iter().map(|place| format!("route add {} via {}", place.pods(), place.address())));
        network.ip(&lines).await?;
        // Packets to nowhere are answered with "unreachable" instead of silence.
        network.shell("echo 1 >/proc/sys/net/ipv4/ip_forward").await?;
        Ok(network)
    }

    /// Moves the calling thread inside. What it starts from then on, threads and processes, is inside too.
    ///
    /// # Errors
    /// When the namespace is gone.
    pub(super) fn enter(&self) -> Result<()> {
        let file = File::open(self.file()).context("the network namespace is gone")?;
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .context("could not enter the network namespace")
    }

    /// The namespace, as `nsenter --net=` takes it.
    pub fn file(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.holder.pid()))
    }

    /// An address that nobody else was given, which nodes and pods can reach.
    pub(crate) fn free_address(&self) -> Ipv4Addr {
        // Wraps after 254; by then the first ones are long gone, and a port that is still taken says so.
        let last =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(if n < 254 { n + 1 } else { 1 }));
        Ipv4Addr::new(10, 77, 1, last.unwrap_or(1))
    }

    /// Lays a cable from the bridge to a node whose namespaces process `pid` is in.
    pub(super) async fn plug_in(&self, place: Place, pid: i32, others: &[Place]) -> Result<()> {
        let port = place.port();
        self.ip(&[
            format!("link add {port} type veth peer name eth0 address {} netns {pid}", place.hardware_address()),
            format!("link set {port} master {BRIDGE} up"),
        ])
        .await?;
        let mut lines = vec![
            "link set lo up".to_owned(),
            format!("addr add {}/24 dev eth0", place.address()),
            "link set eth0 up".to_owned(),
            format!("route add default via {CONTROL_PLANE}"),
        ];
        lines.extend(others.iter().map(|other| format!("route add {} via {}", other.pods(), other.address())));
        ip(&PathBuf::from(format!("/proc/{pid}/ns/net")), &lines).await?;
        self.route_services(place, true).await
    }

    /// Takes a node's cable away, if it has one.
    pub(super) async fn pull_out(&self, place: Place) -> Result<()> {
        // The kernel takes it away too, with the node's namespace, but later.
        self.shell(&format!("ip link delete {} 2>/dev/null || true", place.port())).await?;
        self.route_services(place, false).await
    }

    /// Cuts or mends a node's cable.
    pub(super) async fn set_link(&self, place: Place, up: bool) -> Result<()> {
        self.ip(&[format!("link set {} {}", place.port(), if up { "up" } else { "down" })]).await?;
        self.route_services(place, up).await
    }

    /// Sends what is for Services by way of a node that can be reached: its kube-proxy finds the pod.
    async fn route_services(&self, place: Place, reachable: bool) -> Result<()> {
        let way = {
            let mut plugged = self.plugged.lock();
            plugged.retain(|other| *other != place);
            if reachable {
                plugged.push(place);
            }
            plugged.iter().min_by_key(|place| place.number).copied()
        };
        match way {
            Some(way) => self.ip(&[format!("route replace {SERVICES} via {}", way.address())]).await,
            None => Ok(()),
        }
    }

    async fn ip(&self, lines: &[String]) -> Result<()> {
        ip(&self.file(), lines).await
    }

    async fn shell(&self, script: &str) -> Result<()> {
        let launch = inside(&self.file(), "sh").args(["-c", script]);
        run(&launch, None, IP_LIMIT).await?.stdout().map(drop)
    }
}

fn inside(namespace: &std::path::Path, program: &str) -> Launch {
    Launch::new(program, "nsenter").arg(format!("--net={}", namespace.display())).arg(program)
}

async fn ip(namespace: &std::path::Path, lines: &[String]) -> Result<()> {
    let launch = inside(namespace, "ip").args(["-batch", "-"]);
    run(&launch, Some(&(lines.join("\n") + "\n")), IP_LIMIT).await?.stdout().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_do_not_meet() {
        let (a, b) = (Place { number: 1 }, Place { number: 2 });
        assert_eq!(a.address().to_string(), "10.77.0.11");
        assert_eq!(b.pods(), "10.244.2.0/24");
        assert_ne!(a.hardware_address(), b.hardware_address());
    }
}
