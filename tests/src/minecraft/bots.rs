//! Bot players of real Minecraft: one Node process that plays all of them.

use super::Installation;
use crate::game::{
    player::{Player, PlayerState, Story},
    wire::Arrival,
};
use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs::File, net::SocketAddr, path::Path, process::Stdio, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::mpsc,
    time::timeout,
};

/// Node needs about two seconds to read the packages; beside a build it needs longer.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Orders on their way to the process, and events on their way to one player.
const QUEUE: usize = 64;

/// What the process tells.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Ready,
    On { name: String, server: String },
    Rescued { name: String },
    Gone { name: String, why: String },
}

#[derive(Debug)]
enum News {
    On { server: String },
    Rescued,
    Gone { why: String },
}

type Listeners = Arc<Mutex<BTreeMap<String, mpsc::Sender<News>>>>;

/// The process that plays the bots. Dropping it ends all of them without farewell; so does our own end, which closes the
/// process's input.
#[derive(Debug)]
pub struct Bots {
    orders: mpsc::Sender<Value>,
    listeners: Listeners,
    _process: Child,
}

impl Bots {
    /// Starts the process; what it has to complain about goes to `log`.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(installation: &Installation, log: &Path) -> Result<Self> {
        let log = File::create(log).with_context(|| format!("could not open {}", log.display()))?;
        let mut process = Command::new("node")
            .arg(installation.bots())
            .env("NODE_PATH", installation.modules())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("could not start the bots")?;
        let mut input = process.stdin.take().context("the bots have no input")?;
        let mut lines = BufReader::new(process.stdout.take().context("the bots have no output")?).lines();
        let first = timeout(START_LIMIT, lines.next_line()).await.context("the bots did not come up")??;
        let first: Event = serde_json::from_str(&first.context("the bots ended at once")?).context("not an event")?;
        anyhow::ensure!(matches!(first, Event::Ready), "the bots began with {first:?}");
        let (orders, mut queue) = mpsc::channel::<Value>(QUEUE);
        tokio::spawn(async move {
            while let Some(order) = queue.recv().await {
                if input.write_all(format!("{order}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let listeners = Listeners::default();
        tokio::spawn(hear(lines, Arc::clone(&listeners)));
        Ok(Self { orders, listeners, _process: process })
    }

    /// A bot sets out to join at this address. Names of at most 16 letters, digits and underscores, each used once.
    pub fn join(&self, address: SocketAddr, name: impl Into<String>) -> Player {
        let name = name.into();
        let (news, hear) = mpsc::channel(QUEUE);
        self.listeners.lock().insert(name.clone(), news);
        let (orders, bot) = (self.orders.clone(), name.clone());
        Player::tell(name, move |story| async move {
            let end = live(&story, &orders, hear, address, &bot).await;
            story.end(end);
        })
    }
}

/// Passes on what the process tells until it ends; then all bots are gone.
async fn hear(mut lines: Lines<BufReader<ChildStdout>>, listeners: Listeners) {
    while let Ok(Some(line)) = lines.next_line().await {
        let (name, news) = match serde_json::from_str(&line) {
            Ok(Event::On { name, server }) => (name, News::On { server }),
            Ok(Event::Rescued { name }) => (name, News::Rescued),
            Ok(Event::Gone { name, why }) => (name, News::Gone { why }),
            Ok(Event::Ready) => continue,
            Err(error) => {
                tracing::debug!(%error, line, "not an event of the bots");
                continue;
            }
        };
        let listener = listeners.lock().get(&name).cloned();
        if let Some(listener) = listener {
            // A player that was dropped does not listen any more.
            let _ = listener.send(news).await;
        }
    }
    listeners.lock().clear();
}

async fn live(
    story: &Story,
    orders: &mpsc::Sender<Value>,
    mut news: mpsc::Receiver<News>,
    address: SocketAddr,
    name: &str,
) -> PlayerState {
    let join = json!({ "do": "join", "name": name, "host": address.ip().to_string(), "port": address.port() });
    if orders.send(join).await.is_err() {
        return story.ended("the bots have ended");
    }
    let (mut leaving, mut rescued) = (false, false);
    loop {
        tokio::select! {
            heard = news.recv() => match heard {
                Some(News::Rescued) => rescued = true,
                Some(News::On { server }) if std::mem::take(&mut rescued) => story.arrived(server, Arrival::Rescued),
                Some(News::On { server }) if story.has_played() => story.arrived(server, Arrival::Moved),
                Some(News::On { server }) => story.arrived(server, Arrival::Joined),
                Some(News::Gone { .. }) if leaving => return PlayerState::Left,
                Some(News::Gone { why }) => return story.ended(&why),
                None => return story.ended("the bots have ended"),
            },
            () = story.wants_to_leave(), if !leaving => {
                leaving = true;
                // When the process is gone, the news say so.
                let _ = orders.send(json!({ "do": "leave", "name": name })).await;
            }
        }
    }
}
