//! Which requests go wrong, and how.

use super::request::Asked;
use std::time::Duration;

/// What happens to a request that matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It goes through (after the delay, if there is one).
    Pass,
    /// It is answered with this status code and never reaches the API server.
    Status(u16),
    /// The connection ends; it never reaches the API server.
    Drop,
    /// The API server does it, but the answer is lost: the connection ends instead.
    DropAnswer,
    /// It never reaches the API server and is never answered.
    Hang,
}

/// A rule: all parts that are given must match. `*` matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    verb: String,
    resource: String,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    path: Option<String>,
    delay: Duration,
    fault: Fault,
    /// How many requests it still applies to; `None` is all.
    left: Option<u64>,
}

impl Rule {
    /// Requests with this verb (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`) for this
    /// resource: `pods` is the resource itself, `pods/status` a subresource, `pods/*` all subresources, `*` everything.
    pub fn on(verb: &str, resource: &str) -> Self {
        let (resource, subresource) = match resource.split_once('/') {
            None if resource == "*" => (resource, None),
            None => (resource, Some(String::new())),
            Some((resource, "*")) => (resource, None),
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        };
        Self {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            subresource,
            namespace: None,
            name: None,
            path: None,
            delay: Duration::ZERO,
            fault: Fault::Pass,
            left: None,
        }
    }

    /// All requests.
    pub fn everything() -> Self {
        Self::on("*", "*")
    }

    /// Only in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only for the object with this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only for paths that start so.
    #[must_use]
    pub fn path(mut self, start: &str) -> Self {
        self.path = Some(start.to_owned());
        self
    }

    /// Only for the next `count` requests that match; then the rule does nothing.
    #[must_use]
    pub fn times(mut self, count: u64) -> Self {
        self.left = Some(count);
        self
    }

    /// Waits so long first.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Answers with this status code and a Kubernetes `Status` body.
    #[must_use]
    pub fn status(self, code: u16) -> Self {
        self.fault(Fault::Status(code))
    }

    /// Does this to the request.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }

    fn matches(&self, asked: &Asked) -> bool {
        let same = |want: &str, have: &str| want == "*" || want == have;
        let given = |want: &Option<String>, have: &str| want.as_ref().is_none_or(|want| same(want, have));
        same(&self.verb, &asked.verb)
            && same(&self.resource, &asked.resource)
            && given(&self.subresource, &asked.subresource)
            && given(&self.namespace, &asked.namespace)
            && given(&self.name, &asked.name)
            && self.path.as_ref().is_none_or(|start| asked.path.starts_with(start.as_str()))
    }
}

/// A rule's number, for looking at its hits and for removing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(u64);

/// The rules of a proxy; the first that matches decides.
#[derive(Debug, Default)]
pub struct Rules {
    next: u64,
    rules: Vec<(RuleId, Rule, u64)>,
}

impl Rules {
    /// Adds a rule after the others.
    pub fn add(&mut self, rule: Rule) -> RuleId {
        self.next += 1;
        let id = RuleId(self.next);
        self.rules.push((id, rule, 0));
        id
    }

    /// Takes a rule away.
    pub fn remove(&mut self, id: RuleId) {
        self.rules.retain(|(other, ..)| *other != id);
    }

    /// Takes all rules away.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// How many requests a rule was applied to; 0 when it is gone.
    pub fn hits(&self, id: RuleId) -> u64 {
        self.rules.iter().find(|(other, ..)| *other == id).map_or(0, |(_, _, hits)| *hits)
    }

    /// What happens to this request; counts it.
    pub fn judge(&mut self, asked: &Asked) -> (Duration, Fault) {
        for (_, rule, hits) in &mut self.rules {
            if rule.left == Some(0) || !rule.matches(asked) {
                continue;
            }
            rule.left = rule.left.map(|left| left.saturating_sub(1));
            *hits += 1;
            return (rule.delay, rule.fault);
        }
        (Duration::ZERO, Fault::Pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn asked(verb: &str, resource: &str, subresource: &str) -> Asked {
        Asked {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: "a".to_owned(),
            name: "x".to_owned(),
            path: format!("/api/v1/namespaces/a/{resource}/x"),
        }
    }

    #[rstest]
    #[case::itself(Rule::on("patch", "pods"), true)]
    #[case::any_verb(Rule::on("*", "pods"), true)]
    #[case::everything(Rule::everything(), true)]
    #[case::all_subresources(Rule::on("patch", "pods/*"), true)]
    #[case::other_verb(Rule::on("get", "pods"), false)]
    #[case::other_resource(Rule::on("patch", "nodes"), false)]
    #[case::only_a_subresource(Rule::on("patch", "pods/status"), false)]
    #[case::its_namespace(Rule::everything().namespace("a"), true)]
    #[case::other_namespace(Rule::everything().namespace("b"), false)]
    #[case::its_name(Rule::everything().name("x"), true)]
    #[case::other_name(Rule::everything().name("y"), false)]
    #[case::its_path(Rule::everything().path("/api/v1/"), true)]
    #[case::other_path(Rule::everything().path("/readyz"), false)]
    fn matches(#[case] rule: Rule, #[case] want: bool) {
        assert_eq!(rule.matches(&asked("patch", "pods", "")), want);
    }

    #[test]
    fn a_resource_is_not_its_subresource() {
        assert!(!Rule::on("patch", "pods").matches(&asked("patch", "pods", "status")));
        assert!(Rule::on("patch", "pods/status").matches(&asked("patch", "pods", "status")));
    }

    #[test]
    fn applies_as_often_as_it_says_and_then_the_next_one_does() {
        let mut rules = Rules::default();
        let first = rules.add(Rule::on("patch", "pods").status(500).times(2));
        let second = rules.add(Rule::everything().delay(Duration::from_secs(1)));
        let mut judge = |verb| rules.judge(&asked(verb, "pods", ""));
        let late = (Duration::from_secs(1), Fault::Pass);
        assert_eq!(judge("get"), late);
        assert_eq!(judge("patch"), (Duration::ZERO, Fault::Status(500)));
        assert_eq!(judge("patch"), (Duration::ZERO, Fault::Status(500)));
        assert_eq!(judge("patch"), late);
        assert_eq!((rules.hits(first), rules.hits(second)), (2, 2));
        rules.remove(second);
        assert_eq!(rules.judge(&asked("patch", "pods", "")), (Duration::ZERO, Fault::Pass));
    }
}
