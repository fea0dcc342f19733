//! Objects that a spec names, and values that it leaves open.

use super::Finding;

/// What the cache says about something that a spec names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It exists; a group also says which Network it belongs to.
    Yes {
        /// The Network of a group; `None` for anything else.
        network: Option<String>,
    },
    /// It does not exist.
    No,
    /// The cache has not listed yet: nobody is bothered.
    CannotTell,
}

/// Something that a spec names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Path of the field.
    pub field: String,
    /// Kind of what is named.
    pub kind: &'static str,
    /// The name.
    pub name: String,
    /// What the cache says about it.
    pub found: Found,
}

/// Names of nothing, and groups of a Network other than `network`.
pub fn references(network: &str, references: Vec<Reference>) -> Vec<Finding> {
    references
        .into_iter()
        .filter_map(|Reference { field, kind, name, found }| match found {
            Found::No => Some(Finding::UnknownReference { field, kind, name }),
            Found::Yes { network: Some(other) } if other != network => {
                Some(Finding::ForeignReference { field, kind, name, network: other })
            }
            Found::Yes { .. } | Found::CannotTell => None,
        })
        .collect()
}

/// A group whose pods have no memory limit, neither of their own nor by the Network's defaults.
pub fn memory_limit(limited: bool) -> Vec<Finding> {
    if limited { Vec::new() } else { vec![Finding::NoMemoryLimit] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::there(Found::Yes { network: None }, None)]
    #[case::same_network(Found::Yes { network: Some("main".into()) }, None)]
    #[case::other_network(Found::Yes { network: Some("test".into()) }, Some("foreign-reference"))]
    #[case::missing(Found::No, Some("unknown-reference"))]
    #[case::before_the_first_list(Found::CannotTell, None)]
    fn finds(#[case] found: Found, #[case] want: Option<&str>) {
        let reference = Reference { field: "spec.networkRef.name".into(), kind: "Network", name: "x".into(), found };
        assert_eq!(references("main", vec![reference]).first().map(Finding::label), want);
    }

    #[test]
    fn warns_without_a_memory_limit() {
        assert_eq!(memory_limit(false), [Finding::NoMemoryLimit]);
        assert_eq!(memory_limit(true), []);
    }
}
