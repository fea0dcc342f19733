//! Measuring: samples, load at a fixed rate, an empty server to compare with, and when a watch saw something.
//!
//! Every figure is worth what stands beside it: the machine, the build and the other processes are in the baseline too
//! when that was measured in the same run.

mod empty;
mod load;
mod samples;
mod sightings;

pub use empty::serve_empty;
pub use load::{Load, Target};
pub use samples::Samples;
pub use sightings::Sightings;
