//! Keeps one session up, for ever.
//!
//! ```text
//! no stream ──dial──► attempt ──first word──► stream ──renew due──► stream + attempt ──first word──► new stream
//!     ▲  backoff         │ failed                │ ended, silent or overrun              (old one half-closed, then let go)
//!     └──────────────────┴───────────────────────┘
//! ```
//!
//! The old stream is used until the operator has spoken on the new one, so there is no moment without a session.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, pending};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::transport::Channel;
use tracing::{debug, info, warn};

use crate::clock;
use crate::dial::{DialError, Dialer, Opened, Words};
use crate::session::backoff::Backoff;
use crate::session::deadlines::{Deadlines, Due, Known, Timing};
use crate::session::state::Heard;
use crate::session::{Incoming, Outgoing};
use crate::shared::Shared;

/// How long to sleep when nothing is due; anything that happens wakes earlier.
const IDLE: Duration = Duration::from_hours(1);

struct Stream {
    tx: mpsc::Sender<Outgoing>,
    words: Words,
    deadlines: Deadlines,
    _channel: Channel,
}

/// The driver of the session.
pub struct Keeper {
    shared: Arc<Shared>,
    dialer: Dialer,
    timing: Timing,
    tracker: TaskTracker,
    backoff: Backoff,
    known: Known,
    stream: Option<Stream>,
    attempt: Option<BoxFuture<'static, Result<Opened, DialError>>>,
    retry_at: Instant,
    last_failure: Option<String>,
}

impl Keeper {
    /// For the state in `shared`; streams that are let go end in `tracker`.
    pub fn new(shared: Arc<Shared>, dialer: Dialer, timing: Timing, tracker: TaskTracker) -> Self {
        Self {
            shared,
            dialer,
            timing,
            tracker,
            backoff: Backoff::new(timing.backoff_first, timing.backoff_cap),
            known: Known::default(),
            stream: None,
            attempt: None,
            retry_at: clock::now(),
            last_failure: None,
        }
    }

    /// Runs until `stop`; then the stream is half-closed.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            self.act(clock::now());
            let wake = tokio::time::Instant::from_std(self.next_wake(clock::now()));
            let tx = self.stream.as_ref().map(|stream| stream.tx.clone());
            let waiting = tx.filter(|_| self.shared.with(|state| state.has_outgoing()));
            tokio::select! {
                // What the operator has said counts before what time says: after a pause of this process the words are
                // there, and the deadlines are past.
                biased;
                () = stop.cancelled() => break,
                word = next_word(&mut self.stream) => self.on_word(word),
                opened = outcome(&mut self.attempt) => self.on_outcome(opened),
                permit = room(waiting) => {
                    if let Some(message) = self.shared.with(crate::session::state::State::next_outgoing) {
                        permit.send(message);
                    }
                }
                () = self.shared.outgoing() => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        if let Some(stream) = self.stream.take() {
            self.let_go(stream);
        }
        self.shared.with(crate::session::state::State::end);
    }

    /// Does what is due at `now`.
    fn act(&mut self, now: Instant) {
        if self.stream.is_some() && self.shared.with(|state| state.overrun()) {
            self.lose(now, "the operator does not read", false);
        }
        while let Some(due) = self.stream.as_ref().and_then(|stream| stream.deadlines.due(now)) {
            match due {
                Due::Silent => self.lose(now, "the operator has fallen silent", true),
                Due::Renew => {
                    self.deadlines(|deadlines| deadlines.renewing(None));
                    self.dial();
                }
                Due::Report => {
                    self.shared.with(crate::session::state::State::report);
                    self.deadlines(|deadlines| deadlines.reported(now));
                }
            }
        }
        if self.stream.is_none() && self.retry_at <= now {
            self.dial();
        }
    }

    fn deadlines(&mut self, change: impl FnOnce(&mut Deadlines)) {
        if let Some(stream) = &mut self.stream {
            change(&mut stream.deadlines);
        }
    }

    fn dial(&mut self) {
        if self.attempt.is_none() {
            let hello = self.shared.with(|state| state.hello());
            let limit = self.known.first_message(&self.timing);
            self.attempt = Some(Box::pin(self.dialer.clone().open(hello, limit)));
        }
    }

    fn next_wake(&self, now: Instant) -> Instant {
        let due = match &self.stream {
            Some(stream) => stream.deadlines.next(),
            None if self.attempt.is_none() => Some(self.retry_at),
            None => None,
        };
        due.unwrap_or_else(|| now + IDLE)
    }

    fn on_word(&mut self, word: Option<Result<Option<Incoming>, Status>>) {
        match word {
            Some(Ok(message)) => self.hear(message.as_ref()),
            Some(Err(status)) => self.lose(clock::now(), status.message(), false),
            None => self.lose(clock::now(), "the operator ended the session", false),
        }
    }

    fn hear(&mut self, message: Option<&Incoming>) {
        let heard = message.map_or(Heard::Fresh, |message| self.shared.with(|state| state.hear(message)));
        if heard == Heard::Fenced {
            warn!(message = ?message, "dropped a message of an earlier leader");
            return;
        }
        self.backoff.reset();
        if let Some(stream) = &mut self.stream {
            stream.deadlines.heard(message, clock::now(), rand::random());
            self.known = stream.deadlines.known(false);
        }
    }

    fn on_outcome(&mut self, outcome: Result<Opened, DialError>) {
        self.attempt = None;
        match outcome {
            Ok(opened) => self.switch(opened),
            Err(error) => self.failed(&error),
        }
    }

    fn switch(&mut self, opened: Opened) {
        let Opened { hello, first, tx, words, channel } = opened;
        let deadlines = Deadlines::new(self.timing, self.known, clock::now());
        let old = self.stream.replace(Stream { tx, words, deadlines, _channel: channel });
        let renewed = old.is_some();
        if let Some(old) = old {
            self.let_go(old);
        }
        self.shared.with(|state| state.begin(&hello));
        self.last_failure = None;
        info!(renewed, "session is up");
        self.hear(first.as_ref());
    }

    fn failed(&mut self, error: &DialError) {
        let now = clock::now();
        let delay = self.backoff.next_delay(rand::random());
        let again = now + delay;
        match &mut self.stream {
            // A renewal that failed costs nothing yet; the old stream goes on to its deadline.
            Some(stream) => stream.deadlines.renewing(Some(again)),
            None => self.retry_at = again,
        }
        let error = chain(error);
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        // One warning a cause: an operator that is down for an hour must not fill the logs of every pod.
        if self.last_failure.as_ref() == Some(&error) {
            debug!(%error, delay_ms, "still no session");
        } else {
            warn!(%error, delay_ms, "no session; trying again for ever");
            self.last_failure = Some(error);
        }
    }

    /// The stream is of no more use.
    fn lose(&mut self, now: Instant, why: &str, fell_silent: bool) {
        let Some(stream) = self.stream.take() else { return };
        self.known = stream.deadlines.known(fell_silent);
        self.shared.with(crate::session::state::State::end);
        self.retry_at = now + self.backoff.next_delay(rand::random());
        info!(reason = why, "session is down");
    }

    /// Half-closes the stream and reads it to its end, so that what was said on it still arrives.
    fn let_go(&self, stream: Stream) {
        let Stream { tx, mut words, _channel: channel, .. } = stream;
        drop(tx);
        let linger = self.timing.linger;
        self.tracker.spawn(async move {
            let to_the_end = async { while let Some(Ok(_)) = words.next().await {} };
            // Ended or not, it is dropped now.
            let _ended = tokio::time::timeout(linger, to_the_end).await;
            drop(channel);
        });
    }
}

async fn next_word(stream: &mut Option<Stream>) -> Option<Result<Option<Incoming>, Status>> {
    match stream {
        Some(stream) => stream.words.next().await,
        None => pending().await,
    }
}

async fn outcome<T>(attempt: &mut Option<BoxFuture<'static, T>>) -> T {
    match attempt {
        Some(attempt) => Pin::new(attempt).await,
        None => pending().await,
    }
}

/// Waits for room on the stream. A stream whose transport is gone has none; its words end, which says so.
async fn room(tx: Option<mpsc::Sender<Outgoing>>) -> mpsc::OwnedPermit<Outgoing> {
    match tx {
        Some(tx) => match tx.reserve_owned().await {
            Ok(permit) => permit,
            Err(_closed) => pending().await,
        },
        None => pending().await,
    }
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}
