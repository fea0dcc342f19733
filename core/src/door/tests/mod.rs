//! Doors of one namespace, step by step.

mod closing;
mod fleet;
mod scene;
