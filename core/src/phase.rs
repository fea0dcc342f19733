//! The phase machine of a server: what it is doing, and what follows from what we see of its pod, its agent and its owner.
//!
//! ```text
//! Pending ──► Starting ⇄ Ready ──► Retiring ──► Draining ──► Terminating
//!    └───────────┴─────────┴───► Failed ────────────┘
//! ```
//!
//! [`decide`] takes one step. Deadlines come in as facts ("reached"), because who counts them and when their clock stands
//! still is the business of [`crate::drain`].

use std::time::Duration;

/// How long an agent's stream may be down before its server counts as not ready.
pub const STREAM_GRACE: Duration = Duration::from_secs(15);
/// How long a server must stay ready before its earlier losses of readiness are forgiven.
pub const FLAP_RESET: Duration = Duration::from_mins(10);
/// Losses of readiness after which a server counts as broken.
pub const MAX_READINESS_LOSSES: u32 = 3;
/// Container restarts from which on a crash loop counts as the end of the pod.
pub const MAX_CONTAINER_RESTARTS: u32 = 3;

/// What a server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has no running pod yet.
    Pending,
    /// Its pod runs and it is not ready to take players.
    Starting,
    /// Players may be on it.
    Ready,
    /// It takes nobody new and leaves its players alone, to be replaced when they are gone.
    Retiring,
    /// It takes nobody new and its players are moved away.
    Draining,
    /// Its pod is being deleted.
    Terminating,
    /// It broke and is kept for somebody to look at.
    Failed,
}

impl Phase {
    /// As it stands in `status.phase`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Starting => "Starting",
            Self::Ready => "Ready",
            Self::Retiring => "Retiring",
            Self::Draining => "Draining",
            Self::Terminating => "Terminating",
            Self::Failed => "Failed",
        }
    }

    /// Reads `status.phase`; a server without a status is pending. `None` for a phase nobody of us writes.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" | "Pending" => Self::Pending,
            "Starting" => Self::Starting,
            "Ready" => Self::Ready,
            "Retiring" => Self::Retiring,
            "Draining" => Self::Draining,
            "Terminating" => Self::Terminating,
            "Failed" => Self::Failed,
            _ => return None,
        })
    }

    /// Whether a server in this phase is on its way out and will not come back.
    pub const fn leaving(self) -> bool {
        matches!(self, Self::Retiring | Self::Draining | Self::Terminating)
    }
}

/// Why a step was taken: the reason of the `Ready` condition and of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is named as users read it; behaviour is told at `decide`")]
pub enum Reason {
    Terminating,
    DrainingBeforeCleanup,
    DeletionRequested,
    PodTerminating,
    RetentionElapsed,
    PodTerminal,
    PodLost,
    Drained,
    DrainTimeout,
    MaxStaleElapsed,
    AgentSilent,
    Retiring,
    UnknownPhase,
    Flapping,
    StartupTimeout,
    PodRunning,
    PodPending,
    ReadyGatePassed,
    ReadinessLost,
}

impl Reason {
    /// As it stands in conditions and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminating => "Terminating",
            Self::DrainingBeforeCleanup => "DrainingBeforeCleanup",
            Self::DeletionRequested => "DeletionRequested",
            Self::PodTerminating => "PodTerminating",
            Self::RetentionElapsed => "RetentionElapsed",
            Self::PodTerminal => "PodTerminal",
            Self::PodLost => "PodLost",
            Self::Drained => "Drained",
            Self::DrainTimeout => "DrainTimeout",
            Self::MaxStaleElapsed => "MaxStaleElapsed",
            Self::AgentSilent => "AgentSilent",
            Self::Retiring => "Retiring",
            Self::UnknownPhase => "UnknownPhase",
            Self::Flapping => "Flapping",
            Self::StartupTimeout => "StartupTimeout",
            Self::PodRunning => "PodRunning",
            Self::PodPending => "PodPending",
            Self::ReadyGatePassed => "ReadyGatePassed",
            Self::ReadinessLost => "ReadinessLost",
        }
    }
}

/// Everything a step depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inputs {
    /// The phase so far; `None` when the status holds a phase nobody of us writes.
    pub phase: Option<Phase>,
    /// The Server object has a deletion timestamp.
    pub deletion_requested: bool,
    /// The group wants this server replaced (`spec.retire`).
    pub retire: bool,
    /// The pod is there and not being deleted.
    pub pod_exists: bool,
    /// Somebody deleted the pod past us, and its game may still run for as long as its grace lasts.
    pub pod_terminating: bool,
    /// A pod was made for this server and is gone, or its game ended while it was being deleted.
    pub pod_lost: bool,
    /// The pod ended, or its game crash-loops beyond [`MAX_CONTAINER_RESTARTS`].
    pub pod_terminal: bool,
    /// The pod's phase is Running.
    pub pod_running: bool,
    /// The kubelet says Ready.
    pub pod_ready: bool,
    /// The agent's stream is up.
    pub agent_connected: bool,
    /// The agent said that its game is ready, on the stream that is up.
    pub agent_ready: bool,
    /// How long the stream has been down, as far as it may be charged; zero while it is up.
    pub stream_down: Duration,
    /// Somebody is on it, or may be.
    pub occupied: bool,
    /// It was in a directory of the proxies at some time.
    pub was_registered: bool,
    /// Losses of readiness so far.
    pub readiness_losses: u32,
    /// It was starting for longer than the startup deadline allows.
    pub startup_deadline_reached: bool,
    /// The deadline for moving its players has passed.
    pub drain_deadline_reached: bool,
    /// It has been retiring for longer than its group allows.
    pub max_stale_reached: bool,
    /// Nobody could count its players, nor heard that its game is up, for longer than the startup deadline allows.
    pub silence_deadline_reached: bool,
    /// It was kept as failed for as long as its group wants.
    pub retention_elapsed: bool,
    /// How long it has been ready without a break.
    pub ready_for: Duration,
}

/// What happens to the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodEffect {
    /// It stays.
    #[default]
    Keep,
    /// It is deleted.
    Delete,
}

/// What happens to the server's place in the proxies' directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Registration {
    /// As it is.
    #[default]
    Keep,
    /// Proxies may send players to it.
    Register,
    /// Proxies send nobody to it any more.
    Deregister,
}

/// What happens to the count of readiness losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Losses {
    /// As it is.
    #[default]
    Keep,
    /// One more.
    Count,
    /// Back to none.
    Reset,
}

/// What follows from a step beside the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effects {
    /// For the pod.
    pub pod: PodEffect,
    /// For the directories.
    pub registration: Registration,
    /// For the count of losses.
    pub losses: Losses,
    /// Players are told to move (once for each drain).
    pub start_drain: bool,
}

/// One step of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The phase from now on.
    pub phase: Phase,
    /// Why.
    pub reason: Reason,
    /// What else follows.
    pub effects: Effects,
}

impl Decision {
    const fn new(phase: Phase, reason: Reason) -> Self {
        let effects = Effects {
            pod: PodEffect::Keep,
            registration: Registration::Keep,
            losses: Losses::Keep,
            start_drain: false,
        };
        Self { phase, reason, effects }
    }

    const fn terminate(reason: Reason) -> Self {
        let mut decision = Self::new(Phase::Terminating, reason);
        decision.effects.pod = PodEffect::Delete;
        decision
    }

    const fn drain(mut self, start: bool) -> Self {
        self.effects.start_drain = start;
        self
    }

    const fn deregister(mut self, registered: bool) -> Self {
        if registered {
            self.effects.registration = Registration::Deregister;
        }
        self
    }
}

/// Takes one step: the first rule that fits, from top to bottom.
pub fn decide(inputs: &Inputs) -> Decision {
    match inputs.phase {
        None => Decision::new(Phase::Pending, Reason::UnknownPhase),
        Some(Phase::Terminating) => Decision::terminate(Reason::Terminating),
        Some(Phase::Failed) => failed(inputs),
        Some(Phase::Draining) => draining(inputs),
        Some(Phase::Retiring) => retiring(inputs),
        Some(phase @ (Phase::Pending | Phase::Starting | Phase::Ready)) => live(inputs, phase),
    }
}

fn failed(inputs: &Inputs) -> Decision {
    if !inputs.deletion_requested && !inputs.retention_elapsed {
        return Decision::new(Phase::Failed, Reason::PodTerminal);
    }
    let somebody_to_move = inputs.occupied
        && inputs.was_registered
        && !inputs.pod_lost
        && !inputs.pod_terminal
        && !inputs.drain_deadline_reached;
    if somebody_to_move {
        Decision::new(Phase::Failed, Reason::DrainingBeforeCleanup).drain(true)
    } else if inputs.deletion_requested {
        Decision::terminate(Reason::DeletionRequested)
    } else {
        Decision::terminate(Reason::RetentionElapsed)
    }
}

fn draining(inputs: &Inputs) -> Decision {
    if inputs.pod_lost {
        Decision::terminate(Reason::PodLost)
    } else if inputs.pod_terminal {
        Decision::terminate(Reason::PodTerminal)
    } else if !inputs.occupied {
        Decision::terminate(Reason::Drained)
    } else if inputs.drain_deadline_reached {
        Decision::terminate(Reason::DrainTimeout)
    } else if inputs.pod_terminating && !inputs.deletion_requested {
        Decision::new(Phase::Draining, Reason::PodTerminating)
    } else {
        Decision::new(Phase::Draining, Reason::DeletionRequested)
    }
}

fn retiring(inputs: &Inputs) -> Decision {
    if inputs.pod_lost {
        Decision::terminate(Reason::PodLost)
    } else if inputs.pod_terminal {
        Decision::terminate(Reason::PodTerminal)
    } else if !inputs.occupied {
        Decision::terminate(Reason::Drained)
    } else if inputs.deletion_requested {
        Decision::new(Phase::Draining, Reason::DeletionRequested).drain(true)
    } else if inputs.pod_terminating {
        Decision::new(Phase::Draining, Reason::PodTerminating).drain(true)
    } else if inputs.max_stale_reached {
        Decision::new(Phase::Draining, Reason::MaxStaleElapsed).drain(true)
    } else if inputs.silence_deadline_reached {
        // It waits for players whom nobody sees, and would for ever. A ready server fails after as long and is drained too.
        Decision::new(Phase::Draining, Reason::AgentSilent).drain(true)
    } else {
        Decision::new(Phase::Retiring, Reason::Retiring)
    }
}

fn live(inputs: &Inputs, phase: Phase) -> Decision {
    let ready = phase == Phase::Ready;
    if inputs.pod_lost {
        return Decision::terminate(Reason::PodLost).deregister(ready);
    }
    if inputs.deletion_requested {
        return if ready || inputs.was_registered {
            Decision::new(Phase::Draining, Reason::DeletionRequested).drain(true).deregister(ready)
        } else {
            Decision::terminate(Reason::DeletionRequested)
        };
    }
    if inputs.pod_terminating {
        // The pod cannot be kept, but its players can be moved for as long as its grace lasts.
        return if ready || inputs.was_registered {
            Decision::new(Phase::Draining, Reason::PodTerminating).drain(true).deregister(ready)
        } else {
            Decision::terminate(Reason::PodLost)
        };
    }
    if inputs.pod_terminal {
        // The game is gone and its players with it: there is nobody to move.
        return Decision::new(Phase::Failed, Reason::PodTerminal).deregister(ready);
    }
    if inputs.readiness_losses >= MAX_READINESS_LOSSES {
        return Decision::new(Phase::Failed, Reason::Flapping).drain(inputs.was_registered).deregister(ready);
    }
    if inputs.startup_deadline_reached && !ready {
        return Decision::new(Phase::Failed, Reason::StartupTimeout).drain(inputs.was_registered);
    }
    match phase {
        Phase::Ready => serving(inputs),
        Phase::Starting => starting(inputs),
        _ if inputs.pod_exists && inputs.pod_running => Decision::new(Phase::Starting, Reason::PodRunning),
        _ => Decision::new(Phase::Pending, Reason::PodPending),
    }
}

fn starting(inputs: &Inputs) -> Decision {
    let gate = inputs.pod_exists
        && inputs.pod_running
        && inputs.pod_ready
        && inputs.agent_ready
        && inputs.stream_down < STREAM_GRACE;
    if !gate {
        return Decision::new(Phase::Starting, Reason::PodPending);
    }
    let mut decision = Decision::new(Phase::Ready, Reason::ReadyGatePassed);
    decision.effects.registration = Registration::Register;
    decision
}

fn serving(inputs: &Inputs) -> Decision {
    let lost = !inputs.pod_ready
        || (inputs.agent_connected && !inputs.agent_ready)
        || (!inputs.agent_connected && inputs.stream_down >= STREAM_GRACE);
    if lost {
        let mut decision = Decision::new(Phase::Starting, Reason::ReadinessLost).deregister(true);
        decision.effects.losses = Losses::Count;
        return decision;
    }
    if inputs.retire {
        return Decision::new(Phase::Retiring, Reason::Retiring).deregister(true);
    }
    let mut decision = Decision::new(Phase::Ready, Reason::ReadyGatePassed);
    if inputs.readiness_losses > 0 && inputs.ready_for >= FLAP_RESET {
        decision.effects.losses = Losses::Reset;
    }
    decision
}

#[cfg(test)]
#[path = "phase_tests.rs"]
mod tests;
