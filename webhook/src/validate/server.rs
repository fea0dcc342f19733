//! Rules for Servers.

use kube::ResourceExt as _;
use spawnery_api::names::annotation;
use spawnery_api::v1alpha1::Server;
use spawnery_core::admission::{Author, Finding, ServerFields, owned_fields};

use super::Judged;
use crate::stores::Stores;

impl Judged for Server {
    fn same(&self, old: &Self) -> bool {
        self.spec == old.spec
    }

    fn alone(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// The reconciler's own changes do not get here.
    fn applied(&self, old: Option<&Self>, _stores: &Stores, _namespace: &str) -> Vec<Finding> {
        let Some(old) = old else { return Vec::new() };
        let overridden = self.annotations().get(annotation::OVERRIDE).is_some_and(|value| value == annotation::TRUE);
        let author = if overridden { Author::Override } else { Author::Other };
        owned_fields(&fields(old), &fields(self), author)
    }

    fn deleted(&self, _stores: &Stores, _namespace: &str) -> Vec<Finding> {
        Vec::new()
    }
}

fn fields(server: &Server) -> ServerFields {
    ServerFields {
        retire: server.spec.retire,
        pod_hash: server.spec.pod_hash.clone(),
        ordinal: server.spec.ordinal,
        group_generation: server.spec.group_generation,
    }
}
