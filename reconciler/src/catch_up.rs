//! Before a new leader acts: its stores show what the API server has by now.
//!
//! A complete first list says nothing about today: the watch of a standby may be dead for more than a minute before it is
//! listed anew, each kind's by itself. A proxy pod that is missing would not hold the doors in the directory that the last
//! leader gave it; a pod whose seal is missing would be opened again; a Server as it was before players could reach it, or a
//! group that had no host port yet, would be taken for empty. Once we hold the lease nobody else seals pods or tells proxies,
//! so one look at the API server is enough.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use spawnery_api::names::label;
use spawnery_api::v1alpha1::{ProxyGroup, Server};
use spawnery_api::view::PodView;
use spawnery_runtime::client::{CallError, LIST, deadline};
use spawnery_runtime::feed::{Fed, Feed};

use crate::context::Context;
use crate::floor;

/// How long it is waited for what one look has shown, before the next: an object may have gone meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks at our stores.
const PAUSE: Duration = Duration::from_millis(20);
/// How long it is tried at all. A dead watch is noticed after 75 s; a replica that cannot read by then must not keep the
/// lease from one that can.
const LIMIT: Duration = Duration::from_secs(90);

/// Our stores stayed behind.
#[derive(Debug, thiserror::Error)]
#[error("our view of pods, Servers and ProxyGroups is still behind the API server's after {LIMIT:?}")]
pub struct Behind;

/// Waits until the stores show every pod, `Server` and `ProxyGroup` as the API server has it now, or as it became since.
/// That takes a list, and where a watch is dead as long as it takes for somebody to notice. While it lasts, nobody labels
/// pods or probes the webhook, so budgets are widened first.
///
/// # Errors
/// When it lasts longer than 90 s.
pub async fn stores(ctx: &Context) -> Result<(), Behind> {
    let began = ctx.now();
    tokio::time::timeout(LIMIT, caught_up(ctx)).await.map_err(|_| Behind)?;
    let elapsed_ms = ctx.now().saturating_duration_since(began).as_millis();
    tracing::debug!(elapsed_ms, "our view of pods, Servers and ProxyGroups is the API server's");
    Ok(())
}

async fn caught_up(ctx: &Context) {
    let mut widened = false;
    loop {
        let found = live(ctx).await;
        let failed = found.is_err();
        match found {
            Ok(live) => {
                let [pods, servers, proxy_groups] = wait_shown(ctx, &live).await;
                if [pods, servers, proxy_groups] == [0; 3] {
                    return;
                }
                tracing::warn!(pods, servers, proxy_groups, "our view is behind the API server's, waiting for it");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "could not compare our view with the API server's, trying again");
            }
        }
        if !widened {
            floor::widen_all(ctx).await;
            widened = true;
        }
        if failed {
            tokio::time::sleep(PATIENCE).await;
        }
    }
}

/// What the API server has.
struct Live {
    pods: Vec<ObjectMeta>,
    servers: Vec<ObjectMeta>,
    proxy_groups: Vec<ObjectMeta>,
}

async fn live(ctx: &Context) -> Result<Live, CallError> {
    let (pods, servers, proxy_groups) =
        tokio::try_join!(pods(ctx), readable::<Server>(ctx), readable::<ProxyGroup>(ctx))?;
    Ok(Live { pods, servers, proxy_groups })
}

async fn pods(ctx: &Context) -> Result<Vec<ObjectMeta>, CallError> {
    let managed = ListParams::default().labels(&format!("{}={}", label::MANAGED_BY, label::MANAGED_BY_VALUE));
    let pods = deadline(LIST, api::<PodView>(ctx).list_metadata(&managed)).await?;
    Ok(pods.items.into_iter().map(|pod| pod.metadata).collect())
}

/// Objects of a kind that stores leave out where they cannot be read: those are never waited for.
async fn readable<K>(ctx: &Context) -> Result<Vec<ObjectMeta>, CallError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let all = deadline(LIST, api::<DeserializeGuard<K>>(ctx).list(&ListParams::default())).await?;
    Ok(all.items.into_iter().filter_map(|item| item.0.ok()).map(|object| object.meta().clone()).collect())
}

fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(ctx: &Context) -> Api<K> {
    let client = ctx.clients.api.clone();
    match &ctx.config.only_namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    }
}

/// How many of these objects our stores do not show yet, by kind.
async fn wait_shown(ctx: &Context, live: &Live) -> [usize; 3] {
    let until = ctx.now() + PATIENCE;
    loop {
        let missing = [
            behind(&ctx.feeds.pods, &live.pods),
            behind(&ctx.feeds.servers, &live.servers),
            behind(&ctx.feeds.proxy_groups, &live.proxy_groups),
        ];
        if missing == [0; 3] || ctx.now() >= until {
            return missing;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn behind<K: Fed>(feed: &Feed<K>, live: &[ObjectMeta]) -> usize {
    let lags = |live: &&ObjectMeta| {
        let (namespace, name) = (live.namespace.as_deref(), live.name.as_deref());
        let held = feed.get(namespace.unwrap_or_default(), name.unwrap_or_default());
        !held.is_some_and(|held| shows(held.meta(), live))
    };
    live.iter().filter(lags).count()
}

/// Whether what we hold of an object is at least as new as what the API server said. Versions of one object are numbers that
/// grow (Kubernetes promises it since 1.35); of any that are not, only the same will do.
fn shows(held: &ObjectMeta, live: &ObjectMeta) -> bool {
    let number = |meta: &ObjectMeta| meta.resource_version.as_deref().and_then(|version| version.parse::<u64>().ok());
    let reached = match (number(held), number(live)) {
        (Some(held), Some(live)) => held >= live,
        _ => held.resource_version == live.resource_version,
    };
    held.uid == live.uid && reached
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::{Value, json};
    use tokio::task::JoinSet;

    use super::*;
    use crate::feeds;
    use crate::hub::HubConfig;
    use crate::testing::{self, Asked};

    const VERSION: &str = "spawnery.cloud/v1alpha1";

    fn server(version: &str) -> Value {
        let metadata = json!({"name": "lobby-a", "namespace": "ns", "uid": "u", "resourceVersion": version});
        let spec = json!({"groupRef": {"name": "lobby"}, "groupGeneration": 1, "podHash": "", "retire": false});
        json!({"apiVersion": VERSION, "kind": "Server", "metadata": metadata, "spec": spec})
    }

    fn unreadable() -> Value {
        let mut server = server("7");
        server["spec"] = json!("of a later version");
        server
    }

    fn narrow_budget() -> Value {
        let owner =
            json!({"apiVersion": VERSION, "kind": "ServerGroup", "name": "lobby", "uid": "g", "controller": true});
        let metadata = json!({"name": "lobby-server-pdb", "namespace": "ns", "uid": "b", "ownerReferences": [owner]});
        json!({"metadata": metadata, "spec": {"selector": {"matchLabels": {label::OCCUPIED: "true"}}}})
    }

    /// Has one Server and one budget. Watches are told nothing, and their lists (in pages) show the Server as it was.
    fn api_server(watched: Value, live: Value) -> (Client, Asked) {
        let asked = Asked::default();
        let seen = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
            seen.lock().push((format!("{} {path}", request.method()), Value::Null));
            let items = match path.rsplit('/').next() {
                Some("servers") if query.contains("limit=") => vec![watched.clone()],
                Some("servers") => vec![live.clone()],
                Some("poddisruptionbudgets") => vec![narrow_budget()],
                _ => vec![],
            };
            async move {
                if query.contains("watch=") {
                    std::future::pending::<()>().await;
                }
                let list =
                    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "9"}, "items": items});
                let response = Response::new(Body::from(list.to_string().into_bytes()));
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[rstest]
    #[case::as_it_is(server("7"), server("7"), true)]
    #[case::newer(server("8"), server("7"), true)]
    #[case::as_it_was(server("6"), server("7"), false)]
    #[case::unreadable_for_its_store_too(server("6"), unreadable(), true)]
    #[tokio::test(start_paused = true)]
    async fn waits_for_servers_but_not_for_ever(#[case] watched: Value, #[case] live: Value, #[case] want: bool) {
        let (client, asked) = api_server(watched, live);
        let mut ctx = testing::context(&client, HubConfig::default());
        let (wakes, _queues) = feeds::queues();
        let (feeds, tasks) = feeds::start(&client, &ctx.config, &wakes, ctx.clock);
        let _running: JoinSet<_> = tasks.into_iter().map(|(_, task)| task).collect();
        feeds.wait_synced().await;
        ctx.feeds = feeds;
        let began: Instant = ctx.now();
        let caught_up = stores(&ctx).await.is_ok();
        let took = ctx.now().saturating_duration_since(began);
        assert_eq!(caught_up, want);
        assert!(if want { took < PATIENCE } else { took < LIMIT + PATIENCE }, "{took:?}");
        let widened =
            asked.lock().iter().any(|(what, _)| what.starts_with("PATCH") && what.contains("lobby-server-pdb"));
        assert_eq!(widened, !want, "nobody guards empty pods while we wait");
    }

    fn meta(uid: &str, version: &str) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()), ..ObjectMeta::default() }
    }

    #[rstest]
    #[case::the_same(meta("a", "7"), true)]
    #[case::newer(meta("a", "10"), true)]
    #[case::older(meta("a", "6"), false)]
    #[case::the_pod_of_that_name_before_it(meta("b", "10"), false)]
    #[case::no_number(meta("a", "x"), false)]
    fn shows_at_least(#[case] held: ObjectMeta, #[case] want: bool) {
        assert_eq!(shows(&held, &meta("a", "7")), want);
    }

    #[test]
    fn versions_that_are_no_numbers_have_to_be_the_same() {
        assert!(shows(&meta("a", "x"), &meta("a", "x")));
        assert!(!shows(&meta("a", "y"), &meta("a", "x")));
    }
}
