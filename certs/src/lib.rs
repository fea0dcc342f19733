//! The CA, leaf certificates and TLS configurations of Spawnery.
