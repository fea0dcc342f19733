//! What a scheduler sends and reads: `k8s.io/kube-scheduler/extender/v1`.
//!
//! Those types have no JSON tags, so their keys are Go's field names, capitalised. What an answer says between the lines
//! (`pkg/scheduler/extender.go` in 1.37): no list of names at all means that no node fits; a name that was not asked about
//! fails the call; a non-empty `Error` fails the call; a node that is neither returned nor named in a map of failed nodes
//! is out without a reason in the pod's event.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error as _, Visitor};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use spawnery_api::view::PodView;

/// Largest body that is read: a pod ends at about 1.5 MiB, 5,000 names of the greatest length take 1.3 MB.
pub(crate) const MAX_BODY_BYTES: usize = 8 << 20;

/// A node's name, in the request's own bytes where it is written without escapes, as every valid name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeName<'a>(pub(crate) Cow<'a, str>);

impl NodeName<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for NodeName<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = NodeName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node's name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(NodeName(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(NodeName(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Args<'a> {
    pod: Option<PodView>,
    #[serde(borrow, default)]
    node_names: Option<Vec<NodeName<'a>>>,
    /// Only whether it is there: a scheduler that sends whole nodes wants whole nodes back.
    #[serde(default, deserialize_with = "is_there")]
    nodes: bool,
}

fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// One call: a pod, and the nodes that have passed everything else.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The pod to be placed.
    pub(crate) pod: PodView,
    /// The candidates.
    pub(crate) nodes: Vec<NodeName<'a>>,
}

/// Why a body is no call that we can answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// Not the extender's arguments.
    #[error("the body is not ExtenderArgs in JSON: {0}")]
    NotArgs(serde_json::Error),
    /// The scheduler keeps its nodes to itself.
    #[error("the call names no nodes: set nodeCacheCapable: true for this extender in the scheduler's configuration")]
    NoNames,
}

impl Unusable {
    /// Short constant name for metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::NotArgs(_) => "not-args",
            Self::NoNames => "no-names",
        }
    }
}

impl<'a> Call<'a> {
    /// Reads a body.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Unusable> {
        let args: Args<'a> = serde_json::from_slice(body).map_err(Unusable::NotArgs)?;
        let pod = args.pod.ok_or_else(|| Unusable::NotArgs(serde_json::Error::custom("there is no Pod")))?;
        match args.node_names {
            Some(nodes) => Ok(Self { pod, nodes }),
            None if args.nodes => Err(Unusable::NoNames),
            // A Go slice that was never filled: no candidates.
            None => Ok(Self { pod, nodes: Vec::new() }),
        }
    }
}

/// The answer to `filter`. Always a list, also of nothing.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Filtered<'a> {
    /// Who may have the pod: a part of what was asked about, in its order.
    pub(crate) node_names: Vec<&'a str>,
    /// Who may not, and no preemption would help.
    #[serde(serialize_with = "map", skip_serializing_if = "Vec::is_empty")]
    pub(crate) failed_and_unresolvable_nodes: Vec<(&'a str, &'static str)>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) error: String,
}

impl Filtered<'_> {
    /// Whether there were nodes, and none may have the pod.
    pub(crate) fn fits_nowhere(&self) -> bool {
        self.node_names.is_empty() && !self.failed_and_unresolvable_nodes.is_empty()
    }
}

fn map<S: Serializer>(entries: &[(&str, &'static str)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(entries.len()))?;
    for (name, message) in entries {
        map.serialize_entry(name, message)?;
    }
    map.end()
}

/// One line of the answer to `prioritize`, which is a bare list of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Scored<'a> {
    /// The node.
    pub(crate) host: &'a str,
    /// 0 to 10.
    pub(crate) score: u32,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn reads_what_go_writes() {
        let body = br#"{"Pod":{"metadata":{"name":"lobby-a","namespace":"games","uid":"u"},"spec":{"containers":[]},
            "status":{}},"Nodes":null,"NodeNames":["a","b-\u0031"]}"#;
        let call = Call::read(body).unwrap();
        assert_eq!((call.pod.name(), call.pod.namespace()), ("lobby-a", "games"));
        let names: Vec<&str> = call.nodes.iter().map(NodeName::as_str).collect();
        assert_eq!(names, ["a", "b-1"]);
        assert!(matches!(call.nodes[0].0, Cow::Borrowed(_)), "names are copied");
    }

    #[rstest]
    #[case::not_json(b"{", "not-args")]
    #[case::no_pod(br#"{"NodeNames":["a"]}"#, "not-args")]
    #[case::lower_case_is_not_gos(br#"{"pod":{"metadata":{}},"nodeNames":["a"]}"#, "not-args")]
    #[case::names_that_are_none(br#"{"Pod":{"metadata":{}},"NodeNames":[1]}"#, "not-args")]
    #[case::whole_nodes(br#"{"Pod":{"metadata":{}},"Nodes":{"items":[]},"NodeNames":null}"#, "no-names")]
    fn refuses(#[case] body: &[u8], #[case] want: &str) {
        assert_eq!(Call::read(body).unwrap_err().label(), want);
    }

    #[rstest]
    #[case::null(br#"{"Pod":{"metadata":{}},"Nodes":null,"NodeNames":null}"#)]
    #[case::empty(br#"{"Pod":{"metadata":{}},"NodeNames":[]}"#)]
    fn nobody_to_choose_from_is_no_error(#[case] body: &[u8]) {
        assert!(Call::read(body).unwrap().nodes.is_empty());
    }

    #[test]
    fn writes_what_go_reads() {
        let nobody = Filtered::default();
        assert_eq!(serde_json::to_string(&nobody).unwrap(), r#"{"NodeNames":[]}"#);
        let some = Filtered {
            node_names: vec!["a"],
            failed_and_unresolvable_nodes: vec![("b", "full")],
            error: String::new(),
        };
        let want = r#"{"NodeNames":["a"],"FailedAndUnresolvableNodes":{"b":"full"}}"#;
        assert_eq!(serde_json::to_string(&some).unwrap(), want);
        let scored = [Scored { host: "a", score: 10 }];
        assert_eq!(serde_json::to_string(&scored).unwrap(), r#"[{"Host":"a","Score":10}]"#);
    }
}
