//! Real Minecraft: a server, a proxy that moves players, and bot players, from a pinned npm folder.
//!
//! ```text
//!  tests/minecraft/package-lock.json ──npm ci, once──► target/minecraft/<hash>/node_modules
//!  tests/minecraft/{server,proxy,bots}.js ──node──► processes on loopback
//! ```

mod bots;
mod install;

pub use bots::Bots;
pub use install::Installation;
