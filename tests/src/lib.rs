//! The test ground: a private, real Kubernetes in seconds, agents, games and faults.
