//! What the chart renders, held against the API of each Kubernetes version that it is for.
//!
//! The schemas are Kubernetes' own: `api/openapi-spec` of its Go module, made strict, so that a field of another version
//! or a misspelled one is an error.

use crate::helm::{NAMESPACE, chart, helm};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use spawnery_tests::{
    Launch,
    args::settings,
    command::run,
    gobuild::{Module, PLAIN, Part},
    target,
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Each minor version that the chart is for, with the hash of its module as Go's checksum database has it.
const VERSIONS: [(&str, &str); 4] = [
    ("1.34.4", "h1:Yy6R4QB8C9kJPp25GFqEvX5XQwY5qzKeqD0Xx6oAcmk="),
    ("1.35.4", "h1:o/8dBC/pHVpYoGV4OAIytAlNPZbdYVTXJHoYvXC4qzM="),
    ("1.36.3", "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o="),
    ("1.37.2", "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE="),
];
const PARTS: [Part; 1] = [Part::new("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", PLAIN, "seconds")];
/// A module of 21 MB, on a slow network.
const DOWNLOAD_LIMIT: Duration = Duration::from_mins(15);
const LIMIT: Duration = Duration::from_mins(1);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    dir: PathBuf,
    sum: String,
}

#[tokio::test]
async fn every_object_fits_every_version() -> Result<()> {
    let kubeconform = kubeconform().await?;
    let folder = tempfile::tempdir().context("no place for schemas")?;
    for (version, sum) in VERSIONS {
        let schemas = schemas(version, sum, folder.path()).await?;
        let manifests = rendered(version).await?;
        let output = conform(&kubeconform, &schemas, &manifests).await?;
        ensure!(output.ok(), "Kubernetes {version}: {}", output.all());
        ensure!(output.stdout.contains("Skipped: 0"), "Kubernetes {version}: {}", output.all());
        // The same check sees what is wrong.
        for (right, wrong) in [("matchLabelKeys:", "matchLabelKey:"), ("containerPort: 8443", "containerPort: https")] {
            ensure!(manifests.contains(right), "nothing to break at {right}");
            let broken = conform(&kubeconform, &schemas, &manifests.replace(right, wrong)).await?;
            ensure!(!broken.ok(), "Kubernetes {version} takes {wrong}");
        }
    }
    Ok(())
}

async fn kubeconform() -> Result<PathBuf> {
    let module = Module {
        source: target::workspace().join("tests/kubeconform"),
        root: target::directory()?.join("kubeconform"),
        parts: &PARTS,
        links: &[],
    };
    Ok(module.binaries().await?.join("kubeconform"))
}

async fn rendered(version: &str) -> Result<String> {
    let chart = chart().display().to_string();
    let all = "extender.enabled=true,scheduler.enabled=true,\
               forwardingSecrets[0].namespace=games,forwardingSecrets[0].names={a}";
    let args = ["template", "any", &chart, "--namespace", NAMESPACE, "--kube-version", version, "--set", all];
    helm(&args).await?.stdout()
}

async fn conform(kubeconform: &Path, schemas: &Path, manifests: &str) -> Result<spawnery_tests::command::Output> {
    let location = format!("{}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json", schemas.display());
    let launch =
        Launch::new("kubeconform", kubeconform).args(["-strict", "-summary", "-schema-location", &location]).arg("-");
    run(&launch, Some(manifests), LIMIT).await
}

/// A folder with a schema for each kind of this version.
async fn schemas(version: &str, sum: &str, folder: &Path) -> Result<PathBuf> {
    let module = format!("k8s.io/kubernetes@v{version}");
    let go = Launch::new("go", &settings().go).args(["mod", "download", "-json", &module]).directory(folder);
    let said = run(&go, None, DOWNLOAD_LIMIT).await?.stdout()?;
    let download: Download = serde_json::from_str(&said).with_context(|| format!("go said {said}"))?;
    ensure!(download.sum == sum, "{module} is {}, not {sum}", download.sum);
    let path = download.dir.join("api/openapi-spec/swagger.json");
    let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    let swagger: Value = serde_json::from_str(&text).context("the API's description is no JSON")?;
    let definitions =
        swagger.get("definitions").and_then(Value::as_object).context("the API's description has no definitions")?;
    let schemas = folder.join(version);
    fs::create_dir(&schemas).context("no place for schemas")?;
    for (name, definition) in definitions {
        for kind in definition["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
            let reference = json!({ "$ref": format!("definitions.json#/definitions/{name}") });
            fs::write(schemas.join(file(kind)), reference.to_string()).context("could not write a schema")?;
        }
    }
    let strict: Map<String, Value> =
        definitions.iter().map(|(name, value)| (name.clone(), strict(name, value))).collect();
    let all = json!({ "definitions": strict });
    fs::write(schemas.join("definitions.json"), all.to_string()).context("could not write the schemas")?;
    Ok(schemas)
}

/// As kubeconform asks for it: kind, first word of the group, version.
fn file(kind: &Value) -> String {
    let word = |key: &str| kind[key].as_str().unwrap_or_default().to_lowercase();
    let group = word("group");
    let group = group.split('.').next().filter(|group| !group.is_empty()).map(|group| format!("-{group}"));
    format!("{}{}-{}.json", word("kind"), group.unwrap_or_default(), word("version"))
}

/// A definition that takes no field which it does not name, and numbers where Kubernetes reads them as text.
fn strict(name: &str, definition: &Value) -> Value {
    if name.ends_with("api.resource.Quantity") || definition["format"] == "int-or-string" {
        return json!({ "type": ["string", "number"] });
    }
    let open = definition["x-kubernetes-preserve-unknown-fields"] == true;
    let mut schema = definition.clone();
    if let Some(fields) = schema.as_object_mut().filter(|fields| fields.contains_key("properties") && !open) {
        fields.entry("additionalProperties").or_insert_with(|| json!(false));
    }
    schema
}
