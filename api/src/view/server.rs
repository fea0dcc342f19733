//! What we read of a Server where only its people matter.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use crate::v1alpha1::Server;

/// A Server as far as placement reads it.
#[derive(Clone, Debug, Default, PartialEq, Resource, Deserialize)]
#[resource(inherit = "Server")]
pub struct ServerView {
    /// Name, namespace, UID, resource version, labels.
    #[serde(deserialize_with = "super::meta::lean")]
    pub metadata: ObjectMeta,
    /// What was last seen of it.
    #[serde(default)]
    pub status: ServerPeople,
}

/// Part of a Server's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ServerPeople {
    /// Number of players, as last reported.
    #[serde(default)]
    pub players: i32,
    /// Number of players that it takes, as last reported.
    #[serde(default)]
    pub slots: i32,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_view_reads_what_there_is() {
        let server: ServerView = serde_json::from_value(json!({
            "metadata": { "name": "lobby-a", "namespace": "games" },
            "spec": { "groupRef": { "name": "lobby" } },
            "status": { "phase": "Ready", "players": 3, "slots": 20 },
        }))
        .unwrap();
        assert_eq!(server.status, ServerPeople { players: 3, slots: 20 });
        let new: ServerView = serde_json::from_value(json!({ "metadata": { "name": "lobby-b" } })).unwrap();
        assert_eq!(new.status, ServerPeople::default());
    }
}
