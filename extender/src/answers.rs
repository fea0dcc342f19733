//! What we say of each node, from what we know of it.
//!
//! Nothing is `asked` of what we know where the pod is not ours or our knowledge may be old: then everything passes and
//! nothing scores, and the scheduler decides as if we were not there.

use spawnery_core::placement::{Scale, admit, score};

use crate::index::{Asked, Index, Spot};
use crate::wire::{Filtered, NodeName, Scored};

/// Who may have the pod. A node that we do not know is not in its way: our watch may be behind the scheduler's.
pub(crate) fn sift<'a>(index: &Index, asked: Option<&Asked>, nodes: &'a [NodeName<'_>]) -> Filtered<'a> {
    let mut filtered = Filtered { node_names: Vec::with_capacity(nodes.len()), ..Filtered::default() };
    let seen = asked.map(|asked| (asked.newcomer, index.seen_by(asked)));
    for node in nodes {
        let place = seen.and_then(|(newcomer, seen)| Some((newcomer, seen.place(node.as_str())?)));
        match place.map_or(Ok(()), |(newcomer, place)| admit(newcomer, &place)) {
            Ok(()) => filtered.node_names.push(node),
            Err(refusal) => filtered.failed_and_unresolvable_nodes.push((node, refusal.message())),
        }
    }
    filtered
}

/// How much each should have it: 0 for all where we have nothing to say.
pub(crate) fn prioritize<'a>(
    index: &Index,
    asked: Option<&Asked>,
    nodes: &'a [NodeName<'_>],
) -> impl Iterator<Item = Scored<'a>> {
    let seen = asked.map(|asked| (asked.newcomer, index.seen_by(asked)));
    let spots: Vec<_> = nodes.iter().map(|node| seen.and_then(|(_, seen)| seen.find(node.as_str()))).collect();
    // Looked at twice where they are: a list of them would be more memory to write and to read than they are.
    let place = move |spot: &Option<Spot>| seen.and_then(|(newcomer, seen)| Some((newcomer, seen.at((*spot)?)?)));
    let scale = spots.iter().filter_map(place).fold(Scale::default(), |scale, (_, place)| scale.with(&place));
    nodes.iter().zip(spots).map(move |(host, spot)| {
        let score = place(&spot).map_or(0, |(newcomer, place)| score(newcomer, &place, &scale).get());
        Scored { host, score }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use spawnery_core::placement::{Newcomer, Refusal};

    use super::*;
    use crate::testing::{node, people, plain, pod_json, server};

    /// Nodes: full of people, a few people, nobody, and one that departs.
    fn index() -> Index {
        let mut index = Index::new(vec![], Some(40));
        for name in ["busy", "calm", "empty"] {
            index.node_applied(&plain(name));
        }
        index.node_applied(&node("going", &json!({ "unschedulable": true }), &json!({})));
        for (pod, at, players) in [("a", "busy", 18), ("b", "busy", 9), ("c", "calm", 3)] {
            index.server_applied(&people(pod, players, 20));
            index.pod_applied(&server(pod, at));
        }
        index
    }

    fn nodes() -> Vec<NodeName<'static>> {
        serde_json::from_str(r#"["busy","going","new","calm","empty"]"#).unwrap()
    }

    fn known(role: &str) -> Asked {
        let pod = serde_json::from_value(pod_json("new", role, "gateway", "")).unwrap();
        Asked::of(&pod).unwrap()
    }

    fn sifted(asked: Option<&Asked>) -> Value {
        serde_json::from_slice(&sift(&index(), asked, &nodes()).to_json(0).unwrap()).unwrap()
    }

    #[test]
    fn a_server_goes_where_it_may() {
        let want = json!({
            "NodeNames": ["new", "calm", "empty"],
            "FailedAndUnresolvableNodes": {
                "busy": Refusal::OverBudget.message(),
                "going": Refusal::Departing.message(),
            },
        });
        assert_eq!(sifted(Some(&known("server"))), want);
    }

    #[test]
    fn a_proxy_keeps_off_departing_nodes() {
        let sifted = sifted(Some(&known("proxy")));
        assert_eq!(sifted["NodeNames"], json!(["busy", "new", "calm", "empty"]));
        assert_eq!(sifted["FailedAndUnresolvableNodes"], json!({ "going": Refusal::Departing.message() }));
    }

    #[test]
    fn what_nobody_asked_us_is_left_to_the_scheduler() {
        assert_eq!(sifted(None), json!({ "NodeNames": ["busy", "going", "new", "calm", "empty"] }));
        assert!(prioritize(&index(), None, &nodes()).all(|scored| scored.score == 0));
    }

    #[test]
    fn servers_are_drawn_to_people() {
        let (index, nodes, asked) = (index(), nodes(), known("server"));
        let answer = prioritize(&index, Some(&asked), &nodes);
        let scores: Vec<(&str, u32)> = answer.map(|line| (line.host.as_str(), line.score)).collect();
        assert_eq!(scores, [("busy", 10), ("going", 0), ("new", 0), ("calm", 3), ("empty", 0)]);
    }

    #[test]
    fn a_pod_says_what_it_is() {
        assert!(known("server").newcomer == Newcomer::Server { slots: 20 });
        assert!(known("proxy").newcomer == Newcomer::Proxy);
    }
}
