//! Contents of overlay ConfigMaps, as digests: what a group's pods are made from beside its spec.
//!
//! Watches carry the metadata of ConfigMaps alone; the contents are read when their resource version changes, and only
//! their digest is kept.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use spawnery_api::inputs::overlay_digest;
use spawnery_api::v1alpha1::ObjectRef;
use spawnery_core::pod_hash::ContentDigest;
use spawnery_runtime::client::CallError;

use crate::context::Context;

/// Digests remembered at most; beyond it all are read again.
const BOUND: usize = 4096;

/// Digests by namespace and name, each with the resource version that it belongs to.
#[derive(Debug, Default)]
pub struct Overlays(Mutex<HashMap<(String, String), (String, ContentDigest)>>);

impl Overlays {
    /// The digest of the ConfigMap that a group names; `None` where it names none, or there is none.
    ///
    /// # Errors
    /// If its contents could not be read.
    pub async fn digest(
        &self,
        ctx: &Context,
        namespace: &str,
        named: Option<&ObjectRef>,
    ) -> Result<Option<ContentDigest>, CallError> {
        let Some(name) = named.map(|named| named.name.as_str()) else { return Ok(None) };
        let Some(seen) = ctx.feeds.config_map_metas.get(namespace, name) else { return Ok(None) };
        let version = seen.resource_version().unwrap_or_default();
        let key = (namespace.to_owned(), name.to_owned());
        if let Some((of, digest)) = self.0.lock().get(&key)
            && *of == version
        {
            return Ok(Some(digest.clone()));
        }
        let api: Api<ConfigMap> = Api::namespaced(ctx.clients.api.clone(), namespace);
        let Some(found) = ctx.read(api.get_opt(name)).await? else { return Ok(None) };
        let digest = overlay_digest(&found);
        let mut known = self.0.lock();
        if known.len() >= BOUND {
            known.clear();
        }
        known.insert(key, (found.resource_version().unwrap_or_default(), digest.clone()));
        Ok(Some(digest))
    }
}
