use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
const HASH: &str = "0123456789abcdef";
const OTHER: &str = "fedcba9876543210";

fn network(name: &str, created: &str, status: &Value) -> Arc<Network> {
    let metadata = json!({"name": name, "namespace": "ns", "uid": name, "generation": 3, "creationTimestamp": created});
    let network = json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Network", "metadata": metadata,
        "spec": {"forwardingSecretRef": {"name": "fwd"}}, "status": status
    });
    Arc::new(serde_json::from_value(network).expect("a network"))
}

fn deleting(name: &str, created: &str) -> Arc<Network> {
    let mut network = network(name, created, &json!({})).as_ref().clone();
    network.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    Arc::new(network)
}

const OLD: &str = "2026-01-01T00:00:00Z";
const NEW: &str = "2026-02-01T00:00:00Z";

#[rstest]
#[case::the_oldest(vec![network("b", NEW, &json!({})), network("c", OLD, &json!({}))], Some("c"))]
#[case::by_name_among_equals(vec![network("b", OLD, &json!({})), network("a", OLD, &json!({}))], Some("a"))]
#[case::not_one_that_goes(vec![network("b", NEW, &json!({})), deleting("c", OLD)], Some("b"))]
#[case::none(vec![], None)]
fn one_network_counts(#[case] networks: Vec<Arc<Network>>, #[case] want: Option<&str>) {
    assert_eq!(owner(&networks).map(|owner| owner.name_any()).as_deref(), want);
}

fn with_accepted(status: &str) -> Arc<Network> {
    let condition =
        json!({"type": "Accepted", "status": status, "reason": "R", "message": "", "lastTransitionTime": OLD});
    network("n", OLD, &json!({ "conditions": [condition] }))
}

#[rstest]
#[case::accepted(Some(with_accepted("True")), None)]
#[case::not_accepted(Some(with_accepted("False")), Some(NotUsable::NotAccepted))]
#[case::nobody_looked_yet(Some(network("n", OLD, &json!({}))), Some(NotUsable::NotAccepted))]
#[case::going(Some(deleting("n", OLD)), Some(NotUsable::NotFound))]
#[case::absent(None, Some(NotUsable::NotFound))]
fn groups_use_an_accepted_network_only(#[case] found: Option<Arc<Network>>, #[case] want: Option<NotUsable>) {
    assert_eq!(usable(found).err(), want);
}

fn pod(role: &str, stamp: Option<&str>, more: &Value) -> Arc<PodView> {
    let mut labels = json!({
        "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": role,
        "spawnery.cloud/group": format!("g{role}"), "spawnery.cloud/network": "n"
    });
    if let Some(stamp) = stamp {
        labels["spawnery.cloud/forwarding-hash"] = stamp.into();
    }
    let mut pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": labels}});
    for (key, value) in more.as_object().expect("an object") {
        pod[key.as_str()] = value.clone();
    }
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn plain(role: &str, stamp: Option<&str>) -> Arc<PodView> {
    pod(role, stamp, &json!({}))
}

fn secret(reading: Reading) -> Secret {
    Secret { name: "fwd".into(), reading }
}

fn observed(pods: Vec<Arc<PodView>>, secret: &Secret) -> Observed<'_> {
    let group = |name: &str, network: &str, players: i32| {
        Arc::new(
            serde_json::from_value::<ServerGroup>(json!({
                "apiVersion": "spawnery.cloud/v1alpha1", "kind": "ServerGroup", "metadata": {"name": name, "namespace": "ns"},
                "spec": {"networkRef": {"name": network}, "type": "Ephemeral", "image": "i", "maxPlayers": 1,
                         "drain": {"timeoutSeconds": 60}},
                "status": {"onlinePlayers": players}
            }))
            .expect("a group"),
        )
    };
    Observed {
        server_groups: vec![group("a", "n", 3), group("b", "n", 4), group("c", "other", 100)],
        proxy_groups: vec![],
        pods,
        secret,
    }
}

fn condition_of(status: &NetworkStatus, kind: &str) -> (String, String, String) {
    let found = conditions::get(&status.conditions, kind).expect("the condition is there");
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

#[rstest]
#[case::in_sync(vec![plain("server", Some(HASH))], "False", "ForwardingSecretInSync", "current")]
#[case::stale_beats_unstamped(
    vec![plain("proxy", None), plain("proxy", Some(OTHER)), plain("server", Some(OTHER)), plain("server", Some(OTHER))],
    "True", "RotationPending", "server/gserver=2, proxy/gproxy=1"
)]
#[case::unstamped(vec![plain("proxy", None)], "Unknown", "PodsPredateTracking", "proxy/gproxy=1")]
#[case::what_has_ended_does_not_count(vec![pod("server", Some(OTHER), &json!({"status": {"phase": "Failed"}}))], "False", "ForwardingSecretInSync", "")]
fn says_which_pods_run_with_another_secret(
    #[case] pods: Vec<Arc<PodView>>,
    #[case] status: &str,
    #[case] reason: &str,
    #[case] part: &str,
) {
    let secret = secret(Reading::Resolved(HASH.into()));
    let (planned, _) = accepted(&network("n", OLD, &json!({})), &observed(pods, &secret), NOW);
    let found = condition_of(&planned, condition::FORWARDING_SECRET_ROTATION_PENDING);
    assert_eq!((found.0.as_str(), found.1.as_str()), (status, reason));
    assert!(found.2.contains(part), "{}", found.2);
}

#[rstest]
#[case::resolved(Reading::Resolved(HASH.into()), "True", "SecretResolved", HASH)]
#[case::not_found(Reading::NotFound, "False", "SecretNotFound", OTHER)]
#[case::key_missing(Reading::KeyMissing, "False", "SecretKeyMissing", OTHER)]
#[case::forbidden(Reading::Forbidden, "Unknown", "SecretReadForbidden", OTHER)]
#[case::failed(Reading::Failed("why".into()), "Unknown", "SecretReadFailed", OTHER)]
fn a_failed_reading_keeps_the_hash(
    #[case] reading: Reading,
    #[case] status: &str,
    #[case] reason: &str,
    #[case] hash: &str,
) {
    let secret = secret(reading);
    let before = network("n", OLD, &json!({ "forwardingSecretHash": OTHER }));
    let (planned, _) = accepted(&before, &observed(vec![], &secret), NOW);
    let found = condition_of(&planned, condition::FORWARDING_SECRET_RESOLVED);
    assert_eq!((found.0.as_str(), found.1.as_str(), planned.forwarding_secret_hash.as_str()), (status, reason, hash));
}

#[rstest]
#[case::first_reading("", Reading::Resolved(HASH.into()), 0)]
#[case::the_same(HASH, Reading::Resolved(HASH.into()), 0)]
#[case::another(OTHER, Reading::Resolved(HASH.into()), 1)]
#[case::unreadable(OTHER, Reading::Forbidden, 0)]
fn a_rotation_is_told_once(#[case] before: &str, #[case] reading: Reading, #[case] told: usize) {
    let secret = secret(reading);
    let before = network("n", OLD, &json!({ "forwardingSecretHash": before }));
    let (planned, flanks) = accepted(&before, &observed(vec![], &secret), NOW);
    let rotated = |flanks: &[Flank]| flanks.iter().filter(|flank| matches!(flank, Flank::SecretRotated { .. })).count();
    assert_eq!(rotated(&flanks), told);
    let after = network("n", OLD, &serde_json::to_value(&planned).expect("serialises"));
    assert_eq!(rotated(&accepted(&after, &observed(vec![], &secret), NOW).1), 0);
}

#[test]
fn counts_its_own_groups_and_players() {
    let secret = secret(Reading::NotFound);
    let (planned, flanks) = accepted(&network("n", OLD, &json!({})), &observed(vec![], &secret), NOW);
    assert_eq!((planned.server_groups, planned.proxy_groups, planned.online_players), (2, 0, 7));
    assert!(matches!(flanks.as_slice(), [Flank::SecretNotFound { .. }]));
    let more = NetworkStatus { online_players: 8, ..planned.clone() };
    assert!(only_counts_differ(&planned, &more));
    let renamed = NetworkStatus { server_groups: 3, ..planned.clone() };
    assert!(!only_counts_differ(&planned, &renamed));
}

#[test]
fn a_duplicate_says_who_counts_and_nothing_else() {
    let siblings = [network("a", OLD, &json!({})), network("b", NEW, &json!({}))];
    let status = duplicate(&siblings[1], &siblings, NOW);
    let found = condition_of(&status, condition::ACCEPTED);
    assert_eq!((found.0.as_str(), found.1.as_str()), ("False", "DuplicateNetwork"));
    assert!(found.2.contains("\"a\""), "{}", found.2);
    assert_eq!(status.conditions.len(), 1);
}
