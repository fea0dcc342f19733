//! ConfigMaps with the settings that games read when they start.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::Value;
use spawnery_api::names::object;
use spawnery_api::v1alpha1::{ProxyGroup, ServerGroup};

use super::parts;

/// Settings of a group's servers.
pub fn server_config(group: &ServerGroup) -> ConfigMap {
    let metadata = parts::owned_by(group, object::server_config(&group.name_any()));
    config_map(metadata, format!("maxPlayers: {}\n", group.spec.max_players))
}

/// Settings of a group's proxies.
pub fn proxy_config(group: &ProxyGroup) -> ConfigMap {
    let motd = group.spec.config.as_ref().and_then(|config| config.motd.as_deref()).filter(|motd| !motd.is_empty());
    // A JSON string is a YAML string, whatever the user wrote in it.
    let motd = motd.map(|motd| format!("motd: {}\n", Value::from(motd))).unwrap_or_default();
    let text = format!("{motd}onlineMode: {}\nplayerLimit: {}\n", group.spec.online_mode(), group.spec.player_limit());
    config_map(parts::owned_by(group, object::proxy_config(&group.name_any())), text)
}

fn config_map(metadata: ObjectMeta, text: String) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { labels: Some(parts::managed()), ..metadata },
        data: Some(BTreeMap::from([(object::CONFIG_KEY.to_owned(), text)])),
        ..ConfigMap::default()
    }
}

/// Whether the ConfigMap that is there needs no write.
pub fn same_config(found: &ConfigMap, desired: &ConfigMap) -> bool {
    found.data == desired.data
        && found.metadata.owner_references == desired.metadata.owner_references
        && parts::managed().iter().all(|(key, value)| found.labels().get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::testing;

    fn text(config: &ConfigMap) -> &str {
        &config.data.as_ref().unwrap()["config.yaml"]
    }

    #[test]
    fn servers_learn_how_many_players_they_take() {
        let config = server_config(&testing::server_group());
        assert_eq!(config.name_any(), "lobby-server-config");
        assert_eq!(text(&config), "maxPlayers: 20\n");
        assert_eq!(config.metadata.owner_references.as_ref().unwrap()[0].uid, "uid-of-lobby");
    }

    #[test]
    fn proxies_learn_limit_mode_and_text_in_alphabetical_order() {
        let mut group = testing::proxy_group();
        assert_eq!(text(&proxy_config(&group)), "onlineMode: true\nplayerLimit: 500\n");
        group.spec.config = serde_json::from_value(serde_json::json!({
            "playerLimit": 7, "motd": "a \"b\": §c\nd", "onlineMode": false
        }))
        .unwrap();
        assert_eq!(text(&proxy_config(&group)), "motd: \"a \\\"b\\\": §c\\nd\"\nonlineMode: false\nplayerLimit: 7\n");
    }

    #[test]
    fn what_others_add_is_no_reason_to_write() {
        let desired = server_config(&testing::server_group());
        let mut found = desired.clone();
        found.metadata.resource_version = Some("9".to_owned());
        found.metadata.annotations = Some(BTreeMap::from([("foreign".to_owned(), "x".to_owned())]));
        assert!(same_config(&found, &desired));
        found.data.get_or_insert_default().insert("config.yaml".to_owned(), "maxPlayers: 3\n".to_owned());
        assert!(!same_config(&found, &desired));
    }
}
