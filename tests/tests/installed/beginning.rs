//! Installed, and played on.

use crate::{
    apart::Ballast,
    first,
    world::{DECISIONS, LIMIT, REST_AIM, World, published_ca, tell},
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::Api;
use spawnery_api::names::object;
use spawnery_tests::{
    eventually,
    installed::{OPERATOR_NAMESPACE, Order, usage},
};
use std::time::{Duration, Instant};

/// The promise: from `helm install` to everything Ready.
const READY_PROMISE: Duration = Duration::from_secs(20);
/// The promise: from a join or a quit to what kubectl shows.
const SHOWN_PROMISE: Duration = Duration::from_secs(2);
/// The chart's default.
const RECONCILERS: usize = 2;

pub(crate) async fn an_install_is_ready_and_takes_the_first_objects(world: &World<'_>) -> Result<()> {
    let ballast = Ballast::load(world).await?;
    let order = Order::begin(&world.client);
    let begin = Instant::now();
    world.ground.follow("Install").await?;
    let (ready, ()) = tokio::try_join!(world.ground.all_ready(), first::the_first_object_is_reviewed(world))?;
    let took = ready.saturating_duration_since(begin);
    tell(&format!("helm install to everything Ready: {:.1} s", took.as_secs_f64()));
    // Not luck: nothing that helm waits for was ready sooner.
    let after = order.registered_first(RECONCILERS).await?;
    tell(&format!("the first reconciler was ready {:.1} s after the webhook was registered", after.as_secs_f64()));
    ballast.pulls_no_replicas_together().await?;
    // No second try either: the section's commands end at the first that fails.
    world.ground.follow("A first network").await?;
    tell(&format!("to a lobby that takes players: {:.1} s", begin.elapsed().as_secs_f64()));
    first::the_first_network_was_reviewed(world).await?;
    world.ground.follow("Look at it").await?;
    let parts = usage(world.cluster).await?;
    for part in &parts {
        tell(&format!("at rest: {part}"));
    }
    ensure!(parts.iter().all(|part| part.most() <= REST_AIM), "at rest: {parts:?}");
    ensure!(took <= READY_PROMISE, "everything was Ready after {took:?}");
    Ok(())
}

pub(crate) async fn webhooks_are_called_through_services_with_our_certificates(world: &World<'_>) -> Result<()> {
    let ca = published_ca(world).await?;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let validating = validating.get(object::WEBHOOK_CONFIGURATION).await?.webhooks.unwrap_or_default();
    let mutating = mutating.get(object::WEBHOOK_CONFIGURATION).await?.webhooks.unwrap_or_default();
    let all = validating.iter().map(|w| &w.client_config).chain(mutating.iter().map(|w| &w.client_config));
    let mut seen = 0;
    for config in all {
        ensure_through_our_service(config, &ca)?;
        seen += 1;
    }
    ensure!(seen == 4, "{seen} webhooks");
    // Who they are called by is counted at both ends.
    let decisions = world.ground.counted("webhook", DECISIONS).await?;
    ensure!(decisions > 0, "no webhook has decided anything\n{}", world.ground.metrics("webhook").await?);
    let metrics = world.cluster.kubectl(["get", "--raw", "/metrics"]).await?.stdout()?;
    for name in ["evictions.spawnery.cloud", "pods.spawnery.cloud"] {
        let called = metrics.lines().any(|line| {
            line.starts_with("apiserver_admission_webhook_request_total{")
                && line.contains(name)
                && line.contains(r#"code="200""#)
        });
        ensure!(called, "the API server has not called {name}");
    }
    Ok(())
}

fn ensure_through_our_service(config: &WebhookClientConfig, ca: &str) -> Result<()> {
    ensure!(config.url.is_none(), "called at {:?}", config.url);
    let service = config.service.as_ref().context("no service")?;
    ensure!(service.name == object::WEBHOOK && service.namespace == OPERATOR_NAMESPACE, "called at {service:?}");
    let bundle = config.ca_bundle.as_ref().context("no CA bundle")?;
    ensure!(bundle.0 == ca.as_bytes(), "another CA than ours");
    Ok(())
}

pub(crate) async fn five_players_are_counted_as_they_come(world: &mut World<'_>) -> Result<()> {
    world.the_lobby().await?;
    let arrivals = world.crowd.join_bots(&world.bots, world.door, 5).await?;
    let last = arrivals.last().copied().context("nobody came")?;
    let shown = world.shown(5).await?;
    let took = shown.saturating_duration_since(last);
    tell(&format!("kubectl get servers shows 5 after {:.2} s", took.as_secs_f64()));
    ensure!(took <= SHOWN_PROMISE, "kubectl showed the fifth after {took:?}");
    let table = world.ground.follow("Who is where").await?;
    ensure!(table.contains("spawnery.cloud/occupied=true"), "no pod is marked as occupied\n{table}");
    for left in [4, 3] {
        let player = world.crowd.players().iter().find(|player| !player.state().is_final()).context("nobody plays")?;
        player.leave();
        player.wait_for(LIMIT, "gone", spawnery_tests::game::player::PlayerState::is_final).await?;
        let begin = Instant::now();
        let took = world.shown(left).await?.saturating_duration_since(begin);
        tell(&format!("and {left} {:.2} s after a quit", took.as_secs_f64()));
        ensure!(took <= SHOWN_PROMISE, "kubectl showed that somebody had gone after {took:?}");
    }
    eventually(LIMIT, "three players", || async {
        ensure!(world.crowd.by_server().values().sum::<usize>() == 3);
        Ok(())
    })
    .await
}
