//! What is carried out although something is refused, against an API server that answers as it is told.

use std::sync::Arc;

use parking_lot::Mutex;
use rstest::rstest;
use spawnery_core::door::{DoorView, ProxyFacts};

use super::*;
use crate::hub::HubConfig;
use crate::latest::Latest;
use crate::overlay::Overlays;
use crate::proxygroup::memory::Memories;
use crate::proxygroup::plan;
use crate::proxygroup::testing::{both, door, draining, observed, plain, requested, sight};
use crate::render;
use crate::testing::{Asked, Refusal, api_server, context};

/// A leader, and an API server that refuses what contains this.
struct Rig {
    shared: Shared,
    refusal: Refusal,
    asked: Asked,
}

impl Rig {
    fn new(refuses: &'static str, code: u16) -> Self {
        let refusal: Refusal = Arc::new(Mutex::new(Some((refuses, code))));
        let (client, asked) = api_server(&refusal);
        let ctx = Arc::new(context(&client, HubConfig { propagation: Duration::ZERO, ..HubConfig::default() }));
        let shared = Shared {
            recorder: ctx.events.recorder(event::reporter::PROXY_GROUP),
            ctx,
            groups: Latest::default(),
            pods: Latest::default(),
            overlays: Overlays::default(),
            memories: Memories::default(),
            expectations: Mutex::default(),
        };
        Self { shared, refusal, asked }
    }

    /// A group of one proxy whose eviction was asked for, and that is shut and empty.
    fn scene(&self) -> Scene {
        let uid = PodUid::from("uid-of-a");
        let facts = ProxyFacts {
            uid: uid.clone(),
            namespace: "minecraft".to_owned(),
            name: "a".to_owned(),
            group: "gateway".to_owned(),
            fallback_groups: vec![],
            terminal: false,
            started: false,
            container_since: None,
            routable: false,
            host_port: false,
        };
        self.shared.ctx.hub.observe_proxy(facts);
        self.shared.ctx.hub.set_ready(&uid, false);
        let leaving = door(sight("a", both(requested(1), &draining(5)), json!({})), DoorView::Empty);
        let mut observed = observed(vec![leaving, plain("b"), plain("c")]);
        let uid = observed.group.metadata.uid.clone().unwrap_or_default();
        observed.memory = self.shared.memories.group(&uid);
        Scene {
            namespace: "minecraft".to_owned(),
            name: observed.group.metadata.name.clone().unwrap_or_default(),
            uid,
            network: None,
            inputs: None,
            observed,
        }
    }

    async fn carry_out(&self) -> Result<Done, Failure> {
        let scene = self.scene();
        apply(&self.shared, &scene, plan::plan(&scene.observed)).await
    }

    /// How often something was asked whose method and path contain this.
    fn times(&self, part: &str) -> usize {
        self.asked.lock().iter().filter(|(what, _)| what.contains(part)).count()
    }

    fn degraded(&self) -> Value {
        let asked = self.asked.lock();
        let (_, sent) = asked.iter().rfind(|(what, _)| what.starts_with("PUT")).expect("a status");
        let conditions = sent["status"]["conditions"].as_array().expect("conditions");
        conditions.iter().find(|condition| condition["type"] == "Degraded").expect("Degraded").clone()
    }
}

#[rstest]
#[case::a_node_port_that_another_has("/services/", 422, "Service")]
#[case::a_right_that_we_lack("/poddisruptionbudgets/", 403, "PodDisruptionBudget")]
#[tokio::test]
async fn a_refused_object_holds_nothing_up_and_is_told(
    #[case] refuses: &'static str,
    #[case] code: u16,
    #[case] kind: &str,
) {
    let rig = Rig::new(refuses, code);
    assert!(matches!(rig.carry_out().await, Ok(Done::Again)));
    let uid = PodUid::from("uid-of-a");
    assert_eq!(rig.shared.ctx.hub.proxy(&uid, rig.shared.ctx.now()).door, DoorView::Sealed);
    for object in ["/configmaps/", "/poddisruptionbudgets/", "/services/"] {
        assert_eq!(rig.times(object), 1, "{object} is tried whatever becomes of the others");
    }
    assert!(matches!(rig.carry_out().await, Ok(Done::Until(Some(_)))));
    let degraded = rig.degraded();
    assert_eq!((&degraded["status"], &degraded["reason"]), (&json!("True"), &json!("ObjectRejected")));
    let message = degraded["message"].as_str().unwrap_or_default();
    assert!(message.starts_with(&format!("could not apply the {kind}")) && message.contains("as told"), "{message}");
    assert_eq!(rig.times(refuses), 1, "it is tried again now and then, not at each look");
}

/// A pod cannot do without what it mounts and what protects it.
#[rstest]
#[case::without_settings("/configmaps/", false)]
#[case::without_a_budget("/poddisruptionbudgets/", false)]
#[case::without_a_service("/services/", true)]
#[tokio::test]
async fn proxies_are_made(#[case] refuses: &'static str, #[case] made: bool) {
    let rig = Rig::new(refuses, 422);
    let mut scene = rig.scene();
    scene.network = Some(Arc::new(render::testing::network()));
    scene.inputs = Some(render::testing::proxy_inputs(&scene.observed.group));
    let plan = Plan { create: 1, ..plan::plan(&scene.observed) };
    let outcome = apply(&rig.shared, &scene, plan).await;
    // Before the first pod comes its namespace, which needs a CA bundle, which this leader lacks.
    assert_eq!(matches!(outcome, Err(Failure::Bootstrap(_))), made, "{outcome:?}");
}

#[tokio::test]
async fn a_failure_that_may_pass_holds_nothing_up_and_is_no_refusal() {
    let rig = Rig::new("/services/", 500);
    let failed = rig.carry_out().await;
    // Sealing ends the step; what failed comes round again.
    assert!(matches!(failed, Ok(Done::Again)), "{failed:?}");
    assert!(matches!(rig.carry_out().await, Err(Failure::Call { what: "apply the Service", .. })));
    assert_eq!(rig.degraded()["status"], json!("False"));
}

#[tokio::test]
async fn what_is_taken_again_is_told_again() {
    let rig = Rig::new("/services/", 422);
    assert!(matches!(rig.carry_out().await, Ok(Done::Again)));
    *rig.refusal.lock() = None;
    let group = rig.scene().uid;
    assert!(rig.shared.memories.group(&group).refused.message().is_some());
    rig.shared.memories.update_group(&group, |memory| memory.refused.grow_old());
    rig.carry_out().await.unwrap();
    assert_eq!(rig.shared.memories.group(&group).refused.message(), None);
    rig.carry_out().await.unwrap();
    assert_eq!(rig.degraded()["status"], json!("False"));
}
