//! helm without a cluster: lint and render.

use anyhow::{Context as _, Result};
use serde_json::Value;
use spawnery_tests::{
    Launch,
    command::{Output, run},
    kubernetes, target,
};
use std::{path::PathBuf, time::Duration};

const LIMIT: Duration = Duration::from_mins(1);
/// Not the one that everything calls itself by default.
pub(crate) const NAMESPACE: &str = "games-system";

pub(crate) fn chart() -> PathBuf {
    target::workspace().join("charts/spawnery")
}

/// Runs helm on the chart, with caches that nobody else has.
pub(crate) async fn helm(args: &[&str]) -> Result<Output> {
    let home = tempfile::tempdir().context("no place for helm's caches")?;
    let mut launch = Launch::new("helm", kubernetes::binaries().await?.helm()).args(args);
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        launch = launch.env(name, home.path());
    }
    run(&launch, None, LIMIT).await
}

/// What `helm template` says to these values.
pub(crate) async fn template(values: &[&str]) -> Result<Output> {
    let chart = chart().display().to_string();
    let mut args = vec!["template", "any", &chart, "--namespace", NAMESPACE, "--kube-version", kubernetes::VERSION];
    for value in values {
        args.extend(["--set", value]);
    }
    helm(&args).await
}

/// The objects that these values make.
pub(crate) async fn render(values: &[&str]) -> Result<Vec<Value>> {
    let text = template(values).await?.stdout()?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).context("helm rendered no YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The object of this kind and name.
pub(crate) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Result<&'a Value> {
    let found = objects.iter().find(|object| word(object, "/kind") == kind && word(object, "/metadata/name") == name);
    found.with_context(|| format!("no {kind} {name}"))
}

/// Kind and name of each object, sorted.
pub(crate) fn names(objects: &[Value]) -> Vec<String> {
    let name = |object: &Value| format!("{} {}", word(object, "/kind"), word(object, "/metadata/name"));
    let mut names: Vec<String> = objects.iter().map(name).collect();
    names.sort();
    names
}

fn word<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
