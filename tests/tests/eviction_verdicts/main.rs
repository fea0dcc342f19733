//! The webhook's answers through a real API server, under the rights of its own account.
//!
//! The webhook runs alone: the tests play the leader, so that nothing but its own verdict decides.

#[cfg(test)]
mod broken;
#[cfg(test)]
mod lone;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod verdicts;
