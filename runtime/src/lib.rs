//! What every Spawnery process in a cluster shares: clients, watches, leadership, serving, shutdown.
