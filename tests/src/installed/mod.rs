//! Spawnery as its users have it: our image, installed by helm on real nodes, by the commands of the documentation.
//!
//! ```text
//!  docs/getting-started.md ──Page──► sh, helm, kubectl ──► two real nodes
//!  examples/network.yaml ──adapted──► a lobby (flying-squid) and a proxy, each image with our agent
//!  Bots ──NodePort──► proxy ──► lobby          players are the witnesses
//!  Reviews: evictions and edits, dry, all the time ──► whether a webhook call ever failed
//! ```

mod ground;
mod images;
mod network;
mod order;
mod page;
mod reviews;
mod usage;

pub use ground::{Ground, NAMESPACE, OPERATOR_NAMESPACE};
pub use images::{Images, OTHER_TAG};
pub use network::{DOOR_PORT, Lobbies, PROXY_NODE, SERVER_NODE};
pub use order::Order;
pub use page::{Page, Section};
pub use reviews::{Reviews, Tally};
pub use usage::{Resident, usage};
