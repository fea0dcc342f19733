//! The webhook's answers through a real API server, under the rights of its own account.
//!
//! The webhook mostly runs alone: the tests play the leader, so that nothing but its own verdict decides. What takes a real
//! leader is in `led`.

#[cfg(test)]
mod broken;
#[cfg(test)]
mod led;
#[cfg(test)]
mod lone;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod verdicts;
