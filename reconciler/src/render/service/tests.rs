use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::render::testing;

fn exposed(expose: Value) -> ProxyGroup {
    let mut group = testing::proxy_group();
    group.spec.expose = serde_json::from_value(expose).unwrap();
    group
}

fn wanted(group: &ProxyGroup) -> Object {
    match service(group) {
        Service::Wanted(service) => *service,
        Service::Unwanted => panic!("no Service"),
    }
}

#[test]
fn a_node_port_service() {
    let service = wanted(&testing::proxy_group());
    assert_eq!(service.name_any(), "gateway");
    assert_eq!(
        serde_json::to_value(service.spec.unwrap()).unwrap(),
        json!({
            "type": "NodePort", "externalTrafficPolicy": "Local",
            "selector": {
                "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/network": "production",
                "spawnery.cloud/group": "gateway", "spawnery.cloud/role": "proxy",
            },
            "ports": [{
                "name": "minecraft", "port": 25565, "targetPort": "minecraft", "protocol": "TCP", "nodePort": 30565,
            }],
        })
    );
}

#[test]
fn a_cluster_ip_service_says_nothing_about_nodes() {
    let spec = wanted(&exposed(json!({"type": "ClusterIP", "clusterIP": {"address": "play"}}))).spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    assert_eq!((spec.external_traffic_policy, spec.ports.unwrap()[0].node_port), (None, None));
}

#[test]
fn a_load_balancer_carries_the_users_annotations_and_a_record_of_them() {
    let service = wanted(&exposed(json!({"type": "LoadBalancer", "loadBalancer": {
        "annotations": {"z": "1", "a": "2"}, "externalTrafficPolicy": "Cluster"}})));
    assert_eq!(
        serde_json::to_value(service.annotations()).unwrap(),
        json!({"a": "2", "z": "1", "spawnery.cloud/expose-annotations": "a,z"})
    );
    assert_eq!(service.spec.unwrap().external_traffic_policy.as_deref(), Some("Cluster"));
    let bare = wanted(&exposed(json!({"type": "LoadBalancer"})));
    assert_eq!(bare.annotations().len(), 0);
    assert_eq!(bare.spec.unwrap().external_traffic_policy.as_deref(), Some("Local"));
}

#[test]
fn a_host_port_has_no_service() {
    assert_eq!(service(&exposed(json!({"type": "HostPort", "hostPort": {"port": 25565}}))), Service::Unwanted);
}

#[test]
fn what_the_cluster_fills_in_is_no_reason_to_write() {
    let desired = wanted(&exposed(json!({"type": "LoadBalancer"})));
    let mut found = desired.clone();
    let spec = found.spec.as_mut().unwrap();
    spec.cluster_ip = Some("10.0.0.7".to_owned());
    spec.ports.as_mut().unwrap()[0].node_port = Some(31234);
    found.metadata.annotations = Some(BTreeMap::from([("cloud/added".to_owned(), "x".to_owned())]));
    assert!(same_service(&found, &desired));
}

#[rstest]
#[case::another_port(json!({"type": "NodePort", "nodePort": {"port": 30001}}))]
#[case::another_type(json!({"type": "ClusterIP", "clusterIP": {"address": "play"}}))]
#[case::annotations(json!({"type": "LoadBalancer", "loadBalancer": {"annotations": {"a": "b"}}}))]
fn an_edit_is(#[case] expose: Value) {
    let found = wanted(&testing::proxy_group());
    let edited = wanted(&exposed(expose));
    assert!(!same_service(&found, &edited));
    assert!(!same_service(&edited, &found), "and so is the way back");
}

fn pod(ready: bool, host: Option<&str>) -> PodView {
    serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "status": {"hostIP": host, "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    }))
    .unwrap()
}

fn node_port() -> Value {
    json!({"type": "NodePort", "nodePort": {"port": 30565}})
}

#[rstest]
#[case::node_port(node_port(), json!({}), pod(true, Some("192.0.2.7")), "192.0.2.7:30565")]
#[case::node_port_v6(node_port(), json!({}), pod(true, Some("2001:db8::7")), "[2001:db8::7]:30565")]
#[case::host_port(json!({"type": "HostPort", "hostPort": {"port": 25566}}), json!({}), pod(true, Some("192.0.2.7")),
    "192.0.2.7:25566")]
#[case::cluster_ip_verbatim(json!({"type": "ClusterIP", "clusterIP": {"address": "play.example.net"}}), json!({}),
    pod(true, Some("192.0.2.7")), "play.example.net")]
#[case::balancer_ip(json!({"type": "LoadBalancer"}), json!([{"ip": "203.0.113.9", "hostname": "lb"}]),
    pod(true, Some("192.0.2.7")), "203.0.113.9:25565")]
#[case::balancer_name(json!({"type": "LoadBalancer"}), json!([{"hostname": "lb.example.net"}]),
    pod(true, Some("192.0.2.7")), "lb.example.net:25565")]
#[case::balancer_pending(json!({"type": "LoadBalancer"}), json!([]), pod(true, Some("192.0.2.7")), "")]
#[case::nobody_ready(node_port(), json!({}), pod(false, Some("192.0.2.7")), "")]
#[case::nowhere_yet(node_port(), json!({}), pod(true, None), "")]
#[case::cluster_ip_waits_too(json!({"type": "ClusterIP", "clusterIP": {"address": "play"}}), json!({}),
    pod(false, Some("192.0.2.7")), "")]
fn addresses(#[case] expose: Value, #[case] ingress: Value, #[case] pod: PodView, #[case] want: &str) {
    let mut object = Object::default();
    if ingress.is_array() {
        object.status = serde_json::from_value(json!({"loadBalancer": {"ingress": ingress}})).unwrap();
    }
    assert_eq!(address(&exposed(expose).spec.expose, Some(&object), [&pod]), want);
}
