//! Whether this process can do its work, as a set of named conditions that must all hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

type Check = Box<dyn Fn() -> bool + Send + Sync>;

/// The set; cheap to clone.
#[derive(Clone, Default)]
pub struct Readiness(Arc<RwLock<Vec<(String, Check)>>>);

/// A condition that its owner sets.
#[derive(Debug, Clone, Default)]
pub struct ReadyFlag(Arc<AtomicBool>);

impl ReadyFlag {
    /// Whether the condition holds from now on.
    pub fn set(&self, holds: bool) {
        self.0.store(holds, Ordering::Relaxed);
    }

    /// Whether the condition holds.
    pub fn holds(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Readiness {
    /// No conditions: ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition that does not hold until it is set.
    pub fn flag(&self, name: impl Into<String>) -> ReadyFlag {
        let flag = ReadyFlag::default();
        let read = flag.clone();
        self.check(name, move || read.holds());
        flag
    }

    /// Adds a condition that is looked up on each probe; it must be quick.
    pub fn check(&self, name: impl Into<String>, check: impl Fn() -> bool + Send + Sync + 'static) {
        self.0.write().push((name.into(), Box::new(check)));
    }

    /// Names of the conditions that do not hold; empty means ready.
    pub fn missing(&self) -> Vec<String> {
        self.0.read().iter().filter(|(_, check)| !check()).map(|(name, _)| name.clone()).collect()
    }
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness").field("missing", &self.missing()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_must_hold() {
        let readiness = Readiness::new();
        assert!(readiness.missing().is_empty());
        let certs = readiness.flag("certs");
        readiness.check("pods", || true);
        assert_eq!(readiness.missing(), ["certs"]);
        certs.set(true);
        assert!(readiness.missing().is_empty());
        certs.set(false);
        assert_eq!(readiness.missing(), ["certs"]);
    }
}
