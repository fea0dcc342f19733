//! Our own custom resources and pods of ours, through the router.

use rstest::rstest;
use serde_json::{Value, json};
use spawnery_api::names::{annotation, label};
use spawnery_core::pod_hash;

use crate::world::{OPERATOR, World, network, pod};

fn server_group() -> Value {
    json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "ServerGroup",
        "metadata": { "name": "lobby", "namespace": "games", "uid": "g" },
        "spec": {
            "networkRef": { "name": "main" }, "type": "Ephemeral", "image": "paper:1", "maxPlayers": 20,
            "scaling": { "minReplicas": 1, "maxReplicas": 4, "spareSlots": 10 },
        },
        "status": { "onlinePlayers": 5 },
    })
}

fn persistent() -> Value {
    let mut group = server_group();
    group["spec"]["type"] = json!("Persistent");
    group["spec"]["replicas"] = json!(3);
    group["spec"]["storage"] = json!({ "size": "1Gi" });
    group["spec"].as_object_mut().unwrap().remove("scaling");
    group
}

fn proxy_group() -> Value {
    json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "ProxyGroup",
        "metadata": { "name": "edge", "namespace": "games", "uid": "p" },
        "spec": {
            "networkRef": { "name": "main" }, "replicas": 2, "image": "velocity:1",
            "expose": { "type": "NodePort", "nodePort": { "port": 30000 } },
            "routing": { "fallbackGroups": ["lobby"] },
        },
        "status": { "connectedPlayers": 9 },
    })
}

fn server() -> Value {
    json!({
        "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Server",
        "metadata": { "name": "lobby-abcd", "namespace": "games", "uid": "s" },
        "spec": { "groupRef": { "name": "lobby" }, "groupGeneration": 1, "podHash": "0123456789abcdef" },
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn objects() -> Vec<Value> {
    let mut proxy =
        pod("edge-abcd", &[(label::ROLE, label::ROLE_PROXY), (label::GROUP, "edge"), (label::OCCUPIED, "true")]);
    proxy["metadata"]["uid"] = json!("uid-edge");
    vec![
        network(),
        json!({
            "apiVersion": "spawnery.cloud/v1alpha1", "kind": "Network",
            "metadata": { "name": "hand-made", "namespace": "games", "uid": "x" },
        }),
        server_group(),
        proxy_group(),
        with(with(proxy_group(), "/metadata/name", json!("other")), "/spec/expose/nodePort/port", json!(30001)),
        pod("lobby-0", &[]),
        pod("lobby-2", &[(label::OCCUPIED, "true")]),
        proxy,
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "overlay", "namespace": "games", "uid": "c" } }),
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "games", "uid": "ns", "labels": { "pod-security.kubernetes.io/enforce": "baseline" } },
        }),
    ]
}

fn review(operation: &str, old: Option<&Value>, new: Option<&Value>, user: &str) -> Value {
    let object = new.or(old).unwrap();
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7f0b2891-916f-4ed6-b7cd-27bff1815a8c",
            "kind": { "group": "spawnery.cloud", "version": "v1alpha1", "kind": object["kind"] },
            "name": object["metadata"]["name"], "namespace": "games", "operation": operation,
            "userInfo": { "username": user }, "object": new, "oldObject": old, "dryRun": false,
        },
    })
}

fn create(object: &Value) -> Value {
    review("CREATE", None, Some(object), "alice")
}

fn update(old: &Value, new: &Value) -> Value {
    review("UPDATE", Some(old), Some(new), "alice")
}

fn delete(object: &Value) -> Value {
    review("DELETE", Some(object), None, "alice")
}

fn fallbacks(names: &[&str]) -> Value {
    with(proxy_group(), "/spec/routing/fallbackGroups", json!(names))
}

fn mounts(name: &str, path: &str) -> Value {
    with(
        server_group(),
        "/spec/mounts",
        json!([{ "name": name, "mountPath": path, "configMap": { "name": "overlay" } }]),
    )
}

#[rstest]
#[case::fallback_twice(create(&fallbacks(&["lobby", "lobby"])), "spec.routing.fallbackGroups[1]", "\"lobby\"")]
#[case::fallback_impossible(create(&fallbacks(&["lobby,survival"])), "spec.routing.fallbackGroups[0]", "\"lobby,survival\"")]
#[case::reserved_volume(create(&mounts("data", "/opt/x")), "spec.mounts[data].name", "spawnery-agent")]
#[case::reserved_path(create(&mounts("x", "/etc/spawnery/extra")), "spec.mounts[x].mountPath", "/etc/spawnery")]
#[case::fallback_twice_by_an_edit(update(&proxy_group(), &fallbacks(&["lobby", "lobby"])), "spec.routing.fallbackGroups[1]", "once")]
#[case::retire(update(&server(), &with(server(), "/spec/retire", json!(true))), "spec.retire", "delete it")]
#[case::pod_hash(update(&server(), &with(server(), "/spec/podHash", json!(""))), "spec.podHash", "edit its group")]
#[case::ordinal(update(&server(), &with(server(), "/spec/ordinal", json!(3))), "spec.ordinal", "spec.replicas")]
#[case::generation(update(&server(), &with(server(), "/spec/groupGeneration", json!(9))), "spec.groupGeneration", "override")]
#[tokio::test(start_paused = true)]
async fn these_are_rejected_with_field_and_text(#[case] review: Value, #[case] field: &str, #[case] text: &str) {
    let world = World::with(objects()).await;
    let response = world.review("/validate", &review).await;
    assert_eq!(
        (response["allowed"].as_bool(), response["status"]["code"].as_u64()),
        (Some(false), Some(422)),
        "{response}"
    );
    assert_eq!(response["status"]["reason"], "Invalid");
    assert_eq!(response["status"]["details"]["causes"][0]["field"], field);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains(field) && message.contains(text), "{message}");
}

#[rstest]
#[case::fine(create(&server_group()), &[])]
#[case::unknown_network(create(&with(server_group(), "/spec/networkRef/name", json!("none"))), &["there is no Network \"none\"", "memory"])]
#[case::unknown_fallback(create(&fallbacks(&["lobby", "nowhere"])), &["there is no ServerGroup \"nowhere\""])]
#[case::unknown_overlay(create(&with(server_group(), "/spec/configOverlay", json!({"name": "nothing"}))), &["there is no ConfigMap \"nothing\""])]
#[case::known_overlay(create(&with(server_group(), "/spec/configOverlay", json!({"name": "overlay"}))), &[])]
#[case::no_memory_limit(create(&with(server_group(), "/spec/resources", json!({}))), &["spec.resources.limits.memory"])]
#[case::node_port_taken(create(&with(proxy_group(), "/spec/expose/nodePort/port", json!(30001))), &["ProxyGroup games/other wants port 30001 too"])]
#[case::host_port_forbidden(
    create(&with(proxy_group(), "/spec/expose", json!({"type": "HostPort", "hostPort": {"port": 25565}}))),
    &["pod security \"baseline\""]
)]
#[case::edit_that_rolls(
    update(&server_group(), &with(server_group(), "/spec/image", json!("paper:2"))),
    &["this replaces 2 running pods of ServerGroup \"lobby\", with 5 people on them"]
)]
#[case::edit_that_rolls_proxies(
    update(&proxy_group(), &with(proxy_group(), "/spec/image", json!("velocity:2"))),
    &["this replaces 1 running pod of ProxyGroup \"edge\", with 9 people on them"]
)]
#[case::edit_that_rolls_nothing(update(&server_group(), &with(server_group(), "/spec/scaling/spareSlots", json!(99))), &[])]
#[case::edit_of_the_network(
    update(&network(), &with(network(), "/spec/forwardingSecretRef/name", json!("another"))),
    &["2 running pods of ServerGroup \"lobby\"", "1 running pod of ProxyGroup \"edge\""]
)]
#[case::shrink(
    update(&persistent(), &with(persistent(), "/spec/replicas", json!(2))),
    &["spec.replicas: 2 drains servers with people on them: ordinals 2"]
)]
#[case::shrink_of_empty_ordinals(update(&persistent(), &with(persistent(), "/spec/replicas", json!(4))), &[])]
#[case::delete_of_an_occupied_group(delete(&server_group()), &["ServerGroup \"lobby\" has 5 people in 2 pods"])]
#[case::delete_of_an_occupied_proxy_group(delete(&proxy_group()), &["ProxyGroup \"edge\" has 9 people in 1 pod"])]
#[case::delete_of_an_occupied_network(delete(&network()), &["Network \"main\" has 7 people in 3 pods"])]
#[case::delete_of_a_server_drains(delete(&server()), &[])]
#[case::old_fault_only_warns(
    update(&fallbacks(&["lobby", "lobby"]), &with(fallbacks(&["lobby", "lobby"]), "/spec/replicas", json!(3))),
    &["stands in the list already"]
)]
#[case::override_of_a_server(
    update(&server(), &with(with(server(), "/spec/retire", json!(true)), "/metadata/annotations", json!({annotation::OVERRIDE: "true"}))),
    &[]
)]
#[case::reconciler(review("UPDATE", Some(&server()), Some(&with(server(), "/spec/retire", json!(true))), OPERATOR), &[])]
#[case::only_metadata_changes(
    update(&fallbacks(&["lobby", "lobby"]), &with(fallbacks(&["lobby", "lobby"]), "/metadata/labels", json!({"a": "b"}))),
    &[]
)]
#[case::on_its_way_out(
    update(&proxy_group(), &with(fallbacks(&["lobby", "lobby"]), "/metadata/deletionTimestamp", json!("2026-11-29T12:00:00Z"))),
    &[]
)]
#[case::no_spec(create(&json!({"kind": "ServerGroup", "apiVersion": "spawnery.cloud/v1alpha1", "metadata": {"name": "x"}})), &[])]
#[case::another_kind(create(&json!({"kind": "Gadget", "metadata": {"name": "x"}})), &[])]
#[tokio::test(start_paused = true)]
async fn these_pass_with_warnings(#[case] review: Value, #[case] want: &[&str]) {
    let world = World::with(objects()).await;
    let response = world.review("/validate", &review).await;
    assert_eq!(response["allowed"], true, "{response}");
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    assert_eq!(warnings.len(), want.len(), "{warnings:?}");
    for (warning, want) in warnings.iter().zip(want) {
        assert!(warning.as_str().unwrap().contains(want), "{warning} does not say {want}");
    }
}

#[rstest]
#[case::forged(Some("0000000000000000".to_owned()), true)]
#[case::unstamped(None, true)]
#[case::right(Some(pod_hash::of_annotation(r#"{"role":"server"}"#).unwrap().to_string()), false)]
#[tokio::test(start_paused = true)]
async fn a_pod_is_stamped_with_what_it_was_made_from(#[case] stamp: Option<String>, #[case] patched: bool) {
    let world = World::with(objects()).await;
    let mut made = pod("lobby-wxyz", &[]);
    made["metadata"]["annotations"] = json!({ annotation::POD_INPUTS: r#"{"role":"server"}"# });
    if let Some(stamp) = stamp {
        made["metadata"]["labels"][label::POD_HASH] = json!(stamp);
    }
    let response = world.review("/mutate-pods", &create(&made)).await;
    assert_eq!((response["allowed"].as_bool(), response.get("patch").is_some()), (Some(true), patched), "{response}");
    if patched {
        assert_eq!(response["patchType"], "JSONPatch");
        let patch: k8s_openapi::ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
        json_patch::patch(&mut made, &serde_json::from_slice::<json_patch::Patch>(&patch.0).unwrap()).unwrap();
    }
    assert_eq!(
        made["metadata"]["labels"][label::POD_HASH],
        pod_hash::of_annotation(r#"{"role":"server"}"#).unwrap().as_str()
    );
}

#[tokio::test(start_paused = true)]
async fn a_managed_pod_without_inputs_is_let_in_as_it_is() {
    let world = World::with(objects()).await;
    let forged = pod("orphan", &[(label::POD_HASH, "0000000000000000")]);
    let response = world.review("/mutate-pods", &create(&forged)).await;
    assert_eq!(
        (response["allowed"].as_bool(), response.get("patch"), response.get("warnings")),
        (Some(true), None, None)
    );
}
