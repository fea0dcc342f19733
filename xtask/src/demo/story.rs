//! The story, act by act; each act checks what it promises.

use super::{
    drain::{Drain, Refusal},
    screen::Screen,
    stage::{LOBBY, NAMESPACE, Stage},
    table::{changes, table},
    view::{View, Viewer},
};
use anyhow::{Context as _, Result, bail, ensure};
use spawnery_tests::{
    eventually,
    game::player::PlayerState,
    stack::{Crowd, ensure_guarded},
};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// Games start within seconds; Minecraft beside a build takes longer.
const READY_LIMIT: Duration = Duration::from_mins(2);
const JOIN_LIMIT: Duration = Duration::from_mins(1);
/// kubectl comes back every 5 s.
const REFUSAL_LIMIT: Duration = Duration::from_secs(30);
/// Players finish, the rest is moved after a while, and a game needs its time to load.
const EMPTY_LIMIT: Duration = Duration::from_mins(2);
/// The promise: kubectl's next try succeeds.
const DONE_LIMIT: Duration = Duration::from_secs(10);
/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Tells the story, and says at its end what it came to.
pub(crate) async fn tell(stage: &Stage, players: usize, screen: &Screen) -> Result<String> {
    let viewer = Viewer::new(&stage.cluster.client().await?, NAMESPACE);
    let mut teller = Teller { stage, screen, viewer, crowd: Crowd::new(), drain: None, last: View::default(), said: 0 };
    teller.network_is_ready().await?;
    teller.players_join(players).await?;
    let (server, node) = teller.occupied_server().await?;
    teller.drain_begins(&node)?;
    let refusal = teller.is_refused(&server).await?;
    teller.some_leave(&server).await?;
    let empty = teller.others_are_moved(&server).await?;
    teller.drain_ends(empty).await?;
    teller.group_is_whole(&node).await?;
    teller.sum_up(players, &server, &node, &refusal, empty)
}

struct Teller<'a> {
    stage: &'a Stage,
    screen: &'a Screen,
    viewer: Viewer,
    crowd: Crowd,
    drain: Option<Drain>,
    last: View,
    /// Lines of the drain that a plain screen has shown.
    said: usize,
}

impl Teller<'_> {
    /// Looks again and again, showing what there is, until `done` says so.
    async fn until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&View, &Crowd, Option<&Drain>) -> Option<T>,
    ) -> Result<T> {
        self.screen.waits_for(what);
        let end = Instant::now() + limit;
        loop {
            let view = self.viewer.look(&self.crowd).await?;
            self.show(&view);
            if let Some(value) = done(&view, &self.crowd, self.drain.as_ref()) {
                return Ok(value);
            }
            if let Some(code) = self.drain.as_ref().and_then(Drain::exit_code).filter(|code| *code != 0) {
                bail!("kubectl drain ended with exit code {code}");
            }
            ensure!(Instant::now() < end, "waited {limit:?} for {what}, in vain");
            tokio::time::sleep(LOOK).await;
        }
    }

    fn show(&mut self, view: &View) {
        let said = self.drain.as_ref().map(Drain::said).unwrap_or_default();
        let mut news = changes(&self.last, view);
        news.extend(said.iter().skip(self.said).map(|line| format!("kubectl: {line}")));
        self.screen.table(table(view, &said, Screen::columns()), &news);
        self.said = said.len();
        self.last = view.clone();
    }

    async fn network_is_ready(&mut self) -> Result<()> {
        self.screen.step("The operator starts servers and proxies");
        let wanted = self.stage.proxies;
        self.until("every pod to be Ready and every server registered", READY_LIMIT, |view, _, _| {
            let (servers, proxies): (Vec<_>, Vec<_>) = view.pods.iter().partition(|pod| pod.is_server);
            let lobby = servers.iter().any(|pod| pod.name.starts_with(LOBBY));
            let serving = servers.iter().all(|pod| pod.ready && pod.registered) && proxies.iter().all(|pod| pod.ready);
            (lobby && proxies.len() >= wanted && serving).then_some(())
        })
        .await?;
        self.screen.waits_for("the webhook to be asked about evictions in the new namespace");
        let client = self.stage.cluster.client().await?;
        eventually(READY_LIMIT, "the webhook to be asked about evictions", || ensure_guarded(&client, NAMESPACE)).await
    }

    async fn players_join(&mut self, players: usize) -> Result<()> {
        self.screen.step(format!("{players} players join through the proxies"));
        let doors = self.stage.doors();
        ensure!(!doors.is_empty(), "no proxy runs");
        self.doors_open(&doors).await?;
        for (n, door) in (0..players).zip(doors.into_iter().cycle()) {
            let player = self.stage.join(door, n);
            self.crowd.add(player);
        }
        self.until("every player to be on a server, and the operator to know it", JOIN_LIMIT, |view, crowd, _| {
            let known = view.pods.iter().filter(|pod| pod.is_server).all(|pod| (pod.witnessed > 0) == pod.occupied);
            (view.people.playing == crowd.players().len() && known).then_some(())
        })
        .await
        .with_context(|| self.states())
    }

    /// A proxy hears of a server a moment after the cluster does: somebody tries each door until they are let in.
    async fn doors_open(&self, doors: &[SocketAddr]) -> Result<()> {
        let tries = AtomicUsize::new(0);
        for door in doors {
            let scout = eventually(JOIN_LIMIT, "a door to open", || async {
                let scout = self.stage.scout(*door, tries.fetch_add(1, Ordering::Relaxed));
                scout.wait_on(JOIN_LIMIT).await?;
                Ok(scout)
            })
            .await?;
            scout.leave();
            scout.wait_for(JOIN_LIMIT, "gone", |state| *state == PlayerState::Left).await?;
        }
        Ok(())
    }

    /// The server with the most players and its node, which holds no proxy: what is drained is about servers.
    async fn occupied_server(&mut self) -> Result<(String, String)> {
        let view = self.viewer.look(&self.crowd).await?;
        let apart = |node: &str| !view.pods.iter().any(|pod| !pod.is_server && pod.node == node);
        let servers = view.pods.iter().filter(|pod| pod.is_server && pod.witnessed > 0 && apart(&pod.node));
        let fullest = servers.max_by_key(|pod| pod.witnessed).context("nobody plays on a node without proxies")?;
        Ok((fullest.name.clone(), fullest.node.clone()))
    }

    fn drain_begins(&mut self, node: &str) -> Result<()> {
        let drain = Drain::start(&self.stage.cluster, node)?;
        self.screen.step(format!("$ {}", drain.command()));
        self.drain = Some(drain);
        Ok(())
    }

    async fn is_refused(&mut self, server: &str) -> Result<Refusal> {
        let refusal = self
            .until("the first refusal", REFUSAL_LIMIT, |_, _, drain| {
                drain?.refusals().into_iter().find(|refusal| refusal.pod == server)
            })
            .await?;
        self.screen.step(format!("Refused while players are on {server}; kubectl comes back every 5 s"));
        self.screen.note(&refusal.message);
        Ok(refusal)
    }

    async fn some_leave(&mut self, server: &str) -> Result<()> {
        self.until("one more refusal", REFUSAL_LIMIT, |_, _, drain| {
            (drain?.refusals().iter().filter(|refusal| refusal.pod == server).count() >= 2).then_some(())
        })
        .await?;
        let count = self.crowd.on(server).count() / 2;
        self.screen.step(format!("{count} players finish their round and leave; the others play on"));
        let leaving: BTreeSet<String> =
            self.crowd.on(server).take(count).map(|player| player.name().to_owned()).collect();
        for player in self.crowd.players().iter().filter(|player| leaving.contains(player.name())) {
            player.leave();
        }
        self.until("them to be gone", JOIN_LIMIT, |view, _, _| (view.people.left == leaving.len()).then_some(())).await
    }

    /// Returns when the last player was off the server.
    async fn others_are_moved(&mut self, server: &str) -> Result<Instant> {
        self.screen.step(format!(
            "The proxies move the others to another lobby, {} s after the drain began",
            self.stage.move_after_seconds
        ));
        self.until("the server to be empty, by what the players' sockets say", EMPTY_LIMIT, |_, crowd, _| {
            crowd.on(server).next().is_none().then(Instant::now)
        })
        .await
    }

    async fn drain_ends(&mut self, empty: Instant) -> Result<()> {
        self.screen.step("The drain goes through");
        self.until(
            "kubectl to come back, for the last time",
            DONE_LIMIT.saturating_sub(empty.elapsed()),
            |_, _, drain| drain?.exit_code().map(drop),
        )
        .await
        .context("the drain should be done 10 s after the last player has gone")?;
        let drain = self.drain.as_ref().context("no drain")?;
        drain.done(Duration::from_secs(1)).await
    }

    async fn group_is_whole(&mut self, node: &str) -> Result<()> {
        self.screen.step("The group is whole again, on another node");
        let node = node.to_owned();
        self.until("a lobby elsewhere, ready for players", READY_LIMIT, |view, _, _| {
            let left = view.pods.iter().any(|pod| pod.node == node);
            let lobby = |pod: &&super::view::PodRow| pod.name.starts_with(LOBBY) && pod.ready && pod.registered;
            (!left && view.pods.iter().any(|pod| lobby(&pod))).then_some(())
        })
        .await?;
        let crowd = &self.crowd;
        eventually(DONE_LIMIT, "everybody to be where they should be", || async {
            let on = crowd.players().iter().filter(|player| matches!(player.state(), PlayerState::On { .. })).count();
            let left = crowd.players().iter().filter(|player| player.state() == PlayerState::Left).count();
            ensure!(on + left == crowd.players().len(), "{on} play and {left} have left");
            Ok(())
        })
        .await
        .with_context(|| self.states())
    }

    fn sum_up(&self, players: usize, server: &str, node: &str, refusal: &Refusal, empty: Instant) -> Result<String> {
        self.crowd.ensure_unharmed()?;
        let drain = self.drain.as_ref().context("no drain")?;
        let refusals: Vec<Refusal> = drain.refusals().into_iter().filter(|refusal| refusal.pod == server).collect();
        let same = refusals.iter().all(|other| other.message == refusal.message);
        ensure!(same, "the message changed from one refusal to the next: {refusals:#?}");
        let people = &self.last.people;
        let moved = self.crowd.players().iter().filter(|player| player.visits().len() > 1).count();
        ensure!(people.lost == 0 && people.refused == 0, "{people:?}");
        Ok(format!(
            "  {} was emptied: {server} was refused {} times, always with the same words,\n  and went {:.1} s after its last player.\n  \
             Of {players} players {} left by themselves, {moved} were moved, {} play on, none was lost: their own sockets say so.",
            node,
            refusals.len(),
            empty.elapsed().as_secs_f64(),
            people.left,
            people.playing,
        ))
    }

    fn states(&self) -> String {
        let states = self.crowd.players().iter().map(|player| format!("{} is {}", player.name(), player.state()));
        states.collect::<Vec<String>>().join(", ")
    }
}
