//! Election of the one process that writes, over a Lease, and the token that says whether we still are it.
//!
//! ```text
//! Election::win() ──► Term { leadership } ──► hold(release): renew every 2 s ──► released, or Lost: the process ends
//! ```
//!
//! The decision is [`spawnery_core::lease::step`]; here are the calls. A Lease has no fencing: whoever sends something
//! that must not come from a former leader asks [`Leadership::check`] right before, and writes with preconditions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use parking_lot::Mutex;
use spawnery_core::lease::{Observed, Step, Timing, first_transitions, leads_until, step};
use tokio_util::sync::CancellationToken;

use crate::client::{CALL, CallError, deadline};
use crate::clock::Clock;

/// Whether, until when and in which epoch this process leads. Cheap to clone; every clone sees the same.
#[derive(Debug, Clone)]
pub struct Leadership {
    epoch: u64,
    /// `None`: without an election, for ever.
    until: Option<Arc<Mutex<Instant>>>,
}

impl Leadership {
    /// Leads for ever, without an election; for `--leader-elect=false` and tests.
    pub fn without_election(epoch: u64) -> Self {
        Self { epoch, until: None }
    }

    /// As [`Leadership::without_election`], with an epoch above that of every earlier run.
    pub fn alone(clock: Clock) -> Self {
        Self::without_election(first_transitions(clock.wall()))
    }

    /// Whether we lead at `now`. Ask right before each write or message that only a leader may send.
    pub fn check(&self, now: Instant) -> bool {
        self.until.as_ref().is_none_or(|until| now < *until.lock())
    }

    /// Rises with each change of leaders; messages to agents carry it.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    fn extend(&self, to: Instant) {
        if let Some(until) = &self.until {
            *until.lock() = to;
        }
    }
}

/// The lease went to somebody else, or could not be renewed in time.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Somebody else holds it.
    #[error("the lease {lease} was taken by {by}")]
    Taken {
        /// Its name.
        lease: String,
        /// Identity of the new holder.
        by: String,
    },
    /// No renewal succeeded in time.
    #[error("the lease {lease} could not be renewed within {within:?}")]
    NotRenewed {
        /// Its name.
        lease: String,
        /// How long was tried.
        within: Duration,
    },
}

/// A candidacy.
#[derive(Debug)]
pub struct Election {
    leases: Api<Lease>,
    name: String,
    namespace: String,
    identity: String,
    timing: Timing,
    clock: Clock,
    observed: Option<(Observed, Lease)>,
}

impl Election {
    /// A candidacy for the lease `name`. `client` must not retry by itself; `identity` must be new for each process.
    pub fn new(client: Client, namespace: &str, name: &str, identity: String, clock: Clock) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            identity,
            timing: Timing::default(),
            clock,
            observed: None,
        }
    }

    /// Waits until we lead. Dropping the future gives the candidacy up.
    pub async fn win(mut self) -> Term {
        loop {
            let sent = self.clock.now();
            match self.attempt().await {
                Ok(Attempt::Holds(lease)) => {
                    let epoch = transitions(&lease);
                    let until = Arc::new(Mutex::new(leads_until(sent, &self.timing)));
                    tracing::info!(lease = self.name, identity = self.identity, epoch, "leading");
                    return Term {
                        leadership: Leadership { epoch, until: Some(until) },
                        lease: *lease,
                        election: self,
                    };
                }
                Ok(Attempt::Waits(until)) => tokio::time::sleep_until(until.into()).await,
                Err(error) => {
                    if !error.is_conflict() && !error.is_already_exists() {
                        tracing::warn!(
                            lease = self.name,
                            error = &error as &dyn std::error::Error,
                            "could not campaign"
                        );
                    }
                    tokio::time::sleep(self.timing.retry).await;
                }
            }
        }
    }

    async fn attempt(&mut self) -> Result<Attempt, CallError> {
        self.look().await?;
        let seen = self.observed.as_ref().map(|(observed, _)| observed);
        let (lease, create) = match step(seen, &self.timing, &self.identity, self.clock.now()) {
            Step::Wait { until } => return Ok(Attempt::Waits(until)),
            Step::Create => (self.desired(None, first_transitions(self.clock.wall())), true),
            Step::Take { transitions } => {
                let current = self.current();
                // One that the chart installed: who led before it was installed is not counted in it.
                let fresh = current.is_none_or(|lease| counted(lease).is_none());
                let transitions = if fresh { first_transitions(self.clock.wall()) } else { transitions };
                (self.desired(current, transitions), false)
            }
            Step::Renew => {
                let current = self.current();
                let transitions = current.map(transitions).unwrap_or_default();
                (self.desired(current, transitions), false)
            }
        };
        let params = PostParams::default();
        let written = if create {
            deadline(CALL, self.leases.create(&params, &lease)).await?
        } else {
            deadline(CALL, self.leases.replace(&self.name, &params, &lease)).await?
        };
        Ok(Attempt::Holds(Box::new(written)))
    }

    fn current(&self) -> Option<&Lease> {
        self.observed.as_ref().map(|(_, lease)| lease)
    }

    async fn look(&mut self) -> Result<(), CallError> {
        let lease = deadline(CALL, self.leases.get_opt(&self.name)).await?;
        let now = self.clock.now();
        self.observed = lease.map(|lease| {
            let unchanged_since = match &self.observed {
                Some((before, known)) if known.metadata.resource_version == lease.metadata.resource_version => {
                    before.unchanged_since
                }
                _ => now,
            };
            (observe(&lease, unchanged_since), lease)
        });
        Ok(())
    }

    /// The lease in our name: what we found with our own fields replaced, so that the resource version guards the write.
    fn desired(&self, found: Option<&Lease>, transitions: u64) -> Lease {
        let now = self.clock.wall();
        let spec = found.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(self.identity.as_str());
        Lease {
            metadata: found.map_or_else(
                || ObjectMeta {
                    name: Some(self.name.clone()),
                    namespace: Some(self.namespace.clone()),
                    ..ObjectMeta::default()
                },
                |lease| lease.metadata.clone(),
            ),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(self.timing.lease.as_secs()).ok(),
                acquire_time: if ours { spec.acquire_time.clone() } else { Some(MicroTime(now)) },
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(i32::try_from(transitions).unwrap_or(i32::MAX)),
                ..spec
            }),
        }
    }
}

enum Attempt {
    Holds(Box<Lease>),
    Waits(Instant),
}

fn transitions(lease: &Lease) -> u64 {
    u64::try_from(counted(lease).unwrap_or_default()).unwrap_or_default()
}

/// `None` for a lease that nobody has held yet.
fn counted(lease: &Lease) -> Option<i32> {
    lease.spec.as_ref()?.lease_transitions
}

fn observe(lease: &Lease, unchanged_since: Instant) -> Observed {
    let spec = lease.spec.as_ref();
    let promised = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
    Observed {
        holder: spec.and_then(|spec| spec.holder_identity.clone()),
        promised: promised.map(Duration::from_secs),
        transitions: transitions(lease),
        unchanged_since,
    }
}

/// A time of leading.
#[derive(Debug)]
pub struct Term {
    election: Election,
    leadership: Leadership,
    lease: Lease,
}

impl Term {
    /// The token to hand to everything that may act only while we lead.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Renews until `release`, then lets the lease go so that a successor need not wait.
    ///
    /// # Errors
    /// When leading ended without us wanting it: the process has to end.
    pub async fn hold(mut self, release: CancellationToken) -> Result<(), Lost> {
        let timing = self.election.timing;
        let mut until = leads_until(self.election.clock.now(), &timing);
        if let Some(known) = &self.leadership.until {
            until = *known.lock();
        }
        loop {
            tokio::select! {
                () = release.cancelled() => {
                    self.let_go().await;
                    return Ok(());
                }
                () = tokio::time::sleep(timing.retry) => {}
            }
            let sent = self.election.clock.now();
            // No call may outlast the leadership it is to extend.
            let left = until.saturating_duration_since(sent);
            match tokio::time::timeout(left, self.renew()).await {
                Ok(Ok(())) => {
                    until = leads_until(sent, &timing);
                    self.leadership.extend(until);
                }
                Ok(Err(Renewal::Lost(lost))) => {
                    self.leadership.extend(sent);
                    return Err(lost);
                }
                Ok(Err(Renewal::Failed(error))) => {
                    tracing::warn!(
                        lease = self.election.name,
                        error = &error as &dyn std::error::Error,
                        left_ms = left.as_millis(),
                        "could not renew the lease"
                    );
                }
                Err(_) => {}
            }
            if self.election.clock.now() >= until {
                return Err(Lost::NotRenewed { lease: self.election.name.clone(), within: timing.renew_within });
            }
        }
    }

    async fn renew(&mut self) -> Result<(), Renewal> {
        let desired = self.election.desired(Some(&self.lease), self.leadership.epoch);
        let written =
            deadline(CALL, self.election.leases.replace(&self.election.name, &PostParams::default(), &desired)).await;
        match written {
            Ok(lease) => {
                self.lease = lease;
                Ok(())
            }
            // Perhaps our own write of which we never saw the answer, perhaps a touch by somebody; the holder decides.
            Err(error) if error.is_conflict() => {
                let found = deadline(CALL, self.election.leases.get(&self.election.name)).await?;
                let holder = found.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
                if holder != self.election.identity {
                    return Err(Renewal::Lost(Lost::Taken { lease: self.election.name.clone(), by: holder }));
                }
                self.lease = found;
                Err(Renewal::Failed(error))
            }
            Err(error) => Err(Renewal::Failed(error)),
        }
    }

    async fn let_go(mut self) {
        self.leadership.extend(self.election.clock.now());
        if let Some(spec) = self.lease.spec.as_mut() {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(self.election.clock.wall()));
        }
        let name = &self.election.name;
        match deadline(CALL, self.election.leases.replace(name, &PostParams::default(), &self.lease)).await {
            Ok(_) => tracing::info!(lease = name, "released the lease"),
            Err(error) => {
                tracing::warn!(lease = name, error = &error as &dyn std::error::Error, "could not release the lease");
            }
        }
    }
}

enum Renewal {
    Failed(CallError),
    Lost(Lost),
}

impl From<CallError> for Renewal {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}
