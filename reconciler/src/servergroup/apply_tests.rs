//! What a refused write keeps from happening, against an API server that answers as it is told.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use parking_lot::Mutex;
use rstest::rstest;
use spawnery_api::conditions;
use spawnery_api::names::condition;
use spawnery_api::names::event::reporter;
use spawnery_api::v1alpha1::{Scaling, ServerGroupType};

use super::*;
use crate::hub::HubConfig;
use crate::latest::Latest;
use crate::overlay::Overlays;
use crate::servergroup::plan::plan;
use crate::testing::{Asked, Refusal, api_server, context};

const BUDGETS: &str = "/poddisruptionbudgets/";
const SETTINGS: &str = "/configmaps/";

/// A leader, an API server that refuses what contains this, and a group that has one server and wants two.
struct Rig {
    shared: Shared,
    refusal: Refusal,
    asked: Asked,
    group: ServerGroup,
}

impl Rig {
    fn new(refuses: &'static str, code: u16) -> Self {
        let refusal = Refusal::new(Mutex::new(Some((refuses, code))));
        let (client, asked) = api_server(&refusal);
        let ctx = Arc::new(context(&client, HubConfig::default()));
        let shared = Shared {
            recorder: ctx.events.recorder(reporter::SERVER_GROUP),
            ctx,
            groups: Latest::default(),
            overlays: Overlays::default(),
            expectations: Mutex::default(),
            memories: Mutex::default(),
        };
        let mut group = ServerGroup::default();
        group.metadata.name = Some("lobby".to_owned());
        group.metadata.namespace = Some("games".to_owned());
        group.metadata.uid = Some("g".to_owned());
        group.metadata.generation = Some(1);
        group.metadata.finalizers = Some(vec![finalizer::GROUP.to_owned()]);
        group.spec.kind = ServerGroupType::Ephemeral;
        group.spec.scaling =
            Some(Scaling { min_replicas: 2, max_replicas: 5, spare_slots: 0, scale_down_stabilization_seconds: 300 });
        Self { shared, refusal, asked, group }
    }

    fn deleted(mut self) -> Self {
        self.group.metadata.deletion_timestamp = Some(self.shared.ctx.wall().into());
        self
    }

    /// Looks at the group until nothing is left to do now. Says what was told, and when to look again.
    async fn look(&mut self) -> Result<(Vec<&'static str>, Option<Duration>), Failure> {
        for _ in 0..3 {
            let mut server = Server::new("lobby-abcd", ServerSpec::default());
            server.metadata.uid = Some("s".to_owned());
            let (group, memory) = (Arc::new(self.group.clone()), self.shared.memory("g"));
            let scene = Scene::of_parts(group, Arc::new(server), memory, self.shared.ctx.wall());
            let plan = plan(&scene.observed());
            let done = apply(&self.shared, &scene, &plan).await;
            let written = self.asked.lock().iter().rfind(|(what, _)| what.ends_with("/lobby/status")).cloned();
            if let Some((_, sent)) = written {
                self.group.status = serde_json::from_value(sent["status"].clone()).expect("a status");
            }
            match done? {
                Done::Again => {}
                Done::Until(wait) => return Ok((plan.events.iter().map(|told| told.reason).collect(), wait)),
            }
        }
        panic!("it does not settle: {:?}", self.asked.lock());
    }

    /// Half a minute later, as far as refusals go.
    fn later(&self) {
        self.shared.remember("g", |memory| memory.refused.grow_old());
    }

    /// How often something was asked whose method and path contain this.
    fn times(&self, part: &str) -> usize {
        self.asked.lock().iter().filter(|(what, _)| what.contains(part)).count()
    }

    fn degraded(&self) -> &Condition {
        let status = self.group.status.as_ref().expect("a status");
        conditions::get(&status.conditions, condition::DEGRADED).expect("Degraded")
    }
}

/// Without a floor nobody is let in, and nothing is taken away.
#[rstest]
#[case::budget(BUDGETS, 403, "could not apply the PodDisruptionBudget: as told")]
#[case::settings(SETTINGS, 422, "could not apply the ConfigMap: as told")]
#[tokio::test]
async fn a_group_that_stays_waits_for_what_surrounds_its_servers(
    #[case] refused: &'static str,
    #[case] code: u16,
    #[case] message: &str,
) {
    let mut rig = Rig::new(refused, code);
    let (told, wait) = rig.look().await.expect("it is told, and fails nothing");
    assert!(told == ["ObjectRejected"] && wait == Some(LATER), "{told:?} {wait:?}");
    let degraded = rig.degraded();
    assert_eq!((degraded.status.as_str(), degraded.reason.as_str()), ("True", "ObjectRejected"));
    assert_eq!(degraded.message, message);

    let (told, wait) = rig.look().await.expect("as before");
    assert!(told.is_empty() && wait == Some(LATER), "{told:?} {wait:?}");
    assert_eq!(rig.times(refused), 1, "it is tried again now and then, not at each look");
    rig.later();
    assert!(rig.look().await.expect("as before").0.is_empty(), "it is told once");
    rig.group.metadata.generation = Some(2);
    assert!(rig.look().await.expect("as before").0.is_empty(), "an edit alone is no news");
    assert_eq!(rig.times(refused), 3, "half a minute later, and after an edit");
    for object in [BUDGETS, SETTINGS] {
        assert!(rig.times(object) > 0, "{object} is tried whatever becomes of the other");
    }
    assert_eq!(rig.times("/servers"), 0, "{:?}", rig.asked.lock());
    assert_eq!(rig.times("/lobby/status"), 2, "once, and once for the edit: {:?}", rig.asked.lock());
}

#[tokio::test]
async fn servers_are_made_once_everything_around_them_is_taken() {
    let mut rig = Rig::new(BUDGETS, 403);
    rig.look().await.expect("it is told");
    *rig.refusal.lock() = None;
    rig.look().await.expect("not tried yet");
    assert_eq!(rig.times("/servers"), 0);
    rig.later();
    let (told, wait) = rig.look().await.expect("taken");
    assert!(told == ["NoRecentFailures"] && wait.is_none(), "{told:?} {wait:?}");
    assert_eq!((rig.degraded().status.as_str(), rig.times("POST /apis/spawnery.cloud/")), ("False", 1));
}

/// The floor follows the webhook's silence also where it was refused a moment ago.
#[tokio::test]
async fn another_width_of_the_floor_is_tried_at_once() {
    let mut rig = Rig::new(BUDGETS, 403);
    rig.look().await.expect("it is told");
    let wide = tokio::sync::watch::channel(spawnery_core::floor::Width::Unsealed).1;
    Arc::get_mut(&mut rig.shared.ctx).expect("nobody else has it").width = wide;
    rig.look().await.expect("as before");
    assert_eq!(rig.times(BUDGETS), 2);
}

#[rstest]
#[case::budget(BUDGETS)]
#[case::settings(SETTINGS)]
#[tokio::test]
async fn a_failure_that_may_pass_fails_the_look_and_is_no_refusal(#[case] fails: &'static str) {
    let mut rig = Rig::new(fails, 500);
    for _ in 0..2 {
        assert!(matches!(rig.look().await, Err(Failure::Call { .. })), "it is tried again, later and later");
    }
    assert_eq!((rig.times(fails), rig.times("/servers")), (2, 0));
    assert_eq!(rig.degraded().status, "False", "{:?}", rig.degraded());
}

#[rstest]
#[case::in_a_namespace_that_takes_none(403, true)]
#[case::refused_for_what_it_is(422, true)]
#[case::by_an_api_server_that_is_ill(500, false)]
#[tokio::test]
async fn a_group_whose_namespace_takes_no_budget_any_more_still_ends(#[case] code: u16, #[case] settles: bool) {
    let mut rig = Rig::new(BUDGETS, code).deleted();
    assert_eq!(rig.look().await.is_ok(), settles, "a failed look would be tried again later and later");
    assert_eq!((rig.times(BUDGETS), rig.times("DELETE /apis/spawnery.cloud/")), (1, 1), "{:?}", rig.asked.lock());
    assert_eq!(rig.times("/lobby/status"), 1, "{:?}", rig.asked.lock());
    assert_eq!(rig.times(SETTINGS), 0, "nobody needs one any more: {:?}", rig.asked.lock());
    assert!(rig.group.status.is_some_and(|status| status.conditions.is_empty()), "nothing is left to set right");
}
