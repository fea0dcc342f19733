//! The objects around a group's servers: the budget that protects them, and the settings that they read.

use super::Shared;
use super::look::Scene;
use crate::objects::{Kept, Upkeep};
use crate::render;

/// Brings each object to what it should be, whatever becomes of the other. The floor stands before there is anybody to
/// protect, and until the last server is gone; nobody reads settings any more once the group is to go.
pub(super) async fn keep(shared: &Shared, scene: &Scene) -> Kept {
    let (namespace, name) = (scene.key.0.as_str(), scene.key.1.as_str());
    let (group, before) = (&scene.group, &scene.memory.refused);
    let mut upkeep = Upkeep::new(&shared.ctx, (namespace, name), group.metadata.generation, before, scene.now);
    upkeep.budget(&render::server_budget(group, shared.ctx.width())).await;
    if group.metadata.deletion_timestamp.is_none() {
        upkeep.config(&render::server_config(group)).await;
    }
    let mut kept = upkeep.end();
    if let Some(refused) = kept.remember.take() {
        shared.remember(&scene.uid, |memory| memory.refused = refused);
    }
    kept
}
