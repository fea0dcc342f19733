//! The custom resources against a real API server: what it accepts, what it refuses and in which words.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail by panicking")]

mod cases;
mod examples;
mod mutants;
mod spec;
mod status;
mod world;

use anyhow::{Result, ensure};
use cases::Verdict;
use world::{Kind, World};

#[tokio::test]
async fn what_is_accepted_and_what_is_refused() -> Result<()> {
    let world = World::start().await?;
    let client = world.cluster.client().await?;
    world
        .cluster
        .with_namespace("cases", |ns| async move {
            let mut wrong = Vec::new();
            for (index, case) in cases::all().iter().enumerate() {
                let api = world::api(&client, case.kind, world::GROUP, ns.name());
                let got = world::attempt(&api, case, world::GROUP, &format!("case-{index}")).await?;
                if let Some(complaint) = judge(case, &got) {
                    wrong.push(complaint);
                }
            }
            ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
            Ok(())
        })
        .await
}

/// What is wrong with the API server's answer.
fn judge(case: &cases::Case, got: &Result<(), String>) -> Option<String> {
    let words = match (&case.verdict, got) {
        (Verdict::Accepted, Ok(())) => return None,
        (Verdict::Accepted, Err(message)) => return Some(format!("{}: refused: {message}", case.name)),
        (Verdict::Refused(_) | Verdict::ByRule(_), Ok(())) => return Some(format!("{}: accepted", case.name)),
        (Verdict::Refused(words), Err(_)) => words.to_vec(),
        (Verdict::ByRule(words), Err(_)) => vec![*words],
    };
    let message = got.as_ref().err()?;
    let missing: Vec<_> = words.into_iter().filter(|words| !message.contains(words)).collect();
    (!missing.is_empty()).then(|| format!("{}: {missing:?} not in: {message}", case.name))
}

#[tokio::test]
async fn people_see_columns_and_explanations() -> Result<()> {
    let world = World::start().await?;
    for kind in Kind::ALL {
        let crds = spawnery_api::v1alpha1::crds()?;
        let crd = crds.iter().find(|crd| crd.spec.names.kind == kind.name()).unwrap();
        let short = crd.spec.names.short_names.clone().unwrap().remove(0);
        let explained = world.cluster.kubectl(["explain", &format!("{short}.spec")]).await?.stdout()?;
        ensure!(explained.contains("FIELDS:"), "{explained}");
    }
    let drain = world.cluster.kubectl(["explain", "mcgroup.spec.drain"]).await?.stdout()?;
    for words in ["moveAfterSeconds", "Default 60", "Hold"] {
        ensure!(drain.contains(words), "{words:?} not in {drain}");
    }
    world
        .cluster
        .with_namespace("columns", |ns| async move {
            ns.cluster().kubectl(["apply", "-n", ns.name(), "-f", &examples::path("network.yaml")]).await?.stdout()?;
            let table = |what: &'static str| {
                let ns = ns.clone();
                async move { ns.cluster().kubectl(["get", what, "-n", ns.name()]).await?.stdout() }
            };
            let header = |table: String| {
                table
                    .lines()
                    .next()
                    .map(|line| {
                        line.split("  ")
                            .map(str::trim)
                            .filter(|word| !word.is_empty())
                            .map(str::to_owned)
                            .collect::<Vec<_>>()
                    })
                    .unwrap_or_default()
            };
            ensure!(header(table("mcnet").await?) == ["NAME", "SERVER GROUPS", "PLAYERS", "AGE"]);
            ensure!(header(table("mcproxy").await?) == ["NAME", "PHASE", "READY", "ADDRESS", "PLAYERS", "AGE"]);
            let groups = header(table("mcgroup").await?);
            ensure!(groups == ["NAME", "TYPE", "PHASE", "READY", "PLAYERS", "FREE SLOTS", "AGE"], "{groups:?}");
            Ok(())
        })
        .await
}
