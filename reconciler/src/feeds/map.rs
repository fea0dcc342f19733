//! From an object to the objects that read it.

use kube::core::ObjectMeta;
use kube::runtime::reflector::{Lookup, ObjectRef};
use spawnery_api::names::label;
use spawnery_api::v1alpha1::{Network, ProxyGroup, Server, ServerGroup};
use spawnery_api::view::{PodView, Role};

use super::HubKey;

fn key<K: Lookup<DynamicType = ()>>(namespace: &str, name: &str) -> ObjectRef<K> {
    ObjectRef::new(name).within(namespace)
}

/// The Server that a pod stands for.
pub fn server_of_pod(pod: &PodView) -> Option<ObjectRef<Server>> {
    let is_server = pod.role() == Some(Role::Server);
    is_server.then(|| key(pod.namespace(), pod.label(label::SERVER).unwrap_or_else(|| pod.name())))
}

/// The `ServerGroup` of a server pod.
pub fn server_group_of_pod(pod: &PodView) -> Option<ObjectRef<ServerGroup>> {
    let group = pod.group().filter(|_| pod.role() == Some(Role::Server));
    group.map(|group| key(pod.namespace(), group))
}

/// The `ProxyGroup` of a proxy pod.
pub fn proxy_group_of_pod(pod: &PodView) -> Option<ObjectRef<ProxyGroup>> {
    let group = pod.group().filter(|_| pod.role() == Some(Role::Proxy));
    group.map(|group| key(pod.namespace(), group))
}

/// The Network that a pod's label names.
pub fn network_of_pod(pod: &PodView) -> Option<ObjectRef<Network>> {
    pod.network().map(|network| key(pod.namespace(), network))
}

/// A pod, for the hub.
pub fn hub_key_of_pod(pod: &PodView) -> HubKey {
    HubKey::Pod { namespace: pod.namespace().into(), name: pod.name().into(), uid: pod.uid().into() }
}

/// The group that a Server belongs to.
pub fn group_of_server(server: &Server) -> ObjectRef<ServerGroup> {
    key(server.metadata.namespace.as_deref().unwrap_or_default(), &server.spec.group_ref.name)
}

/// The Network that a `ServerGroup` names.
pub fn network_of_server_group(group: &ServerGroup) -> ObjectRef<Network> {
    key(group.metadata.namespace.as_deref().unwrap_or_default(), &group.spec.network_ref.name)
}

/// The Network that a `ProxyGroup` names.
pub fn network_of_proxy_group(group: &ProxyGroup) -> ObjectRef<Network> {
    key(group.metadata.namespace.as_deref().unwrap_or_default(), &group.spec.network_ref.name)
}

/// A `ProxyGroup`, for the hub.
pub fn hub_key_of_proxy_group(group: &ProxyGroup) -> HubKey {
    HubKey::ProxyGroup {
        namespace: group.metadata.namespace.clone().unwrap_or_default(),
        name: group.metadata.name.clone().unwrap_or_default(),
    }
}

/// The owner of a kind, of an object that we made.
pub fn owner<K: Lookup<DynamicType = ()>>(object: &ObjectMeta) -> Option<ObjectRef<K>> {
    let kind = K::kind(&());
    let owner = object.owner_references.as_ref()?.iter().find(|owner| owner.kind == kind)?;
    Some(key(object.namespace.as_deref()?, &owner.name))
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector::ObjectRef;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn pod(labels: &Value) -> PodView {
        let metadata = json!({"name": "lobby-abcd", "namespace": "ns", "uid": "u1", "labels": labels});
        serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
    }

    fn managed(role: &str) -> PodView {
        pod(&json!({
            "spawnery.cloud/managed-by": "spawnery-operator", "spawnery.cloud/role": role, "spawnery.cloud/group": "lobby",
            "spawnery.cloud/network": "main", "spawnery.cloud/server": "lobby-abcd"
        }))
    }

    /// Server, server group and proxy group that a pod wakes.
    fn woken(pod: &PodView) -> [Option<String>; 3] {
        let name = |name: String| name;
        [
            server_of_pod(pod).map(|key| name(key.name)),
            server_group_of_pod(pod).map(|key| name(key.name)),
            proxy_group_of_pod(pod).map(|key| name(key.name)),
        ]
    }

    #[rstest]
    #[case::server(managed("server"), [Some("lobby-abcd"), Some("lobby"), None])]
    #[case::proxy(managed("proxy"), [None, None, Some("lobby")])]
    #[case::unknown_role(managed("other"), [None, None, None])]
    #[case::somebody_elses(pod(&json!({"spawnery.cloud/role": "server"})), [None, None, None])]
    fn a_pod_wakes_by_its_role(#[case] pod: PodView, #[case] want: [Option<&str>; 3]) {
        assert_eq!(woken(&pod), want.map(|name| name.map(str::to_owned)));
    }

    #[test]
    fn a_pod_names_its_network_and_its_uid() {
        let pod = managed("server");
        assert_eq!(network_of_pod(&pod), Some(ObjectRef::new("main").within("ns")));
        assert_eq!(
            hub_key_of_pod(&pod),
            HubKey::Pod { namespace: "ns".into(), name: "lobby-abcd".into(), uid: "u1".into() }
        );
    }

    #[rstest]
    #[case::its_kind("ServerGroup", Some("lobby"))]
    #[case::another_kind("ProxyGroup", None)]
    fn an_owned_object_wakes_its_owner(#[case] kind: &str, #[case] want: Option<&str>) {
        let owner_reference =
            json!({"apiVersion": "spawnery.cloud/v1alpha1", "kind": kind, "name": "lobby", "uid": "u"});
        let meta: ObjectMeta =
            serde_json::from_value(json!({"namespace": "ns", "ownerReferences": [owner_reference]})).expect("metadata");
        assert_eq!(owner::<ServerGroup>(&meta).map(|key| key.name), want.map(str::to_owned));
    }
}
