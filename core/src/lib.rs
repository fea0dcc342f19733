//! Decisions of Spawnery as pure functions: no Kubernetes client, no tokio, no clock.
