//! The CA, leaf certificates and TLS configurations of Spawnery.
//!
//! ```text
//! Secret data ──► bundle::Stored ──► plan (core::rotation) ──► carry_out ──► Secret data
//!                       │ Pair                    └── issue::Authority
//!                       ▼
//! new leaf ──► serve::ServingCert (ArcSwap) ──► TLS server configurations: agent channel (1.3), webhooks (1.2 and up)
//! eviction token ─► token::EvictionTokens ──► whether a review came by the path that only the API server is told
//! CA bundle ─► client::client_config ──► TLS 1.3 towards the operator, trusting that bundle and nothing else
//! ```
//!
//! Time comes in as a parameter, so that a test can stand at any day of a certificate's life. Secrets and files are read
//! and written by the callers; nothing here does I/O. The crypto provider is always aws-lc, and always named.

pub mod bundle;
pub mod check;
pub mod client;
pub mod issue;
pub mod parse;
pub mod provider;
pub mod serve;
pub mod token;

pub use bundle::Stored;
pub use client::client_config;
pub use issue::{Authority, Pair, extender_names, operator_names, service_names, webhook_names};
pub use provider::{install_default, provider};
pub use serve::{ServingCert, agent_server_config, extender_server_config, webhook_server_config};
pub use token::{EvictionToken, EvictionTokens};
