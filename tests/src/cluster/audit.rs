//! What was asked of the API server, counted from its audit log.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{ErrorKind, Read as _, Seek as _, SeekFrom},
    path::PathBuf,
};

/// The audit log of a cluster. A request appears in it within milliseconds of its answer; a watch when it starts.
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
}

/// A moment in the audit log.
#[derive(Debug, Clone, Copy)]
pub struct Mark(u64);

/// One request, as far as counting needs it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or an HTTP method.
    pub verb: String,
    user: User,
    #[serde(rename = "requestURI")]
    request_uri: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ObjectRef {
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ResponseStatus {
    code: Option<u16>,
}

impl Event {
    /// Who asked.
    pub fn user(&self) -> &str {
        &self.user.username
    }

    /// Which of a ServiceAccount's tokens was shown: processes that speak for the same account differ in that.
    pub fn credential(&self) -> Option<&str> {
        let ids = self.user.extra.get("authentication.kubernetes.io/credential-id")?;
        ids.first().map(String::as_str)
    }

    /// What it was about: `pods`, `pods/eviction`, or the path when it was not about a resource.
    pub fn resource(&self) -> String {
        let object = self.object_ref.as_ref();
        match object.and_then(|object| Some((object.resource.as_ref()?, object.subresource.as_ref()))) {
            Some((resource, Some(subresource))) => format!("{resource}/{subresource}"),
            Some((resource, None)) => resource.clone(),
            None => self.request_uri.split('?').next().unwrap_or_default().to_owned(),
        }
    }

    /// The object's namespace.
    pub fn namespace(&self) -> Option<&str> {
        self.object_ref.as_ref()?.namespace.as_deref()
    }

    /// The object's name.
    pub fn name(&self) -> Option<&str> {
        self.object_ref.as_ref()?.name.as_deref()
    }

    /// The HTTP status of the answer.
    pub fn code(&self) -> Option<u16> {
        self.response_status.as_ref()?.code
    }

    /// Each request has one event that counts: its start for a watch, as it may not end, and the answer for others.
    fn counts(&self) -> bool {
        let counted = if self.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        self.stage == counted
    }
}

impl Audit {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Now: what comes later can be counted from here.
    pub fn mark(&self) -> Result<Mark> {
        let metadata = std::fs::metadata(&self.path).context("could not look at the audit log")?;
        Ok(Mark(metadata.len()))
    }

    /// All requests since `since`.
    pub fn events(&self, since: Mark) -> Result<Vec<Event>> {
        let mut text = String::new();
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).context("could not open the audit log"),
        };
        file.seek(SeekFrom::Start(since.0)).context("could not find the mark in the audit log")?;
        file.read_to_string(&mut text).context("could not read the audit log")?;
        // The last line may be half written.
        let whole = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
        let events =
            whole.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not an event: {line}")));
        let events: Vec<Event> = events.collect::<Result<_>>()?;
        Ok(events.into_iter().filter(Event::counts).collect())
    }

    /// How often `user` asked for what since `since`.
    pub fn requests(&self, user: &str, since: Mark) -> Result<Requests> {
        let mut requests = Requests::default();
        for event in self.events(since)?.iter().filter(|event| event.user() == user) {
            *requests.counts.entry((event.verb.clone(), event.resource())).or_default() += 1;
        }
        Ok(requests)
    }
}

/// Counts by verb and resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    counts: BTreeMap<(String, String), u64>,
}

impl Requests {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// All but watches: those last, so their number says how often somebody had to start again.
    pub fn total_without_watches(&self) -> u64 {
        self.counts.iter().filter(|((verb, _), _)| verb != "watch").map(|(_, count)| count).sum()
    }

    /// Those with this verb and resource (`pods`, `pods/status`).
    pub fn of(&self, verb: &str, resource: &str) -> u64 {
        self.counts.get(&(verb.to_owned(), resource.to_owned())).copied().unwrap_or_default()
    }

    /// Each verb and resource with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.counts.iter().map(|((verb, resource), &count)| (verb.as_str(), resource.as_str(), count))
    }
}

impl fmt::Display for Requests {
    /// One line each, the most frequent first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<_> = self.iter().collect();
        lines.sort_by_key(|&(_, _, count)| std::cmp::Reverse(count));
        lines.iter().try_for_each(|(verb, resource, count)| writeln!(f, "{count:>8} {verb} {resource}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn line(user: &str, stage: &str, verb: &str, rest: &str) -> String {
        format!(r#"{{"stage":"{stage}","verb":"{verb}","user":{{"username":"{user}"}},"requestURI":"/x?y"{rest}}}"#)
            + "\n"
    }

    #[test]
    fn counts_each_request_of_a_user_once_from_the_mark_on() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let audit = Audit::new(file.path().to_owned());
        let pods = r#","objectRef":{"resource":"pods","subresource":"status","apiVersion":"v1"}"#;
        file.write_all(line("a", "ResponseComplete", "patch", pods).as_bytes()).unwrap();
        let mark = audit.mark().unwrap();
        for (user, stage, verb, rest) in [
            ("a", "ResponseComplete", "patch", pods),
            ("a", "ResponseComplete", "patch", pods),
            ("b", "ResponseComplete", "patch", pods),
            ("a", "ResponseStarted", "watch", pods),
            ("a", "ResponseComplete", "watch", pods),
            ("a", "ResponseComplete", "get", ""),
        ] {
            file.write_all(line(user, stage, verb, rest).as_bytes()).unwrap();
        }
        file.write_all(b"{\"half").unwrap();
        let requests = audit.requests("a", mark).unwrap();
        assert_eq!(requests.of("patch", "pods/status"), 2);
        assert_eq!(requests.of("watch", "pods/status"), 1);
        assert_eq!((requests.total(), requests.total_without_watches()), (4, 3));
        assert_eq!(requests.to_string().lines().next(), Some("       2 patch pods/status"));
    }
}
