//! The custom resources, lean views, names, conditions and rights of Spawnery.
