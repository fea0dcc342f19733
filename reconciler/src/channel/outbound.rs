//! What an agent is sent, and when its stream ends.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use spawnery_core::door::Out;
use spawnery_proto::v1alpha1 as proto;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use super::ChannelConfig;
use crate::hub::{Next, Session, wire};

/// A message that an agent is sent.
pub(super) trait Said: Send + Sized + 'static {
    fn interval(interval: proto::ReportInterval) -> Self;
    fn deadline(deadline: proto::SessionDeadline) -> Self;
    fn keep_alive(epoch: u64) -> Self;
    /// `None` for what such an agent is not told.
    fn out(out: Out, epoch: u64) -> Option<Self>;
}

impl Said for proto::OperatorToServer {
    fn interval(interval: proto::ReportInterval) -> Self {
        let message = Some(proto::operator_to_server::Message::ReportInterval(interval));
        Self { message }
    }

    fn deadline(deadline: proto::SessionDeadline) -> Self {
        let message = Some(proto::operator_to_server::Message::SessionDeadline(deadline));
        Self { message }
    }

    fn keep_alive(epoch: u64) -> Self {
        let message = Some(proto::operator_to_server::Message::KeepAlive(proto::KeepAlive { epoch }));
        Self { message }
    }

    fn out(out: Out, epoch: u64) -> Option<Self> {
        wire::to_server(&out, epoch)
    }
}

impl Said for proto::OperatorToProxy {
    fn interval(interval: proto::ReportInterval) -> Self {
        let message = Some(proto::operator_to_proxy::Message::ReportInterval(interval));
        Self { message }
    }

    fn deadline(deadline: proto::SessionDeadline) -> Self {
        let message = Some(proto::operator_to_proxy::Message::SessionDeadline(deadline));
        Self { message }
    }

    fn keep_alive(epoch: u64) -> Self {
        let message = Some(proto::operator_to_proxy::Message::KeepAlive(proto::KeepAlive { epoch }));
        Self { message }
    }

    fn out(out: Out, epoch: u64) -> Option<Self> {
        Some(wire::to_proxy(out, epoch))
    }
}

/// How the two directions of a session and the process tell each other that it is over.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    stop: CancellationToken,
    read: CancellationToken,
    written: CancellationToken,
}

impl Ends {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { stop, read: CancellationToken::new(), written: CancellationToken::new() }
    }

    /// Nothing more will be read.
    pub(super) fn read_to_the_end(&self) {
        self.read.cancel();
    }

    /// Waits until the outgoing stream has ended or was dropped with its connection.
    pub(super) async fn finished(&self) {
        self.written.cancelled().await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Interval,
    Deadline,
    Running,
    Over,
}

/// One session's outgoing stream: the interval, the deadline, then whatever the hub has.
pub(super) struct Outbound<Message> {
    session: Arc<Session>,
    ends: Ends,
    config: ChannelConfig,
    stage: Stage,
    /// Armed before anything is sent, so that a peer that reads nothing cannot keep its session.
    deadline: Pin<Box<Sleep>>,
    last_sent: Instant,
    _written: DropGuard,
    message: PhantomData<fn() -> Message>,
}

impl<Message: Said> Outbound<Message> {
    pub(super) fn new(session: Arc<Session>, ends: Ends, config: ChannelConfig) -> Self {
        let written = ends.written.clone().drop_guard();
        Self {
            session,
            ends,
            config,
            stage: Stage::Interval,
            deadline: Box::pin(tokio::time::sleep(config.hard_deadline)),
            last_sent: Instant::now(),
            _written: written,
            message: PhantomData,
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Message, Status>> + Send {
        futures::stream::unfold(self, |mut outbound| async move {
            let next = outbound.next().await?;
            outbound.last_sent = Instant::now();
            Some((next, outbound))
        })
    }

    async fn next(&mut self) -> Option<Result<Message, Status>> {
        match self.stage {
            Stage::Interval => {
                self.stage = Stage::Deadline;
                let seconds = whole_seconds(self.config.report_interval);
                Some(Ok(Message::interval(proto::ReportInterval { seconds })))
            }
            Stage::Deadline => {
                self.stage = Stage::Running;
                Some(Ok(Message::deadline(proto::SessionDeadline {
                    renew_after_seconds: whole_seconds(self.config.renew_after),
                    hard_deadline_seconds: whole_seconds(self.config.hard_deadline),
                })))
            }
            Stage::Running => {
                let next = self.running().await;
                if !matches!(next, Some(Ok(_))) {
                    self.stage = Stage::Over;
                }
                next
            }
            Stage::Over => None,
        }
    }

    async fn running(&mut self) -> Option<Result<Message, Status>> {
        let session = Arc::clone(&self.session);
        let speak = speak::<Message>(&session, self.last_sent, self.config.keep_alive);
        tokio::select! {
            biased;
            () = session.replaced() => Some(Err(Status::unavailable("a newer session of this pod has taken over"))),
            () = self.ends.stop.cancelled() => Some(Err(Status::unavailable("the operator ends"))),
            () = &mut self.deadline => Some(Err(Status::unavailable("the session has reached its deadline"))),
            () = self.ends.read.cancelled() => None,
            said = speak => Some(said),
        }
    }
}

/// The next thing to say, or a sign of life after a silence.
async fn speak<Message: Said>(session: &Session, last_sent: Instant, silence: Duration) -> Result<Message, Status> {
    let quiet = tokio::time::sleep_until(last_sent + silence);
    tokio::pin!(quiet);
    let mut quiet_for_now = false;
    loop {
        match session.next() {
            Next::Send(out) => {
                if let Some(message) = Message::out(out, session.epoch()) {
                    return Ok(message);
                }
            }
            Next::NotLeading => return Err(Status::unavailable("not leading")),
            Next::Wait => {
                tokio::select! {
                    () = session.woken() => {}
                    () = &mut quiet, if !quiet_for_now => {
                        if session.wants_keep_alive() {
                            return Ok(Message::keep_alive(session.epoch()));
                        }
                        quiet_for_now = true;
                    }
                }
            }
        }
    }
}

/// Seconds on the wire: whole, and never zero.
fn whole_seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs().max(1)).unwrap_or(i32::MAX)
}
