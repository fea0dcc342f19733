//! A registration of our webhook that is not ours any more: it names another CA than the one that vouches for us.

use crate::world::{DECISIONS, LIMIT, World, published_ca, tell};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::Pod,
};
use kube::{
    Api, ResourceExt,
    api::{EvictParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use spawnery_api::{
    names::{label, object},
    v1alpha1::ServerGroup,
};
use spawnery_tests::{
    cluster::authority::Authority,
    eventually,
    installed::{NAMESPACE, OPERATOR_NAMESPACE},
};
use std::time::{Duration, Instant};

/// The promise: how long a changed registration stays so while somebody leads.
const PUT_RIGHT_PROMISE: Duration = Duration::from_secs(5);
/// What the API server takes over from a registration within milliseconds, and we put right.
const KNOWN_LIMIT: Duration = Duration::from_secs(30);
/// Evictions that are tried while nobody is asked.
const TRIES: usize = 5;
/// How the webhook, and how the API server by itself, begin to refuse an eviction.
const OURS: &str = "evictions.spawnery.cloud";
const FLOOR: &str = "disruption budget";

pub(crate) async fn a_registration_that_somebody_changes_is_put_right(world: &World<'_>) -> Result<()> {
    let ours = published_ca(world).await?;
    let begin = Instant::now();
    register(world, Authority::create()?.pem()).await?;
    eventually(KNOWN_LIMIT, "our CA to be registered again", || async {
        let found = registered(world).await?;
        ensure!(found.iter().all(|ca| *ca == ours), "another CA is registered");
        Ok(())
    })
    .await?;
    let took = begin.elapsed();
    tell(&format!("another CA was registered: put right after {:.2} s", took.as_secs_f64()));
    ensure!(took <= PUT_RIGHT_PROMISE, "another CA stayed for {took:?}");
    Ok(())
}

/// With nobody there to put it right: the API server does not call who cannot show a certificate of the registered CA.
/// Occupied pods stay, by their budget; edits of our kinds are refused.
pub(crate) async fn whoever_is_registered_with_another_ca_is_not_called(world: &World<'_>) -> Result<()> {
    let server = world.the_lobby().await?;
    ensure!(refused(world, &server, Try::Dry).await?.contains(OURS), "the webhook does not judge");
    without_a_leader(world).await?;
    let ours = published_ca(world).await?;
    register(world, Authority::create()?.pem()).await?;
    eventually(KNOWN_LIMIT, "the API server to know of the other CA", || async {
        let said = edited(world).await.err().context("the edit was accepted")?.to_string();
        ensure!(said.contains("objects.spawnery.cloud") && said.contains("unknown authority"), "{said}");
        Ok(())
    })
    .await?;
    let before = world.ground.counted("webhook", DECISIONS).await?;
    for _ in 0..TRIES {
        let said = refused(world, &server, Try::InEarnest).await?;
        ensure!(said.contains(FLOOR) && !said.contains(OURS), "{said}");
    }
    let calls = world.ground.counted("webhook", DECISIONS).await? - before;
    ensure!(calls == 0, "{calls} calls from an API server that must not trust us");
    world.crowd.ensure_unharmed()?;
    tell(&format!("registered with another CA: {TRIES} evictions of an occupied pod, 0 calls, 0 evicted"));
    // The control: the CA was all that was in the way.
    register(world, &ours).await?;
    eventually(KNOWN_LIMIT, "the API server to call us again", || async {
        let said = refused(world, &server, Try::Dry).await?;
        ensure!(said.contains(OURS), "{said}");
        edited(world).await
    })
    .await?;
    let calls = world.ground.counted("webhook", DECISIONS).await? - before;
    ensure!(calls >= 2, "{calls} calls");
    Ok(())
}

/// How an eviction is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    /// The webhook writes nothing down, so nobody begins to move players.
    Dry,
    /// Who is not asked cannot write anything down.
    InEarnest,
}

/// What an eviction is refused with.
async fn refused(world: &World<'_>, pod: &str, how: Try) -> Result<String> {
    let post_options = PostParams { dry_run: how == Try::Dry, ..PostParams::default() };
    match world.pods().evict(pod, &EvictParams { post_options, ..EvictParams::default() }).await {
        Ok(_) => anyhow::bail!("{pod} was evicted, with people on it"),
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(status.message.clone()),
        Err(error) => Err(error).context("the eviction failed"),
    }
}

/// Changes a group, on the server's side only.
async fn edited(world: &World<'_>) -> Result<()> {
    let groups: Api<ServerGroup> = Api::namespaced(world.client.clone(), NAMESPACE);
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "example.test/edited": "yes" } } }));
    groups.patch("lobby", &params, &patch).await?;
    Ok(())
}

/// The CAs of all our webhooks, in PEM.
async fn registered(world: &World<'_>) -> Result<Vec<String>> {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let validating = validating.get(object::WEBHOOK_CONFIGURATION).await?.webhooks.unwrap_or_default();
    let mutating = mutating.get(object::WEBHOOK_CONFIGURATION).await?.webhooks.unwrap_or_default();
    let all = validating.into_iter().map(|w| w.client_config).chain(mutating.into_iter().map(|w| w.client_config));
    all.map(|config| Ok(String::from_utf8(config.ca_bundle.context("no CA bundle")?.0)?)).collect()
}

/// Puts a CA into all our webhooks, as whoever may change registrations can.
async fn register(world: &World<'_>, ca: &str) -> Result<()> {
    for kind in ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"] {
        let name = object::WEBHOOK_CONFIGURATION;
        let count = world.cluster.kubectl(["get", kind, name, "-o", "jsonpath={.webhooks[*].name}"]).await?.stdout()?;
        let bundle = json!(k8s_openapi::ByteString(ca.as_bytes().to_vec()));
        let places = (0..count.split_whitespace().count()).map(|n| format!("/webhooks/{n}/clientConfig/caBundle"));
        let patch = places.map(|place| json!({ "op": "replace", "path": place, "value": bundle })).collect::<Vec<_>>();
        let patch = json!(patch).to_string();
        world.cluster.kubectl(["patch", kind, name, "--type=json", "--patch", &patch]).await?.stdout()?;
    }
    Ok(())
}

/// Ends all reconcilers; the webhooks go on.
async fn without_a_leader(world: &World<'_>) -> Result<()> {
    let args = ["scale", "deployment", object::OPERATOR, "-n", OPERATOR_NAMESPACE, "--replicas=0"];
    world.cluster.kubectl(args).await?.stdout()?;
    let reconcilers = ListParams::default().labels(&format!("{}=reconciler", label::PART));
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), OPERATOR_NAMESPACE);
    eventually(LIMIT, "no reconciler", || async {
        let left = pods.list(&reconcilers).await?;
        ensure!(left.items.is_empty(), "{:?}", left.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
        Ok(())
    })
    .await
}
