//! Configurations of kube-scheduler that ask our extender: `kubescheduler.config.k8s.io/v1`.
//!
//! Two ways lead to it. A second kube-scheduler is asked for by pods under a name of its own ([`second`]); nobody else's
//! pods go there. Or the cluster's own scheduler gets one more entry ([`Extender::entry`], for whoever may configure it),
//! which is limited to pods that are marked with a resource: extenders are global to a scheduler, and other people's pods
//! are none of our business.

use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::names::{object, resource};

/// API version of the configuration.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// Kind of the configuration.
pub const KIND: &str = "KubeSchedulerConfiguration";
/// Our 0 to 10 becomes 0 to 500. The plugins that tell nodes of one shape apart (least allocated, balanced, image is
/// there) sum up to 300, what a user prefers (affinity, taints) weighs 200 to 300 each.
pub const WEIGHT: u32 = 5;
/// A call takes a millisecond or two. A scheduler makes its calls one after another, so a hanging extender costs every
/// pod this long, twice; the scheduler's own default is 5 s.
pub const TIMEOUT: Duration = Duration::from_millis(500);

/// How the scheduler knows that it speaks to our extender. There is no way without: a scheduler with `enableHTTPS` and no
/// CA verifies nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The CA's certificate, PEM.
    Data(String),
    /// A file with it, as the scheduler sees it; read once, when the scheduler starts.
    File(String),
}

/// The entry for our extender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extender {
    /// `https://HOST[:PORT]`, without a path.
    pub url: String,
    /// The name in its certificate, for URLs with an address in them.
    pub server_name: String,
    /// Whom to believe.
    pub trust: Trust,
    /// Whether only pods marked with the resource are asked about.
    pub marked_only: bool,
    /// For one call.
    pub timeout: Duration,
}

impl Extender {
    /// The extender behind its Service in the operator's namespace.
    pub fn in_namespace(namespace: &str, trust: Trust) -> Self {
        let server_name = format!("{}.{namespace}.svc", object::EXTENDER);
        Self { url: format!("https://{server_name}"), server_name, trust, marked_only: false, timeout: TIMEOUT }
    }

    /// The entry of `extenders`.
    pub fn entry(&self) -> Value {
        let mut entry = json!({
            "urlPrefix": self.url,
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": WEIGHT,
            "enableHTTPS": true,
            "httpTimeout": format!("{}ms", self.timeout.as_millis()),
            // Names instead of whole nodes: 30 KB a call instead of 10 MB in a large cluster.
            "nodeCacheCapable": true,
            // Without us pods are placed all the same.
            "ignorable": true,
            "tlsConfig": { "serverName": self.server_name },
        });
        let trust = match &self.trust {
            Trust::Data(pem) => ("caData", json!(ByteString(pem.clone().into_bytes()))),
            Trust::File(path) => ("caFile", json!(path)),
        };
        if let Some(tls) = entry.get_mut("tlsConfig").and_then(Value::as_object_mut) {
            tls.insert(trust.0.to_owned(), trust.1);
        }
        if let Some(entry) = entry.as_object_mut().filter(|_| self.marked_only) {
            let managed = json!([{ "name": resource::PLACEMENT, "ignoredByScheduler": true }]);
            entry.insert("managedResources".to_owned(), managed);
        }
        entry
    }

    /// What the cluster's own scheduler needs besides what it has.
    pub fn snippet(&self) -> Value {
        json!({ "apiVersion": API_VERSION, "kind": KIND, "extenders": [self.entry()] })
    }
}

/// The whole configuration of a second kube-scheduler in the operator's namespace.
pub fn second(namespace: &str, extender: &Extender) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "leaderElection": {
            "leaderElect": true,
            "resourceName": object::SCHEDULER,
            "resourceNamespace": namespace,
        },
        "profiles": [{ "schedulerName": object::SCHEDULER_NAME }],
        "extenders": [extender.entry()],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_scheduler_asks_about_all_its_pods() {
        let trust = Trust::File("/etc/kubernetes/extender/ca.crt".to_owned());
        let config = second("ops", &Extender::in_namespace("ops", trust));
        let want = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {
                "leaderElect": true, "resourceName": "spawnery-scheduler", "resourceNamespace": "ops",
            },
            "profiles": [{ "schedulerName": "spawnery" }],
            "extenders": [{
                "urlPrefix": "https://spawnery-extender.ops.svc",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 5,
                "enableHTTPS": true,
                "httpTimeout": "500ms",
                "nodeCacheCapable": true,
                "ignorable": true,
                "tlsConfig": {
                    "serverName": "spawnery-extender.ops.svc", "caFile": "/etc/kubernetes/extender/ca.crt",
                },
            }],
        });
        assert_eq!(config, want);
    }

    #[test]
    fn the_clusters_scheduler_asks_about_marked_pods_and_needs_no_file() {
        let extender = Extender { marked_only: true, ..Extender::in_namespace("ops", Trust::Data("pem".to_owned())) };
        let snippet = extender.snippet();
        let entry = &snippet["extenders"][0];
        assert_eq!(entry["tlsConfig"]["caData"], "cGVt");
        let managed = json!([{ "name": "spawnery.cloud/placement", "ignoredByScheduler": true }]);
        assert_eq!(entry["managedResources"], managed);
        assert!(snippet.get("profiles").is_none() && snippet.get("leaderElection").is_none());
    }
}
