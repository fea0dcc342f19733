//! A player: the witness of what happened.

use super::wire::{Answer, Arrival, Link, Request};
use anyhow::{Result, bail};
use parking_lot::Mutex;
use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::TcpStream,
    sync::{Notify, watch},
    time::timeout,
};

/// A connection on loopback is there at once; a proxy that is frozen takes none.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Where a player is, by what its own socket said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlayerState {
    /// Has asked, was not answered yet.
    Joining,
    /// Plays.
    On {
        /// The server's name.
        server: String,
    },
    /// Went of its own accord.
    Left,
    /// Never came in: nothing was taken from it.
    Refused {
        /// What it was told.
        why: String,
    },
    /// Was playing, and its connection ended without its asking.
    Lost {
        /// The server that it was on.
        server: String,
        /// How the connection ended.
        why: String,
    },
}

impl PlayerState {
    /// Whether this player is where players go on playing.
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self, Self::On { server } if server == name)
    }

    /// Whether nothing more can happen to the player.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Joining | Self::On { .. } => false,
            Self::Left | Self::Refused { .. } | Self::Lost { .. } => true,
        }
    }
}

impl fmt::Display for PlayerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joining => write!(f, "joining"),
            Self::On { server } => write!(f, "on {server}"),
            Self::Left => write!(f, "left"),
            Self::Refused { why } => write!(f, "refused ({why})"),
            Self::Lost { server, why } => write!(f, "LOST from {server} ({why})"),
        }
    }
}

/// One stay on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// The server's name.
    pub server: String,
    /// How the player came there.
    pub how: Arrival,
    /// When.
    pub at: Instant,
}

/// A player that joins through a proxy. Dropping it closes its connection without farewell.
#[derive(Debug)]
pub struct Player {
    name: String,
    state: watch::Receiver<PlayerState>,
    story: Arc<Story>,
    task: tokio::task::JoinHandle<()>,
}

/// What a player has seen, and whether it wants to leave.
#[derive(Debug)]
pub(crate) struct Story {
    state: watch::Sender<PlayerState>,
    visits: Mutex<Vec<Visit>>,
    leave: Notify,
}

impl Player {
    /// Sets out to join at this address; [`Player::state`] tells what becomes of it.
    pub fn join(address: SocketAddr, name: impl Into<String>) -> Self {
        let name = name.into();
        let player = name.clone();
        Self::tell(name, |story| async move {
            let end = story.play(address, player).await;
            story.end(end);
        })
    }

    /// A player whose story the task tells.
    pub(crate) fn tell<F: Future<Output = ()> + Send + 'static>(
        name: String,
        task: impl FnOnce(Arc<Story>) -> F,
    ) -> Self {
        let (state, watching) = watch::channel(PlayerState::Joining);
        let story = Arc::new(Story { state, visits: Mutex::default(), leave: Notify::new() });
        let task = tokio::spawn(task(Arc::clone(&story)));
        Self { name, state: watching, story, task }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is now.
    pub fn state(&self) -> PlayerState {
        self.state.borrow().clone()
    }

    /// Every server it was on, in order.
    pub fn visits(&self) -> Vec<Visit> {
        self.story.visits.lock().clone()
    }

    /// Whether something was taken from it: its connection, or a server under its feet.
    pub fn was_harmed(&self) -> bool {
        matches!(&*self.state.borrow(), PlayerState::Lost { .. })
            || self.story.visits.lock().iter().any(|visit| visit.how == Arrival::Rescued)
    }

    /// Asks to leave; the state says when it has.
    pub fn leave(&self) {
        self.story.leave.notify_one();
    }

    /// Waits until the state is as wanted.
    ///
    /// # Errors
    /// When it is not after `limit`, or can never be.
    pub async fn wait_for(
        &self,
        limit: Duration,
        what: &str,
        wanted: impl Fn(&PlayerState) -> bool,
    ) -> Result<PlayerState> {
        let mut state = self.state.clone();
        let reached = timeout(limit, state.wait_for(|state| wanted(state) || state.is_final())).await;
        let Ok(Ok(reached)) = reached.map(|state| state.map(|state| state.clone())) else {
            bail!("{} is {} and not {what} after {limit:?}", self.name, self.state());
        };
        if !wanted(&reached) {
            bail!("{} is {reached} and not {what}", self.name);
        }
        Ok(reached)
    }

    /// Waits until it plays, and returns the server's name.
    pub async fn wait_on(&self, limit: Duration) -> Result<String> {
        match self.wait_for(limit, "on a server", |state| matches!(state, PlayerState::On { .. })).await? {
            PlayerState::On { server } => Ok(server),
            other => bail!("{} is {other}", self.name),
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Story {
    /// The player finds itself on a server.
    pub(crate) fn arrived(&self, server: String, how: Arrival) {
        self.visits.lock().push(Visit { server: server.clone(), how, at: Instant::now() });
        self.state.send_replace(PlayerState::On { server });
    }

    /// Whether it was on a server before.
    pub(crate) fn has_played(&self) -> bool {
        !self.visits.lock().is_empty()
    }

    /// Returns when the player wants to leave.
    pub(crate) async fn wants_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Nothing more happens to the player.
    pub(crate) fn end(&self, end: PlayerState) {
        self.state.send_replace(end);
    }

    /// Plays to the end, and tells what end that was.
    async fn play(&self, address: SocketAddr, player: String) -> PlayerState {
        let stream = match timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return PlayerState::Refused { why: format!("{address}: {error}") },
            Err(_) => return PlayerState::Refused { why: format!("{address}: no connection in {CONNECT_LIMIT:?}") },
        };
        let mut link = Link::new(stream);
        if let Err(error) = link.send(Request::Join { player }).await {
            return self.ended(&error.to_string());
        }
        loop {
            tokio::select! {
                answer = link.next() => match answer {
                    Ok(Some(Answer::On { server, how })) => self.arrived(server, how),
                    Ok(Some(Answer::Refused { why })) => return self.ended(&why),
                    Ok(Some(Answer::Bye)) => return self.ended("a farewell that nobody asked for"),
                    Ok(None) => return self.ended("connection closed"),
                    Err(error) => return self.ended(&error.to_string()),
                },
                () = self.wants_to_leave() => {
                    // It goes now, whatever the other side still says; an error would only mean that it is gone already.
                    let _ = link.send(Request::Leave).await;
                    return PlayerState::Left;
                }
            }
        }
    }

    /// What it means that the connection ended when the player had not asked for that.
    pub(crate) fn ended(&self, why: &str) -> PlayerState {
        let last = self.visits.lock().last().map(|visit| visit.server.clone());
        let why = why.to_owned();
        last.map_or_else(
            || PlayerState::Refused { why: why.clone() },
            |server| PlayerState::Lost { server, why: why.clone() },
        )
    }
}
