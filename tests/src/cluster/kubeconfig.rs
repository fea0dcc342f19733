//! Kubeconfig files, and clients from them.

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use std::path::Path;

/// Writes a kubeconfig for `token` at `url`. JSON is YAML, so kubectl and all other clients read it.
pub fn write(path: &Path, url: &str, ca_file: &Path, token: &str) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "cluster", "cluster": { "server": url, "certificate-authority": ca_file } }],
        "users": [{ "name": "user", "user": { "token": token } }],
        "contexts": [{ "name": "context", "context": { "cluster": "cluster", "user": "user" } }],
        "current-context": "context",
    });
    std::fs::write(path, format!("{config:#}")).with_context(|| format!("could not write {}", path.display()))
}

/// A client that speaks for the user in a kubeconfig file. It belongs to the tokio runtime that it was made in.
pub async fn client(path: &Path) -> Result<kube::Client> {
    let config = Kubeconfig::read_from(path).with_context(|| format!("could not read {}", path.display()))?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let mut config = config.with_context(|| format!("could not use {}", path.display()))?;
    // What the API server answers is what a test wants to know, be it 429.
    config.default_retry = false;
    kube::Client::try_from(config).context("could not make a client")
}

/// The token in a kubeconfig file written by [`write()`].
pub fn token(path: &Path) -> Result<String> {
    use serde_json::Value;
    let text = std::fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
    let config: Value = serde_json::from_slice(&text).with_context(|| format!("{} is not ours", path.display()))?;
    let token = config.pointer("/users/0/user/token").and_then(Value::as_str);
    token.map(str::to_owned).with_context(|| format!("no token in {}", path.display()))
}
