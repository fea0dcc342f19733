//! A namespace for each test, and what was in it when the test failed.

use crate::{Cluster, failure};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace as Object, ServiceAccount};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use std::{fmt::Write as _, future::Future, time::Duration};

use crate::eventually::eventually;

/// The controller manager makes the default ServiceAccount, without which there are no pods, within milliseconds.
const ACCOUNT_LIMIT: Duration = Duration::from_secs(30);
/// Objects and logs of one namespace; also for its deletion.
const REPORT_LIMIT: Duration = Duration::from_secs(30);

/// A namespace that belongs to one test.
#[derive(Debug, Clone)]
pub struct Namespace {
    cluster: Cluster,
    name: String,
}

impl Namespace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster that it is in.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

impl Cluster {
    /// Runs `body` with a namespace of its own, called `name` and a random number.
    ///
    /// When `body` fails or panics, prints the namespace's objects and events and the ends of all logs. The namespace is
    /// deleted in any case.
    ///
    /// # Errors
    /// What `body` returned, or that the namespace could not be made.
    pub async fn with_namespace<F, Fut>(&self, name: &str, body: F) -> Result<()>
    where
        F: FnOnce(Namespace) -> Fut,
        Fut: Future<Output = Result<()>>,
    {
        let namespace = self.create_namespace(name).await?;
        let result = failure::outcome(body(namespace.clone())).await;
        if let Some(why) = failure::of(&result) {
            self.thaw_all();
            failure::explain(&why, REPORT_LIMIT, namespace.report(), || self.log_tails(20)).await;
        }
        // Its end is the namespace controller's business, and a failure to delete is no failure of the test.
        if let Ok(client) = self.client().await {
            let namespaces: Api<Object> = Api::all(client);
            let params = DeleteParams::background();
            let deletion = namespaces.delete(&namespace.name, &params);
            let _ = tokio::time::timeout(REPORT_LIMIT, deletion).await;
        }
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    async fn create_namespace(&self, name: &str) -> Result<Namespace> {
        let name = format!("{name}-{:05x}", rand::random_range(0..0x10_0000));
        let client = self.client().await?;
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let object = Object { metadata, ..Object::default() };
        let created = Api::all(client.clone()).create(&PostParams::default(), &object).await;
        created.with_context(|| format!("could not create namespace {name}"))?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, &name);
        let what = format!("the default ServiceAccount of {name}");
        eventually(ACCOUNT_LIMIT, &what, || async { Ok(accounts.get("default").await?) }).await?;
        Ok(Namespace { cluster: self.clone(), name })
    }
}

impl Namespace {
    /// Everything that may explain a failure.
    pub async fn report(&self) -> String {
        let mut report = format!("=== namespace {}\n", self.name);
        let kinds = self.words("api-resources --namespaced --verbs=list -o name").await;
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
        let ours: Vec<&str> = kinds.iter().copied().filter(|kind| kind.ends_with(".spawnery.cloud")).collect();
        let mut sections = vec![
            ("objects", format!("get {} -o wide --show-kind --ignore-not-found", kinds.join(","))),
            ("pods", "get pods -o yaml".to_owned()),
            ("events", "get events --sort-by=.metadata.creationTimestamp".to_owned()),
        ];
        if !ours.is_empty() {
            sections.insert(1, ("ours", format!("get {} -o yaml", ours.join(","))));
        }
        for (title, command) in sections {
            let text = self.words(&command).await;
            // Writing to a string cannot fail.
            let _ = writeln!(report, "--- {title}\n{text}");
        }
        report + "--- nodes\n" + &self.words("get nodes -o wide").await + &self.cluster.log_tails(40)
    }

    async fn words(&self, command: &str) -> String {
        let args = command.split(' ').chain(["--namespace", &self.name, "--request-timeout=5s"]);
        match self.cluster.kubectl(args).await {
            Ok(output) => output.all(),
            Err(error) => format!("{error:#}"),
        }
    }
}
