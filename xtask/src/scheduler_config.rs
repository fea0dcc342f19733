//! `cargo xtask scheduler-config`: what the cluster's own kube-scheduler has to be told to ask the extender.

use crate::say;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use spawnery_api::{
    names::{object, port},
    scheduler::{Extender, TIMEOUT, Trust},
};
use std::{path::PathBuf, time::Duration};

/// The cluster answers in milliseconds, or not at all.
const LIMIT: Duration = Duration::from_secs(10);

/// Print the configuration with which the cluster's own kube-scheduler asks the extender.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig to use; without it the usual places.
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Namespace that the extender is in.
    #[arg(long, default_value = object::OPERATOR_NAMESPACE)]
    namespace: String,
    /// `https://HOST[:PORT]` by which the scheduler reaches the extender; by default the address of its Service, because
    /// schedulers on control planes seldom have the cluster's DNS.
    #[arg(long)]
    url: Option<String>,
    /// How long the scheduler waits for an answer, in milliseconds.
    #[arg(long, default_value_t = default_timeout_ms())]
    timeout_ms: u64,
}

fn default_timeout_ms() -> u64 {
    u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX)
}

/// For people, on standard error: the configuration alone is on standard output.
const ADVICE: &str = "\
Lay `extenders` over your scheduler's configuration (kube-scheduler --config) and start it anew; it reads the CA once.
Start the reconciler with --placement-resource (chart: placement.managedResource=true): it asks about marked pods alone.
Autoscalers do not know the resource and find no node for marked pods; with one, use the chart's second scheduler.";

pub(crate) async fn run(args: Args) -> Result<()> {
    let snippet = tokio::time::timeout(LIMIT, entry(args)).await.context("the cluster does not answer")??.snippet();
    let yaml = serde_saphyr::to_string(&snippet).context("could not write YAML")?;
    super::bench::print(&yaml);
    say(ADVICE);
    Ok(())
}

async fn entry(args: Args) -> Result<Extender> {
    let client = client(args.kubeconfig).await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &args.namespace);
    let secret = secrets.get_opt(object::EXTENDER_TLS_SECRET).await.context("could not read Secrets")?;
    let place = format!("{}/{}", args.namespace, object::EXTENDER_TLS_SECRET);
    let secret = secret.with_context(|| format!("there is no Secret {place}: is Spawnery installed there?"))?;
    let ca = secret.data.unwrap_or_default().remove(object::CA_KEY);
    let ca = ca.with_context(|| format!("Secret {place} has no {}", object::CA_KEY))?;
    let ca = String::from_utf8(ca.0).with_context(|| format!("{} of Secret {place} is no PEM", object::CA_KEY))?;
    let url = match args.url {
        Some(url) => url,
        None => service_url(&client, &args.namespace).await?,
    };
    ensure!(url.starts_with("https://"), "--url is `{url}`; write an https:// URL");
    let entry = Extender::in_namespace(&args.namespace, Trust::Data(ca));
    Ok(Extender { url, marked_only: true, timeout: Duration::from_millis(args.timeout_ms), ..entry })
}

async fn service_url(client: &Client, namespace: &str) -> Result<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get_opt(object::EXTENDER).await.context("could not read Services")?;
    let address = service.and_then(|service| service.spec?.cluster_ip).filter(|address| address != "None");
    let address = address.with_context(|| {
        format!("Service {namespace}/{} has no address: install the extender, or give --url", object::EXTENDER)
    })?;
    let host = if address.contains(':') { format!("[{address}]") } else { address };
    Ok(format!("https://{host}:{}", port::EXTENDER_SERVICE))
}

async fn client(kubeconfig: Option<PathBuf>) -> Result<Client> {
    let config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(&path).with_context(|| format!("could not read {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.context("not a kubeconfig")?
        }
        None => Config::infer().await.context("could not find out which cluster is meant")?,
    };
    Client::try_from(config).context("could not make a client")
}
