//! Who takes our own objects along when Spawnery is uninstalled: what helm installed owns what the leader made.
//!
//! Without an owner (another installer, other names) an object stays, and nothing else changes.

use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use spawnery_api::names::object;
use spawnery_runtime::client::{CALL, CallError, deadline};

/// A reference to our Role in our own namespace: not to the Lease, which people delete to force an election, nor to the
/// Deployment, which they delete to change what is immutable in it.
///
/// # Errors
/// When the API server gives no answer; that there is no such Role, or that we may not look, is `None`.
pub async fn role(client: &kube::Client, namespace: &str) -> Result<Option<OwnerReference>, CallError> {
    let api: Api<Role> = Api::namespaced(client.clone(), namespace);
    match deadline(CALL, api.get_metadata_opt(object::OPERATOR)).await {
        Ok(role) => Ok(role.and_then(|role| reference(role.metadata))),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(error),
    }
}

fn reference(role: ObjectMeta) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: "rbac.authorization.k8s.io/v1".to_owned(),
        kind: "Role".to_owned(),
        name: role.name?,
        uid: role.uid?,
        ..OwnerReference::default()
    })
}

/// Adds the owner to what an object has already; a former Role of ours, which is gone, makes room.
pub fn set(metadata: &mut ObjectMeta, owner: OwnerReference) {
    let owners = metadata.owner_references.get_or_insert_default();
    owners.retain(|held| (&held.kind, &held.name) != (&owner.kind, &owner.name));
    owners.push(owner);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(kind: &str, uid: &str) -> OwnerReference {
        let role =
            ObjectMeta { name: Some("spawnery-operator".into()), uid: Some(uid.into()), ..ObjectMeta::default() };
        OwnerReference { kind: kind.to_owned(), ..reference(role).expect("it has both") }
    }

    #[test]
    fn a_new_role_takes_the_place_of_the_old_and_others_stay() {
        let mut metadata = ObjectMeta {
            owner_references: Some(vec![owner("Role", "old"), owner("Widget", "w")]),
            ..ObjectMeta::default()
        };
        set(&mut metadata, owner("Role", "new"));
        let uids: Vec<String> =
            metadata.owner_references.unwrap_or_default().into_iter().map(|held| held.uid).collect();
        assert_eq!(uids, ["w", "new"]);
    }
}
