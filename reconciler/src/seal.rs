//! The marks on pods that others read before they remove one: what is written, and how.
//!
//! Each is a merge patch on `pods/status`, which takes labels and annotations and leaves the spec alone, with the UID of
//! the pod that was judged: a pod of the same name made since answers 409.

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use spawnery_api::names::{annotation, label};
use spawnery_api::view::PodView;
use spawnery_core::occupancy::{Carried, Marks, SealReason};

use crate::context::Context;
use crate::failure::Failure;
use crate::latest::Latest;

/// The patch that makes a pod carry these marks, all at once.
pub fn marks_patch(marks: &Marks, pod_uid: &str) -> Value {
    let occupied = marks.occupied.then_some(label::TRUE);
    json!({
        "metadata": {
            "uid": pod_uid,
            "labels": { label::OCCUPIED: occupied },
            "annotations": {
                annotation::SAFE_TO_EVICT: marks.safe_to_evict,
                annotation::DO_NOT_DISRUPT: marks.do_not_disrupt,
            },
        }
    })
}

/// The patch that seals a pod.
pub fn seal_patch(reason: SealReason, pod_uid: &str) -> Value {
    json!({
        "metadata": {
            "uid": pod_uid,
            "labels": { label::SEALED: label::TRUE },
            "annotations": { annotation::SEALED_REASON: reason.as_str() },
        }
    })
}

/// The patch that takes an eviction request off a pod.
pub fn clear_request_patch(pod_uid: &str) -> Value {
    json!({ "metadata": { "uid": pod_uid, "annotations": { annotation::EVICTION_REQUESTED: null } } })
}

/// Writes such a patch; `false` when the pod went, or is another one by now.
///
/// # Errors
/// What else the API server says: `what` could not be done.
pub(crate) async fn write(
    ctx: &Context,
    latest: &Latest<PodView>,
    (namespace, name): (&str, &str),
    writer: &str,
    patch: &Value,
    what: &'static str,
) -> Result<bool, Failure> {
    let api: Api<PodView> = Api::namespaced(ctx.clients.api.clone(), namespace);
    let params = PatchParams { field_manager: Some(writer.to_owned()), ..PatchParams::default() };
    match ctx.write(api.patch_status(name, &params, &Patch::Merge(patch))).await {
        Ok(pod) => {
            latest.wrote(pod);
            Ok(true)
        }
        // Gone, another one, or (invalid) a UID that is not the object's.
        Err(error) if error.is_not_found() || error.is_conflict() || error.is_invalid() => {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(namespace, name, error, "a pod went before we could {what}");
            Ok(false)
        }
        Err(source) => Err(Failure::Call { what, source }),
    }
}

/// The marks that a pod carries.
pub fn carried(pod: &PodView) -> Carried {
    Carried {
        occupied: pod.is_occupied(),
        safe_to_evict: pod.annotation(annotation::SAFE_TO_EVICT).map(str::to_owned),
        do_not_disrupt: pod.annotation(annotation::DO_NOT_DISRUPT).map(str::to_owned),
    }
}

/// Why a pod is sealed, if it is. A seal whose reason cannot be read is a seal.
pub fn sealed(pod: &PodView) -> Option<SealReason> {
    let reason = pod.annotation(annotation::SEALED_REASON).and_then(SealReason::parse);
    pod.is_sealed().then_some(reason.unwrap_or(SealReason::Empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(metadata: &Value) -> PodView {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn an_occupied_pod_gets_three_marks_in_one_patch() {
        let marks = Marks { occupied: true, safe_to_evict: "false", do_not_disrupt: Some("7h0m0s".to_owned()) };
        let want = json!({ "metadata": {
            "uid": "u1",
            "labels": { "spawnery.cloud/occupied": "true" },
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "7h0m0s",
            },
        }});
        assert_eq!(marks_patch(&marks, "u1"), want);
    }

    #[test]
    fn an_empty_pod_loses_the_label_and_keeps_the_hint() {
        let marks = Marks { occupied: false, safe_to_evict: "true", do_not_disrupt: None };
        let patch = marks_patch(&marks, "u1");
        assert_eq!(patch["metadata"]["labels"], json!({ "spawnery.cloud/occupied": null }));
        assert_eq!(patch["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"], "true");
        assert!(patch["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"].is_null());
    }

    #[test]
    fn a_seal_says_why_in_the_same_patch() {
        let want = json!({ "metadata": {
            "uid": "u1",
            "labels": { "spawnery.cloud/sealed": "true" },
            "annotations": { "spawnery.cloud/sealed-reason": "Deadline" },
        }});
        assert_eq!(seal_patch(SealReason::Deadline, "u1"), want);
    }

    #[test]
    fn what_is_written_reads_back() {
        let marks = Marks { occupied: true, safe_to_evict: "false", do_not_disrupt: Some("7h0m0s".to_owned()) };
        let marked = pod(&marks_patch(&marks, "u1")["metadata"]);
        let want = Carried {
            occupied: true,
            safe_to_evict: Some("false".to_owned()),
            do_not_disrupt: Some("7h0m0s".to_owned()),
        };
        assert_eq!(carried(&marked), want);
        assert_eq!(sealed(&marked), None);
        assert_eq!(sealed(&pod(&seal_patch(SealReason::Override, "u1")["metadata"])), Some(SealReason::Override));
        let unexplained = json!({ "labels": { "spawnery.cloud/sealed": "true" } });
        assert_eq!(
            sealed(&pod(&unexplained)),
            Some(SealReason::Empty),
            "a seal is never taken back for want of a reason"
        );
    }
}
