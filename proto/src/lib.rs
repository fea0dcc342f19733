//! The agent channel's wire format.
