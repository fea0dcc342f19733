//! The loopback network that belongs to one cluster.
//!
//! Linux answers on all of 127.0.0.0/8. A cluster takes one `127.X.0.0/16` for itself: then its components can have the
//! usual ports, a restarted one gets its port back, and pods can have addresses that can be dialled.

use anyhow::{Context as _, Result};
use rand::seq::SliceRandom as _;
use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU8, Ordering},
};

/// Whoever listens here owns the network. Below the range that the kernel gives out by itself.
const CLAIM_PORT: u16 = 1270;

/// One `127.X.0.0/16`, ours until this is dropped or our process ends.
#[derive(Debug)]
pub struct Network {
    second: u8,
    next: AtomicU8,
    // Its port is the claim, on the whole machine.
    _claim: TcpListener,
}

impl Network {
    /// Takes a network that no other cluster on this machine has.
    ///
    /// # Errors
    /// When all 254 are taken.
    pub fn claim() -> Result<Self> {
        // 127.0.0.0/16 is everybody's.
        let mut candidates: Vec<u8> = (1..=254).collect();
        candidates.shuffle(&mut rand::rng());
        let mut claims = candidates.into_iter().filter_map(|second| {
            let claim = TcpListener::bind((Ipv4Addr::new(127, second, 255, 254), CLAIM_PORT)).ok()?;
            Some(Self { second, next: AtomicU8::new(2), _claim: claim })
        });
        claims.next().context("no network 127.X.0.0/16 is free: are 254 clusters running?")
    }

    /// The control plane's address.
    pub fn control_plane(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.second, 255, 1)
    }

    /// An address that nobody else was given, for a process that stands beside the cluster.
    pub fn free_address(&self) -> Ipv4Addr {
        // Wraps after 250; by then the first ones are long gone, and a port that is still taken says so.
        let last =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(if n < 253 { n + 1 } else { 2 }));
        Ipv4Addr::new(127, self.second, 255, last.unwrap_or(2))
    }

    /// Where pods get their addresses, counted up from the lowest: the control plane's are at the other end.
    pub fn pods(&self) -> String {
        format!("127.{}.0.0/16", self.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn networks_do_not_meet() {
        let networks: Vec<Network> = (0..50).map(|_| Network::claim().unwrap()).collect();
        let distinct: HashSet<Ipv4Addr> = networks.iter().map(Network::control_plane).collect();
        assert_eq!(distinct.len(), networks.len());
    }

    #[test]
    fn given_addresses_stay_clear_of_the_control_plane_and_the_claim() {
        let network = Network::claim().unwrap();
        let given: HashSet<u8> = (0..600).map(|_| network.free_address().octets()[3]).collect();
        assert_eq!(given, (2..=253).collect());
    }
}
