//! User mounts that would hide what is ours.

use spawnery_api::names::volume;
use spawnery_api::v1alpha1::Mount;
use spawnery_core::admission::{Finding, MountFacts, Reserved, Severity, mounts};

/// Volumes and paths that are ours in every server pod.
pub const RESERVED: Reserved<'static> = Reserved {
    volumes: &volume::RESERVED,
    trees: &[volume::AGENT_PATH, volume::CONFIG_PATH],
    paths: &[volume::DATA_PATH, volume::TMP_PATH],
};

/// The mounts that no pod can be made with. The webhook refuses them too, but it may have been down.
pub fn refused_mounts(asked: &[Mount]) -> Vec<Finding> {
    let facts: Vec<_> = asked.iter().map(|mount| MountFacts { name: &mount.name, path: &mount.mount_path }).collect();
    let mut found = mounts(&facts, &RESERVED);
    found.retain(|finding| finding.severity() == Severity::Reject);
    found
}
