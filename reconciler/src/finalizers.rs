//! Our finalizer on an object of ours: it goes last, after what it stands for.

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use spawnery_api::names::manager;
use spawnery_runtime::client::CallError;

use crate::context::Context;
use crate::latest::Latest;

/// An object of ours.
pub(crate) trait Ours:
    Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug
{
}

impl<K> Ours for K where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
{
}

/// Puts `finalizer` on `object`, over the state that was looked at.
///
/// # Errors
/// What the API server says; a conflict when somebody wrote in between.
pub(crate) async fn put_on<K: Ours>(
    ctx: &Context,
    latest: &Latest<K>,
    object: &K,
    finalizer: &str,
) -> Result<(), CallError> {
    let mut finalizers = object.finalizers().to_vec();
    finalizers.push(finalizer.to_owned());
    write(ctx, latest, object, &finalizers).await
}

/// Takes `finalizer` off `object`; one that is gone has none.
///
/// # Errors
/// As [`put_on`].
pub(crate) async fn take_off<K: Ours>(
    ctx: &Context,
    latest: &Latest<K>,
    object: &K,
    finalizer: &str,
) -> Result<(), CallError> {
    let finalizers: Vec<String> = object.finalizers().iter().filter(|name| *name != finalizer).cloned().collect();
    match write(ctx, latest, object, &finalizers).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

async fn write<K: Ours>(ctx: &Context, latest: &Latest<K>, object: &K, finalizers: &[String]) -> Result<(), CallError> {
    let api: Api<K> = Api::namespaced(ctx.clients.api.clone(), &object.namespace().unwrap_or_default());
    let params = PatchParams { field_manager: Some(manager::FINALIZERS.to_owned()), ..PatchParams::default() };
    let patch = json!({ "metadata": {
        "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": finalizers,
    }});
    latest.wrote(ctx.write(api.patch(&object.name_any(), &params, &Patch::Merge(&patch))).await?);
    Ok(())
}
