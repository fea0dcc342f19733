//! An agent that says nothing for a minute: its server is out of the directory once and back again, and whoever plays on
//! it notices nothing.

use anyhow::{Context as _, Result, ensure};
use spawnery_tests::{
    eventually,
    game::player::Player,
    runner::{Role, RunningPod},
    stack::{Arena, Crowd, Evicted, SmallNetwork, StackOptions, Vigil, What},
};
use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::sleep;

const LIMIT: Duration = Duration::from_mins(1);
/// How long the agents stay frozen.
const FROZEN: Duration = Duration::from_mins(1);
/// When a silent agent's server leaves the directory, counted from the agent's last word. The reconciler looks when the
/// 15 s are over; the rest is for two busy cores.
const DEREGISTERED: Range<Duration> = Duration::from_millis(14_500)..Duration::from_millis(17_500);
/// Between two evictions.
const PAUSE: Duration = Duration::from_secs(2);
/// A report is with the operator within milliseconds.
const REPORTED: Duration = Duration::from_millis(300);
/// How long a server that is back is watched for a second fall: longer than the first took.
const AFTERWARDS: Duration = Duration::from_secs(18);

fn pod(arena: &Arena, name: &str) -> Result<Arc<RunningPod>> {
    arena.stack().runner().pod(arena.namespace(), name).with_context(|| format!("{name} does not run"))
}

/// Lets somebody join on this very server, so that its agent speaks, and freezes the agent right after that.
async fn freeze_after_a_word(arena: &Arena, crowd: &mut Crowd, server: &str) -> Result<Instant> {
    let pod = pod(arena, server)?;
    let player = Player::join(pod.game_address(), format!("the last before {server} fell silent"));
    player.wait_on(LIMIT).await?;
    let word = Instant::now();
    sleep(REPORTED).await;
    pod.freeze_agent()?;
    crowd.add(player);
    Ok(word)
}

/// What became of a server whose agent was silent, from its last word to `AFTERWARDS`.
fn ensure_one_fall(vigil: &Vigil, server: &str, word: Instant, proxies: usize) -> Result<Duration> {
    let happened = vigil.happened_to(server);
    let times = |what: &What| happened.iter().filter(|happened| happened.what == *what).count();
    let all = || happened.iter().map(ToString::to_string).collect::<Vec<_>>();
    ensure!(times(&What::Deregistered) == 1 && times(&What::Registered) == 1, "{:#?}", all());
    ensure!(times(&What::ReadinessLosses(1)) == 1, "{:#?}", all());
    let dropped = happened.iter().filter(|happened| matches!(happened.what, What::DroppedBy(_))).count();
    let routed = happened.iter().filter(|happened| matches!(happened.what, What::RoutedBy(_))).count();
    ensure!((dropped, routed) == (proxies, proxies), "{:#?}", all());
    // Deregistered, one loss, registered, and out of each proxy's directory and back. Nothing else: no label, no pod.
    ensure!(happened.len() == 3 + 2 * proxies, "{:#?}", all());
    let falls = happened.iter().filter(|it| matches!(it.what, What::Deregistered | What::DroppedBy(_)));
    for fall in falls {
        let after = fall.at.duration_since(word);
        ensure!(DEREGISTERED.contains(&after), "{fall} {after:?} after the agent's last word");
    }
    let fall = happened.iter().find(|happened| happened.what == What::Deregistered).context("counted above")?;
    Ok(fall.at.duration_since(word))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_agent_costs_one_registration_and_no_player() -> Result<()> {
    Arena::run("silent", StackOptions::default(), async |arena| {
        let network = SmallNetwork { lobbies: 3, proxies: 2, ..arena.network() };
        arena.start(&network).await?;
        let mut crowd = Crowd::new();
        crowd.join(arena.stack().runner(), arena.namespace(), 6).await?;
        let lobbies: Vec<String> = crowd.by_server().into_keys().collect();
        let [asked, condemned, loud] = lobbies.as_slice() else { anyhow::bail!("players are on {lobbies:?}") };
        for lobby in &lobbies {
            arena.wait_occupied(lobby, true).await?;
        }
        let vigil = Vigil::begin(&arena).await?;
        let word = freeze_after_a_word(&arena, &mut crowd, asked).await?;
        freeze_after_a_word(&arena, &mut crowd, condemned).await?;

        let frozen = Instant::now();
        while frozen.elapsed() < FROZEN {
            // An eviction that is really asked for closes the door, so the one server is only asked about.
            let answers =
                [arena.evict_dry(asked).await?, arena.evict_dry(condemned).await?, arena.evict(condemned).await?];
            for answer in answers {
                ensure!(matches!(answer, Evicted::Later(_)), "{answer:?} after {:?}", frozen.elapsed());
            }
            sleep(PAUSE).await;
        }
        pod(&arena, asked)?.thaw_agent()?;
        pod(&arena, condemned)?.thaw_agent()?;
        let thawed = Instant::now();
        eventually(LIMIT, "the server to be registered again", || async {
            ensure!(arena.registered().await?.contains(asked), "not registered");
            Ok(())
        })
        .await?;
        let back = thawed.elapsed();
        sleep(AFTERWARDS).await;

        let proxies = arena.stack().runner().pods_in(arena.namespace(), Role::Proxy).len();
        let after = ensure_one_fall(&vigil, asked, word, proxies)?;
        ensure!(vigil.happened_to(loud).is_empty(), "{:#?}", vigil.happened_to(loud));
        // Closed by the eviction that was asked for, and never let go: neither the label nor the pod changed.
        let taken = [What::Unlabelled, What::PodGone, What::ServerGone];
        let condemned_to = vigil.happened_to(condemned);
        ensure!(!condemned_to.iter().any(|it| taken.contains(&it.what)), "{condemned_to:#?}");
        let status = arena.servers().get(asked).await?.status.unwrap_or_default();
        ensure!(status.phase == "Ready" && status.readiness_losses == 1, "{status:?}");
        crowd.ensure_unharmed()?;
        println!(
            "deregistered {:.2} s after the agent's last word, registered {:.2} s after it was thawed",
            after.as_secs_f64(),
            back.as_secs_f64()
        );

        // The condemned server goes once it is empty, so it was not merely forgotten.
        crowd.leave(condemned).await?;
        eventually(LIMIT, "the eviction to go through", || async {
            let answer = arena.evict(condemned).await?;
            ensure!(matches!(answer, Evicted::Yes | Evicted::Gone), "{answer:?}");
            Ok(())
        })
        .await?;
        crowd.ensure_unharmed()
    })
    .await
}
