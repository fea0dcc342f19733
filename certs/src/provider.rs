//! The one crypto provider, named wherever one is needed.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// The aws-lc provider with rustls' default suites.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Makes aws-lc the process's default as well, for libraries that do not let us name a provider. The first line of each
/// `main`; doing it again does nothing.
pub fn install_default() {
    // The error says that a default is already there, which is what we want.
    let _already_there = aws_lc_rs::default_provider().install_default();
}
