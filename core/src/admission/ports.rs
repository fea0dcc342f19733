//! Ports that proxy groups want on nodes.

use super::Finding;

/// The pod security level that a namespace enforces (`pod-security.kubernetes.io/enforce`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodSecurity {
    /// Nothing is forbidden.
    Privileged,
    /// Known privilege escalations are forbidden, host ports among them.
    Baseline,
    /// As little as possible is allowed.
    Restricted,
}

impl PodSecurity {
    /// Reads the label's value; anything else enforces nothing.
    pub fn parse(level: &str) -> Self {
        match level {
            "baseline" => Self::Baseline,
            "restricted" => Self::Restricted,
            _ => Self::Privileged,
        }
    }
}

/// What one proxy group wants on nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortUse {
    /// Namespace of the group.
    pub namespace: String,
    /// Name of the group.
    pub name: String,
    /// Host port.
    pub host_port: Option<i32>,
    /// Node port.
    pub node_port: Option<i32>,
}

/// Ports that another group wants too, and a host port where the namespace forbids it.
pub fn ports(want: &PortUse, others: &[PortUse], security: PodSecurity) -> Vec<Finding> {
    let mut found = Vec::new();
    let others = || others.iter().filter(|other| (&other.namespace, &other.name) != (&want.namespace, &want.name));
    let by = |other: &PortUse| format!("ProxyGroup {}/{}", other.namespace, other.name);
    if let Some(port) = want.host_port {
        if let Some(other) = others().find(|other| other.host_port == Some(port) || other.node_port == Some(port)) {
            found.push(Finding::PortTaken { field: "spec.expose.hostPort.port", port, by: by(other) });
        }
        match security {
            PodSecurity::Privileged => {}
            PodSecurity::Baseline => found.push(Finding::HostPortForbidden { level: "baseline" }),
            PodSecurity::Restricted => found.push(Finding::HostPortForbidden { level: "restricted" }),
        }
    }
    if let Some(port) = want.node_port
        && let Some(other) = others().find(|other| other.node_port == Some(port) || other.host_port == Some(port))
    {
        found.push(Finding::PortTaken { field: "spec.expose.nodePort.port", port, by: by(other) });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn group(name: &str, host_port: Option<i32>, node_port: Option<i32>) -> PortUse {
        PortUse { namespace: "games".into(), name: name.into(), host_port, node_port }
    }

    #[rstest]
    #[case::alone(group("a", Some(25565), None), &[], PodSecurity::Privileged, &[])]
    #[case::itself_does_not_count(group("a", Some(25565), None), &[group("a", Some(25565), None)], PodSecurity::Privileged, &[])]
    #[case::same_host_port(group("a", Some(25565), None), &[group("b", Some(25565), None)], PodSecurity::Privileged, &["port-taken"])]
    #[case::same_node_port(group("a", None, Some(30000)), &[group("b", None, Some(30000))], PodSecurity::Privileged, &["port-taken"])]
    #[case::host_port_over_node_port(group("a", Some(30000), None), &[group("b", None, Some(30000))], PodSecurity::Privileged, &["port-taken"])]
    #[case::other_port(group("a", None, Some(30000)), &[group("b", None, Some(30001))], PodSecurity::Privileged, &[])]
    #[case::baseline(group("a", Some(25565), None), &[], PodSecurity::Baseline, &["host-port-forbidden"])]
    #[case::restricted(group("a", Some(25565), None), &[], PodSecurity::Restricted, &["host-port-forbidden"])]
    #[case::node_ports_are_no_matter_of_pods(group("a", None, Some(30000)), &[], PodSecurity::Restricted, &[])]
    fn finds(
        #[case] want: PortUse,
        #[case] others: &[PortUse],
        #[case] security: PodSecurity,
        #[case] labels: &[&str],
    ) {
        assert_eq!(ports(&want, others, security).iter().map(Finding::label).collect::<Vec<_>>(), labels);
    }

    #[rstest]
    #[case("privileged", PodSecurity::Privileged)]
    #[case("baseline", PodSecurity::Baseline)]
    #[case("restricted", PodSecurity::Restricted)]
    #[case("typo", PodSecurity::Privileged)]
    fn reads_the_level(#[case] text: &str, #[case] want: PodSecurity) {
        assert_eq!(PodSecurity::parse(text), want);
    }
}
