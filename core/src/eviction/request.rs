//! The record of an eviction request, as it stands in an annotation of the pod.
//!
//! The webhook writes it, the leader reads and clears it. The text is JSON, so that a field can be added later:
//! `{"time":"2026-11-29T18:05:00Z","requester":"system:serviceaccount:kube-system:cluster-autoscaler"}`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A longer requester name is cut at a character boundary: it comes from outside, and annotations are not free.
pub const REQUESTER_MAX_BYTES: usize = 256;

/// Who asked for the eviction of a pod, and when last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionRequest {
    /// When the request was recorded (wall clock of the webhook).
    #[serde(rename = "time")]
    pub at: Timestamp,
    /// User name of the requester as the API server authenticated it.
    #[serde(default)]
    pub requester: String,
}

/// The annotation's text is not a request.
#[derive(Debug, thiserror::Error)]
#[error("could not read the eviction request {text:?}: expected JSON with \"time\" (RFC 3339) and \"requester\"")]
pub struct ParseError {
    text: String,
    #[source]
    source: serde_json::Error,
}

impl EvictionRequest {
    /// A record made now, whole seconds: the rest would only make two equal records differ.
    pub fn new(at: Timestamp, requester: &str) -> Self {
        let at = Timestamp::from_second(at.as_second()).unwrap_or(at);
        Self { at, requester: cut(requester).to_owned() }
    }

    /// The annotation's text.
    pub fn to_annotation(&self) -> String {
        serde_json::json!({ "time": self.at, "requester": self.requester }).to_string()
    }

    /// Reads the annotation's text.
    ///
    /// # Errors
    /// If the text is not JSON with a readable `time`. A reader treats that as a request made at an unknown time.
    pub fn from_annotation(text: &str) -> Result<Self, ParseError> {
        serde_json::from_str(text).map_err(|source| ParseError { text: cut(text).to_owned(), source })
    }
}

fn cut(text: &str) -> &str {
    let end = (0..=REQUESTER_MAX_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn the_text_is_stable_and_reads_back() {
        let at: Timestamp = "2026-11-29T18:05:00.123Z".parse().unwrap();
        let request = EvictionRequest::new(at, "system:serviceaccount:kube-system:cluster-autoscaler");
        let text = request.to_annotation();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["time"], "2026-11-29T18:05:00Z");
        assert_eq!(json["requester"], "system:serviceaccount:kube-system:cluster-autoscaler");
        assert_eq!(EvictionRequest::from_annotation(&text).unwrap(), request);
    }

    #[rstest]
    #[case::later_fields_are_ignored(r#"{"time":"2026-11-29T18:05:00Z","requester":"a","node":"n"}"#, Some("a"))]
    #[case::requester_may_be_missing(r#"{"time":"2026-11-29T18:05:00Z"}"#, Some(""))]
    #[case::no_time(r#"{"requester":"a"}"#, None)]
    #[case::not_json("true", None)]
    #[case::empty("", None)]
    fn reads(#[case] text: &str, #[case] requester: Option<&str>) {
        let read = EvictionRequest::from_annotation(text).ok();
        assert_eq!(read.as_ref().map(|request| request.requester.as_str()), requester);
    }

    #[rstest]
    #[case::short("a".repeat(256), 256)]
    #[case::long("a".repeat(257), 256)]
    #[case::never_inside_a_character("ä".repeat(200), 256)]
    #[case::odd_boundary(format!("a{}", "ä".repeat(200)), 255)]
    fn long_requesters_are_cut(#[case] name: String, #[case] want: usize) {
        assert_eq!(EvictionRequest::new(Timestamp::UNIX_EPOCH, &name).requester.len(), want);
    }
}
