//! What a pod was made from, as 16 hex digits.
//!
//! ```text
//! specs of group and Network ─► PodInputs ─► canonical JSON ─► SHA-256 ─► first 8 bytes, hex ─► label `pod-hash`
//!                                                 └─► annotation `pod-inputs` on the pod, from which the webhook recomputes it
//! ```
//! A pod is stale when its hash differs from the group's, and for no other reason. So only what a user can say about a pod
//! is in [`PodInputs`], never what a version of ours makes of it, and an optional field that nobody sets leaves no trace:
//! a new one can be added without rolling every pod there is. The committed golden vectors hold all that still.

mod inputs;

pub use inputs::{
    Basics, ContentDigest, Fragment, MountInput, MountSource, OverlayInput, PodInputs, ProxyInputs, ServerInputs,
};

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Longest annotation that carries inputs, in bytes.
pub const ANNOTATION_MAX_BYTES: usize = 8 * 1024;
/// The one key of an annotation that stands for inputs too long to attach.
const DIGEST_KEY: &str = "sha256";

/// The first 8 bytes of a SHA-256, as 16 lower-case hex digits: a label value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodHash(String);

impl PodHash {
    /// The label's value.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of_digest(digest: &str) -> Self {
        Self(digest.chars().take(16).collect())
    }
}

impl fmt::Display for PodHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is not 16 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a pod hash: expected 16 lower-case hex digits")]
pub struct NotAHash;

impl FromStr for PodHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        if is_hex(text, 16) { Ok(Self(text.to_owned())) } else { Err(NotAHash) }
    }
}

/// Inputs attached to a pod that cannot be hashed.
#[derive(Debug, thiserror::Error)]
pub enum InputsError {
    /// Longer than [`ANNOTATION_MAX_BYTES`].
    #[error("the attached inputs have {bytes} bytes: at most {ANNOTATION_MAX_BYTES} are read")]
    TooLong {
        /// Length found.
        bytes: usize,
    },
    /// Not JSON.
    #[error("the attached inputs are not JSON")]
    NotJson(#[source] serde_json::Error),
    /// JSON, but not an object.
    #[error("the attached inputs are not a JSON object")]
    NotAnObject,
    /// Stands for longer inputs, but not with a SHA-256.
    #[error("the attached digest of inputs is not 64 lower-case hex digits")]
    NotADigest,
}

impl PodInputs {
    /// The hash of these inputs.
    pub fn hash(&self) -> PodHash {
        PodHash::of_digest(&sha256(self.canonical().as_bytes()))
    }

    /// What is attached to a pod so that anybody can recompute its hash: the inputs themselves, or their SHA-256 when they
    /// are longer than [`ANNOTATION_MAX_BYTES`].
    pub fn annotation(&self) -> String {
        let inputs = self.canonical();
        if inputs.len() <= ANNOTATION_MAX_BYTES {
            return inputs;
        }
        canonical(&serde_json::json!({ DIGEST_KEY: sha256(inputs.as_bytes()) }))
    }

    fn canonical(&self) -> String {
        canonical_of(self).expect("keys are strings and nothing in these types fails to serialise")
    }
}

/// The hash that a pod with these attached inputs must carry.
///
/// It reads any JSON object and knows no field, so a webhook older or newer than the reconciler computes the same hash.
///
/// # Errors
/// If the text is too long, not a JSON object, or not a digest where it stands for one.
pub fn of_annotation(text: &str) -> Result<PodHash, InputsError> {
    if text.len() > ANNOTATION_MAX_BYTES {
        return Err(InputsError::TooLong { bytes: text.len() });
    }
    let inputs: Value = serde_json::from_str(text).map_err(InputsError::NotJson)?;
    let object = inputs.as_object().ok_or(InputsError::NotAnObject)?;
    match object.get(DIGEST_KEY) {
        Some(digest) if object.len() == 1 => match digest.as_str() {
            Some(digest) if is_hex(digest, 64) => Ok(PodHash::of_digest(digest)),
            _ => Err(InputsError::NotADigest),
        },
        _ => Ok(PodHash::of_digest(&sha256(canonical(&inputs).as_bytes()))),
    }
}

fn canonical_of(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(canonical(&serde_json::to_value(value)?))
}

/// JSON without spaces, with sorted keys and without members that are null.
fn canonical(value: &Value) -> String {
    sorted(value).to_string()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut members: Vec<_> = object.iter().filter(|(_, value)| !value.is_null()).collect();
            members.sort_by_key(|(key, _)| *key);
            Value::Object(members.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for digit in [byte >> 4, byte & 0xf] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
        text
    })
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
