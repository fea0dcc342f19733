//! Answers for our own custom resources: what `core::admission` finds, as rejections and warnings.
//!
//! Objects that cannot be read as our types pass: the schema is the authority on their shape, and refusing here what the
//! schema accepts would lock people out of repairing it. Objects on their way out pass, or their finalizers could not be
//! taken off. The reconciler's own changes pass.

mod group;
mod network;
mod proxy_group;
mod server;
mod server_group;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use spawnery_api::v1alpha1::{Network, ProxyGroup, Server, ServerGroup};
use spawnery_core::admission::{Finding, Reference, weigh};

use crate::App;
use crate::review::{Answer, Cause, Operation, Refusal, Request};
use crate::stores::Stores;

/// A kind with rules.
trait Judged: Resource + DeserializeOwned {
    /// Whether the specs say the same.
    fn same(&self, old: &Self) -> bool;

    /// What is wrong with the object by itself. On an edit, what was wrong before only warns.
    fn alone(&self) -> Vec<Finding>;

    /// What an apply of `self` over `old` means beside [`Judged::alone`].
    fn applied(&self, old: Option<&Self>, stores: &Stores, namespace: &str) -> Vec<Finding>;

    /// What a delete means.
    fn deleted(&self, stores: &Stores, namespace: &str) -> Vec<Finding>;
}

/// Answers one review of our own kinds.
pub(crate) fn validate(app: &App, request: &Request<'_>) -> Answer {
    if request.username == app.operator_user {
        return Answer::allow("ours");
    }
    let judged = match request.kind.as_str() {
        "Network" => judge::<Network>(app, request),
        "ServerGroup" => judge::<ServerGroup>(app, request),
        "ProxyGroup" => judge::<ProxyGroup>(app, request),
        "Server" => judge::<Server>(app, request),
        _ => return Answer::allow("unknown-kind"),
    };
    let Some((rejected, warned)) = judged else {
        return Answer::allow("not-judged");
    };
    rejected.iter().chain(&warned).for_each(|finding| app.metrics.found(finding.label()));
    answer(&rejected, &warned)
}

fn judge<K: Judged>(app: &App, request: &Request<'_>) -> Option<(Vec<Finding>, Vec<Finding>)> {
    let (old, new) = (read::<K>(request.old_object), read::<K>(request.object));
    match request.operation {
        Operation::Create | Operation::Update => {
            let new = new.filter(|new| new.meta().deletion_timestamp.is_none())?;
            if old.as_ref().is_some_and(|old| new.same(old)) {
                return None;
            }
            let mut found = new.alone();
            found.extend(new.applied(old.as_ref(), &app.stores, &request.namespace));
            Some(weigh(found, &old.map(|old| old.alone()).unwrap_or_default()))
        }
        Operation::Delete => Some((Vec::new(), old?.deleted(&app.stores, &request.namespace))),
        Operation::Other => None,
    }
}

fn read<K: DeserializeOwned>(raw: Option<&RawValue>) -> Option<K> {
    serde_json::from_str(raw?.get()).ok()
}

fn answer(rejected: &[Finding], warned: &[Finding]) -> Answer {
    let warnings = warned.iter().map(ToString::to_string).collect();
    if rejected.is_empty() {
        let decision = if warned.is_empty() { "fine" } else { "warned" };
        return Answer { warnings, ..Answer::allow(decision) };
    }
    let cause =
        |finding: &Finding| Cause { reason: "FieldValueInvalid", message: finding.to_string(), field: finding.field() };
    let messages: Vec<String> = rejected.iter().map(ToString::to_string).collect();
    let refusal = Refusal {
        code: 422,
        reason: "Invalid",
        message: messages.join("; "),
        causes: rejected.iter().map(cause).collect(),
    };
    Answer { refusal: Some(refusal), warnings, ..Answer::allow("rejected") }
}

/// The reference to a ConfigMap that a field names.
fn config_map(stores: &Stores, namespace: &str, field: String, name: &str) -> Reference {
    Reference { field, kind: "ConfigMap", name: name.to_owned(), found: stores.find_config_map(namespace, name) }
}

/// The reference to the Network that a group names.
fn network(stores: &Stores, namespace: &str, name: &str) -> Reference {
    Reference {
        field: "spec.networkRef.name".to_owned(),
        kind: "Network",
        name: name.to_owned(),
        found: stores.find_network(namespace, name),
    }
}

/// A count from a status.
fn people(count: i32) -> u64 {
    u64::try_from(count).unwrap_or_default()
}
