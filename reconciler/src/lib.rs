//! Sizes, drains and heals groups of servers and proxies from what agents report.
//!
//! ```text
//! watches ─► feeds (stores, keys) ─► controllers: network, servergroup, server, proxygroup ─► API server
//!                                        ▲   │
//!                     changes, views     │   ▼  what is wanted
//! agents ◄═ gRPC ═► channel ◄─────────► hub (ledger, doors, directory)
//! ```
//!
//! One process leads and does all this; the others keep their stores and hub warm. [`run`](mod@run) has the order in
//! which a leader begins, and ends.

pub mod args;
pub mod bootstrap;
pub mod catch_up;
pub mod channel;
pub mod check;
pub mod component;
pub mod context;
mod failure;
pub mod feeds;
mod finalizers;
pub mod floor;
pub mod hub;
pub mod hub_feed;
pub mod latest;
pub mod metrics;
pub mod network;
mod objects;
pub mod orphans;
pub mod overlay;
pub mod owner;
mod pass;
pub mod probe;
pub mod proxygroup;
mod registered;
pub mod render;
pub mod run;
pub mod seal;
pub mod server;
pub mod servergroup;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod webhook_config;

pub use run::run;
