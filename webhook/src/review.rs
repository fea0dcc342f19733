//! Admission reviews in, admission reviews out.
//!
//! Decoding is lenient on purpose: the UID comes first, because an answer without it is no answer; whatever else is absent
//! or of another type than expected counts as not said. Objects stay undecoded until a handler reads the few fields it
//! needs. What is not a review at all gets a plain `Status` with a 4xx code ([`Malformed`]).

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use spawnery_runtime::serve::body::Unread;

/// The one version that we speak; the configurations register no other.
pub const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Largest body that is read. A review carries the object twice, and objects end at about 3 MiB.
pub const MAX_BODY_BYTES: usize = 8 << 20;

/// What is being done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `CREATE`.
    Create,
    /// `UPDATE`.
    Update,
    /// `DELETE`.
    Delete,
    /// Anything else; none of our rules is about it.
    Other,
}

/// A request, as far as it could be read.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Identity of the request, to be echoed; never empty.
    pub uid: String,
    /// `kind.kind` of the object.
    pub kind: String,
    /// Name from the URL; empty where it is still to be generated, and for items of a delete of a collection.
    pub name: String,
    /// Namespace from the URL.
    pub namespace: String,
    /// What is being done.
    pub operation: Operation,
    /// Who does it, as the API server authenticated them.
    pub username: String,
    /// Dry run by the query; a body can ask for one too.
    pub dry_run: bool,
    /// The object as it is to be.
    pub object: Option<&'a RawValue>,
    /// The object as it is.
    pub old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest<'a> {
    #[serde(borrow)]
    uid: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    operation: Option<&'a RawValue>,
    #[serde(borrow)]
    user_info: Option<&'a RawValue>,
    #[serde(borrow)]
    dry_run: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
}

/// Reads a review.
///
/// # Errors
/// If it is not a review of our version with a UID.
pub fn decode<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Request<'a>, Malformed> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        return Err(Malformed::ContentType(content_type.chars().take(100).collect()));
    }
    let envelope: Envelope<'_> = serde_json::from_slice(body).map_err(Malformed::NotJson)?;
    let kind = text(envelope.kind).unwrap_or_default();
    if kind != KIND {
        return Err(Malformed::Kind(kind.chars().take(100).collect()));
    }
    let version = text(envelope.api_version).unwrap_or_default();
    if version != API_VERSION {
        return Err(Malformed::Version(version.chars().take(100).collect()));
    }
    let request = envelope.request.ok_or(Malformed::NoRequest)?;
    let request: RawRequest<'_> = serde_json::from_str(request.get()).map_err(|_| Malformed::NoRequest)?;
    let uid = text(request.uid).filter(|uid| !uid.is_empty()).ok_or(Malformed::NoUid)?;
    Ok(Request {
        uid,
        kind: member(request.kind, "kind"),
        name: text(request.name).unwrap_or_default(),
        namespace: text(request.namespace).unwrap_or_default(),
        operation: match text(request.operation).as_deref() {
            Some("CREATE") => Operation::Create,
            Some("UPDATE") => Operation::Update,
            Some("DELETE") => Operation::Delete,
            _ => Operation::Other,
        },
        username: member(request.user_info, "username"),
        dry_run: request.dry_run.is_some_and(|raw| raw.get() == "true"),
        object: request.object,
        old_object: request.old_object,
    })
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

fn member(raw: Option<&RawValue>, name: &str) -> String {
    let value: Option<Value> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
    value.as_ref().and_then(|value| value.get(name)?.as_str()).unwrap_or_default().to_owned()
}

/// A body that is not a review, or none that can be answered.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// Not declared as JSON.
    #[error("content type {0:?} is not read: send application/json")]
    ContentType(String),
    /// Declared as JSON, but not an object in JSON.
    #[error("the body is not a JSON object")]
    NotJson(#[source] serde_json::Error),
    /// JSON, but of another kind.
    #[error("kind {0:?} is not read: send AdmissionReview")]
    Kind(String),
    /// A review of another version.
    #[error("version {0:?} is not read: send admission.k8s.io/v1")]
    Version(String),
    /// A review of nothing.
    #[error("the review holds no request")]
    NoRequest,
    /// A request that no answer can name.
    #[error("the request has no uid")]
    NoUid,
    /// Longer than [`MAX_BODY_BYTES`], too slow, or broken off.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// More requests than we can work on.
    #[error("too many requests at once: try again")]
    Busy,
}

impl Malformed {
    fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::ContentType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType"),
            Self::NotJson(_)
            | Self::Kind(_)
            | Self::Version(_)
            | Self::NoRequest
            | Self::NoUid
            | Self::Unread(Unread::Broken) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::Unread(unread @ Unread::TooLong) => (unread.status(), "RequestEntityTooLarge"),
            Self::Unread(unread @ Unread::Slow) => (unread.status(), "Timeout"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
        }
    }

    /// Short name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::ContentType(_) => "content-type",
            Self::NotJson(_) => "not-json",
            Self::Kind(_) => "kind",
            Self::Version(_) => "version",
            Self::NoRequest => "no-request",
            Self::NoUid => "no-uid",
            Self::Unread(unread) => unread.label(),
            Self::Busy => "busy",
        }
    }
}

impl IntoResponse for Malformed {
    fn into_response(self) -> Response {
        let (code, reason) = self.status();
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": self.to_string(), "reason": reason, "code": code.as_u16(),
        });
        (code, axum::Json(status)).into_response()
    }
}

/// One entry of a refusal's `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Machine-readable.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Path of the field, empty if it is about none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What we answer to one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// A refusal; `None` lets the request pass.
    pub refusal: Option<Refusal>,
    /// Texts that the requester reads whatever the answer is.
    pub warnings: Vec<String>,
    /// JSON Patch, for the mutating hook alone.
    pub patch: Option<Value>,
    /// Short name of the decision, for the audit log.
    pub decision: &'static str,
}

/// How a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP code; drainers wait on 429 and give up on nearly everything else.
    pub code: u16,
    /// Machine-readable reason that fits the code.
    pub reason: &'static str,
    /// What people read.
    pub message: String,
    /// What tools read.
    pub causes: Vec<Cause>,
}

/// The API server cuts longer lists of warnings itself, at 4 KiB in all.
const MAX_WARNINGS: usize = 16;

impl Answer {
    /// Lets the request pass.
    pub fn allow(decision: &'static str) -> Self {
        Self { decision, ..Self::default() }
    }

    /// The body that answers the request `uid`. No `retryAfterSeconds`: client-go would repeat the call by itself, hiding
    /// our message.
    pub fn body(&self, uid: &str) -> Bytes {
        let status = self.refusal.as_ref().map(|refusal| {
            json!({
                "status": "Failure", "code": refusal.code, "reason": refusal.reason, "message": refusal.message,
                "details": { "causes": refusal.causes },
            })
        });
        let mut response = json!({ "uid": uid, "allowed": status.is_none() });
        if let Some(fields) = response.as_object_mut() {
            if let Some(status) = status {
                fields.insert("status".to_owned(), status);
            }
            if !self.warnings.is_empty() {
                let warnings: Vec<&String> = self.warnings.iter().take(MAX_WARNINGS).collect();
                fields.insert("warnings".to_owned(), json!(warnings));
            }
            if let Some(patch) = &self.patch {
                fields.insert("patchType".to_owned(), json!("JSONPatch"));
                fields.insert("patch".to_owned(), json!(ByteString(patch.to_string().into_bytes())));
            }
            if !self.decision.is_empty() {
                fields.insert("auditAnnotations".to_owned(), json!({ "decision": self.decision }));
            }
        }
        json!({ "apiVersion": API_VERSION, "kind": KIND, "response": response }).to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use rstest::rstest;

    fn json_headers() -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"))])
    }

    fn review(request: &str) -> String {
        format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}}}"#)
    }

    #[rstest]
    #[case::not_json("{", "not-json")]
    #[case::empty("", "not-json")]
    #[case::a_list("[]", "not-json")]
    #[case::not_utf8("\u{fffd}", "not-json")]
    #[case::other_kind(r#"{"apiVersion":"admission.k8s.io/v1","kind":"Pod"}"#, "kind")]
    #[case::no_kind(r#"{"apiVersion":"admission.k8s.io/v1"}"#, "kind")]
    #[case::other_version(r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#, "version")]
    #[case::no_request(r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#, "no-request")]
    #[case::request_of_another_type(&review("7"), "no-request")]
    #[case::no_uid(&review("{}"), "no-uid")]
    #[case::empty_uid(&review(r#"{"uid":""}"#), "no-uid")]
    #[case::uid_of_another_type(&review(r#"{"uid":7}"#), "no-uid")]
    #[case::uid_twice(&review(r#"{"uid":"a","uid":"b"}"#), "no-request")]
    fn what_is_not_a_review(#[case] body: &str, #[case] want: &str) {
        assert_eq!(decode(&json_headers(), body.as_bytes()).unwrap_err().label(), want);
    }

    #[rstest]
    #[case::none(None, false)]
    #[case::json(Some("application/json"), true)]
    #[case::parameters(Some("Application/JSON; charset=utf-8"), true)]
    #[case::yaml(Some("application/yaml"), false)]
    #[case::form(Some("application/x-www-form-urlencoded"), false)]
    fn content_types(#[case] value: Option<&'static str>, #[case] want: bool) {
        let headers = value.map(|value| (header::CONTENT_TYPE, HeaderValue::from_static(value))).into_iter().collect();
        assert_eq!(decode(&headers, review(r#"{"uid":"u"}"#).as_bytes()).is_ok(), want);
    }

    #[test]
    fn fields_of_another_type_count_as_not_said() {
        let body = review(
            r#"{"uid":"u","kind":1,"name":[],"namespace":{},"operation":null,"userInfo":"x","dryRun":"true","object":null}"#,
        );
        let request = decode(&json_headers(), body.as_bytes()).unwrap();
        assert_eq!((request.uid.as_str(), request.name.as_str(), request.username.as_str()), ("u", "", ""));
        assert_eq!((request.operation, request.dry_run, request.object.is_none()), (Operation::Other, false, true));
    }

    #[test]
    fn an_answer_echoes_what_the_api_server_checks() {
        let body: Value = serde_json::from_slice(&Answer::allow("sealed").body("u-1")).unwrap();
        assert_eq!(
            body,
            json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": { "uid": "u-1", "allowed": true, "auditAnnotations": { "decision": "sealed" } },
            })
        );
    }

    #[test]
    fn a_refusal_has_no_retry_after() {
        let refusal = Refusal { code: 429, reason: "TooManyRequests", message: "wait".into(), causes: Vec::new() };
        let answer = Answer { refusal: Some(refusal), ..Answer::default() };
        let body: Value = serde_json::from_slice(&answer.body("u")).unwrap();
        assert_eq!(body["response"]["status"]["code"], 429);
        assert!(!body.to_string().contains("retryAfter"));
    }
}
