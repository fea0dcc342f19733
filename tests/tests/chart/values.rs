//! Which values are taken, and what is said to those that are not.

use crate::helm::{chart, find, helm, render, template};
use anyhow::Result;
use rstest::rstest;
use serde_json::Value;

/// Upstream's values, all of them, other than its defaults.
const UPSTREAM: [&str; 16] = [
    "image.repository=registry.test/spawnery",
    "image.tag=1.2.3",
    "image.digest=",
    "image.pullPolicy=Always",
    "resources.requests.cpu=1",
    "resources.requests.memory=1Gi",
    "resources.limits.memory=2Gi",
    "nodeSelector.disk=fast",
    "tolerations[0].operator=Exists",
    "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
    "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].key=a",
    "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=7",
    "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey=rack",
    "networkPolicy.enabled=false",
    "operator.startupDeadline=7m30s",
    "operator.leaderElect=false",
];

#[tokio::test]
async fn the_chart_lints() -> Result<()> {
    let chart = chart().display().to_string();
    for values in ["extender.enabled=false", "extender.enabled=true,scheduler.enabled=true"] {
        helm(&["lint", "--strict", &chart, "--set", values]).await?.stdout()?;
    }
    Ok(())
}

#[tokio::test]
async fn every_value_of_upstream_takes_effect() -> Result<()> {
    let objects = render(&UPSTREAM).await?;
    let deployment = find(&objects, "Deployment", "spawnery-operator")?;
    assert_eq!(deployment["spec"]["replicas"], 1, "without an election there is one");
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.test/spawnery:1.2.3");
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"]["requests"]["cpu"], 1);
    assert_eq!(container["resources"]["limits"]["memory"], "2Gi");
    let args: Vec<&str> = container["args"].as_array().into_iter().flatten().filter_map(|arg| arg.as_str()).collect();
    assert!(args.contains(&"--startup-deadline=7m30s") && args.contains(&"--leader-elect=false"), "{args:?}");
    // Where things run holds for all parts.
    for name in ["spawnery-operator", "spawnery-webhook"] {
        let pod = &find(&objects, "Deployment", name)?["spec"]["template"]["spec"];
        assert_eq!(pod["nodeSelector"]["disk"], "fast");
        assert_eq!(pod["tolerations"][0]["operator"], "Exists");
        assert!(pod["affinity"]["nodeAffinity"].is_object());
        let apart = &pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        let weights: Vec<&Value> = apart.as_array().into_iter().flatten().map(|term| &term["weight"]).collect();
        assert_eq!(weights, [7, 100, 50], "the owner's and ours");
    }
    assert!(objects.iter().all(|object| object["kind"] != "NetworkPolicy"));
    Ok(())
}

#[rstest]
#[case::a_digest_wins(&["image.tag=1", "image.digest=sha256:0123456789012345678901234567890123456789012345678901234567890123"],
    "ghcr.io/spawnery/spawnery-operator@sha256:0123456789012345678901234567890123456789012345678901234567890123")]
#[case::a_tag_of_digits(&["image.tag=20261129"], "ghcr.io/spawnery/spawnery-operator:20261129")]
#[tokio::test]
async fn names_the_image(#[case] values: &[&str], #[case] want: &str) -> Result<()> {
    let objects = render(values).await?;
    let pod = &find(&objects, "Deployment", "spawnery-webhook")?["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], want);
    Ok(())
}

#[rstest]
#[case::an_unknown_key("operator.replica=2", "additional properties 'replica' not allowed")]
#[case::an_unknown_block("certificates.mode=provided", "additional properties 'certificates' not allowed")]
#[case::no_unit("operator.startupDeadline=5", "at '/operator/startupDeadline'")]
#[case::no_duration("operator.startupDeadline=soon", "at '/operator/startupDeadline': 'soon' does not match")]
#[case::not_a_bool("operator.leaderElect=maybe", "at '/operator/leaderElect': got string, want boolean")]
#[case::no_replica("webhook.replicas=0", "at '/webhook/replicas': minimum: got 0, want 1")]
#[case::no_digest("image.digest=latest", "at '/image/digest': 'latest' does not match")]
#[case::no_tag("image.tag=a:b", "at '/image/tag': 'a:b' does not match")]
#[case::no_policy("image.pullPolicy=Sometimes", "value must be one of 'Always', 'IfNotPresent', 'Never'")]
#[case::no_flag("operator.extraArgs={verbose}", "at '/operator/extraArgs/0': 'verbose' does not match")]
#[case::all_secrets("forwardingSecrets[0].namespace=games", "missing property 'names'")]
#[case::too_important("priorityClass.value=2000000000", "at '/priorityClass/value': maximum")]
#[case::no_format("log.format=xml", "value must be one of 'json', 'text'")]
#[case::leaders_without_an_election("operator.leaderElect=false,operator.replicas=2", "set operator.replicas to 1")]
#[case::a_scheduler_with_nobody_to_ask("scheduler.enabled=true", "set extender.enabled to true")]
#[case::a_resource_that_nobody_reads("placement.managedResource=true", "set extender.enabled to true")]
#[case::two_ways_at_once(
    "extender.enabled=true,scheduler.enabled=true,placement.managedResource=true",
    "the second kube-scheduler gets our pods by name"
)]
#[case::a_class_without_a_name("priorityClass.name=", "give the class a name")]
#[tokio::test]
async fn refuses(#[case] values: &str, #[case] why: &str) -> Result<()> {
    let output = template(&[values]).await?;
    assert!(!output.ok(), "{values} was taken");
    assert!(output.stderr.contains(why), "{values}: {}", output.stderr);
    Ok(())
}
