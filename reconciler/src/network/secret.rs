//! The forwarding secret: whether it can be read, and a digest that tells when it changes.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::Api;
use sha2::{Digest, Sha256};
use spawnery_api::names::object;
use spawnery_runtime::client::CallError;

use crate::context::Context;

/// One reading of the Secret that a Network names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Secret {
    /// Name of the Secret.
    pub(super) name: String,
    /// What came of it.
    pub(super) reading: Reading,
}

/// What came of reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// Its digest, 16 hex digits.
    Resolved(String),
    /// There is none.
    NotFound,
    /// It lacks the key.
    KeyMissing,
    /// That right is given by hand, in each game namespace.
    Forbidden,
    /// The API server could not say.
    Failed(String),
}

impl Secret {
    pub(super) fn is_of(&self, name: &str) -> bool {
        self.name == name
    }
}

/// Reads it, live.
pub(super) async fn read(ctx: &Context, namespace: &str, name: &str, network_uid: &str) -> Secret {
    let api: Api<KubeSecret> = Api::namespaced(ctx.clients.api.clone(), namespace);
    let reading = judge(ctx.read(api.get(name)).await, network_uid);
    Secret { name: name.to_owned(), reading }
}

fn judge(found: Result<KubeSecret, CallError>, network_uid: &str) -> Reading {
    match found {
        Ok(secret) => match secret.data.as_ref().and_then(|data| data.get(object::FORWARDING_KEY)) {
            Some(value) => Reading::Resolved(hash(network_uid, &value.0)),
            None => Reading::KeyMissing,
        },
        Err(error) if error.is_not_found() => Reading::NotFound,
        Err(error) if error.is_forbidden() => Reading::Forbidden,
        Err(error) => Reading::Failed(error.to_string()),
    }
}

/// Upstream's digest: eight bytes of SHA-256 over the Network's UID, a zero byte and the secret as it is. The UID keeps
/// equal secrets of two networks from showing as equal.
fn hash(network_uid: &str, secret: &[u8]) -> String {
    let digest = Sha256::new().chain_update(network_uid).chain_update([0]).chain_update(secret).finalize();
    digest.iter().take(8).fold(String::with_capacity(16), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use rstest::rstest;

    use super::*;

    fn secret(key: &str) -> KubeSecret {
        let data = [(key.to_owned(), ByteString(b"s3cret".to_vec()))].into();
        KubeSecret { data: Some(data), ..KubeSecret::default() }
    }

    fn refused(code: u16) -> Result<KubeSecret, CallError> {
        let status = kube::core::Status { code, ..kube::core::Status::default() };
        Err(CallError::Api(kube::Error::Api(status.boxed())))
    }

    #[rstest]
    #[case::read(Ok(secret("secret")), Reading::Resolved(hash("uid-1", b"s3cret")))]
    #[case::without_the_key(Ok(secret("other")), Reading::KeyMissing)]
    #[case::not_there(refused(404), Reading::NotFound)]
    #[case::not_ours_to_read(refused(403), Reading::Forbidden)]
    fn readings(#[case] found: Result<KubeSecret, CallError>, #[case] want: Reading) {
        assert_eq!(judge(found, "uid-1"), want);
    }

    #[test]
    fn the_digest_is_upstreams() {
        assert_eq!(hash("uid-1", b"s3cret"), GOLDEN);
        assert_ne!(hash("uid-2", b"s3cret"), GOLDEN, "another network");
        assert_ne!(hash("uid-1", b"s3cret\n"), GOLDEN, "untrimmed");
    }

    // printf 'uid-1\0s3cret' | sha256sum | cut -c1-16
    const GOLDEN: &str = "bec9f3a8fc209f19";
}
