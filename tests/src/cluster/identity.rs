//! Speaking as somebody: a ServiceAccount's token and kubeconfig.

use super::{Cluster, kubeconfig};
use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, api::PostParams};
use std::path::{Path, PathBuf};

/// Longer than any test.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// Somebody whom the API server knows.
#[derive(Debug, Clone)]
pub struct Identity {
    user: String,
    kubeconfig: PathBuf,
    token: String,
}

impl Identity {
    /// The user's name, as the audit log has it.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// A kubeconfig file that speaks for it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Its bearer token for the API server, good for a day.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A client that speaks for it. It belongs to the tokio runtime that it was made in.
    pub async fn client(&self) -> Result<kube::Client> {
        kubeconfig::client(&self.kubeconfig).await
    }
}

impl Cluster {
    /// A new token and kubeconfig of a ServiceAccount, which must exist.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Identity> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("could not get a token of ServiceAccount {namespace}/{name}"))?;
        let token = answer.status.context("a token request without an answer")?.token;
        let path = self.directory().join(format!("{namespace}-{name}-{}.kubeconfig", self.serial()));
        kubeconfig::write(&path, &self.url(), &self.ca_file(), &token)?;
        Ok(Identity { user: format!("system:serviceaccount:{namespace}:{name}"), kubeconfig: path, token })
    }

    /// A client that speaks for a ServiceAccount, which must exist.
    pub async fn client_for_service_account(&self, namespace: &str, name: &str) -> Result<kube::Client> {
        self.service_account(namespace, name).await?.client().await
    }
}
