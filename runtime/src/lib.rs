//! What every Spawnery process in a cluster shares: clients, watches, leadership, serving, shutdown.
//!
//! ```text
//! args ─► telemetry, client ─► feed (one watch a kind) ─► keys ─► controller          events ─► API server
//!                                  │
//!                                  └─► readiness ─► admin (/readyz, /metrics)         leader ─► Leadership token
//!         serve (HTTPS) ◄── shutdown (signals, supervised tasks) ──► everything
//!           └── frame: all of it together, for programs that answer from watch caches
//! ```

pub mod admin;
pub mod args;
pub mod client;
pub mod clock;
pub mod controller;
pub mod events;
pub mod feed;
pub mod frame;
pub mod keys;
pub mod leader;
pub mod process;
pub mod readiness;
pub mod serve;
pub mod shutdown;
pub mod telemetry;
