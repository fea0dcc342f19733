//! Registers the webhook, and keeps the registration current.
//!
//! The leader does it, not the chart: once there is a CA and the webhook has answered, never before, so that a fresh
//! install cannot lock itself out. Which namespaces count is written before the first pod is made there
//! ([`crate::bootstrap`] waits for it). Our `ClusterRole` owns the registration, so uninstalling collects it. When somebody
//! else changes or deletes it, it is written again.

pub mod build;
mod held;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spawnery_api::names::{manager, object};
use spawnery_certs::EvictionToken;
use spawnery_core::floor::Width;
use spawnery_runtime::client::CallError;
use spawnery_runtime::keys::KeyStream;
use tokio::sync::watch;

use crate::context::Context;
use build::{Registration, Target};
use held::{Held, Pace, Written};

/// Safety net: the registration is written again this often, in case somebody changed what is not watched.
const RESYNC: Duration = Duration::from_mins(5);
/// How soon after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// For how long what was read of our `ClusterRole` is believed; after that a reinstallation is noticed at the next wake-up.
const OWNER_KNOWN_FOR: Duration = Duration::from_mins(1);

/// Writes the registration whenever what it says changes; never ends by itself.
///
/// # Errors
/// None; the type is that of supervised tasks.
pub async fn run(
    ctx: Arc<Context>,
    mut wakes: KeyStream<()>,
    mut token: watch::Receiver<Option<EvictionToken>>,
    watched: watch::Sender<Arc<BTreeSet<String>>>,
) -> anyhow::Result<()> {
    let (mut ca, mut width) = (ctx.ca.clone(), ctx.width.clone());
    let mut written: Option<Written> = None;
    let mut pace = Pace::default();
    let mut owner = Owner::default();
    let mut resync = ctx.now() + RESYNC;
    loop {
        if ctx.now() >= resync {
            // Due anyway: forget what we know, so that it is read and written again.
            (written, owner) = (None, Owner::default());
            resync = ctx.now() + RESYNC;
        }
        let known = token.borrow_and_update().clone();
        let pause = match desired(&ctx, known.as_ref(), written.is_some(), &mut owner).await {
            Ok(Some(wanted)) => {
                let wait = written.as_ref().map(|written| written.due(&wanted, &seen(&ctx), &mut pace, ctx.now()));
                match wait {
                    Some(wait) if !wait.is_zero() => wait,
                    _ => match apply(&ctx, &wanted).await {
                        Ok(held) => {
                            tracing::info!(namespaces = wanted.namespaces.len(), "registered the webhook");
                            watched.send_replace(Arc::new(wanted.namespaces.clone()));
                            pace.wrote(ctx.now());
                            written = Some(Written { registration: wanted, held });
                            RESYNC
                        }
                        Err(error) => {
                            owner = Owner::default();
                            failed(&error)
                        }
                    },
                }
            }
            Ok(None) => RESYNC,
            Err(error) => failed(&error),
        };
        let pause = pause.min(resync.saturating_duration_since(ctx.now()));
        tokio::select! {
            _ = wakes.next() => {}
            _ = ca.changed() => {}
            _ = token.changed() => {}
            _ = width.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn failed(error: &CallError) -> Duration {
    tracing::warn!(error = error as &dyn std::error::Error, "could not register the webhook, trying again");
    RETRY
}

/// `None` while it is too early: no CA, no token, or no webhook that ever answered.
async fn desired(
    ctx: &Context,
    token: Option<&EvictionToken>,
    registered: bool,
    owner: &mut Owner,
) -> Result<Option<Registration>, CallError> {
    let Some((ca_bundle, token)) = ctx.ca.borrow().clone().zip(token.cloned()) else {
        return Ok(None);
    };
    if !registered && ctx.width() == Width::Unsealed && !exists(ctx).await? {
        return Ok(None);
    }
    let target = match &ctx.config.webhook_url {
        Some(url) => Target::Url(url.clone()),
        None => Target::Service { namespace: ctx.config.operator_namespace.clone() },
    };
    let operator_namespace = ctx.config.operator_namespace.clone();
    Ok(Some(Registration {
        ca_bundle,
        token,
        target,
        namespaces: namespaces(ctx),
        owner: owner.get(ctx.now(), || role(ctx)).await?,
        operator_namespace,
    }))
}

/// Namespaces that hold a Network, or pods that one left behind. Never our own, and never those of Kubernetes.
fn namespaces(ctx: &Context) -> BTreeSet<String> {
    let networks = ctx.feeds.networks.all().into_iter().filter_map(|network| network.metadata.namespace.clone());
    let pods = ctx.feeds.pods.all().into_iter().map(|pod| pod.namespace().to_owned());
    let mut found: BTreeSet<String> = networks.chain(pods).collect();
    found.retain(|namespace| build::may_be_watched(namespace, &ctx.config.operator_namespace));
    found
}

async fn exists(ctx: &Context) -> Result<bool, CallError> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(ctx.clients.api.clone());
    Ok(ctx.read(api.get_metadata_opt(object::WEBHOOK_CONFIGURATION)).await?.is_some())
}

/// Our `ClusterRole` as an owner, read now and then: pods wake us many times a second.
#[derive(Debug, Default)]
struct Owner(Option<(Instant, Option<OwnerReference>)>);

impl Owner {
    async fn get<E>(
        &mut self,
        now: Instant,
        read: impl AsyncFnOnce() -> Result<Option<OwnerReference>, E>,
    ) -> Result<Option<OwnerReference>, E> {
        if let Some((at, known)) = &self.0
            && now.saturating_duration_since(*at) < OWNER_KNOWN_FOR
        {
            return Ok(known.clone());
        }
        let owner = read().await?;
        self.0 = Some((now, owner.clone()));
        Ok(owner)
    }
}

async fn role(ctx: &Context) -> Result<Option<OwnerReference>, CallError> {
    let api: Api<ClusterRole> = Api::all(ctx.clients.api.clone());
    let role = match ctx.read(api.get_metadata_opt(object::OPERATOR)).await {
        Ok(role) => role,
        // Installed under other names or rights: then the registration is nobody's, and uninstalling says so.
        Err(error) if error.is_forbidden() => None,
        Err(error) => return Err(error),
    };
    Ok(role.and_then(|role| role.metadata.uid).map(|uid| OwnerReference {
        api_version: "rbac.authorization.k8s.io/v1".to_owned(),
        kind: "ClusterRole".to_owned(),
        name: object::OPERATOR.to_owned(),
        uid,
        ..OwnerReference::default()
    }))
}

/// What our watches show of the validating registration and of the mutating one.
fn seen(ctx: &Context) -> [Option<Held>; 2] {
    let name = object::WEBHOOK_CONFIGURATION;
    let (validating, mutating) = (ctx.feeds.validating.get_cluster(name), ctx.feeds.mutating.get_cluster(name));
    [validating.map(|object| Held::of(&object.metadata)), mutating.map(|object| Held::of(&object.metadata))]
}

async fn apply(ctx: &Context, wanted: &Registration) -> Result<[Held; 2], CallError> {
    let mutating = put::<MutatingWebhookConfiguration>(ctx, &build::mutating(wanted)).await?;
    let validating = put::<ValidatingWebhookConfiguration>(ctx, &build::validating(wanted)).await?;
    Ok([validating, mutating])
}

/// Applies one kind; where others have added to it what an apply leaves alone, all of its webhooks are replaced.
async fn put<K>(ctx: &Context, wanted: &Value) -> Result<Held, CallError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let (api, name) = (Api::<K>::all(ctx.clients.api.clone()), object::WEBHOOK_CONFIGURATION);
    let params = PatchParams::apply(manager::WEBHOOK_CONFIG).force();
    let applied = ctx.write(api.patch(name, &params, &Patch::Apply(wanted))).await?;
    let found = serde_json::to_value(&applied).unwrap_or_default();
    if build::merged(&found) == build::merged(wanted) {
        return Ok(Held::of(applied.meta()));
    }
    tracing::warn!(kind = %K::kind(&()), "somebody has added to our registration, replacing its webhooks");
    let params = PatchParams { field_manager: Some(manager::WEBHOOK_CONFIG.to_owned()), ..PatchParams::default() };
    let webhooks = json!({ "webhooks": wanted.get("webhooks") });
    let replaced = ctx.write(api.patch(name, &params, &Patch::Merge(webhooks))).await?;
    Ok(Held::of(replaced.meta()))
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::Client;
    use kube::client::Body;
    use spawnery_certs::EvictionToken;

    use super::*;
    use crate::hub::HubConfig;
    use crate::testing::{self, Asked};

    /// An apply leaves what a stranger has added; a patch of the whole list does not.
    fn api_server(stranger: bool) -> (Client, Asked) {
        let asked = Asked::default();
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let (parts, body) = request.into_parts();
                let sent: Value = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or_default();
                let applies = parts.uri.query().unwrap_or_default().contains("force=true");
                seen.lock().push((format!("{applies} {}", parts.uri.path()), sent.clone()));
                let mut answer = sent;
                answer["metadata"] = json!({ "uid": "u", "generation": if applies { 3 } else { 4 } });
                if stranger && applies && parts.uri.path().contains("validating") {
                    answer["webhooks"][0]["matchConditions"] = json!([{ "name": "never", "expression": "false" }]);
                }
                let response = Response::new(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[rstest::rstest]
    #[case::alone(false, 0)]
    #[case::with_a_stranger(true, 1)]
    #[tokio::test]
    async fn what_a_stranger_added_is_replaced(#[case] stranger: bool, #[case] want: usize) {
        let (client, asked) = api_server(stranger);
        let ctx = testing::context(&client, HubConfig::default());
        let wanted = Registration {
            ca_bundle: "PEM".into(),
            token: EvictionToken::parse(&[b'a'; 64]).expect("64 digits"),
            target: Target::Url("https://127.0.0.1".to_owned()),
            namespaces: BTreeSet::from(["games".to_owned()]),
            owner: None,
            operator_namespace: "ops".to_owned(),
        };
        apply(&ctx, &wanted).await.expect("applied");
        let asked = asked.lock();
        let replaced: Vec<_> = asked.iter().filter(|(what, _)| what.starts_with("false")).collect();
        assert_eq!(replaced.len(), want, "{asked:?}");
        for (what, sent) in replaced {
            assert!(what.contains("validating"), "{what}");
            assert_eq!(sent.get("webhooks"), build::validating(&wanted).get("webhooks"), "all of them");
        }
    }

    fn role(uid: &str) -> OwnerReference {
        OwnerReference { uid: uid.to_owned(), ..OwnerReference::default() }
    }

    #[tokio::test]
    async fn the_owner_is_read_once_a_minute_and_a_new_one_is_noticed() {
        let mut owner = Owner::default();
        let begin = Instant::now();
        let mut at = async |seconds, answer: Result<&str, ()>| {
            let now = begin + Duration::from_secs(seconds);
            owner.get(now, async || answer.map(|uid| Some(role(uid)))).await.map(|owner| owner.map(|owner| owner.uid))
        };
        let uid = |uid: &str| Ok(Some(uid.to_owned()));
        assert_eq!(at(0, Err(())).await, Err(()), "a failure is not remembered");
        assert_eq!(at(0, Ok("old")).await, uid("old"));
        assert_eq!(at(59, Ok("new")).await, uid("old"));
        assert_eq!(at(60, Err(())).await, Err(()), "what is too old is not believed because nobody answers");
        assert_eq!(at(60, Ok("new")).await, uid("new"));
    }
}
