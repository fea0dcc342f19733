//! `kubectl apply` as people use it: every example works, a broken one says what is wrong, with what, and what would do.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rstest::rstest;

use crate::world::World;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

pub(crate) fn path(file: &str) -> String {
    folder().join(file).display().to_string()
}

#[tokio::test]
async fn every_example_is_applied_and_applied_again() -> Result<()> {
    let world = World::start().await?;
    world
        .cluster
        .with_namespace("examples", |ns| async move {
            let mut seen = 0;
            for entry in std::fs::read_dir(folder())? {
                let path = entry?.path();
                if path.extension().is_none_or(|extension| extension != "yaml") {
                    continue;
                }
                let file = path.display().to_string();
                let apply = || ns.cluster().kubectl(["apply", "-n", ns.name(), "-f", &file]);
                let first = apply().await?;
                ensure!(first.ok() && first.stdout.contains("created"), "{first:?}");
                let second = apply().await?;
                // kubectl cannot compare `stringData`, which the API server never shows.
                let mut changed = second.stdout.lines().filter(|line| !line.starts_with("secret/"));
                ensure!(second.ok() && changed.all(|line| line.ends_with("unchanged")), "{second:?}");
                let server_side = ns
                    .cluster()
                    .kubectl(["apply", "--server-side", "--force-conflicts", "-n", ns.name(), "-f", &file])
                    .await?;
                ensure!(server_side.ok(), "{server_side:?}");
                seen += 1;
            }
            ensure!(seen >= 6, "applied {seen} examples");
            Ok(())
        })
        .await
}

/// `from` in network.yaml is replaced by `to`; the answer must name the field, the value and what would be accepted.
#[rstest]
#[case::enumeration("type: Ephemeral", "type: Transient", &["spec.type", "Transient", "Ephemeral", "Persistent"])]
#[case::bound("maxPlayers: 50", "maxPlayers: 0", &["spec.maxPlayers", "0", "greater than or equal to 1"])]
#[case::kind_of_value("replicas: 2", "replicas: two", &["spec.replicas", "string", "integer"])]
#[case::unknown_field("spareSlots: 20", "spareslots: 20", &["spec.scaling.spareslots", "unknown field"])]
#[case::missing_field("  image: ghcr.io/spawnery/velocity:3.5.1-0.2.0\n", "", &["spec.image", "Required value"])]
#[case::rule("maxReplicas: 5", "maxReplicas: 0", &["spec.scaling.maxReplicas", "0", "greater than or equal to 1"])]
#[case::cross_field("minReplicas: 1\n    maxReplicas: 5", "minReplicas: 6\n    maxReplicas: 5",
    &["spec.scaling.minReplicas", "scaling.minReplicas must not be larger than scaling.maxReplicas"])]
#[case::port("port: 30565", "port: 70000", &["spec.expose.nodePort.port", "70000", "65535"])]
#[case::block("type: NodePort", "type: LoadBalancer", &["spec.expose.nodePort", "LoadBalancer", "expose.nodePort is only allowed for type NodePort"])]
#[tokio::test]
async fn a_broken_example_says_what_is_wrong(
    #[case] from: &'static str,
    #[case] to: &'static str,
    #[case] words: &'static [&'static str],
) -> Result<()> {
    let world = World::start().await?;
    world
        .cluster
        .with_namespace("broken", |ns| async move {
            let text = std::fs::read_to_string(path("network.yaml"))?;
            ensure!(text.contains(from), "{from:?} is not in the example");
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("broken.yaml");
            std::fs::write(&file, text.replacen(from, to, 1))?;
            let output = ns.cluster().kubectl(["apply", "-n", ns.name(), "-f", &file.display().to_string()]).await?;
            ensure!(!output.ok(), "accepted: {output:?}");
            for word in words {
                ensure!(output.stderr.contains(word), "{word:?} not in: {}", output.stderr);
            }
            Ok(())
        })
        .await
}
