//! What a request asks of the API server, read from its method and path as the API server itself reads them.

use http::Method;

/// A request in the words of RBAC and of the audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; or the method in lower case when
    /// the path is not about a resource.
    pub verb: String,
    /// Such as `pods`; empty when the path is not about a resource.
    pub resource: String,
    /// Such as `status`; empty when there is none.
    pub subresource: String,
    /// Empty when there is none.
    pub namespace: String,
    /// Empty when there is none.
    pub name: String,
    /// The path without the query.
    pub path: String,
}

impl Asked {
    /// Reads a request line. See `RequestInfoFactory` in `k8s.io/apiserver/pkg/endpoints/request`.
    pub fn read(method: &Method, path: &str, query: &str) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let about_resource = match parts.next() {
            Some("api") => parts.next().is_some(),
            Some("apis") => parts.next().is_some() && parts.next().is_some(),
            _ => false,
        };
        let mut asked = Self { path: path.to_owned(), ..Self::default() };
        let rest: Vec<&str> = parts.collect();
        asked.place(&rest);
        if !about_resource || asked.resource.is_empty() {
            method.as_str().to_lowercase().clone_into(&mut asked.verb);
            return Self { path: asked.path, verb: asked.verb, ..Self::default() };
        }
        let watches = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"));
        let verb = match (method.as_str(), asked.name.is_empty()) {
            ("GET" | "HEAD", _) if watches => "watch",
            ("GET" | "HEAD", true) => "list",
            ("GET" | "HEAD", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            _ => "",
        };
        verb.clone_into(&mut asked.verb);
        asked
    }

    /// Finds namespace, resource, name and subresource in what follows the version.
    fn place(&mut self, rest: &[&str]) {
        let of = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        let mut first = 0;
        if rest.first() == Some(&"namespaces") {
            self.namespace = of(1);
            // `namespaces/NAME/status` is about the namespace, not about something called status in it.
            if rest.get(2).is_some_and(|&part| !matches!(part, "status" | "finalize")) {
                first = 2;
            }
        }
        (self.resource, self.name, self.subresource) = (of(first), of(first + 1), of(first + 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::list_all("GET", "/api/v1/pods", "", "list pods//-/-")]
    #[case::list("GET", "/api/v1/namespaces/a/pods", "limit=500", "list pods//a/-")]
    #[case::watch("GET", "/api/v1/namespaces/a/pods", "limit=5&watch=true", "watch pods//a/-")]
    #[case::get("GET", "/api/v1/namespaces/a/pods/p", "", "get pods//a/p")]
    #[case::create("POST", "/api/v1/namespaces/a/pods", "", "create pods//a/-")]
    #[case::evict("POST", "/api/v1/namespaces/a/pods/p/eviction", "", "create pods/eviction/a/p")]
    #[case::status(
        "PATCH",
        "/apis/spawnery.cloud/v1alpha1/namespaces/a/servers/s/status",
        "",
        "patch servers/status/a/s"
    )]
    #[case::lease("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "", "update leases//a/l")]
    #[case::delete("DELETE", "/api/v1/nodes/n", "", "delete nodes//-/n")]
    #[case::delete_all("DELETE", "/api/v1/namespaces/a/pods", "", "deletecollection pods//a/-")]
    #[case::a_namespace("GET", "/api/v1/namespaces/a", "", "get namespaces//a/a")]
    #[case::finalize("PUT", "/api/v1/namespaces/a/finalize", "", "update namespaces/finalize/a/a")]
    #[case::ready("GET", "/readyz", "", "get //-/-")]
    #[case::discovery("GET", "/apis/apps/v1", "", "get //-/-")]
    #[case::discovery_of_core("GET", "/api", "", "get //-/-")]
    fn reads(#[case] method: &str, #[case] path: &str, #[case] query: &str, #[case] want: &str) {
        let asked = Asked::read(&method.parse().unwrap(), path, query);
        let or_dash = |text: &str| {
            if text.is_empty() { "-".to_owned() } else { text.to_owned() }
        };
        let (namespace, name) = (or_dash(&asked.namespace), or_dash(&asked.name));
        assert_eq!(format!("{} {}/{}/{namespace}/{name}", asked.verb, asked.resource, asked.subresource), want);
        assert_eq!(asked.path, path);
    }
}
