//! Errors of the local API: which field, which value, what would be accepted.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;
use serde_json::Value;

/// A request that was not carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// For people.
    pub message: String,
    /// The field that is wrong, as a path (`servers.lobby.players`).
    pub field: Option<String>,
    /// What it holds; cut short.
    pub value: Option<String>,
    /// What would be accepted there.
    pub accepted: Option<String>,
}

/// Longest value that is repeated to the caller.
const LONGEST_VALUE: usize = 80;

impl Refusal {
    /// Without a field.
    pub fn new(status: StatusCode, message: &str) -> Self {
        Self { status, message: message.to_owned(), field: None, value: None, accepted: None }
    }

    /// The request is good, but not for this agent.
    pub fn conflict(message: &str) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// `field` holds `value` where only `accepted` would do.
    pub fn field(field: &str, value: Option<&Value>, accepted: &str) -> Self {
        let shown = value.map(|value| value.to_string().chars().take(LONGEST_VALUE).collect::<String>());
        let found = shown.as_ref().map_or_else(|| "is missing".to_owned(), |shown| format!("is {shown}"));
        Self {
            status: StatusCode::BAD_REQUEST,
            message: format!("{field} {found}; accepted: {accepted}"),
            field: Some(field.to_owned()),
            value: shown,
            accepted: Some(accepted.to_owned()),
        }
    }
}

#[derive(Serialize)]
struct Wire<'a> {
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<&'a str>,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = Wire {
            message: &self.message,
            field: self.field.as_deref(),
            value: self.value.as_deref(),
            accepted: self.accepted.as_deref(),
        };
        (self.status, Json(serde_json::json!({ "error": error }))).into_response()
    }
}
