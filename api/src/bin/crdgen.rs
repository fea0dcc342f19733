//! Writes what the chart takes from the code (custom resources, rights), or checks that what is there is current.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use spawnery_api::v1alpha1::crds;

/// First line of each file.
const HEADER: &str = "# Written by `cargo run -p spawnery-api --features crdgen --bin crdgen`. Do not edit.\n";

/// Writes the CustomResourceDefinitions and the table of rights into the chart.
#[derive(Parser)]
struct Args {
    /// Write nothing; fail if a file is missing, differs or is not ours.
    #[arg(long)]
    check: bool,
    /// Folder to write to.
    #[arg(long, default_value = "charts/spawnery/files")]
    out: PathBuf,
}

fn main() -> Result<ExitCode> {
    let Args { check, out } = Args::parse();
    let definitions = out.join("crds");
    let mut wanted: Vec<(PathBuf, String)> =
        crds()?.iter().map(|crd| Ok((definitions.join(file_name(crd)), render(crd)?))).collect::<Result<_>>()?;
    wanted.push((out.join("rights.yaml"), format!("{HEADER}{}", spawnery_api::rbac::chart::rights())));
    if !check {
        fs::create_dir_all(&definitions).with_context(|| format!("could not make {}", definitions.display()))?;
        for (path, text) in &wanted {
            fs::write(path, text).with_context(|| format!("could not write {}", path.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let complaints = complaints(&definitions, &wanted)?;
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    if complaints.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("run `cargo run -p spawnery-api --features crdgen --bin crdgen` and commit what it writes");
    Ok(ExitCode::FAILURE)
}

fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

fn render(crd: &CustomResourceDefinition) -> Result<String> {
    let name = crd.metadata.name.as_deref().unwrap_or_default();
    let yaml = serde_saphyr::to_string(crd).with_context(|| format!("could not write {name} as YAML"))?;
    Ok(format!("{HEADER}{yaml}"))
}

fn complaints(out: &Path, wanted: &[(PathBuf, String)]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (path, text) in wanted {
        match fs::read_to_string(path) {
            Ok(found) if found == *text => {}
            Ok(_) => complaints.push(format!("{} is not what the types say", path.display())),
            Err(error) => complaints.push(format!("{} cannot be read: {error}", path.display())),
        }
    }
    let entries = fs::read_dir(out).with_context(|| format!("could not list {}", out.display()))?;
    for entry in entries {
        let path = entry?.path();
        if !wanted.iter().any(|(known, _)| *known == path) {
            complaints.push(format!("{} belongs to no kind", path.display()));
        }
    }
    Ok(complaints)
}
