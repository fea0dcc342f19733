//! Room for requests: beyond it they are refused at once, and for a while others can see that some were.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// For one kind of request; a flood of it leaves other kinds alone.
#[derive(Debug)]
pub struct Room {
    places: Semaphore,
    refused: Mutex<Option<Instant>>,
}

impl Room {
    /// Room for so many at once.
    pub fn new(places: usize) -> Self {
        Self { places: Semaphore::new(places), refused: Mutex::new(None) }
    }

    /// A place until it is dropped, or none: the room is full.
    pub fn enter(&self, now: Instant) -> Option<SemaphorePermit<'_>> {
        let place = self.places.try_acquire().ok();
        if place.is_none() {
            *self.refused.lock() = Some(now);
        }
        place
    }

    /// Whether somebody was refused within the time before `now`.
    pub fn was_full(&self, now: Instant, within: Duration) -> bool {
        self.refused.lock().is_some_and(|at| now.saturating_duration_since(at) < within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_room_refuses_and_is_known_for_it() {
        let (room, now, within) = (Room::new(1), Instant::now(), Duration::from_secs(10));
        let place = room.enter(now);
        assert!(place.is_some() && !room.was_full(now, within));
        assert!(room.enter(now).is_none() && room.was_full(now, within));
        drop(place);
        assert!(room.enter(now).is_some());
        assert!(!room.was_full(now + within, within));
    }
}
