//! What a scheduler sends and reads: `k8s.io/kube-scheduler/extender/v1`.
//!
//! Those types have no JSON tags, so their keys are Go's field names, capitalised. What an answer says between the lines
//! (`pkg/scheduler/extender.go` in 1.37): no list of names at all means that no node fits; a name that was not asked about
//! fails the call; a non-empty `Error` fails the call; a node that is neither returned nor named in a map of failed nodes
//! is out without a reason in the pod's event.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use spawnery_api::view::PodView;

/// Largest body that is read: a pod ends at about 1.5 MiB, 5,000 names of the greatest length take 1.3 MB.
pub(crate) const MAX_BODY_BYTES: usize = 8 << 20;

/// A node's name, in the request's own bytes where it is written without escapes, as every valid name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeName<'a>(Cow<'a, str>);

impl NodeName<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn write(&self, json: &mut Vec<u8>) -> serde_json::Result<()> {
        match &self.0 {
            // So it stood between quotes, and so it can go back. Looking at each byte again would be most of an answer's cost.
            Cow::Borrowed(text) => {
                json.push(b'"');
                json.extend_from_slice(text.as_bytes());
                json.push(b'"');
                Ok(())
            }
            Cow::Owned(text) => serde_json::to_writer(json, text),
        }
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
    node_names: Option<Names<'a>>,
    /// Only whether it is there: a scheduler that sends whole nodes wants whole nodes back.
    #[serde(default, deserialize_with = "is_there")]
    nodes: bool,
}

/// Names as they came.
struct Names<'a>(Vec<NodeName<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Names<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Names<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of nodes' names")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                // JSON does not say how many there are; mostly about as many as the last time.
                static LAST: AtomicUsize = AtomicUsize::new(0);
                let mut names = Vec::with_capacity(LAST.load(Ordering::Relaxed));
                while let Some(name) = list.next_element()? {
                    names.push(name);
                }
                LAST.store(names.len(), Ordering::Relaxed);
                Ok(Names(names))
            }
        }
        deserializer.deserialize_seq(List)
    }
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
        // Once for the whole body, and not again for each name.
        let text = str::from_utf8(body).map_err(|error| Unusable::NotArgs(serde_json::Error::custom(error)))?;
        let args: Args<'a> = serde_json::from_str(text).map_err(Unusable::NotArgs)?;
        let pod = args.pod.ok_or_else(|| Unusable::NotArgs(serde_json::Error::custom("there is no Pod")))?;
        match args.node_names {
            Some(Names(nodes)) => Ok(Self { pod, nodes }),
            None if args.nodes => Err(Unusable::NoNames),
            // A Go slice that was never filled: no candidates.
            None => Ok(Self { pod, nodes: Vec::new() }),
        }
    }
}

/// The answer to `filter`. Always a list, also of nothing.
#[derive(Debug, Default)]
pub(crate) struct Filtered<'a> {
    /// Who may have the pod: a part of what was asked about, in its order.
    pub(crate) node_names: Vec<&'a NodeName<'a>>,
    /// Who may not, and no preemption would help.
    pub(crate) failed_and_unresolvable_nodes: Vec<(&'a NodeName<'a>, &'static str)>,
    /// Why there is no answer.
    pub(crate) error: String,
}

impl Filtered<'_> {
    /// Whether there were nodes, and none may have the pod.
    pub(crate) fn fits_nowhere(&self) -> bool {
        self.node_names.is_empty() && !self.failed_and_unresolvable_nodes.is_empty()
    }

    /// `ExtenderFilterResult`; the answer to a long list is about as long as the call, which was `asked` bytes.
    pub(crate) fn to_json(&self, asked: usize) -> serde_json::Result<Vec<u8>> {
        let mut json = Vec::with_capacity(asked);
        json.extend_from_slice(br#"{"NodeNames":["#);
        separated(&mut json, &self.node_names, |json, name| name.write(json))?;
        json.push(b']');
        if !self.failed_and_unresolvable_nodes.is_empty() {
            json.extend_from_slice(br#","FailedAndUnresolvableNodes":{"#);
            separated(&mut json, &self.failed_and_unresolvable_nodes, |json, (name, message)| {
                name.write(json)?;
                json.push(b':');
                serde_json::to_writer(json, message)
            })?;
            json.push(b'}');
        }
        if !self.error.is_empty() {
            json.extend_from_slice(br#","Error":"#);
            serde_json::to_writer(&mut json, &self.error)?;
        }
        json.push(b'}');
        Ok(json)
    }
}

/// One line of the answer to `prioritize`.
#[derive(Debug)]
pub(crate) struct Scored<'a> {
    /// The node.
    pub(crate) host: &'a NodeName<'a>,
    /// 0 to 10.
    pub(crate) score: u32,
}

impl Scored<'_> {
    /// `HostPriorityList`, which is a bare list, answering a call of `asked` bytes.
    pub(crate) fn to_json(list: impl IntoIterator<Item = Self>, asked: usize) -> serde_json::Result<Vec<u8>> {
        // With its score, a node takes half as much again as its name did; a short name takes more, and the list grows once.
        let mut json = Vec::with_capacity(asked + asked / 2);
        json.push(b'[');
        separated(&mut json, list, |json, Self { host, score }| {
            json.extend_from_slice(br#"{"Host":"#);
            host.write(json)?;
            json.extend_from_slice(br#","Score":"#);
            serde_json::to_writer(&mut *json, &score)?;
            json.push(b'}');
            Ok(())
        })?;
        json.push(b']');
        Ok(json)
    }
}

/// Writes `items` with commas in between.
fn separated<T>(
    json: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T) -> serde_json::Result<()>,
) -> serde_json::Result<()> {
    for (n, item) in items.into_iter().enumerate() {
        if n > 0 {
            json.push(b',');
        }
        write(json, item)?;
    }
    Ok(())
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
    #[case::not_utf_8(b"{\"Pod\":{\"metadata\":{}},\"NodeNames\":[\"\xff\"]}", "not-args")]
    #[case::no_pod(br#"{"NodeNames":["a"]}"#, "not-args")]
    #[case::lower_case_is_not_gos(br#"{"pod":{"metadata":{}},"nodeNames":["a"]}"#, "not-args")]
    #[case::names_that_are_none(br#"{"Pod":{"metadata":{}},"NodeNames":[1]}"#, "not-args")]
    #[case::a_name_with_a_broken_escape(br#"{"Pod":{"metadata":{}},"NodeNames":["\ud800"]}"#, "not-args")]
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
        let text = |json: serde_json::Result<Vec<u8>>| String::from_utf8(json.unwrap()).unwrap();
        assert_eq!(text(Filtered::default().to_json(0)), r#"{"NodeNames":[]}"#);
        assert_eq!(text(Scored::to_json([], 0)), "[]");
        let names: Vec<NodeName<'_>> = serde_json::from_str(r#"["a","b","\"\u0031\n","d"]"#).unwrap();
        let [a, b, odd, d] = names.as_slice() else { panic!("{names:?}") };
        let some = Filtered {
            node_names: vec![a, odd],
            failed_and_unresolvable_nodes: vec![(b, "full"), (d, "has \"left\"")],
            error: "a\nb".to_owned(),
        };
        let want = r#"{"NodeNames":["a","\"1\n"],"FailedAndUnresolvableNodes":{"b":"full","d":"has \"left\""},"Error":"a\nb"}"#;
        assert_eq!(text(some.to_json(0)), want);
        let scored = [Scored { host: a, score: 10 }, Scored { host: odd, score: 0 }];
        assert_eq!(text(Scored::to_json(scored, 0)), r#"[{"Host":"a","Score":10},{"Host":"\"1\n","Score":0}]"#);
    }
}
