//! What an administrator installs: definitions, a namespace, accounts and their rights.

use crate::{Cluster, eventually::eventually, target};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::json;
use spawnery_api::{names::object, rbac};
use std::{fmt::Write as _, fs, time::Duration};

/// The API server takes a second or two to serve a new kind.
const ESTABLISHED_LIMIT: Duration = Duration::from_secs(30);

/// Installs Spawnery's definitions, its namespace, and the accounts and rights of its parts.
///
/// # Errors
/// When the API server refuses something.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let directory = target::workspace().join("charts/spawnery/files/crds");
    let files = fs::read_dir(&directory).with_context(|| format!("could not read {}", directory.display()))?;
    let mut manifests = String::new();
    for file in files {
        let path = file.context("could not list the definitions")?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        document(&mut manifests, &text);
    }
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": object::OPERATOR_NAMESPACE } });
    document(&mut manifests, &namespace.to_string());
    for component in rbac::Component::ALL {
        let documents = rbac::objects(component, object::OPERATOR_NAMESPACE).documents();
        for object in documents.context("roles that are no objects")? {
            document(&mut manifests, &object.to_string());
        }
    }
    // On the server's side, because definitions are too long for the annotation that kubectl would leave.
    cluster.apply_server_side(&manifests).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client().await?);
    eventually(ESTABLISHED_LIMIT, "the API server to serve our kinds", || async {
        for definition in definitions.list(&kube::api::ListParams::default()).await? {
            let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
            let established = conditions.iter().any(|c| c.type_ == "Established" && c.status == "True");
            ensure!(established, "{} is not established", definition.metadata.name.unwrap_or_default());
        }
        Ok(())
    })
    .await
}

fn document(manifests: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = write!(manifests, "---\n{text}\n");
}
