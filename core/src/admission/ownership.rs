//! Fields of a Server that belong to its group.

use super::Finding;

/// Who asks for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// The reconciler's account.
    Reconciler,
    /// Anybody else, with the override annotation on the object as it is to be.
    Override,
    /// Anybody else.
    Other,
}

/// The fields, as the spec shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFields {
    /// `spec.retire`.
    pub retire: bool,
    /// `spec.podHash`.
    pub pod_hash: String,
    /// `spec.ordinal`.
    pub ordinal: Option<i32>,
    /// `spec.groupGeneration`.
    pub group_generation: i64,
}

/// Fields that somebody changes who may not.
pub fn owned_fields(old: &ServerFields, new: &ServerFields, author: Author) -> Vec<Finding> {
    match author {
        Author::Reconciler | Author::Override => return Vec::new(),
        Author::Other => {}
    }
    let ordinal = |ordinal: Option<i32>| ordinal.map_or_else(|| "none".to_owned(), |ordinal| ordinal.to_string());
    let fields = [
        (
            "retire",
            old.retire.to_string(),
            new.retire.to_string(),
            "to take this server away, delete it: it is drained first",
        ),
        (
            "podHash",
            format!("{:?}", old.pod_hash),
            format!("{:?}", new.pod_hash),
            "to make the pod anew, delete the server or edit its group",
        ),
        (
            "ordinal",
            ordinal(old.ordinal),
            ordinal(new.ordinal),
            "to get other ordinals, change spec.replicas of its group",
        ),
        (
            "groupGeneration",
            old.group_generation.to_string(),
            new.group_generation.to_string(),
            "edit the group, which counts its own generations",
        ),
    ];
    fields
        .into_iter()
        .filter(|(_, old, new, _)| old != new)
        .map(|(field, old, new, instead)| Finding::GroupOwnedField { field, old, new, instead })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn fields() -> ServerFields {
        ServerFields { retire: false, pod_hash: "0123456789abcdef".into(), ordinal: Some(1), group_generation: 4 }
    }

    #[rstest]
    #[case::nothing(fields(), &[])]
    #[case::retire(ServerFields { retire: true, ..fields() }, &["spec.retire"])]
    #[case::pod_hash(ServerFields { pod_hash: String::new(), ..fields() }, &["spec.podHash"])]
    #[case::ordinal(ServerFields { ordinal: None, ..fields() }, &["spec.ordinal"])]
    #[case::generation(ServerFields { group_generation: 5, ..fields() }, &["spec.groupGeneration"])]
    #[case::all(ServerFields::default(), &["spec.podHash", "spec.ordinal", "spec.groupGeneration"])]
    fn others_may_not_change(#[case] new: ServerFields, #[case] want: &[&str]) {
        let found = owned_fields(&fields(), &new, Author::Other);
        assert_eq!(found.iter().map(Finding::field).collect::<Vec<_>>(), want);
    }

    #[rstest]
    #[case::ours(Author::Reconciler)]
    #[case::overridden(Author::Override)]
    fn these_may(#[case] author: Author) {
        assert_eq!(owned_fields(&fields(), &ServerFields::default(), author), []);
    }
}
