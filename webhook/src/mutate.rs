//! Stamps pods of ours with the hash of what they were made from.
//!
//! The stamp is computed from the inputs attached to the pod, whoever made it, so a forged stamp is corrected. A managed pod
//! without inputs is let in as it is: nobody could say what it was made from.

use serde_json::{Value, json};
use spawnery_api::names::{annotation, label};
use spawnery_api::view::PodView;
use spawnery_core::pod_hash;

use crate::review::{Answer, Operation, Request};

/// Answers the mutating hook on pods.
pub(crate) fn mutate(request: &Request<'_>) -> Answer {
    if request.operation != Operation::Create {
        return Answer::allow("not-a-create");
    }
    let Some(pod) = request.object.and_then(|raw| serde_json::from_str::<PodView>(raw.get()).ok()) else {
        return Answer::allow("unreadable");
    };
    stamp(&pod)
}

fn stamp(pod: &PodView) -> Answer {
    if !pod.is_managed() {
        return Answer::allow("not-ours");
    }
    let Some(inputs) = pod.annotation(annotation::POD_INPUTS) else {
        return Answer::allow("no-inputs");
    };
    let hash = match pod_hash::of_annotation(inputs) {
        Ok(hash) => hash,
        Err(error) => {
            let warning =
                format!("annotation {}: {error}; the pod keeps the hash it came with", annotation::POD_INPUTS);
            return Answer { warnings: vec![warning], ..Answer::allow("bad-inputs") };
        }
    };
    match pod.label(label::POD_HASH) {
        Some(stamp) if stamp == hash.as_str() => Answer::allow("stamped-already"),
        found => {
            let decision = if found.is_some() { "corrected" } else { "stamped" };
            Answer { patch: Some(patch(hash.as_str())), ..Answer::allow(decision) }
        }
    }
}

/// `add` replaces a label that is there. The map of labels exists: without the managed-by label we would not be here.
fn patch(hash: &str) -> Value {
    json!([{ "op": "add", "path": format!("/metadata/labels/{}", escape(label::POD_HASH)), "value": hash }])
}

/// A key as a segment of a JSON Pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const INPUTS: &str = r#"{"image":"paper:1","role":"server"}"#;

    fn pod(labels: &Value, annotations: &Value) -> Value {
        json!({ "metadata": { "name": "lobby-abcd", "labels": labels, "annotations": annotations }, "spec": {} })
    }

    fn managed(stamp: Option<&str>, inputs: Option<&str>) -> Value {
        let mut labels = json!({ label::MANAGED_BY: label::MANAGED_BY_VALUE });
        if let Some(stamp) = stamp {
            labels[label::POD_HASH] = json!(stamp);
        }
        pod(&labels, &inputs.map_or_else(|| json!({}), |inputs| json!({ annotation::POD_INPUTS: inputs })))
    }

    fn right() -> String {
        pod_hash::of_annotation(INPUTS).unwrap().to_string()
    }

    #[rstest]
    #[case::foreign(pod(&json!({}), &json!({ annotation::POD_INPUTS: INPUTS })), "not-ours", None)]
    #[case::no_labels(json!({ "metadata": {} }), "not-ours", None)]
    #[case::forged_labels_without_inputs(managed(Some("0000000000000000"), None), "no-inputs", None)]
    #[case::unstamped(managed(None, Some(INPUTS)), "stamped", Some(right()))]
    #[case::forged(managed(Some("0000000000000000"), Some(INPUTS)), "corrected", Some(right()))]
    #[case::right(managed(Some(&right()), Some(INPUTS)), "stamped-already", None)]
    #[case::broken_inputs(managed(None, Some("{")), "bad-inputs", None)]
    #[case::inputs_too_long(managed(None, Some(&format!("{{\"a\":\"{}\"}}", "x".repeat(9000)))), "bad-inputs", None)]
    fn stamps(#[case] object: Value, #[case] decision: &str, #[case] want: Option<String>) {
        let answer = stamp(&serde_json::from_value(object.clone()).unwrap());
        assert_eq!(answer.decision, decision);
        assert!(answer.refusal.is_none(), "a pod is never refused");
        let mut patched = object.clone();
        if let Some(patch) = &answer.patch {
            json_patch::patch(&mut patched, &serde_json::from_value::<json_patch::Patch>(patch.clone()).unwrap())
                .unwrap();
        }
        let Some(want) = want else { return assert_eq!(patched, object, "nothing else is changed") };
        assert_eq!(patched["metadata"]["labels"][label::POD_HASH], want);
        let again = stamp(&serde_json::from_value(patched).unwrap());
        assert_eq!(again.patch, None, "a second pass changes nothing");
    }

    #[rstest]
    #[case::slash("a/b", "a~1b")]
    #[case::tilde("a~b", "a~0b")]
    #[case::both("~1/", "~01~1")]
    fn escapes(#[case] key: &str, #[case] want: &str) {
        assert_eq!(escape(key), want);
    }
}
