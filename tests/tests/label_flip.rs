//! Upstream's hole: one server empties while another fills, and a budget that is sized by a count lets the full one go.
//!
//! ```text
//!  count        1 ─────────────────────────────────── 1      the budget wants one pod, before and after
//!  labelled     A ───────── A, B ───────── B                 in between two, so one may go
//!                                          └─ taking a label off makes nobody count anew: "one may go" stays
//! ```

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::{api::policy::v1::PodDisruptionBudget, apimachinery::pkg::util::intstr::IntOrString};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use spawnery_api::{
    names::{label, object},
    rbac,
};
use spawnery_tests::{
    eventually,
    game::server::MiniServer,
    runner::{Role, RunningPod},
    stack::{Arena, Crowd, Evicted, LOBBY, SmallNetwork, StackOptions},
};
use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::{CancellationToken, DropGuard};

const LIMIT: Duration = Duration::from_secs(30);
const TRIALS: u32 = 20;
/// B fills and A empties within this of each other, whichever is first.
const APART: Duration = Duration::from_millis(1500);
/// How long B is attacked after both have happened and A's label is gone.
const AFTER: Duration = Duration::from_millis(1200);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(15);
/// How often upstream looks whether its budgets still have the right size.
const UPSTREAMS_RESYNC: Duration = Duration::from_secs(5);
/// The count-sized budget's name.
const BY_COUNT: &str = "by-count";

/// When attempts to evict B begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// Before anybody is on it.
    AtOnce,
    /// As soon as a player is on it, by that player's own socket.
    Player,
    /// As soon as it is labelled: where the label is all that protects.
    Label,
}

/// What became of one trial.
#[derive(Debug)]
struct Trial {
    b: String,
    crowd: Crowd,
    attempts: usize,
    /// The first attempt that got through.
    hole: Option<Hole>,
}

/// An eviction that got through.
#[derive(Debug)]
struct Hole {
    how: &'static str,
    answer: Evicted,
    /// How long after somebody was on the server.
    since: Duration,
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} after somebody was on it: {:?}", self.how, self.since, self.answer)
    }
}

/// Two lobbies that nobody is on: the proxy sends a newcomer to the first of them.
async fn two_empty(arena: &Arena) -> Result<[String; 2]> {
    eventually(LIMIT, "two empty lobbies", || async {
        let registered = arena.registered().await?;
        let pods = arena.pods().list(&ListParams::default().labels(&format!("{}={LOBBY}", label::GROUP))).await?;
        ensure!(pods.items.len() == 2, "{} pods", pods.items.len());
        ensure!(pods.iter().all(|pod| !pod.labels().contains_key(label::OCCUPIED)), "somebody is on one");
        ensure!(pods.iter().all(|pod| registered.contains(&pod.name_any())), "registered are {registered:?}");
        let proxies = arena.stack().runner().pods_in(arena.namespace(), Role::Proxy);
        for proxy in proxies {
            let game = proxy.game().context("the proxy has no game")?;
            let known = game.mini_proxy().context("not a mini proxy")?.servers();
            ensure!(known == registered, "the proxy knows {known:?}");
        }
        <[String; 2]>::try_from(registered).map_err(|names| anyhow::anyhow!("registered are {names:?}"))
    })
    .await
}

/// One switch: somebody is on A and all is `settled`, then somebody is on B and nobody on A any more; `moments` says when.
async fn switch(
    arena: &Arena,
    from: Begin,
    moments: (Duration, Duration),
    settled: impl AsyncFn() -> Result<()>,
) -> Result<Trial> {
    let (fill_at, empty_at) = moments;
    let [b, a] = two_empty(arena).await?;
    let (runner, namespace) = (arena.stack().runner(), arena.namespace());
    // Newcomers go where fewest are, to the first when equal: one on each, then the first leaves.
    let (mut crowd, mut newcomer) = (Crowd::new(), Crowd::new());
    crowd.join(runner, namespace, 1).await?;
    crowd.join(runner, namespace, 1).await?;
    ensure!(crowd.on(&a).count() == 1 && crowd.on(&b).count() == 1, "{:?}", crowd.by_server());
    crowd.leave(&b).await?;
    arena.wait_occupied(&a, true).await?;
    arena.wait_occupied(&b, false).await?;
    settled().await?;

    let (filled, mut is_filled) = watch::channel(None);
    let (over, is_over) = watch::channel(None);
    let flip = async {
        let fill = async {
            sleep(fill_at).await;
            newcomer.join(runner, namespace, 1).await?;
            filled.send_replace(Some(Instant::now()));
            ensure!(newcomer.on(&b).count() == 1, "the newcomer is on {:?}", newcomer.by_server());
            Ok(())
        };
        let empty = async {
            sleep(empty_at).await;
            crowd.leave(&a).await
        };
        tokio::try_join!(fill, empty)?;
        arena.wait_occupied(&a, false).await?;
        over.send_replace(Some(Instant::now()));
        anyhow::Ok(())
    };
    let attack = async {
        match from {
            Begin::AtOnce => {}
            Begin::Player => drop(is_filled.wait_for(Option::is_some).await?),
            Begin::Label => {
                is_filled.wait_for(Option::is_some).await?;
                arena.wait_occupied(&b, true).await?;
            }
        }
        let (mut attempts, mut hole, mut labelled) = (0, None, false);
        while hole.is_none() && is_over.borrow().is_none_or(|over: Instant| over.elapsed() < AFTER) {
            let mut answers = vec![("evicted", arena.evict(&b).await?)];
            // A dry run asks for nothing, so nothing is closed for it: it says what is known, and that is the label.
            labelled = labelled || arena.is_occupied(&b).await.unwrap_or_default();
            if labelled {
                answers.push(("evicted in a dry run", arena.evict_dry(&b).await?));
            }
            attempts += answers.len();
            if let Some((how, answer)) = answers.into_iter().find(|(_, answer)| !matches!(answer, Evicted::Later(_))) {
                let since = is_filled.borrow().map_or(Duration::ZERO, |filled: Instant| filled.elapsed());
                hole = Some(Hole { how, answer, since });
            }
            sleep(PAUSE).await;
        }
        anyhow::Ok((attempts, hole))
    };
    // The attack ends some time after the flip, or once it got through: then B's player may be anywhere.
    let (attempts, hole) = {
        let (mut flip, mut attack, mut flipping) = (pin!(flip), pin!(attack), true);
        loop {
            tokio::select! {
                flipped = &mut flip, if flipping => {
                    flipped?;
                    flipping = false;
                }
                attacked = &mut attack => break attacked?,
            }
        }
    };
    for player in newcomer.into_players() {
        crowd.add(player);
    }
    Ok(Trial { b, crowd, attempts, hole })
}

/// Two moments, at most [`APART`] from each other, one of them now.
fn moments(random: &mut StdRng) -> (Duration, Duration) {
    let apart = random.random_range(Duration::ZERO..APART);
    if random.random_bool(0.5) { (Duration::ZERO, apart) } else { (apart, Duration::ZERO) }
}

/// B is refused in all trials, and nobody comes to harm. `afterwards` tidies up after each.
async fn never(arena: &Arena, from: Begin, afterwards: impl AsyncFn(&Trial) -> Result<()>) -> Result<()> {
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let mut attempts = 0;
    for n in 1..=TRIALS {
        let trial = switch(arena, from, moments(&mut random), async || Ok(())).await?;
        if let Some(hole) = &trial.hole {
            bail!("trial {n} with seed {seed}: {} {hole}", trial.b);
        }
        ensure!(trial.crowd.on(&trial.b).count() == 1, "trial {n} with seed {seed}: nobody is on {} any more", trial.b);
        trial.crowd.ensure_unharmed()?;
        attempts += trial.attempts;
        trial.crowd.leave(&trial.b).await?;
        afterwards(&trial).await?;
    }
    println!("{TRIALS} switches with seed {seed}, {attempts} evictions of B: none got through");
    Ok(())
}

fn network(arena: &Arena) -> SmallNetwork {
    SmallNetwork { lobbies: 2, proxies: 1, ..arena.network() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fills_when_another_empties_is_never_evictable() -> Result<()> {
    Arena::run("flip", StackOptions::default(), async |arena| {
        arena.start(&network(&arena)).await?;
        never(&arena, Begin::Player, async |trial| {
            // It was condemned by the attempts, so now that it is empty it goes.
            eventually(LIMIT, "the eviction to go through", || async {
                let answer = arena.evict(&trial.b).await?;
                ensure!(matches!(answer, Evicted::Yes | Evicted::Gone), "{answer:?}");
                Ok(())
            })
            .await
        })
        .await
    })
    .await
}

/// The API server is cut off from the webhook and the leader is not, so budgets cover occupied pods only.
fn cut_off() -> StackOptions {
    StackOptions { probes_apart: true, ..StackOptions::default() }
}

/// Waits until an eviction of an empty lobby would go through: no webhook and no budget is in the way.
async fn wait_bare(arena: &Arena) -> Result<()> {
    let [lobby, _] = two_empty(arena).await?;
    eventually(LIMIT, "nothing to stand in the way of an empty lobby's eviction", || async {
        let answer = arena.evict_dry(&lobby).await?;
        ensure!(answer == Evicted::Yes, "{answer:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_floor_alone_never_lets_it_go() -> Result<()> {
    Arena::run("floor", cut_off(), async |arena| {
        arena.start(&network(&arena)).await?;
        arena.stack().reviews().block();
        wait_bare(&arena).await?;
        never(&arena, Begin::Label, async |_| Ok(())).await?;
        wait_bare(&arena).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_webhook_dead_nothing_goes() -> Result<()> {
    Arena::run("dead-webhook", StackOptions::default(), async |arena| {
        arena.start(&network(&arena)).await?;
        let [_, empty] = two_empty(&arena).await?;
        arena.stack().webhook(0)?.kill().await?;
        eventually(LIMIT, "the budgets to cover empty lobbies too", || async {
            let answer = arena.evict_dry(&empty).await?;
            ensure!(matches!(answer, Evicted::Later(_)), "{answer:?}");
            Ok(())
        })
        .await?;
        never(&arena, Begin::AtOnce, async |_| Ok(())).await
    })
    .await
}

/// Upstream's budget in the place of ours: as many pods as are occupied, looked at every five seconds.
struct BudgetByCount {
    budgets: Api<PodDisruptionBudget>,
    _stop: DropGuard,
}

impl BudgetByCount {
    /// Takes the right to write budgets from the reconciler, deletes its budget of the lobbies and keeps one by count.
    async fn keep(arena: &Arc<Arena>) -> Result<Self> {
        let cluster = arena.stack().cluster();
        let mut role = rbac::objects(rbac::Component::Reconciler, object::OPERATOR_NAMESPACE).cluster_role;
        for rule in role.rules.iter_mut().flatten() {
            if rule.resources.iter().flatten().any(|resource| resource == "poddisruptionbudgets") {
                rule.verbs = ["get", "list", "watch"].map(str::to_owned).to_vec();
            }
        }
        cluster.apply_server_side(&serde_json::to_string(&role)?).await?;
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client().await?, arena.namespace());
        // The API server's authorizer hears of the role a little later; until then ours may come back.
        eventually(LIMIT, "our budgets to be gone for good", || async {
            for budget in budgets.list(&ListParams::default()).await? {
                budgets.delete(&budget.name_any(), &DeleteParams::default()).await?;
            }
            sleep(Duration::from_secs(1)).await;
            let left = budgets.list(&ListParams::default()).await?.items.len();
            ensure!(left == 0, "{left} are left");
            Ok(())
        })
        .await?;
        let budget = serde_json::from_value(by_count(0))?;
        budgets.create(&PostParams::default(), &budget).await.context("could not create the budget")?;
        let stop = CancellationToken::new();
        let (arena, writer) = (Arc::downgrade(arena), budgets.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let (mut ticks, mut written) = (interval(UPSTREAMS_RESYNC), 0);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(arena) = arena.upgrade() else { return };
                let pods = arena.stack().runner().pods_in(arena.namespace(), Role::Server);
                let occupied = pods.iter().filter(|pod| players(pod) > 0).count();
                let patch = Patch::Merge(json!({ "spec": { "minAvailable": occupied } }));
                // A write that fails is made up for at the next look, as upstream does it.
                if occupied != written && writer.patch(BY_COUNT, &PatchParams::default(), &patch).await.is_ok() {
                    written = occupied;
                }
            }
        }));
        Ok(Self { budgets, _stop: stop.drop_guard() })
    }

    /// Waits until so many pods are occupied, the budget says so, and by its own count none of them may go.
    ///
    /// The budget is touched until it does: where the number wanted is the same before and after a label came off,
    /// nothing else makes Kubernetes count anew, and a trial would begin with the hole open already.
    async fn wait_settled(&self, occupied: i32) -> Result<()> {
        let touches = AtomicUsize::new(0);
        eventually(LIMIT, "the budget to follow the count", || async {
            let touch = touches.fetch_add(1, Ordering::Relaxed).to_string();
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { "touched": touch } } }));
            self.budgets.patch(BY_COUNT, &PatchParams::default(), &patch).await?;
            let budget = self.budgets.get(BY_COUNT).await?;
            let (spec, status) = (budget.spec.unwrap_or_default(), budget.status.unwrap_or_default());
            let seen = status.observed_generation == budget.metadata.generation;
            let holds = status.disruptions_allowed == 0 && status.current_healthy == occupied;
            ensure!(spec.min_available == Some(IntOrString::Int(occupied)) && seen && holds, "{spec:?} {status:?}");
            Ok(())
        })
        .await
    }
}

/// How many players a server has, by its own sockets.
fn players(pod: &RunningPod) -> u32 {
    pod.game().and_then(|game| game.mini_server().map(MiniServer::players)).unwrap_or_default()
}

fn by_count(occupied: u32) -> Value {
    let labels = json!({
        label::MANAGED_BY: label::MANAGED_BY_VALUE,
        label::GROUP: LOBBY,
        label::ROLE: label::ROLE_SERVER,
        label::OCCUPIED: label::TRUE,
    });
    json!({
        "metadata": { "name": BY_COUNT },
        "spec": { "minAvailable": occupied, "selector": { "matchLabels": labels } },
    })
}

/// The control: the same trials with a budget as upstream has it must let B go at least once.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_by_count_lets_it_go() -> Result<()> {
    Arena::run("by-count", cut_off(), async |arena| {
        arena.start(&network(&arena)).await?;
        arena.stack().reviews().block();
        wait_bare(&arena).await?;
        let budget = BudgetByCount::keep(&arena).await?;
        let mut random = StdRng::seed_from_u64(1);
        for n in 1..=TRIALS {
            let settled = async || budget.wait_settled(1).await;
            let trial = switch(&arena, Begin::Label, moments(&mut random), settled).await?;
            if let Some(hole) = trial.hole {
                println!("trial {n}: {} {hole}", trial.b);
                return Ok(());
            }
            trial.crowd.leave(&trial.b).await?;
        }
        bail!("a budget by count held in {TRIALS} trials: this harness would not see the hole")
    })
    .await
}
