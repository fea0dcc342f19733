//! What a cluster stands on: loopback with kwok's nodes, or a private network with real ones.

use super::{address::Network, component::Component};
use crate::nodes::network::{self, PrivateNetwork};
use std::{net::Ipv4Addr, sync::Arc};

/// Where a cluster listens, and who its nodes are.
#[derive(Debug)]
pub(crate) enum Ground {
    /// Everything on loopback; kwok stands for the nodes.
    Loopback(Network),
    /// A network namespace that the caller's threads are in; the nodes are real.
    Private(Arc<PrivateNetwork>),
}

impl Ground {
    /// The control plane's address.
    pub(super) fn control_plane(&self) -> Ipv4Addr {
        match self {
            Self::Loopback(network) => network.control_plane(),
            Self::Private(_) => network::CONTROL_PLANE,
        }
    }

    /// An address that nobody else was given, for a process that stands beside the cluster.
    pub(super) fn free_address(&self) -> Ipv4Addr {
        match self {
            Self::Loopback(network) => network.free_address(),
            Self::Private(network) => network.free_address(),
        }
    }

    /// Where pods get their addresses.
    pub(super) fn pods(&self) -> String {
        match self {
            Self::Loopback(network) => network.pods(),
            Self::Private(_) => network::PODS.to_owned(),
        }
    }

    /// The components of the control plane that come after the API server.
    pub(super) fn controllers(&self) -> &'static [Component] {
        match self {
            Self::Loopback(_) => &[Component::ControllerManager, Component::Scheduler, Component::Kwok],
            Self::Private(_) => &[Component::ControllerManager, Component::Scheduler],
        }
    }

    /// The flags that a component has only on this ground; `file` makes one that names a file of the cluster.
    pub(super) fn flags(&self, component: Component, file: impl Fn(&str, &str) -> String) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        match (self, component) {
            (Self::Loopback(_), Component::ApiServer) => words(&["--endpoint-reconciler-type=none"]),
            // Endpoints may not hold loopback addresses, and pods have no others there.
            (Self::Loopback(_), Component::ControllerManager) => words(&[
                "--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller",
            ]),
            (Self::Private(_), Component::ApiServer) => vec![
                file("client-ca-file", "ca.crt"),
                file("kubelet-client-certificate", "kubelet-client.crt"),
                file("kubelet-client-key", "kubelet-client.key"),
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                "--enable-admission-plugins=NodeRestriction".to_owned(),
                // Five minutes is what the defaults are. Nobody waits that long in a test for a pod of a dead node.
                "--default-not-ready-toleration-seconds=5".to_owned(),
                "--default-unreachable-toleration-seconds=5".to_owned(),
            ],
            (Self::Private(_), Component::ControllerManager) => {
                words(&["--node-monitor-period=1s", "--node-monitor-grace-period=8s"])
            }
            _ => Vec::new(),
        }
    }
}
