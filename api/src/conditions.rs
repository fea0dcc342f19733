//! Conditions of the custom resources.
//!
//! [`set`] is the only way to write one. It owns `lastTransitionTime`, which moves only when the status does, and says
//! whether anything changed, so that equal status is not written again.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{Schema, SchemaGenerator, json_schema};

/// Longest message that the schema accepts, in characters.
const MESSAGE_MAX: usize = 32768;

/// The three values of a condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can say.
    Unknown,
}

impl Status {
    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition as it is to be, without the time, which [`set`] knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Type, from [`crate::names::condition`].
    pub kind: &'static str,
    /// Status.
    pub status: Status,
    /// Reason, in CamelCase, never empty.
    pub reason: String,
    /// Text for people.
    pub message: String,
    /// Generation of the object's spec that was looked at; none where status belongs to no generation.
    pub observed_generation: Option<i64>,
}

impl Desired {
    /// A condition of that type, status and reason.
    pub fn new(kind: &'static str, status: impl Into<Status>, reason: impl Into<String>) -> Self {
        Self { kind, status: status.into(), reason: reason.into(), message: String::new(), observed_generation: None }
    }

    /// With a text for people.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// For that generation of the spec.
    #[must_use]
    pub fn generation(mut self, generation: Option<i64>) -> Self {
        self.observed_generation = generation;
        self
    }
}

/// What [`set`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was like that already.
    Unchanged,
    /// Reason, message or generation changed; the status is what it was.
    Revised,
    /// The status flipped, or the condition is new: worth an event.
    Flipped,
}

impl Outcome {
    /// Whether the object has to be written.
    pub fn changed(self) -> bool {
        self != Self::Unchanged
    }
}

/// Brings one condition of a list to what is desired, as of `now`, and says what that changed.
pub fn set(conditions: &mut Vec<Condition>, desired: Desired, now: Timestamp) -> Outcome {
    let Desired { kind, status, reason, mut message, observed_generation } = desired;
    if let Some((end, _)) = message.char_indices().nth(MESSAGE_MAX) {
        message.truncate(end);
    }
    let status = status.as_str();
    let Some(current) = conditions.iter_mut().find(|condition| condition.type_ == kind) else {
        conditions.push(Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason,
            message,
            observed_generation,
            last_transition_time: Time(now),
        });
        return Outcome::Flipped;
    };
    if current.status == status {
        let same = current.reason == reason
            && current.message == message
            && current.observed_generation == observed_generation;
        if same {
            return Outcome::Unchanged;
        }
        current.reason = reason;
        current.message = message;
        current.observed_generation = observed_generation;
        return Outcome::Revised;
    }
    status.clone_into(&mut current.status);
    current.reason = reason;
    current.message = message;
    current.observed_generation = observed_generation;
    current.last_transition_time = Time(now);
    Outcome::Flipped
}

/// The condition of that type.
pub fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition of that type is there and `True`.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    get(conditions, kind).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// Removes the condition of that type; says whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() != before
}

/// Schema of a list of standard conditions, merged by type.
pub fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the object's state.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "type": "string", "maxLength": 316,
                    "description": "Which aspect, in CamelCase.",
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "type": "string", "enum": ["True", "False", "Unknown"],
                    "description": "Whether it holds: True, False or Unknown.",
                },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "Generation of the spec, a count of edits, that the condition was set for.",
                },
                "lastTransitionTime": {
                    "type": "string", "format": "date-time", "description": "When the status last changed.",
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "description": "Why, in CamelCase, for programs.",
                    "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {"type": "string", "maxLength": MESSAGE_MAX, "description": "Why, for people. May be empty."},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const T0: Timestamp = Timestamp::UNIX_EPOCH;

    fn desired(status: bool, reason: &str, message: &str) -> Desired {
        Desired::new("Accepted", status, reason).message(message).generation(Some(1))
    }

    #[rstest]
    #[case::same(desired(true, "A", "m"), Outcome::Unchanged, false)]
    #[case::another_reason(desired(true, "B", "m"), Outcome::Revised, false)]
    #[case::another_message(desired(true, "A", "n"), Outcome::Revised, false)]
    #[case::another_generation(desired(true, "A", "m").generation(Some(2)), Outcome::Revised, false)]
    #[case::another_status(desired(false, "A", "m"), Outcome::Flipped, true)]
    fn time_moves_only_with_the_status(#[case] next: Desired, #[case] want: Outcome, #[case] moves: bool) {
        let later = T0 + jiff::SignedDuration::from_secs(5);
        let mut list = Vec::new();
        assert_eq!(set(&mut list, desired(true, "A", "m"), T0), Outcome::Flipped);
        assert_eq!(set(&mut list, next.clone(), later), want);
        let only = get(&list, "Accepted").unwrap();
        assert_eq!((only.reason.as_str(), only.message.as_str()), (next.reason.as_str(), next.message.as_str()));
        assert_eq!(only.observed_generation, next.observed_generation);
        assert_eq!(only.last_transition_time.0, if moves { later } else { T0 });
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn other_conditions_stay() {
        let mut list = Vec::new();
        set(&mut list, desired(true, "A", ""), T0);
        set(&mut list, Desired::new("Degraded", false, "Fine"), T0);
        assert!(is_true(&list, "Accepted") && !is_true(&list, "Degraded") && !is_true(&list, "Missing"));
        assert!(remove(&mut list, "Accepted") && !remove(&mut list, "Accepted"));
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn a_message_is_cut_to_what_the_schema_accepts() {
        let mut list = Vec::new();
        set(&mut list, desired(true, "A", &"ä".repeat(MESSAGE_MAX + 3)), T0);
        assert_eq!(get(&list, "Accepted").unwrap().message.chars().count(), MESSAGE_MAX);
    }
}
