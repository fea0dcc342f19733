//! Every field of every kind is described well enough that `kubectl explain` answers what a user asks.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail by panicking")]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use spawnery_api::v1alpha1::crds;

/// Words that say what a number counts.
const UNITS: [&str; 6] = ["Seconds", "Number of", "Port number", "Generation of", "count of", "counted from"];

/// Kubernetes' own types: their fields are described, but not in our manner.
const FOREIGN: [&str; 6] = ["affinity", "tolerations", "resources", "configMap", "secret", "imagePullSecrets"];

/// What is wrong with the description of one field.
fn judge(path: &str, schema: &JSONSchemaProps, required: bool) -> Vec<String> {
    let text = schema.description.as_deref().unwrap_or_default();
    let mut complaints = Vec::new();
    if text.len() < 15 {
        complaints.push(format!("{path}: no description, or one that says nothing: {text:?}"));
    }
    if text.contains('\n') && text.contains("  ") {
        complaints.push(format!("{path}: description is not plain text"));
    }
    if schema.type_.as_deref() != Some("integer") {
        return complaints;
    }
    if !UNITS.iter().any(|unit| text.contains(unit)) {
        complaints.push(format!("{path}: does not say what the number counts ({UNITS:?}): {text:?}"));
    }
    if path.contains(".status") {
        return complaints;
    }
    if let Some(default) = &schema.default {
        let stated = format!("Default {}", default.0);
        if !text.contains(&stated) {
            complaints.push(format!("{path}: does not say {stated:?}: {text:?}"));
        }
    } else if !required && !["Unset", "Required", " when it is not known"].iter().any(|word| text.contains(word)) {
        complaints.push(format!("{path}: does not say what leaving it out means: {text:?}"));
    }
    if let Some(minimum) = schema.minimum {
        let stated = [format!("at least {minimum}"), format!("{minimum} to "), format!("counted from {minimum}")];
        if !stated.iter().any(|words| text.contains(words)) {
            complaints.push(format!("{path}: does not say its smallest value {minimum}: {text:?}"));
        }
    }
    complaints
}

/// Complaints about a schema's fields, and how many fields were looked at.
fn walk(path: &str, schema: &JSONSchemaProps, ours: bool) -> (Vec<String>, usize) {
    let mut complaints = Vec::new();
    let mut fields = 0;
    let required = schema.required.clone().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        if path.ends_with(".metadata") && path.matches('.').count() == 1 {
            continue;
        }
        fields += 1;
        if ours {
            complaints.extend(judge(&path, field, required.contains(name)));
        } else if field.description.as_deref().unwrap_or_default().is_empty() {
            complaints.push(format!("{path}: no description"));
        }
        let (inner, count) = walk(&path, field, ours && !FOREIGN.contains(&name.as_str()));
        complaints.extend(inner);
        fields += count;
    }
    if let Some(items) = &schema.items
        && let Ok(items) = serde_json::from_value::<JSONSchemaProps>(serde_json::to_value(items).unwrap())
    {
        let (inner, count) = walk(&format!("{path}[]"), &items, ours);
        complaints.extend(inner);
        fields += count;
    }
    (complaints, fields)
}

#[test]
fn every_field_is_described() {
    for crd in crds().unwrap() {
        let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
        let kind = crd.spec.names.kind;
        assert!(schema.description.as_deref().is_some_and(|text| !text.contains("Auto-generated")), "{kind}");
        let (complaints, fields) = walk(&kind, &schema, true);
        assert!(fields > 10, "{kind}: looked at {fields} fields only");
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }
}

fn integer(description: &str, default: Option<i64>, minimum: Option<f64>) -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some("integer".to_owned()),
        description: Some(description.to_owned()),
        default: default
            .map(|value| k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON(value.into())),
        minimum,
        ..JSONSchemaProps::default()
    }
}

#[test]
fn the_lint_sees_what_it_is_for() {
    let complaints = |description, default, minimum, required| {
        judge("Kind.spec.field", &integer(description, default, minimum), required).len()
    };
    assert_eq!(complaints("Seconds to wait for players, at least 1. Default 60.", Some(60), Some(1.0), false), 0);
    assert_eq!(complaints("", Some(60), None, false), 3);
    assert_eq!(complaints("How long to wait for the players. Default 60.", Some(60), None, false), 1);
    assert_eq!(complaints("Seconds to wait for players. Default 60.", Some(61), None, false), 1);
    assert_eq!(complaints("Seconds to wait for players.", None, None, false), 1);
    assert_eq!(complaints("Seconds to wait for players.", None, None, true), 0);
    assert_eq!(complaints("Seconds to wait for players.", None, Some(1.0), true), 1);
}
