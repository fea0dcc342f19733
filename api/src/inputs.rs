//! From specs to what a pod is made from.
//!
//! The reconciler calls these with the digest of the overlay's contents, the webhook without, for the old and the new
//! object of an edit: both then differ exactly by what the edit says.

use k8s_openapi::api::core::v1::{ConfigMap, LocalObjectReference, ResourceRequirements};
use serde::Serialize;
use spawnery_core::pod_hash::{
    Basics, ContentDigest, Fragment, MountInput, MountSource, OverlayInput, PodInputs, ProxyInputs, ServerInputs,
};

use crate::v1alpha1::{ExposeType, Mount, NetworkSpec, ObjectRef, ProxyGroupSpec, Scheduling, ServerGroupSpec};

/// Why specs cannot be brought into inputs.
#[derive(Debug, thiserror::Error)]
pub enum InputsError {
    /// A part that is passed on to Kubernetes cannot be written as JSON.
    #[error("could not read {field} as JSON")]
    Fragment {
        /// Field of the spec.
        field: &'static str,
        /// Cause.
        #[source]
        source: serde_json::Error,
    },
}

/// What server pods of a group are made from. `network` is none while the Network does not exist, `overlay` (the digest of
/// the overlay's contents) while its ConfigMap does not exist or does not matter.
pub fn server(
    group: &ServerGroupSpec,
    network: Option<&NetworkSpec>,
    overlay: Option<ContentDigest>,
) -> Result<PodInputs, InputsError> {
    let parts = Parts {
        network: &group.network_ref,
        image: &group.image,
        resources: group.resources.as_ref(),
        scheduling: group.scheduling.as_ref(),
        overlay: group.config_overlay.as_ref(),
    };
    let mounts = group.mounts.iter().filter_map(|mount| mount_input(mount).transpose()).collect::<Result<_, _>>()?;
    Ok(PodInputs::Server(ServerInputs {
        basics: parts.basics(network, overlay)?,
        max_players: count(group.max_players),
        termination_grace_period_seconds: u64::try_from(group.termination_grace_period_seconds).unwrap_or_default(),
        mounts,
    }))
}

/// What proxy pods of a group are made from. `network` and `overlay` as in [`server`].
pub fn proxy(
    group: &ProxyGroupSpec,
    network: Option<&NetworkSpec>,
    overlay: Option<ContentDigest>,
) -> Result<PodInputs, InputsError> {
    let parts = Parts {
        network: &group.network_ref,
        image: &group.image,
        resources: group.resources.as_ref(),
        scheduling: group.scheduling.as_ref(),
        overlay: group.config_overlay.as_ref(),
    };
    let motd = group.config.as_ref().and_then(|config| config.motd.as_deref()).filter(|motd| !motd.is_empty());
    let host_port = group
        .expose
        .host_port
        .as_ref()
        .filter(|_| group.expose.kind == ExposeType::HostPort)
        .and_then(|block| u16::try_from(block.port).ok());
    Ok(PodInputs::Proxy(ProxyInputs {
        basics: parts.basics(network, overlay)?,
        player_limit: count(group.player_limit()),
        online_mode: group.online_mode(),
        motd: motd.map(ContentDigest::of_text),
        host_port,
    }))
}

/// Resources that pods of a group get: the group's own, or else the Network's, never a mixture.
pub fn effective_resources<'a>(
    own: Option<&'a ResourceRequirements>,
    network: Option<&'a NetworkSpec>,
) -> Option<&'a ResourceRequirements> {
    own.or_else(|| network?.defaults.as_ref()?.resources.as_ref())
}

/// Scheduling that pods of a group get: the group's own, or else the Network's, never a mixture.
pub fn effective_scheduling<'a>(
    own: Option<&'a Scheduling>,
    network: Option<&'a NetworkSpec>,
) -> Option<&'a Scheduling> {
    own.or_else(|| network?.defaults.as_ref()?.scheduling.as_ref())
}

/// Secrets with credentials for the registries, which pods have from the Network alone.
pub fn pull_secrets(network: Option<&NetworkSpec>) -> impl Iterator<Item = &LocalObjectReference> {
    network.and_then(|network| network.defaults.as_ref()).into_iter().flat_map(|defaults| &defaults.image_pull_secrets)
}

/// Digest of an overlay's contents: `data` and `binaryData` together.
pub fn overlay_digest(overlay: &ConfigMap) -> ContentDigest {
    let texts = overlay.data.iter().flatten().map(|(name, text)| (name.as_str(), text.as_bytes()));
    let binaries = overlay.binary_data.iter().flatten().map(|(name, bytes)| (name.as_str(), bytes.0.as_slice()));
    ContentDigest::of_files(texts.chain(binaries))
}

/// The parts that both kinds of groups have.
struct Parts<'a> {
    network: &'a ObjectRef,
    image: &'a str,
    resources: Option<&'a ResourceRequirements>,
    scheduling: Option<&'a Scheduling>,
    overlay: Option<&'a ObjectRef>,
}

impl Parts<'_> {
    fn basics(&self, network: Option<&NetworkSpec>, contents: Option<ContentDigest>) -> Result<Basics, InputsError> {
        let scheduling = effective_scheduling(self.scheduling, network);
        let tolerations = scheduling.iter().flat_map(|scheduling| &scheduling.tolerations);
        Ok(Basics {
            network: self.network.name.clone(),
            image: self.image.to_owned(),
            forwarding_secret: network.map(|network| network.forwarding_secret_ref.name.clone()).unwrap_or_default(),
            image_pull_secrets: pull_secrets(network).map(|secret| secret.name.clone()).collect(),
            resources: effective_resources(self.resources, network)
                .map(|resources| fragment("resources", resources))
                .transpose()?,
            node_selector: scheduling.map(|scheduling| scheduling.node_selector.clone()).unwrap_or_default(),
            tolerations: tolerations
                .map(|toleration| fragment("scheduling.tolerations", toleration))
                .collect::<Result<_, _>>()?,
            affinity: scheduling
                .and_then(|scheduling| scheduling.affinity.as_ref())
                .map(|affinity| fragment("scheduling.affinity", affinity))
                .transpose()?,
            config_overlay: self.overlay.map(|overlay| OverlayInput { name: overlay.name.clone(), contents }),
        })
    }
}

/// A mount with neither source is refused by the schema; it would mount nothing, so it is no input.
fn mount_input(mount: &Mount) -> Result<Option<(String, MountInput)>, InputsError> {
    let source = match (&mount.config_map, &mount.secret) {
        (Some(config_map), _) => MountSource::ConfigMap(fragment("mounts.configMap", config_map)?),
        (None, Some(secret)) => MountSource::Secret(fragment("mounts.secret", secret)?),
        (None, None) => return Ok(None),
    };
    Ok(Some((mount.name.clone(), MountInput { mount_path: mount.mount_path.clone(), source })))
}

fn fragment(field: &'static str, value: &impl Serialize) -> Result<Fragment, InputsError> {
    Fragment::of(value).map_err(|source| InputsError::Fragment { field, source })
}

/// The schema lets no negative count through.
fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
