//! The agent channel's wire format.
//!
//! ```text
//! agent ── ServerMessage / ProxyMessage ──────────────► operator      (gRPC over TLS 1.3, one bidirectional stream a pod)
//!       ◄── OperatorToServer / OperatorToProxy ────────
//! ```
//!
//! The types come from `spawnery/agent/v1alpha1/agent.proto`. Fields below 1000 are upstream's, those from 1000 up are
//! ours: each peer ignores what it does not know, so old and new agents and operators can be mixed. What an agent can do
//! beyond upstream's protocol it names in [`v1alpha1::Hello::capabilities`]; the names are in [`capability`].

pub mod capability;

/// Generated messages, client and server of package `spawnery.agent.v1alpha1`.
pub mod v1alpha1 {
    // Generated code follows its generator's style, and its documentation is the schema's comments.
    #![allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::pedantic,
        clippy::use_self,
        clippy::unwrap_used,
        clippy::large_futures,
        clippy::indexing_slicing,
        clippy::or_fun_call,
        clippy::panic
    )]
    tonic::include_proto!("spawnery.agent.v1alpha1");
}

pub use v1alpha1::agent_service_client::AgentServiceClient;
pub use v1alpha1::agent_service_server::{AgentService, AgentServiceServer};
