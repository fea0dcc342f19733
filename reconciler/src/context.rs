//! What every controller is handed: built once, when this process has become the leader.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use spawnery_core::floor::Width;
use spawnery_runtime::client::{CALL, CallError, Clients, deadline};
use spawnery_runtime::clock::Clock;
use spawnery_runtime::events::Events;
use spawnery_runtime::leader::Leadership;
use tokio::sync::watch;

use crate::args::Config;
use crate::bootstrap::Accounts;
use crate::feeds::{Feeds, Wakes};
use crate::hub::Hub;
use crate::metrics::Metrics;

/// Clients, stores, the hub and the rest; everything in it is shared.
#[derive(Debug)]
pub struct Context {
    /// Flags.
    pub config: Config,
    /// Clients of the API server.
    pub clients: Clients,
    /// Time.
    pub clock: Clock,
    /// Stores, one a kind.
    pub feeds: Feeds,
    /// Queues of the controllers.
    pub wake: Wakes,
    /// What agents say, and what they are told.
    pub hub: Arc<Hub>,
    /// Whether we still lead.
    pub leadership: Leadership,
    /// Events.
    pub events: Events,
    /// Metrics.
    pub metrics: Metrics,
    /// What budgets have to cover; changes wake every group.
    pub width: watch::Receiver<Width>,
    /// The CA bundle that agents have to trust, PEM; `None` until there is one.
    pub ca: watch::Receiver<Option<Arc<str>>>,
    /// Namespaces that the registered webhook watches.
    pub watched: watch::Receiver<Arc<BTreeSet<String>>>,
    /// Accounts that are known to exist in game namespaces.
    pub accounts: Accounts,
}

impl Context {
    /// Monotonic time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Wall-clock time.
    pub fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// What budgets have to cover now.
    pub fn width(&self) -> Width {
        *self.width.borrow()
    }

    /// For controllers whose failures must not keep budgets from following the webhook's sight.
    pub fn era(&self) -> u64 {
        match self.width() {
            Width::Occupied => 0,
            Width::Unsealed => 1,
        }
    }

    /// Reads, within the customary deadline.
    ///
    /// # Errors
    /// What the API server says, or that it says nothing.
    pub async fn read<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
        deadline(CALL, call).await
    }

    /// Writes, within the customary deadline, only while we lead: asked right before the request is sent, and the
    /// request may not outlast the leadership by more than its deadline.
    ///
    /// # Errors
    /// What the API server says, that it says nothing, or that we no longer lead.
    pub async fn write<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
        self.write_within(CALL, call).await
    }

    /// As [`Context::write`] with another deadline.
    ///
    /// # Errors
    /// As [`Context::write`].
    pub async fn write_within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        if !self.leadership.check(self.now()) {
            return Err(CallError::NotLeading);
        }
        deadline(limit, call).await
    }
}
