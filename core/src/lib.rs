//! Decisions of Spawnery as pure functions: no Kubernetes client, no tokio, no clock.

pub mod door;
pub mod ledger;
pub mod rollout;
pub mod rotation;
pub mod admission;
pub mod eviction;
pub mod floor;
pub mod pod_hash;
pub mod lease;
pub mod backoff;
pub mod candidates;
pub mod drain;
pub mod expectations;
pub mod member;
pub mod occupancy;
pub mod phase;
pub mod prune;
pub mod retirement;
pub mod sizing;
