//! Who waits at the pre-stop hook: a bounded number of calls, and nobody can take all the places.
//!
//! The kubelet calls from the node's own address, and its call must not fail: SIGTERM would follow at once. When all places
//! are taken, the oldest call of the address with the most of them gives way. So a stranger displaces their own calls; to
//! displace the kubelet's one call it takes as many addresses as there are places.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Calls that may wait at the same time.
pub(super) const PLACES: usize = 64;

/// All calls that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiters(Arc<Mutex<Calls>>);

#[derive(Debug, Default)]
struct Calls {
    /// In the order in which they came.
    waiting: BTreeMap<u64, Call>,
    last: u64,
}

#[derive(Debug)]
struct Call {
    from: IpAddr,
    gives_way: CancellationToken,
}

/// The place of a call that waits; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    waiters: Waiters,
    number: u64,
    gives_way: CancellationToken,
}

impl Waiters {
    /// A place for a call from this address, at the cost of another call if there is none left.
    pub(super) fn take(&self, from: IpAddr) -> Place {
        let gives_way = CancellationToken::new();
        let mut calls = self.0.lock();
        if calls.waiting.len() >= PLACES
            && let Some(call) = calls.least_missed().and_then(|number| calls.waiting.remove(&number))
        {
            call.gives_way.cancel();
        }
        calls.last = calls.last.wrapping_add(1);
        let number = calls.last;
        // The same caller comes as an IPv4 address or as an IPv6 one that holds it, depending on the listener.
        let call = Call { from: from.to_canonical(), gives_way: gives_way.clone() };
        calls.waiting.insert(number, call);
        Place { waiters: self.clone(), number, gives_way }
    }
}

impl Calls {
    fn least_missed(&self) -> Option<u64> {
        let mut of_address: HashMap<IpAddr, usize> = HashMap::new();
        for call in self.waiting.values() {
            *of_address.entry(call.from).or_default() += 1;
        }
        let rank = |(number, call): &(&u64, &Call)| (Reverse(of_address.get(&call.from).copied()), **number);
        self.waiting.iter().min_by_key(rank).map(|(number, _)| *number)
    }
}

impl Place {
    /// Waits until another call has taken the place.
    pub(super) async fn taken(&self) {
        self.gives_way.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiters.0.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 244, 0, last].into()
    }

    /// Which of the places had to give way.
    fn gone(places: &[Place]) -> Vec<usize> {
        let gone = places.iter().enumerate().filter(|(_, place)| place.gives_way.is_cancelled());
        gone.map(|(n, _)| n).collect()
    }

    #[test]
    fn a_stranger_displaces_their_own_calls() {
        let waiters = Waiters::default();
        let kubelet = waiters.take(address(1));
        let mut strangers: Vec<_> = (1..PLACES).map(|_| waiters.take(address(2))).collect();
        assert!(gone(&strangers).is_empty());
        strangers.extend((0..3).map(|_| waiters.take(address(2))));
        assert_eq!(gone(&strangers), [0, 1, 2], "the oldest");
        let newcomer = waiters.take(address(3));
        assert_eq!(gone(&strangers), [0, 1, 2, 3]);
        assert!(gone(&[kubelet, newcomer]).is_empty());
        assert_eq!(waiters.0.lock().waiting.len(), PLACES - 2, "dropped places are free");
    }

    #[test]
    fn one_caller_is_one_address_however_it_is_written() {
        let waiters = Waiters::default();
        let mapped = std::net::Ipv4Addr::new(10, 244, 0, 2).to_ipv6_mapped();
        let _kept: Vec<_> = (2..PLACES).map(|_| waiters.take(address(2))).collect();
        let other = [waiters.take(address(3)), waiters.take(address(3))];
        let _one_more = waiters.take(mapped.into());
        assert!(gone(&other).is_empty());
    }
}
