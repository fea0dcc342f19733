//! Pods between our answer and the moment at which the watch shows them on a node.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spawnery_core::placement::{Newcomer, UnderWay};

use crate::index::Asked;

/// Binding a pod and seeing it takes some 10 ms. A scheduler does not say when it gave a pod up; after this long it has.
const LONGEST: Duration = Duration::from_secs(1);
/// A scheduler that decides a thousand times a second has no more of them; beyond it we know less, and wait less.
const MOST: usize = 1024;

#[derive(Debug)]
struct Flight {
    since: Instant,
    asked: Asked,
}

/// Pods under way, by UID.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    aloft: Mutex<HashMap<String, Flight>>,
}

impl Flights {
    /// A scheduler was told where the pod may go.
    pub(crate) fn begin(&self, uid: &str, asked: &Asked, now: Instant) {
        let mut aloft = self.aloft.lock();
        if aloft.len() >= MOST {
            aloft.retain(|_, flight| is_fresh(flight, now));
        }
        if aloft.len() < MOST {
            aloft.insert(uid.to_owned(), Flight { since: now, asked: asked.clone() });
        }
    }

    /// The pod is on a node, or gone.
    pub(crate) fn end(&self, uid: &str) {
        self.aloft.lock().remove(uid);
    }

    /// Who is under way before the pod of this UID; `None` when nobody is.
    pub(crate) fn under_way(&self, asked: &Asked, uid: &str, now: Instant) -> Option<UnderWay> {
        let mut aloft = self.aloft.lock();
        aloft.retain(|_, flight| is_fresh(flight, now));
        let mut under_way = UnderWay::default();
        for flight in aloft.iter().filter(|(of, _)| *of != uid).map(|(_, flight)| flight) {
            match flight.asked.newcomer {
                Newcomer::Server { slots } => under_way.slots = under_way.slots.saturating_add(slots),
                Newcomer::Proxy if flight.asked.group == asked.group => under_way.siblings += 1,
                Newcomer::Proxy => {}
            }
        }
        Some(under_way).filter(|under_way| *under_way != UnderWay::default())
    }
}

fn is_fresh(flight: &Flight, now: Instant) -> bool {
    now.saturating_duration_since(flight.since) < LONGEST
}

#[cfg(test)]
mod tests {
    use spawnery_api::view::PodView;

    use super::*;
    use crate::testing::pod_json;

    fn asked(role: &str, group: &str) -> Asked {
        let pod: PodView = serde_json::from_value(pod_json("new", role, group, "")).unwrap();
        Asked::of(&pod).unwrap()
    }

    #[test]
    fn counts_those_before_it() {
        let (flights, now) = (Flights::default(), Instant::now());
        flights.begin("p", &asked("proxy", "gateway"), now);
        flights.begin("q", &asked("proxy", "bedrock"), now);
        flights.begin("s", &asked("server", "lobby"), now);
        let before = |uid: &str| flights.under_way(&asked("proxy", "gateway"), uid, now);
        assert_eq!(before("new"), Some(UnderWay { siblings: 1, slots: 20 }));
        assert_eq!(before("p"), Some(UnderWay { siblings: 0, slots: 20 }));
        flights.end("p");
        flights.end("s");
        assert_eq!(before("new"), None);
    }

    #[test]
    fn a_flight_that_nobody_saw_end_is_given_up() {
        let (flights, now) = (Flights::default(), Instant::now());
        let gateway = asked("proxy", "gateway");
        flights.begin("p", &gateway, now);
        assert!(flights.under_way(&gateway, "new", now).is_some());
        assert_eq!(flights.under_way(&gateway, "new", now + LONGEST), None);
    }

    #[test]
    fn there_is_a_most_of_them() {
        let (flights, now) = (Flights::default(), Instant::now());
        let gateway = asked("proxy", "gateway");
        for n in 0..=MOST {
            flights.begin(&n.to_string(), &gateway, now);
        }
        assert_eq!(flights.aloft.lock().len(), MOST);
        flights.begin("later", &gateway, now + LONGEST);
        assert_eq!(flights.aloft.lock().len(), 1);
    }
}
