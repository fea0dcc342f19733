//! The CustomResourceDefinitions as they are installed: what the derives make, brought to upstream's shape.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::{Network, ProxyGroup, Server, ServerGroup};

/// Pattern of a quantity, as Kubernetes' own generator writes it.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Why the definitions could not be made. Only a wrong derive can cause it, so tests would have shown it.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// A definition is no valid JSON, or no definition after it was brought into shape.
    #[error("could not bring the definition of {kind} into shape")]
    Shape {
        /// Kind that it happened at.
        kind: &'static str,
        /// Cause.
        #[source]
        source: serde_json::Error,
    },
}

/// The four definitions, in the order in which they are installed.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    [
        ("Network", Network::crd()),
        ("ProxyGroup", ProxyGroup::crd()),
        ("ServerGroup", ServerGroup::crd()),
        ("Server", Server::crd()),
    ]
    .into_iter()
    .map(|(kind, crd)| shaped(&crd).map_err(|source| CrdError::Shape { kind, source }))
    .collect()
}

fn shaped(crd: &CustomResourceDefinition) -> Result<CustomResourceDefinition, serde_json::Error> {
    let mut value = serde_json::to_value(crd)?;
    let versions = value.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let Some(root) = version.pointer_mut("/schema/openAPIV3Schema") else { continue };
        // Upstream requires nothing at the root; rules live on the spec.
        if let Some(root) = root.as_object_mut() {
            root.remove("required");
        }
        remove_everywhere(root, "nullable");
        if let Some(status) = root.pointer_mut("/properties/status") {
            remove_everywhere(status, "default");
        }
    }
    serde_json::from_value(value)
}

/// Removes a keyword from a schema and all schemas in it, but leaves properties alone that happen to have that name.
///
/// `nullable` would keep an explicit `null` in the object, where upstream drops it and then applies the default.
/// `default` in a status would write zeros that nobody has observed.
fn remove_everywhere(schema: &mut Value, keyword: &str) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove(keyword);
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| remove_everywhere(property, keyword));
    }
    for inner in ["items", "additionalProperties", "not"] {
        if let Some(inner) = object.get_mut(inner) {
            remove_everywhere(inner, keyword);
        }
    }
    for inner in ["anyOf", "oneOf", "allOf"] {
        let list = object.get_mut(inner).and_then(Value::as_array_mut);
        list.into_iter().flatten().for_each(|inner| remove_everywhere(inner, keyword));
    }
}

/// Schema of a quantity that is bounded, so that rules over it stay within the API server's cost limit.
pub(super) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": 64,
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

/// For fields that are left out while they hold nothing.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
