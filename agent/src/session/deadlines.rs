//! When something is due on a stream: a report, a renewal, or giving it up as dead.

use std::time::{Duration, Instant};

use super::Incoming;
use super::backoff::spread;

/// The clocks of a session. Defaults are the protocol's; tests run with shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Silence after which an operator that sends keep-alives (every 5 s) is taken for dead.
    pub silence: Duration,
    /// How long a stream may go unanswered before any hard deadline was stated; upstream's.
    pub unanswered: Duration,
    /// What an operator that ends its streams itself may be late.
    pub slack: Duration,
    /// TCP and TLS.
    pub connect: Duration,
    /// First reconnect delay.
    pub backoff_first: Duration,
    /// Longest reconnect delay.
    pub backoff_cap: Duration,
    /// How long a stream that was half-closed may take to end.
    pub linger: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(15),
            unanswered: Duration::from_mins(5),
            slack: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            backoff_first: super::backoff::FIRST,
            backoff_cap: super::backoff::CAP,
            linger: Duration::from_secs(5),
        }
    }
}

/// What earlier streams have shown about the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// It sends keep-alives.
    pub keep_alive: bool,
    /// The last hard deadline that it stated.
    pub hard_deadline: Option<Duration>,
}

impl Known {
    /// How long a new stream may go without a first message. Every operator greets at once; but only from one that sends
    /// keep-alives is silence a sign of anything.
    pub fn first_message(&self, timing: &Timing) -> Duration {
        if self.keep_alive { timing.silence } else { self.hard_deadline.unwrap_or(timing.unanswered) }
    }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send the count again.
    Report,
    /// Open the next session beside this one.
    Renew,
    /// Nothing was heard for too long: this stream is dead.
    Silent,
}

/// The clocks of one stream.
#[derive(Clone, Debug)]
pub struct Deadlines {
    timing: Timing,
    known: Known,
    opened: Instant,
    heard: Instant,
    shown_keep_alive: bool,
    report_every: Option<Duration>,
    report_at: Option<Instant>,
    renew_at: Option<Instant>,
}

impl Deadlines {
    /// For a stream that was opened and first answered at `now`.
    pub fn new(timing: Timing, known: Known, now: Instant) -> Self {
        Self {
            timing,
            known,
            opened: now,
            heard: now,
            shown_keep_alive: false,
            report_every: None,
            report_at: None,
            renew_at: None,
        }
    }

    /// Takes a message heard at `now`; `jitter` from 0 to 1 spreads a renewal over ±10 %.
    pub fn heard(&mut self, message: Option<&Incoming>, now: Instant, jitter: f64) {
        self.heard = now;
        let Some(message) = message else { return };
        self.shown_keep_alive |= message.shows_keep_alive();
        self.known.keep_alive |= self.shown_keep_alive;
        match message {
            Incoming::ReportInterval(every) => {
                self.report_every = Some(*every);
                self.report_at = Some(now);
            }
            Incoming::SessionDeadline { renew_after, hard_deadline } => {
                self.known.hard_deadline = Some(*hard_deadline);
                // Each deadline message would schedule a renewal of its own; the first on a stream counts.
                if self.renew_at.is_none() {
                    self.renew_at = self.opened.checked_add(spread(*renew_after, jitter));
                }
            }
            _ => {}
        }
    }

    /// What this stream and those before it have shown. A stream that fell silent without ever having shown that its
    /// operator sends keep-alives ends the belief in them: that operator is another than the last one.
    pub fn known(&self, fell_silent: bool) -> Known {
        Known { keep_alive: self.known.keep_alive && (self.shown_keep_alive || !fell_silent), ..self.known }
    }

    /// A report was sent at `now`: the next is due an interval later.
    pub fn reported(&mut self, now: Instant) {
        self.report_at = self.report_every.and_then(|every| now.checked_add(every));
    }

    /// The renewal is under way; another attempt is due at `retry`, if at all.
    pub fn renewing(&mut self, retry: Option<Instant>) {
        self.renew_at = retry;
    }

    /// When the stream counts as dead if nothing is heard before.
    fn silent_at(&self) -> Option<Instant> {
        if self.known.keep_alive {
            return self.heard.checked_add(self.timing.silence);
        }
        match self.known.hard_deadline {
            // Such an operator says nothing for minutes, but ends the stream at its deadline.
            Some(hard) => self.opened.checked_add(hard)?.checked_add(self.timing.slack),
            None => self.heard.checked_add(self.timing.unanswered),
        }
    }

    /// The earliest moment at which something may be due.
    pub fn next(&self) -> Option<Instant> {
        [self.report_at, self.renew_at, self.silent_at()].into_iter().flatten().min()
    }

    /// What is due at `now`; the gravest first.
    pub fn due(&self, now: Instant) -> Option<Due> {
        let passed = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if passed(self.silent_at()) {
            Some(Due::Silent)
        } else if passed(self.renew_at) {
            Some(Due::Renew)
        } else if passed(self.report_at) {
            Some(Due::Report)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const INTERVAL: Incoming = Incoming::ReportInterval(Duration::from_secs(5));
    const DEADLINE: Incoming =
        Incoming::SessionDeadline { renew_after: Duration::from_mins(8), hard_deadline: Duration::from_mins(10) };
    const KEEP_ALIVE: Incoming = Incoming::KeepAlive { epoch: 1 };

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A stream of which each message was heard at the second beside it; due `ask` seconds after opening.
    fn due_after(known: Known, heard: &[(u64, Incoming)], ask: u64) -> Option<Due> {
        let opened = Instant::now();
        let mut deadlines = Deadlines::new(Timing::default(), known, opened);
        for (at, message) in heard {
            deadlines.heard(Some(message), opened + secs(*at), 0.5);
            if matches!(message, Incoming::ReportInterval(_)) {
                deadlines.reported(opened + secs(*at));
            }
        }
        deadlines.due(opened + secs(ask))
    }

    const OURS: Known = Known { keep_alive: true, hard_deadline: Some(Duration::from_mins(10)) };

    #[rstest]
    #[case::nothing_yet(Known::default(), &[(0, INTERVAL)], 4, None)]
    #[case::report(Known::default(), &[(0, INTERVAL)], 5, Some(Due::Report))]
    #[case::renewal(Known::default(), &[(0, DEADLINE)], 480, Some(Due::Renew))]
    #[case::upstream_may_be_silent_for_minutes(Known::default(), &[(0, DEADLINE)], 479, None)]
    #[case::upstream_overdue(Known::default(), &[(0, DEADLINE)], 610, Some(Due::Silent))]
    #[case::nothing_ever_stated(Known::default(), &[], 300, Some(Due::Silent))]
    #[case::keep_alive_then_silence(Known::default(), &[(0, DEADLINE), (5, KEEP_ALIVE)], 20, Some(Due::Silent))]
    #[case::keep_alives_go_on(Known::default(), &[(0, DEADLINE), (5, KEEP_ALIVE), (10, KEEP_ALIVE)], 24, None)]
    #[case::known_from_before(OURS, &[], 15, Some(Due::Silent))]
    #[case::a_second_deadline_message_changes_nothing(Known::default(), &[(0, DEADLINE), (100, DEADLINE)], 480, Some(Due::Renew))]
    fn is_due(#[case] known: Known, #[case] heard: &[(u64, Incoming)], #[case] ask: u64, #[case] want: Option<Due>) {
        assert_eq!(due_after(known, heard, ask), want);
    }

    #[test]
    fn belief_in_keep_alives_ends_with_a_stream_that_showed_none() {
        let now = Instant::now();
        let mut upstreams = Deadlines::new(Timing::default(), OURS, now);
        upstreams.heard(Some(&INTERVAL), now, 0.5);
        assert!(!upstreams.known(true).keep_alive);
        assert!(upstreams.known(false).keep_alive, "ended by the operator: nothing learned");
        let mut ours = Deadlines::new(Timing::default(), OURS, now);
        ours.heard(Some(&KEEP_ALIVE), now, 0.5);
        assert!(ours.known(true).keep_alive, "a frozen operator is not another operator");
    }

    #[rstest]
    #[case::never_heard_anything(Known::default(), 300)]
    #[case::upstream(Known { keep_alive: false, hard_deadline: Some(Duration::from_mins(10)) }, 600)]
    #[case::ours(OURS, 15)]
    fn bound_of_the_first_message(#[case] known: Known, #[case] want: u64) {
        assert_eq!(known.first_message(&Timing::default()), secs(want));
    }
}
