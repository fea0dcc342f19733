//! Who is at the other end: a token bound to a pod, reviewed by the API server, and the pod itself.

mod cache;
mod limiter;
mod review;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use futures::future::BoxFuture;
use spawnery_core::door::Introduction;
use spawnery_core::ledger::Role;
use tonic::{Code, Status};

pub use review::{KubeAuthenticator, PodIdentity};

/// A caller whose token and pod were accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Namespace of the pod.
    pub namespace: String,
    /// The pod.
    pub who: Introduction,
}

/// Why a caller was refused. What it is told says nothing more than the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No token, or not in the accepted form.
    #[error("no token")]
    NoToken,
    /// The API server does not accept the token, or not for our audience.
    #[error("token not accepted")]
    TokenNotAccepted,
    /// The token is not bound to a pod.
    #[error("token not bound to a pod")]
    NotBound,
    /// The token is of an account that may not open this kind of session.
    #[error("wrong account for this role")]
    WrongAccount,
    /// The token's pod does not exist any more.
    #[error("no such pod")]
    NoSuchPod,
    /// The token's pod is not one of ours, or has another role.
    #[error("not a pod of this role")]
    NotOurPod,
    /// The API server could not be asked.
    #[error("the API server could not be asked")]
    Unavailable,
    /// The peer had too many reviews refused.
    #[error("too many refused reviews")]
    RateLimited,
}

impl Refusal {
    /// For logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoToken => "NoToken",
            Self::TokenNotAccepted => "TokenNotAccepted",
            Self::NotBound => "NotBound",
            Self::WrongAccount => "WrongAccount",
            Self::NoSuchPod => "NoSuchPod",
            Self::NotOurPod => "NotOurPod",
            Self::Unavailable => "Unavailable",
            Self::RateLimited => "RateLimited",
        }
    }

    /// Whether the caller is at fault, rather than the API server or its impatience.
    pub fn is_failure(self) -> bool {
        self.code() == Code::Unauthenticated
    }

    /// The code by which the caller is refused.
    pub fn code(self) -> Code {
        match self {
            Self::NoToken
            | Self::TokenNotAccepted
            | Self::NotBound
            | Self::WrongAccount
            | Self::NoSuchPod
            | Self::NotOurPod => Code::Unauthenticated,
            Self::Unavailable => Code::Unavailable,
            Self::RateLimited => Code::ResourceExhausted,
        }
    }

    /// The answer to the caller.
    pub fn status(self) -> Status {
        match self.code() {
            Code::Unavailable => Status::unavailable("try again"),
            Code::ResourceExhausted => Status::resource_exhausted("too many attempts"),
            _ => Status::unauthenticated("not accepted"),
        }
    }
}

/// Judges callers.
pub trait Authenticate: Send + Sync + 'static {
    /// Whether the holder of `token`, calling from `peer`, may open a session of this role.
    fn authenticate<'a>(&'a self, token: &'a str, role: Role, peer: IpAddr)
    -> BoxFuture<'a, Result<Accepted, Refusal>>;
}
