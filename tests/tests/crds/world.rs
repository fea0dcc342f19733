//! A cluster with our definitions, and attempts to write objects of their kinds.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use spawnery_api::v1alpha1::crds;
use spawnery_tests::{Cluster, eventually};

use crate::cases::Case;

/// Our API group.
pub(crate) const GROUP: &str = spawnery_api::names::GROUP;

/// A definition is served within a second or two; beside a build it takes longer.
const SERVED_LIMIT: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Network,
    ProxyGroup,
    ServerGroup,
    Server,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Network, Self::ProxyGroup, Self::ServerGroup, Self::Server];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Network => "Network",
            Self::ProxyGroup => "ProxyGroup",
            Self::ServerGroup => "ServerGroup",
            Self::Server => "Server",
        }
    }
}

pub(crate) struct World {
    pub(crate) cluster: Cluster,
}

impl World {
    /// The cluster that all tests of this binary share, with the definitions served.
    pub(crate) async fn start() -> Result<Self> {
        let cluster = Cluster::shared().await?;
        let client = cluster.client().await?;
        for crd in crds()? {
            install(&client, &serde_json::to_value(crd)?).await?;
        }
        Ok(Self { cluster })
    }
}

/// Applies a definition and returns when objects of it can be listed.
pub(crate) async fn install(client: &kube::Client, crd: &Value) -> Result<()> {
    let name = crd["metadata"]["name"].as_str().context("a definition without a name")?.to_owned();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut crd = crd.clone();
    crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
    crd["kind"] = "CustomResourceDefinition".into();
    let params = PatchParams::apply("spawnery-tests").force();
    definitions.patch(&name, &params, &Patch::Apply(&crd)).await.with_context(|| format!("could not apply {name}"))?;
    let group = crd["spec"]["group"].as_str().unwrap_or_default();
    let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
    let resource = resource(kind, group);
    eventually(SERVED_LIMIT, &format!("{name} to be served"), || async {
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        Ok(objects.list(&kube::api::ListParams::default().limit(1)).await?)
    })
    .await?;
    Ok(())
}

fn resource(kind: &str, group: &str) -> ApiResource {
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", kind));
    resource.plural = format!("{}s", kind.to_lowercase());
    resource
}

/// Access to objects of a kind, in our group or in one that stands for it.
pub(crate) fn api(client: &kube::Client, kind: Kind, group: &str, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(kind.name(), group))
}

pub(crate) fn object(kind: Kind, group: &str, name: &str, spec: &Value) -> Result<DynamicObject> {
    let mut object = json!({
        "apiVersion": format!("{group}/v1alpha1"), "kind": kind.name(), "metadata": {"name": name}, "spec": spec,
    });
    if spec.is_null() {
        object.as_object_mut().context("an object")?.remove("spec");
    }
    Ok(serde_json::from_value(object)?)
}

/// Creates the case's object, or creates the old one and updates it. `Ok(Err(_))` is the API server's refusal.
pub(crate) async fn attempt(
    api: &Api<DynamicObject>,
    case: &Case,
    group: &str,
    name: &str,
) -> Result<Result<(), String>> {
    let create = PostParams::default();
    let written = if let Some(before) = &case.before {
        let old = api.create(&create, &object(case.kind, group, name, before)?).await;
        let old = old.with_context(|| format!("{}: the old object", case.name))?;
        let mut new = object(case.kind, group, name, &case.spec)?;
        new.metadata.resource_version = old.metadata.resource_version;
        api.replace(name, &create, &new).await
    } else {
        api.create(&create, &object(case.kind, group, name, &case.spec)?).await
    };
    match written {
        Ok(stored) => {
            ensure!(stored.metadata.uid.is_some(), "{}: stored without a UID", case.name);
            Ok(Ok(()))
        }
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(Err(status.message)),
        Err(error) => bail!("{}: neither accepted nor invalid: {error}", case.name),
    }
}
