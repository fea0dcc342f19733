//! The typed value of everything that a user can say about a pod.
//!
//! Not in it, on purpose: what is applied live (routing lists, scaling, drain timing, a proxy's grace), who schedules the
//! pod, the image of our agent, our own labels, annotations and endpoints.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{canonical, canonical_of, hex, is_hex, sha256};

/// Everything that a user can say about one pod, after the Network's defaults are applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum PodInputs {
    /// A pod that holds players.
    Server(ServerInputs),
    /// A pod that routes players.
    Proxy(ProxyInputs),
}

/// What servers and proxies share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Basics {
    /// Name of the Network that the group belongs to: it is in the pod's environment.
    pub network: String,
    /// Image of the game.
    pub image: String,
    /// Name of the Secret with the forwarding secret. Its contents have a label of their own.
    pub forwarding_secret: String,
    /// Names of image pull secrets.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub image_pull_secrets: BTreeSet<String>,
    /// `resources` of the game's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Fragment>,
    /// `nodeSelector`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// `tolerations`; their order means nothing to Kubernetes and nothing here.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tolerations: BTreeSet<Fragment>,
    /// `affinity` as the user wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Fragment>,
    /// The `ConfigMap` laid over the game's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_overlay: Option<OverlayInput>,
}

/// What a user can say about a server pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerInputs {
    /// What servers and proxies share.
    #[serde(flatten)]
    pub basics: Basics,
    /// Players that the server takes.
    pub max_players: u32,
    /// `terminationGracePeriodSeconds` of the pod.
    pub termination_grace_period_seconds: u64,
    /// The user's mounts by volume name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mounts: BTreeMap<String, MountInput>,
}

/// What a user can say about a proxy pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyInputs {
    /// What servers and proxies share.
    #[serde(flatten)]
    pub basics: Basics,
    /// Players that the proxy takes.
    pub player_limit: u32,
    /// Whether players are checked with the account service.
    pub online_mode: bool,
    /// Text in the players' server list, as its digest: it may be long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub motd: Option<ContentDigest>,
    /// Port on the node, for groups that are exposed by host port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<u16>,
}

/// A mount of the user's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountInput {
    /// Path in the container.
    pub mount_path: String,
    /// What is mounted.
    #[serde(flatten)]
    pub source: MountSource,
}

/// What a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MountSource {
    /// A `ConfigMap` volume source. The kubelet keeps its contents current, so they are no input.
    ConfigMap(Fragment),
    /// A `Secret` volume source; only names are read, never contents.
    Secret(Fragment),
}

/// A `ConfigMap` laid over the game's configuration: read once, when the game starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverlayInput {
    /// Name of the `ConfigMap`.
    pub name: String,
    /// Its contents; `None` while the `ConfigMap` does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<ContentDigest>,
}

/// A piece of the Kubernetes API that the user wrote and we pass on, as canonical JSON: this crate knows no such types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fragment(String);

impl Fragment {
    /// Takes a value as its serialisation shows it.
    ///
    /// # Errors
    /// If the value cannot be written as JSON.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        canonical_of(value).map(Self)
    }
}

impl Serialize for Fragment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<Value>(&self.0).map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fragment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(canonical(&Value::deserialize(deserializer)?)))
    }
}

/// SHA-256 of contents, as 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ContentDigest(String);

impl ContentDigest {
    /// Digest of a text.
    pub fn of_text(text: &str) -> Self {
        Self(sha256(text.as_bytes()))
    }

    /// Digest of named contents, such as `data` and `binaryData` of a `ConfigMap` together. Their order means nothing; a
    /// byte that moves from one name or content to another does.
    pub fn of_files<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let files: BTreeMap<&str, &[u8]> = files.into_iter().collect();
        let mut hasher = Sha256::new();
        for (name, contents) in files {
            for part in [name.as_bytes(), contents] {
                hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
                hasher.update(part);
            }
        }
        Self(hex(&hasher.finalize()))
    }

    /// The 64 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ContentDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if is_hex(&text, 64) { Ok(Self(text)) } else { Err(de::Error::custom("a digest is 64 lower-case hex digits")) }
    }
}
