//! Doors: closing a pod to newcomers, proving that it is closed, and proving that it is empty *after* that.
//!
//! ```text
//!  Open ──► Closing ──all confirmations in──► Closed ──counts asked for after the last confirmation say 0──► Empty
//!    ▲         │                                │                                                              │ claim
//!    └─────────┴──────────── reopen ────────────┴──────────────────────────────────────────────────────────────┤
//!                                                                                                              ▼
//!                                                                            removed ◄── Sealed ◄── Sealing (no way back)
//! ```
//!
//! A server's door is closed by taking it out of the directory that proxies route by; each proxy pod that may still
//! route by a directory that names it holds the door until it has confirmed a later one, its process is gone, or its pod
//! is. A proxy's own door is closed when Kubernetes sends nobody there any more. [`Realm`] holds all of one namespace.

mod directory;
mod facts;
mod machine;
#[cfg(test)]
mod model;
mod outbox;
mod realm;
mod telling;
#[cfg(test)]
mod tests;

pub use directory::{Directory, Listing, Revision};
pub use facts::{Change, ChangeKind, DoorView, ProxyFacts, ProxyView, ServerView, ServerWant, WantDoor};
pub use outbox::Out;
pub use realm::{Effects, Introduction, Realm};
