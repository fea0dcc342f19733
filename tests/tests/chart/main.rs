//! The chart: what it renders, refuses, installs, and leaves.

mod conform;
mod docs;
mod helm;
mod installed;
mod rendered;
mod rights;
mod upgrade;
mod values;
