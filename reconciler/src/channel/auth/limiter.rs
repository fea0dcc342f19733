//! How many refused reviews a peer may cause.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Refused reviews that a peer may cause at once.
const BURST: f64 = 5.0;
/// Time after which it may cause one more.
const REFILL: Duration = Duration::from_secs(10);
/// How far a peer may go below zero by reviews that run at the same time.
const DEBT: f64 = 5.0;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn left(&self, now: Instant) -> f64 {
        let refilled = now.saturating_duration_since(self.at).as_secs_f64() / REFILL.as_secs_f64();
        (self.left + refilled).min(BURST)
    }
}

/// A token bucket a peer; peers that have done nothing wrong take no space.
#[derive(Debug)]
pub(super) struct Limiter {
    buckets: HashMap<IpAddr, Bucket>,
    most: usize,
}

impl Limiter {
    pub(super) fn new(most: usize) -> Self {
        Self { buckets: HashMap::new(), most }
    }

    /// Whether the peer may cause a review.
    pub(super) fn allows(&self, peer: IpAddr, now: Instant) -> bool {
        self.buckets.get(&peer).is_none_or(|bucket| bucket.left(now) >= 1.0)
    }

    /// A review that the peer caused was refused.
    pub(super) fn charge(&mut self, peer: IpAddr, now: Instant) {
        if self.buckets.len() >= self.most && !self.buckets.contains_key(&peer) {
            self.make_room(now);
        }
        let left = self.buckets.get(&peer).map_or(BURST, |bucket| bucket.left(now));
        let left = (left - 1.0).max(-DEBT);
        self.buckets.insert(peer, Bucket { left, at: now });
    }

    /// Forgets peers whose bucket is full again, and if there are none the one that is nearest to it.
    fn make_room(&mut self, now: Instant) {
        self.buckets.retain(|_, bucket| bucket.left(now) < BURST);
        if self.buckets.len() < self.most {
            return;
        }
        let fullest = self.buckets.iter().max_by(|(_, a), (_, b)| a.left(now).total_cmp(&b.left(now)));
        if let Some(fullest) = fullest.map(|(peer, _)| *peer) {
            self.buckets.remove(&fullest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last).into()
    }

    #[test]
    fn five_refusals_then_one_in_ten_seconds_and_others_are_not_held_up() {
        let t0 = Instant::now();
        let mut limiter = Limiter::new(16);
        for _ in 0..5 {
            assert!(limiter.allows(peer(1), t0));
            limiter.charge(peer(1), t0);
        }
        assert!(!limiter.allows(peer(1), t0));
        assert!(limiter.allows(peer(2), t0));
        assert!(!limiter.allows(peer(1), t0 + Duration::from_secs(9)));
        assert!(limiter.allows(peer(1), t0 + Duration::from_secs(10)));
        limiter.charge(peer(1), t0 + Duration::from_secs(10));
        assert!(!limiter.allows(peer(1), t0 + Duration::from_secs(11)));
    }

    #[test]
    fn it_never_remembers_more_peers_than_it_may() {
        let t0 = Instant::now();
        let mut limiter = Limiter::new(3);
        for _ in 0..4 {
            limiter.charge(peer(1), t0);
        }
        for last in 2..50 {
            limiter.charge(peer(last), t0);
            assert!(limiter.buckets.len() <= 3);
        }
        assert!(limiter.buckets.contains_key(&peer(1)), "the worst is remembered longest");
        limiter.charge(peer(60), t0 + Duration::from_mins(10));
        assert_eq!(limiter.buckets.len(), 1, "full buckets are forgotten");
    }
}
