//! A pod's token and CA, as files, and its group's configuration: what the kubelet's projected volumes would hold.

use super::{PodFacts, Role, World};
use anyhow::{Context as _, Result};
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, ServiceAccount},
};
use kube::{Api, api::PostParams};
use serde::Deserialize;
use spawnery_api::names::{env, object};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::sleep;

/// A call of ours to the API server; it may be frozen by the test.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// After an attempt that failed: the reconciler may not have written the CA yet.
const RETRY: Duration = Duration::from_millis(200);
/// Slots of a server whose pod does not say: what Minecraft's own server has.
const SERVER_SLOTS: u32 = 20;
/// Slots of a proxy whose pod does not say, as upstream has it.
const PROXY_SLOTS: u32 = 500;
/// How often the CA is looked at again, which a kubelet does about once a minute.
const REFRESH: Duration = Duration::from_secs(10);

/// Where a pod's credentials are.
#[derive(Debug, Clone)]
pub(super) struct Credentials {
    pub(super) token: PathBuf,
    pub(super) ca: PathBuf,
}

impl Credentials {
    pub(super) fn in_directory(directory: &Path) -> Self {
        Self { token: directory.join("token"), ca: directory.join("ca.crt") }
    }

    /// Writes both files, however long it takes until the API server has them.
    pub(super) async fn fetch(&self, world: &World, facts: &PodFacts) {
        while let Err(error) = self.try_fetch(world, facts).await {
            tracing::debug!(pod = facts.name, error = %format!("{error:#}"), "no credentials yet");
            sleep(RETRY).await;
        }
    }

    async fn try_fetch(&self, world: &World, facts: &PodFacts) -> Result<()> {
        self.write_ca(world, facts).await?;
        self.write_token(world, facts).await
    }

    /// Keeps both files fresh for as long as the pod lives. A kubelet asks for a new token at four fifths of its life.
    pub(super) async fn keep_fresh(&self, world: &World, facts: &PodFacts) {
        let life = Duration::from_secs(u64::try_from(facts.token_seconds).unwrap_or_default());
        let mut age = Duration::ZERO;
        loop {
            sleep(REFRESH).await;
            age += REFRESH;
            // The files stay as they were when the API server does not answer.
            let _ = self.write_ca(world, facts).await;
            if age >= life * 4 / 5 && self.write_token(world, facts).await.is_ok() {
                age = Duration::ZERO;
            }
        }
    }

    async fn write_ca(&self, world: &World, facts: &PodFacts) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &facts.namespace);
        let map = limited(maps.get(facts.ca_config_map())).await.context("could not get the CA")?;
        let pem = map.data.and_then(|mut data| data.remove(object::CA_KEY)).context("no CA in its ConfigMap")?;
        write(&self.ca, &pem)
    }

    async fn write_token(&self, world: &World, facts: &PodFacts) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), &facts.namespace);
        let pod = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(facts.name.clone()),
            uid: Some(facts.uid.clone()),
        };
        let spec = TokenRequestSpec {
            audiences: vec![facts.audience.clone()],
            bound_object_ref: Some(pod),
            expiration_seconds: Some(facts.token_seconds),
        };
        let (params, request) = (PostParams::default(), TokenRequest { spec, ..TokenRequest::default() });
        let answer = limited(accounts.create_token_request(&facts.service_account, &params, &request)).await;
        let answer = answer.with_context(|| format!("could not get a token of {}", facts.service_account))?;
        write(&self.token, &answer.status.context("a token request without an answer")?.token)
    }
}

/// How many players the pod takes: a proxy's environment says so, a server's group configuration.
pub(super) async fn slots(world: &World, facts: &PodFacts) -> u32 {
    if facts.role == Role::Proxy {
        return facts.env_number(env::PLAYER_LIMIT, PROXY_SLOTS);
    }
    let Some(name) = &facts.config_map else { return SERVER_SLOTS };
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &facts.namespace);
    loop {
        match limited(maps.get(name)).await {
            Ok(map) => {
                let text = map.data.and_then(|mut data| data.remove(object::CONFIG_KEY)).unwrap_or_default();
                let config: Option<ServerConfiguration> = serde_saphyr::from_str(&text).ok();
                return config.map_or(SERVER_SLOTS, |config| config.max_players);
            }
            // A kubelet, too, does not start a pod whose configuration it cannot mount.
            Err(error) => tracing::debug!(pod = facts.name, error = %format!("{error:#}"), "no configuration yet"),
        }
        sleep(RETRY).await;
    }
}

/// What the game in a server pod reads from its group's `config.yaml`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerConfiguration {
    max_players: u32,
}

async fn limited<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T> {
    Ok(tokio::time::timeout(CALL_LIMIT, call).await.context("no answer")??)
}

/// Replaces a file in one step, as the kubelet does: a reader sees the old or the new one. Writes nothing when it is
/// the same.
fn write(path: &Path, content: &str) -> Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let fresh = path.with_extension("new");
    let written = std::fs::write(&fresh, content).and_then(|()| std::fs::rename(&fresh, path));
    written.with_context(|| format!("could not write {}", path.display()))
}
