//! How players reach proxies: a Service for each type but HostPort, and the address that is shown to people.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service as Object, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use spawnery_api::names::{annotation, port};
use spawnery_api::v1alpha1::{Expose, ExposeType, ProxyGroup};
use spawnery_api::view::{PodView, Role};

use super::parts;

/// What is to be done about a group's Service.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// It is to look like this.
    Wanted(Box<Object>),
    /// There must be none: the port is on the nodes.
    Unwanted,
}

/// The Service of a ProxyGroup. It has the group's name.
pub fn service(group: &ProxyGroup) -> Service {
    let expose = &group.spec.expose;
    let (kind, node_port, policy) = match expose.kind {
        ExposeType::LoadBalancer => ("LoadBalancer", None, Some(traffic_policy(expose))),
        ExposeType::NodePort => {
            ("NodePort", expose.node_port.as_ref().map(|block| block.port), Some("Local".to_owned()))
        }
        ExposeType::ClusterIP => ("ClusterIP", None, None),
        ExposeType::HostPort => return Service::Unwanted,
    };
    let annotations = annotations(expose);
    Service::Wanted(Box::new(Object {
        metadata: ObjectMeta {
            labels: Some(parts::managed()),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..parts::owned_by(group, group.name_any())
        },
        spec: Some(ServiceSpec {
            type_: Some(kind.to_owned()),
            external_traffic_policy: policy,
            selector: Some(parts::selector(&group.spec.network_ref.name, &group.name_any(), Role::Proxy)),
            ports: Some(vec![ServicePort {
                name: Some(port::MINECRAFT_NAME.to_owned()),
                port: port::MINECRAFT,
                target_port: Some(IntOrString::String(port::MINECRAFT_NAME.to_owned())),
                protocol: Some("TCP".to_owned()),
                node_port,
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }))
}

fn traffic_policy(expose: &Expose) -> String {
    expose.load_balancer.clone().unwrap_or_default().external_traffic_policy
}

/// The user's annotations, and the record of which of them are ours, so that any implementation can take them back.
fn annotations(expose: &Expose) -> BTreeMap<String, String> {
    let block = expose.load_balancer.as_ref().filter(|_| expose.kind == ExposeType::LoadBalancer);
    let mut annotations = block.map(|block| block.annotations.clone()).unwrap_or_default();
    if !annotations.is_empty() {
        let keys: Vec<_> = annotations.keys().cloned().collect();
        annotations.insert(annotation::EXPOSE_ANNOTATIONS.to_owned(), keys.join(","));
    }
    annotations
}

/// Whether the Service that is there needs no write.
pub fn same_service(found: &Object, desired: &Object) -> bool {
    let (Some(have), Some(want)) = (&found.spec, &desired.spec) else { return false };
    let port = |spec: &ServiceSpec| spec.ports.as_ref().and_then(|ports| ports.first()).cloned().unwrap_or_default();
    let (have_port, want_port) = (port(have), port(want));
    let recorded = |service: &Object| service.annotations().get(annotation::EXPOSE_ANNOTATIONS).cloned();
    have.type_ == want.type_
        && have.selector == want.selector
        && have.external_traffic_policy == want.external_traffic_policy
        && have.ports.as_ref().map_or(0, Vec::len) == 1
        && (have_port.port, &have_port.target_port) == (want_port.port, &want_port.target_port)
        && (want_port.node_port.is_none() || want_port.node_port == have_port.node_port)
        && found.metadata.owner_references == desired.metadata.owner_references
        && desired.labels().iter().all(|(key, value)| found.labels().get(key) == Some(value))
        && desired.annotations().iter().all(|(key, value)| found.annotations().get(key) == Some(value))
        && recorded(found) == recorded(desired)
}

/// Where players connect; empty until a proxy can take them. `pods` are the group's, `service` is what is there.
///
/// Something is shown only once a pod is ready on a node with an address: before that it would lead nowhere.
pub fn address<'a>(expose: &Expose, service: Option<&Object>, pods: impl IntoIterator<Item = &'a PodView>) -> String {
    let mut ready = pods.into_iter().filter(|pod| pod.is_ready() && !pod.is_terminating());
    let Some(node) = ready.find_map(|pod| pod.status.host_ip.as_deref()) else {
        return String::new();
    };
    match expose.kind {
        ExposeType::LoadBalancer => {
            service.and_then(balancer).map(|host| join(host, port::MINECRAFT)).unwrap_or_default()
        }
        ExposeType::NodePort => expose.node_port.as_ref().map(|block| join(node, block.port)).unwrap_or_default(),
        ExposeType::HostPort => expose.host_port.as_ref().map(|block| join(node, block.port)).unwrap_or_default(),
        ExposeType::ClusterIP => expose.cluster_ip.as_ref().map(|block| block.address.clone()).unwrap_or_default(),
    }
}

fn balancer(service: &Object) -> Option<&str> {
    let entry = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?;
    entry.ip.as_deref().or(entry.hostname.as_deref()).filter(|host| !host.is_empty())
}

fn join(host: &str, port: i32) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) => format!("[{host}]:{port}"),
        Ok(IpAddr::V4(_)) | Err(_) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests;
