use serde_json::{Value, json};

use super::*;
use crate::render::testing;

const ENDPOINT: &str = "spawnery-operator.spawnery-system.svc:9443";

fn rendered(group: &ProxyGroup) -> Value {
    let pod = proxy_pod(&ProxyPod {
        name: "gateway-abcd",
        group,
        network: &testing::network(),
        inputs: &testing::proxy_inputs(group),
        endpoint: ENDPOINT,
    });
    serde_json::to_value(pod.unwrap()).unwrap()
}

#[test]
fn a_proxy() {
    let group = testing::proxy_group();
    let inputs = testing::proxy_inputs(&group);
    let pod = rendered(&group);
    assert_eq!(
        pod["metadata"],
        json!({
            "name": "gateway-abcd", "namespace": "minecraft",
            "labels": {
                "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/network": "production",
                "spawnery.cloud/group": "gateway", "spawnery.cloud/role": "proxy",
                "spawnery.cloud/pod-hash": inputs.hash().as_str(),
                "spawnery.cloud/forwarding-hash": "0123456789abcdef",
            },
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
                "spawnery.cloud/pod-inputs": inputs.annotation(),
            },
            "ownerReferences": [{
                "apiVersion": "spawnery.cloud/v1alpha1", "kind": "ProxyGroup", "name": "gateway",
                "uid": "uid-of-gateway", "controller": true, "blockOwnerDeletion": true,
            }],
        })
    );
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccountName"], "spawnery-proxy");
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["terminationGracePeriodSeconds"], 300);
    assert_eq!(spec["securityContext"], json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}));
    let container = &spec["containers"][0];
    assert_eq!((&container["name"], &container["image"]), (&json!("velocity"), &json!("velocity:1")));
    assert_eq!(
        container["env"],
        json!([
            {"name": "SPAWNERY_NETWORK", "value": "production"},
            {"name": "SPAWNERY_GROUP", "value": "gateway"},
            {"name": "SPAWNERY_PROXY", "value": "gateway-abcd"},
            {"name": "SPAWNERY_PLAYER_LIMIT", "value": "500"},
            {"name": "SPAWNERY_FALLBACK_GROUPS", "value": "lobby,limbo"},
            {"name": "SPAWNERY_OPERATOR_ENDPOINT", "value": ENDPOINT},
        ])
    );
    assert_eq!(
        container["ports"],
        json!([
            {"name": "minecraft", "containerPort": 25565, "protocol": "TCP"},
            {"name": "ready", "containerPort": 8081, "protocol": "TCP"},
        ])
    );
    assert_eq!(
        container["readinessProbe"],
        json!({"tcpSocket": {"port": 8081}, "initialDelaySeconds": 2, "periodSeconds": 5, "timeoutSeconds": 3,
               "failureThreshold": 3})
    );
    assert_eq!(
        container["lifecycle"],
        json!({"preStop": {"httpGet": {"path": "/v1/pre-stop?graceSeconds=300", "port": 8091}}})
    );
    assert_eq!(spec["volumes"][0], json!({"name": "data", "emptyDir": {}}));
    assert_eq!(spec["volumes"][3]["projected"]["sources"][0]["configMap"]["name"], "gateway-proxy-config");
}

#[test]
fn a_host_port_is_on_the_first_port_of_the_first_container() {
    let mut group = testing::proxy_group();
    group.spec.expose = serde_json::from_value(json!({"type": "HostPort", "hostPort": {"port": 25566}})).unwrap();
    assert_eq!(
        rendered(&group)["spec"]["containers"][0]["ports"][0],
        json!({"name": "minecraft", "containerPort": 25565, "hostPort": 25566, "protocol": "TCP"})
    );
}
