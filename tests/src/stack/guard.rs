//! Whether the webhook stands before the floor in a namespace, and where it is asked.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use spawnery_api::names::{label, object};

/// How the webhook of evictions is called.
const EVICTIONS: &str = "evictions.spawnery.cloud";

/// The path that the API server was told to post evictions to. It ends in a token, so nobody else knows it.
///
/// # Errors
/// When evictions are not registered, or it could not be read.
pub async fn eviction_path(client: &Client) -> Result<String> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let webhooks = configurations.get(object::WEBHOOK_CONFIGURATION).await?.webhooks.unwrap_or_default();
    let evictions = webhooks.into_iter().find(|webhook| webhook.name == EVICTIONS);
    let called = evictions.context("evictions are not registered")?.client_config;
    let path = match (called.url, called.service) {
        (Some(url), _) => url.parse::<http::Uri>()?.path().to_owned(),
        (None, service) => service.and_then(|service| service.path).context("a Service without a path")?,
    };
    Ok(path)
}

/// A new namespace stands on the wide floor until the leader has seen the webhook answer and has registered it; until
/// then evictions are refused in the words of the disruption budget.
///
/// # Errors
/// What of it is not so yet, or that it could not be read.
pub async fn ensure_guarded(client: &Client, namespace: &str) -> Result<()> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let webhooks = configurations.get(object::WEBHOOK_CONFIGURATION).await?.webhooks.unwrap_or_default();
    let here =
        |requirement: &LabelSelectorRequirement| requirement.values.iter().flatten().any(|value| value == namespace);
    let selectors = webhooks.iter().filter_map(|webhook| webhook.namespace_selector.as_ref());
    let asked = selectors.flat_map(|selector| selector.match_expressions.iter().flatten()).any(here);
    ensure!(asked, "the webhook is not asked about evictions in {namespace}");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    for budget in budgets.list(&ListParams::default()).await? {
        let labels = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()?.match_labels.as_ref());
        let narrow = labels.is_some_and(|labels| labels.contains_key(label::OCCUPIED));
        ensure!(narrow, "{} is still wide", budget.name_any());
    }
    Ok(())
}
