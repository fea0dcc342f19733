//! The objects around a group's pods, as far as its kind does not matter: the settings that they read, the budget that
//! protects them, and what becomes of an object that is refused.
//!
//! What the API server refuses for what it is (a node port that another group has, a right that we lack, a quota) no
//! repetition mends: it is told, tried again now and then, and holds up nothing that can do without it.
//!
//! ```text
//! what is remembered ─► Upkeep: one object after the other ─► Kept: what is refused, what is news, what to remember
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use spawnery_api::names::manager;

use crate::context::Context;
use crate::failure::{self, Failure};
use crate::render;

/// How soon to try again what somebody has to set right.
pub(crate) const LATER: Duration = Duration::from_secs(30);

/// An object as the API server refused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Generation of the group that it was made from.
    generation: i64,
    /// The width of the floor that it was made for.
    era: u64,
    at: Timestamp,
    /// For people.
    message: String,
}

impl Refusal {
    /// Whether to try again is in vain for now: nothing that it was made from has changed.
    fn stands(&self, generation: i64, era: u64, now: Timestamp) -> bool {
        let age = now.duration_since(self.at);
        self.generation == generation && self.era == era && age < SignedDuration::try_from(LATER).unwrap_or_default()
    }
}

/// Which objects of a group the API server refused, by kind; they are gone when they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals(BTreeMap<&'static str, Refusal>);

impl Refusals {
    /// What the API server said about the first of them.
    pub(crate) fn message(&self) -> Option<&str> {
        self.0.values().next().map(|refusal| refusal.message.as_str())
    }
}

#[cfg(test)]
impl Refusals {
    /// As if all had been long ago.
    pub(crate) fn grow_old(&mut self) {
        for refusal in self.0.values_mut() {
            refusal.at = Timestamp::UNIX_EPOCH;
        }
    }
}

/// What became of the objects.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// One is refused: it is tried again after [`LATER`].
    pub(crate) refused: bool,
    /// What is refused has changed, which the status has to say.
    pub(crate) news: bool,
    /// What is to be remembered of refusals from now on, where that has changed.
    pub(crate) remember: Option<Refusals>,
    /// The first that went wrong in a way that may pass.
    pub(crate) failure: Option<Failure>,
}

/// One round through the objects of a group.
pub(crate) struct Upkeep<'a> {
    ctx: &'a Context,
    namespace: &'a str,
    name: &'a str,
    generation: i64,
    now: Timestamp,
    before: &'a Refusals,
    kept: Kept,
}

impl<'a> Upkeep<'a> {
    /// Begins a round for the group of that namespace, name and generation; `before` is what is remembered.
    pub(crate) fn new(
        ctx: &'a Context,
        (namespace, name): (&'a str, &'a str),
        generation: Option<i64>,
        before: &'a Refusals,
        now: Timestamp,
    ) -> Self {
        let generation = generation.unwrap_or_default();
        Self { ctx, namespace, name, generation, now, before, kept: Kept::default() }
    }

    /// Brings the ConfigMap that pods mount to what it should be; says whether it is.
    pub(crate) async fn config(&mut self, desired: &ConfigMap) -> bool {
        let (ctx, namespace) = (self.ctx, self.namespace);
        let bring = async {
            let found = ctx.feeds.config_maps.get(namespace, &desired.name_any());
            if found.is_some_and(|found| render::same_config(&found, desired)) {
                return Ok(());
            }
            put(ctx, namespace, desired, "apply the ConfigMap").await
        };
        self.bring("ConfigMap", bring).await
    }

    /// Brings the budget that protects pods to what it should be; says whether it is.
    pub(crate) async fn budget(&mut self, desired: &PodDisruptionBudget) -> bool {
        let (ctx, namespace) = (self.ctx, self.namespace);
        let bring = async {
            let found = ctx.feeds.budgets.get(namespace, &desired.name_any());
            if found.is_some_and(|found| render::same_budget(&found, desired)) {
                return Ok(());
            }
            put(ctx, namespace, desired, "apply the PodDisruptionBudget").await
        };
        self.bring("PodDisruptionBudget", bring).await
    }

    /// Brings an object to what it should be, unless that was refused a moment ago; says whether it is.
    pub(crate) async fn bring(&mut self, kind: &'static str, bring: impl Future<Output = Result<(), Failure>>) -> bool {
        let (generation, era, now) = (self.generation, self.ctx.era(), self.now);
        let before = self.before.0.get(kind);
        if before.is_some_and(|before| before.stands(generation, era, now)) {
            self.kept.refused = true;
            return false;
        }
        match bring.await {
            Ok(()) => {
                if before.is_some() {
                    self.kept.news = true;
                    self.remember(kind, None);
                }
                true
            }
            Err(Failure::Call { what, source }) if source.is_forbidden() || source.is_invalid() => {
                let message = format!("could not {what}: {}", failure::said(&source));
                tracing::warn!(
                    namespace = self.namespace,
                    name = self.name,
                    kind,
                    error = message,
                    "the API server refuses an object"
                );
                self.kept.refused = true;
                self.kept.news |= before.is_none_or(|before| before.message != message);
                self.remember(kind, Some(Refusal { generation, era, at: now, message }));
                false
            }
            Err(failure) => {
                self.kept.failure.get_or_insert(failure);
                false
            }
        }
    }

    fn remember(&mut self, kind: &'static str, refusal: Option<Refusal>) {
        let refusals = &mut self.kept.remember.get_or_insert_with(|| self.before.clone()).0;
        match refusal {
            Some(refusal) => drop(refusals.insert(kind, refusal)),
            None => drop(refusals.remove(kind)),
        }
    }

    /// Ends the round.
    pub(crate) fn end(self) -> Kept {
        self.kept
    }
}

/// Applies an object that is ours. Forced: somebody else's idea of these fields would be a pod that nobody protects, or a
/// proxy that nobody reaches.
pub(crate) async fn put<K>(ctx: &Context, namespace: &str, desired: &K, what: &'static str) -> Result<(), Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Serialize,
{
    let api: Api<K> = Api::namespaced(ctx.clients.api.clone(), namespace);
    let params = PatchParams::apply(manager::RECONCILER).force();
    let written = ctx.write(api.patch(&desired.name_any(), &params, &Patch::Apply(desired))).await;
    written.map(drop).map_err(Failure::call(what))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use spawnery_runtime::client::CallError;

    use super::*;
    use crate::hub::HubConfig;
    use crate::testing;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::constant(1_800_000_000 + seconds, 0)
    }

    #[rstest]
    #[case::just_now(1, 0, 29, true)]
    #[case::later(1, 0, 30, false)]
    #[case::of_another_generation(2, 0, 1, false)]
    #[case::for_another_width(1, 1, 1, false)]
    fn stands_until_something_changes_or_time_has_passed(
        #[case] generation: i64,
        #[case] era: u64,
        #[case] seconds: i64,
        #[case] want: bool,
    ) {
        let refusal = Refusal { generation: 1, era: 0, at: NOW, message: String::new() };
        assert_eq!(refusal.stands(generation, era, at(seconds)), want);
    }

    fn answer(code: u16, message: &str) -> Result<(), Failure> {
        let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
        let source = CallError::Api(kube::Error::Api(status.boxed()));
        if code == 200 { Ok(()) } else { Err(Failure::Call { what: "apply it", source }) }
    }

    /// Whether it is as it should be, refused, and news, and whether the pass fails.
    #[rstest]
    #[case::taken(answer(200, ""), 0, (true, false, false, false))]
    #[case::forbidden(answer(403, "no"), 0, (false, true, true, false))]
    #[case::invalid(answer(422, "no"), 0, (false, true, true, false))]
    #[case::may_pass(answer(500, "no"), 0, (false, false, false, true))]
    #[case::refused_a_moment_ago_and_not_asked(answer(200, ""), 1, (false, true, false, false))]
    #[case::refused_as_before(answer(422, "as before"), 60, (false, true, false, false))]
    #[case::refused_otherwise(answer(422, "otherwise"), 60, (false, true, true, false))]
    #[case::taken_again(answer(200, ""), 60, (true, false, true, false))]
    #[tokio::test]
    async fn tells_refusals_from_failures(
        #[case] answer: Result<(), Failure>,
        #[case] seconds_after_a_refusal: i64,
        #[case] want: (bool, bool, bool, bool),
    ) {
        let (client, _) = testing::api_server(&testing::Refusal::default());
        let ctx = testing::context(&client, HubConfig::default());
        let round = async |before: &Refusals, now, answer| {
            let mut upkeep = Upkeep::new(&ctx, ("games", "lobby"), Some(1), before, now);
            let right = upkeep.bring("Thing", async { answer }).await;
            (right, upkeep.end())
        };
        let mut before = Refusals::default();
        if seconds_after_a_refusal > 0 {
            let (_, kept) = round(&before, NOW, self::answer(422, "as before")).await;
            before = kept.remember.expect("a refusal");
        }
        let (right, kept) = round(&before, at(seconds_after_a_refusal), answer).await;
        assert_eq!((right, kept.refused, kept.news, kept.failure.is_some()), want);
        let after = kept.remember.unwrap_or(before);
        assert_eq!(after.message().is_some(), kept.refused, "{after:?}");
    }
}
