//! A small game of our own: servers, proxies that move players between them, and players.
//!
//! ```text
//!  Player ══ lines over TCP ══► MiniProxy ══ the same lines ══► MiniServer
//!    │                            │  ▲ directory, drains            │
//!    │ its own socket is          ▼  │ occupancy, "applied"         ▼ its count
//!    ▼ the truth               spawnery-agent (local API)        spawnery-agent (local API)
//! ```
//!
//! It does what real game parts do and nothing more, so that hundreds fit on a small machine and faults can be put at
//! any point. Who was lost is told by the players alone, from what their own sockets saw.

pub mod gate;
pub mod local_api;
pub mod player;
pub mod proxy;
pub mod scripted;
pub mod server;
pub mod wire;

/// The port that both servers and proxies listen on, at their pod's address.
pub use spawnery_api::names::port::MINECRAFT as GAME_PORT;
