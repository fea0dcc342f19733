//! What a refused write keeps from happening, against an API server that answers as it is told.

use std::sync::Arc;

use parking_lot::Mutex;
use rstest::rstest;
use spawnery_api::names::event::reporter;
use spawnery_api::v1alpha1::ServerGroupType;

use super::*;
use crate::hub::HubConfig;
use crate::latest::Latest;
use crate::overlay::Overlays;
use crate::servergroup::plan::plan;
use crate::testing::{self, Refusal};

/// What the API server is asked for a group with one server, both deleted or not, where `refused` is refused as forbidden;
/// and whether the pass failed.
async fn asked(refused: &'static str, deleted: bool) -> (Vec<String>, bool) {
    let (client, asked) = testing::api_server(&Refusal::new(Mutex::new(Some((refused, 403)))));
    let ctx = Arc::new(testing::context(&client, HubConfig::default()));
    let shared = Shared {
        recorder: ctx.events.recorder(reporter::SERVER_GROUP),
        ctx,
        groups: Latest::default(),
        overlays: Overlays::default(),
        expectations: Mutex::default(),
        written: Mutex::default(),
    };
    let now = shared.ctx.wall();
    let mut group = ServerGroup::default();
    group.metadata.name = Some("lobby".to_owned());
    group.metadata.namespace = Some("games".to_owned());
    group.metadata.finalizers = Some(vec![finalizer::GROUP.to_owned()]);
    group.metadata.deletion_timestamp = deleted.then(|| now.into());
    group.spec.kind = ServerGroupType::Ephemeral;
    let mut server = Server::new("lobby-abcd", ServerSpec::default());
    server.metadata.uid = Some("s".to_owned());
    server.metadata.deletion_timestamp = deleted.then(|| now.into());
    let scene = Scene::of_parts(Arc::new(group), Arc::new(server), now);
    let failed = apply(&shared, &scene, &plan(&scene.observed())).await.is_err();
    let asked = asked.lock().iter().map(|(what, _)| what.clone()).collect();
    (asked, failed)
}

fn contain(asked: &[String], what: &str) -> bool {
    asked.iter().any(|asked| asked.contains(what))
}

#[tokio::test]
async fn a_group_whose_namespace_takes_no_budget_any_more_still_ends() {
    let (asked, failed) = asked("poddisruptionbudgets", true).await;
    assert!(
        !failed && contain(&asked, "poddisruptionbudgets"),
        "a failed pass would be tried again later and later: {asked:?}"
    );
    assert!(contain(&asked, "servergroups/lobby/status"), "{asked:?}");
    assert!(!contain(&asked, "configmaps"), "nobody needs one any more: {asked:?}");
}

/// Without a floor nobody is let in, and nothing is taken away.
#[rstest]
#[case::budget("poddisruptionbudgets")]
#[case::settings("configmaps")]
#[tokio::test]
async fn a_group_that_stays_waits_for_what_surrounds_its_servers(#[case] refused: &'static str) {
    let (asked, failed) = asked(refused, false).await;
    assert!(failed && contain(&asked, refused), "{asked:?}");
    assert!(!contain(&asked, "/servers"), "{asked:?}");
}
