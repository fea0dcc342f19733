//! Decisions of Spawnery as pure functions: no Kubernetes client, no tokio, no clock.

pub mod admission;
pub mod backoff;
pub mod candidates;
pub mod door;
pub mod drain;
pub mod eviction;
pub mod expectations;
pub mod floor;
pub mod lease;
pub mod ledger;
pub mod loss;
pub mod member;
pub mod neighbours;
pub mod occupancy;
pub mod phase;
pub mod placement;
pub mod pod_hash;
pub mod prune;
pub mod retirement;
pub mod rollout;
pub mod rotation;
pub mod sizing;
pub mod stop;
