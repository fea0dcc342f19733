//! How objects come over the wire: as they are, or guarded against those that cannot be read.

use kube::core::DeserializeGuard;
use kube::runtime::reflector::ObjectRef;

use super::Fed;

/// An object that did not decode.
#[derive(Debug)]
pub struct Unreadable<K: Fed> {
    pub(super) key: ObjectRef<K>,
    pub(super) why: String,
}

/// A decoded answer that holds an object, or the reason why it could not be read.
pub trait Wire<K: Fed>: Fed {
    /// The object.
    ///
    /// # Errors
    /// Its key, and what was wrong with it.
    fn open(self) -> Result<K, Unreadable<K>>;
}

impl<K: Fed> Wire<K> for K {
    fn open(self) -> Result<K, Unreadable<K>> {
        Ok(self)
    }
}

impl<K: Fed> Wire<K> for DeserializeGuard<K> {
    fn open(self) -> Result<K, Unreadable<K>> {
        self.0.map_err(|invalid| {
            let mut key = ObjectRef::new(invalid.metadata.name.as_deref().unwrap_or_default());
            key.namespace = invalid.metadata.namespace;
            Unreadable { key, why: invalid.error }
        })
    }
}
