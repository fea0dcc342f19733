use serde_json::{Value, json};

use super::*;
use crate::render::testing;

const ENDPOINT: &str = "spawnery-operator.spawnery-system.svc:9443";

fn rendered(group: &ServerGroup, name: &str) -> Result<Value, RenderError> {
    let pod = server_pod(&ServerPod {
        server: &testing::server(&group.name_any(), name),
        group,
        network: &testing::network(),
        inputs: &testing::server_inputs(group),
        endpoint: ENDPOINT,
    })?;
    Ok(serde_json::to_value(pod).unwrap())
}

/// The whole pod: a change here is a change that every user's pods see.
#[test]
fn an_ephemeral_server() {
    let group = testing::server_group();
    let inputs = testing::server_inputs(&group);
    assert_eq!(
        rendered(&group, "lobby-abcd").unwrap(),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "lobby-abcd", "namespace": "minecraft",
                "labels": {
                    "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/network": "production",
                    "spawnery.cloud/group": "lobby", "spawnery.cloud/server": "lobby-abcd",
                    "spawnery.cloud/role": "server", "spawnery.cloud/pod-hash": inputs.hash().as_str(),
                    "spawnery.cloud/forwarding-hash": "0123456789abcdef",
                },
                "annotations": {
                    "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
                    "spawnery.cloud/pod-inputs": inputs.annotation(),
                },
                "ownerReferences": [{
                    "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server", "name": "lobby-abcd",
                    "uid": "uid-of-lobby-abcd", "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "serviceAccountName": "spawnery-server", "automountServiceAccountToken": false,
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 60,
                "nodeSelector": {"pool": "games"}, "imagePullSecrets": [{"name": "registry"}],
                "securityContext": {
                    "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
                    "fsGroup": 10001, "fsGroupChangePolicy": "OnRootMismatch",
                },
                "containers": [{
                    "name": "minecraft", "image": "paper:1",
                    "env": [
                        {"name": "SPAWNERY_NETWORK", "value": "production"},
                        {"name": "SPAWNERY_GROUP", "value": "lobby"},
                        {"name": "SPAWNERY_SERVER", "value": "lobby-abcd"},
                        {"name": "SPAWNERY_OPERATOR_ENDPOINT", "value": ENDPOINT},
                    ],
                    "ports": [{"name": "minecraft", "containerPort": 25565, "protocol": "TCP"}],
                    "readinessProbe": {
                        "exec": {"command": ["/usr/local/bin/spawnery-slp", "--host", "127.0.0.1", "--port", "25565"]},
                        "initialDelaySeconds": 2, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3,
                    },
                    "lifecycle": {"preStop": {"httpGet": {"path": "/v1/pre-stop?graceSeconds=60", "port": 8091}}},
                    "resources": {"limits": {"memory": "1Gi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "data", "mountPath": "/data"},
                        {"name": "tmp", "mountPath": "/tmp"},
                        {"name": "spawnery-agent", "mountPath": "/var/run/spawnery", "readOnly": true},
                        {"name": "spawnery-config", "mountPath": "/etc/spawnery", "readOnly": true},
                    ],
                }],
                "volumes": [
                    {"name": "data", "emptyDir": {}},
                    {"name": "tmp", "emptyDir": {}},
                    {"name": "spawnery-agent", "projected": {"sources": [
                        {"serviceAccountToken": {
                            "audience": "spawnery-operator", "expirationSeconds": 600, "path": "token",
                        }},
                        {"configMap": {"name": "spawnery-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    ]}},
                    {"name": "spawnery-config", "projected": {"sources": [
                        {"configMap": {
                            "name": "lobby-server-config", "items": [{"key": "config.yaml", "path": "config.yaml"}],
                        }},
                        {"secret": {"name": "forwarding", "items": [{"key": "secret", "path": "forwarding.secret"}]}},
                    ]}},
                ],
            },
        })
    );
}

#[test]
fn a_persistent_server_lives_on_its_own_claim() {
    let pod = rendered(&testing::persistent_group(), "survival-0").unwrap();
    assert_eq!(
        pod["spec"]["volumes"][0],
        json!({"name": "data", "persistentVolumeClaim": {"claimName": "survival-0-data"}})
    );
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 90);
}

#[test]
fn a_group_whose_image_has_no_agent_of_ours_says_so() {
    let mut group = testing::server_group();
    let hash = testing::server_inputs(&group).hash().to_string();
    for (value, hooked) in [("false", false), ("true", true), ("no", true)] {
        group.metadata.annotations = Some([("spawnery.cloud/pre-stop".to_owned(), value.to_owned())].into());
        let pod = rendered(&group, "lobby-abcd").unwrap();
        assert_eq!(pod["spec"]["containers"][0].get("lifecycle").is_some(), hooked, "{value}");
        assert_eq!(pod["metadata"]["labels"]["spawnery.cloud/pod-hash"], hash, "no running pod is replaced for it");
    }
}

#[test]
fn mounts_and_overlay_come_after_ours_and_are_read_only() {
    let mut group = testing::server_group();
    group.spec.config_overlay = Some("overlay".into());
    group.spec.mounts = serde_json::from_value(json!([
        {"name": "pack", "mountPath": "/data/pack", "configMap": {"name": "pack"}},
        {"name": "keys", "mountPath": "/keys", "secret": {"secretName": "keys"}},
    ]))
    .unwrap();
    let pod = rendered(&group, "lobby-abcd").unwrap();
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    assert_eq!(volumes[4], json!({"name": "spawnery-config-overlay", "configMap": {"name": "overlay"}}));
    assert_eq!(volumes[5], json!({"name": "pack", "configMap": {"name": "pack"}}));
    assert_eq!(volumes[6], json!({"name": "keys", "secret": {"secretName": "keys"}}));
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    assert_eq!(
        mounts[4],
        json!({"name": "spawnery-config-overlay", "mountPath": "/etc/spawnery/overlay", "readOnly": true})
    );
    assert_eq!(mounts[5], json!({"name": "pack", "mountPath": "/data/pack", "readOnly": true}));
}

#[test]
fn what_the_group_says_replaces_what_the_network_says() {
    let mut group = testing::server_group();
    group.spec.resources = serde_json::from_value(json!({"requests": {"cpu": "1"}})).unwrap();
    group.spec.scheduling = serde_json::from_value(json!({"tolerations": [{"operator": "Exists"}]})).unwrap();
    let pod = rendered(&group, "lobby-abcd").unwrap();
    assert_eq!(pod["spec"]["containers"][0]["resources"], json!({"requests": {"cpu": "1"}}));
    assert_eq!(pod["spec"].get("nodeSelector"), None);
    assert_eq!(pod["spec"]["tolerations"], json!([{"operator": "Exists"}]));
}

#[test]
fn a_mount_over_what_is_ours_is_refused_with_its_name() {
    let mut group = testing::server_group();
    group.spec.mounts = serde_json::from_value(json!([
        {"name": "pack", "mountPath": "/etc/spawnery/../spawnery", "configMap": {"name": "pack"}},
    ]))
    .unwrap();
    let error = rendered(&group, "lobby-abcd").unwrap_err().to_string();
    assert!(error.contains("pack") && error.contains("/etc/spawnery"), "{error}");
}

#[test]
fn a_pod_without_image_or_endpoint_is_refused() {
    let mut group = testing::server_group();
    let inputs = testing::server_inputs(&group);
    let server = testing::server("lobby", "lobby-abcd");
    let network = testing::network();
    let ask = |group: &ServerGroup, endpoint: &str| {
        server_pod(&ServerPod { server: &server, group, network: &network, inputs: &inputs, endpoint }).map(drop)
    };
    assert!(matches!(ask(&group, ""), Err(RenderError::NoEndpoint)));
    group.spec.image = String::new();
    assert!(matches!(ask(&group, ENDPOINT), Err(RenderError::NoImage)));
}
