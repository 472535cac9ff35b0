//! The one table of what may happen to a pipeline: every event in every status (DESIGN §5).
//!
//! The store loads a `Lifecycle` under a row lock, applies an event, and writes the step back, so
//! that the rules stand here once. The database's own transition trigger is held to this table by a
//! test, and the drawing in `docs/architecture.md` shows it.

use std::collections::BTreeSet;

use crate::{RunStatus, Status, words::words};

/// All that decides what an event leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lifecycle {
    pub status: Status,
    pub enabled: bool,
    /// Someone cancelled the open run; wins over everything that comes later.
    pub cancel_requested: bool,
    /// The pause came from `disable`, so `enable` resumes it.
    pub paused_by_disable: bool,
    /// One more request is waiting for the end of the open run.
    pub pending: bool,
}

words! {
    /// What a run request does when a run is already open.
    OnActive, "on_active" {
        /// Answer with the open run.
        Join = "join",
        /// Run once more when the open run has ended.
        After = "after",
        Reject = "reject",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    Run(OnActive),
    ScheduleDue,
    Pause,
    Cancel,
    Disable,
    Enable,
    /// A runner takes a requested pipeline, or one whose lease has expired.
    Claim,
    BatchDone,
    DataEnd,
    /// A runner gives the pipeline back: it drains, or has lost a connection.
    Release,
    /// An error that cannot pass, or retries or stalls spent.
    Fail,
    /// The same, of a backfill or a rollback: the pipeline itself is as it was before, in this status.
    FailBeside(Status),
}

impl Event {
    pub const ALL: [Event; 16] = [
        Self::Run(OnActive::Join),
        Self::Run(OnActive::After),
        Self::Run(OnActive::Reject),
        Self::ScheduleDue,
        Self::Pause,
        Self::Cancel,
        Self::Disable,
        Self::Enable,
        Self::Claim,
        Self::BatchDone,
        Self::DataEnd,
        Self::Release,
        Self::Fail,
        Self::FailBeside(Status::Idle),
        Self::FailBeside(Status::Paused),
        Self::FailBeside(Status::Failed),
    ];
}

/// What an accepted event does besides moving the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effect {
    pub close_run: Option<RunStatus>,
    pub open_run: bool,
    /// The caller is answered with the run that is open already.
    pub join_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the pipeline is disabled")]
    Disabled,
    #[error("a run is already active")]
    Active,
    #[error("the pipeline is pausing")]
    Pausing,
    #[error("the active run is being cancelled")]
    Cancelling,
    #[error("the pipeline has failed: there is nothing to pause")]
    Failed,
    #[error("the pipeline is idle: there is nothing to cancel")]
    Idle,
    /// A runner's event in a status no runner can be in: its lease is lost.
    #[error("no runner holds this pipeline")]
    NotHeld,
}

impl Refusal {
    pub const fn code(self) -> &'static str {
        match self {
            Self::Disabled => "pipeline.disabled",
            Self::Active => "pipeline.active",
            Self::Pausing => "pipeline.pausing",
            Self::Cancelling => "pipeline.cancelling",
            Self::Failed => "pipeline.failed",
            Self::Idle => "pipeline.idle",
            Self::NotHeld => "lease.lost",
        }
    }

    pub const fn hint(self) -> &'static str {
        match self {
            Self::Disabled => "enable the pipeline first",
            Self::Active => "wait for it, cancel it, or ask with on_active \"join\" or \"after\"",
            Self::Pausing => "ask again once it is PAUSED",
            Self::Cancelling => "ask again once it is IDLE",
            Self::Failed => "run it again, or cancel to set it back to IDLE",
            Self::Idle => "run it first",
            Self::NotHeld => "another runner goes on from the checkpoint",
        }
    }
}

type Step = (Lifecycle, Effect);

impl Lifecycle {
    pub const fn new(status: Status, enabled: bool) -> Self {
        Self { status, enabled, cancel_requested: false, paused_by_disable: false, pending: false }
    }

    /// Every combination of status and flags, reachable or not.
    pub fn all() -> impl Iterator<Item = Self> {
        Status::ALL.iter().flat_map(|&status| {
            (0..16u8).map(move |flags| Self {
                status,
                enabled: flags & 1 != 0,
                cancel_requested: flags & 2 != 0,
                paused_by_disable: flags & 4 != 0,
                pending: flags & 8 != 0,
            })
        })
    }

    /// The changes of status that some event makes somewhere: all that the database has to let pass.
    pub fn transitions() -> BTreeSet<(Status, Status)> {
        let steps = Self::all().flat_map(|from| Event::ALL.map(|event| (from, from.apply(event))));
        steps
            .filter_map(|(from, step)| step.ok().map(|(next, _)| (from.status, next.status)))
            .filter(|(old, new)| old != new)
            .collect()
    }

    /// Where an event leads from here, or why it is refused. A refusal changes nothing.
    pub fn apply(self, event: Event) -> Result<Step, Refusal> {
        match event {
            Event::Run(on_active) => self.run(on_active),
            Event::ScheduleDue => Ok(self.schedule_due()),
            Event::Pause => self.pause(),
            Event::Cancel => self.cancel(),
            Event::Disable => Ok(self.disable()),
            Event::Enable => Ok(self.enable()),
            Event::Claim => self.claim(),
            Event::BatchDone | Event::DataEnd | Event::Release | Event::Fail | Event::FailBeside(_) => {
                self.runner_event(event)
            }
        }
    }

    fn run(self, on_active: OnActive) -> Result<Step, Refusal> {
        match self.status {
            _ if !self.enabled => Err(Refusal::Disabled),
            Status::Idle | Status::Paused | Status::Failed => Ok(self.open()),
            Status::PauseRequested => Err(Refusal::Pausing),
            Status::RunRequested | Status::Running if self.cancel_requested => Err(Refusal::Cancelling),
            Status::RunRequested | Status::Running => match on_active {
                OnActive::Join => Ok((self, Effect { join_run: true, ..Effect::default() })),
                OnActive::After => Ok((Self { pending: true, ..self }, Effect::default())),
                OnActive::Reject => Err(Refusal::Active),
            },
        }
    }

    fn schedule_due(self) -> Step {
        match self.status {
            Status::Idle if self.enabled => self.open(),
            Status::Running if self.enabled && !self.cancel_requested => {
                (Self { pending: true, ..self }, Effect::default())
            }
            _ => (self, Effect::default()),
        }
    }

    fn pause(self) -> Result<Step, Refusal> {
        let by_person = Self { paused_by_disable: false, ..self };
        match self.status {
            Status::Idle | Status::Paused => Ok((by_person.to(Status::Paused), Effect::default())),
            Status::RunRequested => Ok((by_person.to(Status::Paused), close(RunStatus::Paused))),
            Status::Running | Status::PauseRequested => {
                Ok((by_person.to(Status::PauseRequested), Effect::default()))
            }
            Status::Failed => Err(Refusal::Failed),
        }
    }

    fn cancel(self) -> Result<Step, Refusal> {
        let dropped = Self { pending: false, ..self };
        match self.status {
            Status::Idle => Err(Refusal::Idle),
            Status::RunRequested => Ok(dropped.cancelled()),
            Status::Running | Status::PauseRequested => {
                Ok((Self { cancel_requested: true, ..dropped }, Effect::default()))
            }
            Status::Paused | Status::Failed => {
                Ok((Self { paused_by_disable: false, ..dropped }.to(Status::Idle), Effect::default()))
            }
        }
    }

    fn disable(self) -> Step {
        let disabled = Self { enabled: false, ..self };
        match self.status {
            Status::RunRequested => disabled.cancelled(),
            Status::Running => {
                (Self { paused_by_disable: true, ..disabled }.to(Status::PauseRequested), Effect::default())
            }
            _ => (disabled, Effect::default()),
        }
    }

    fn enable(self) -> Step {
        let enabled = Self { enabled: true, ..self };
        match self.status {
            Status::Paused if self.paused_by_disable => enabled.open(),
            _ => (enabled, Effect::default()),
        }
    }

    fn claim(self) -> Result<Step, Refusal> {
        match self.status {
            Status::Running | Status::PauseRequested if self.cancel_requested => Ok(self.cancelled()),
            Status::RunRequested if self.enabled => Ok((self.to(Status::Running), Effect::default())),
            Status::Running => Ok((self, Effect::default())),
            Status::PauseRequested => Ok(self.paused(RunStatus::Paused)),
            _ => Err(Refusal::NotHeld),
        }
    }

    fn runner_event(self, event: Event) -> Result<Step, Refusal> {
        match (self.status, event) {
            (Status::Running | Status::PauseRequested, _) if self.cancel_requested => Ok(self.cancelled()),
            (Status::Running | Status::PauseRequested, Event::Fail) => Ok(self.failed()),
            (Status::Running | Status::PauseRequested, Event::FailBeside(before)) => {
                Ok(self.failed_beside(before))
            }
            (Status::Running, Event::DataEnd) => Ok(self.succeeded()),
            (Status::Running, Event::Release) => Ok((self.to(Status::RunRequested), Effect::default())),
            (Status::Running, _) => Ok((self, Effect::default())),
            (Status::PauseRequested, Event::DataEnd) => Ok(self.paused(RunStatus::Success)),
            (Status::PauseRequested, _) => Ok(self.paused(RunStatus::Paused)),
            _ => Err(Refusal::NotHeld),
        }
    }

    const fn to(self, status: Status) -> Self {
        Self { status, ..self }
    }

    /// A new run begins its life.
    fn open(self) -> Step {
        let next = Self { cancel_requested: false, paused_by_disable: false, ..self };
        (next.to(Status::RunRequested), Effect { open_run: true, ..Effect::default() })
    }

    fn succeeded(self) -> Step {
        let ended = close(RunStatus::Success);
        if self.pending {
            let (next, opened) = Self { pending: false, ..self }.open();
            return (next, Effect { open_run: opened.open_run, ..ended });
        }
        (self.to(Status::Idle), ended)
    }

    /// A pause has been reached. One that came from `disable` and was taken back by `enable` while
    /// it was under way goes on at once: nobody else would resume it.
    fn paused(self, run: RunStatus) -> Step {
        let paused = self.to(Status::Paused);
        if self.paused_by_disable && self.enabled {
            let (next, opened) = paused.open();
            return (next, Effect { open_run: opened.open_run, ..close(run) });
        }
        (paused, close(run))
    }

    fn cancelled(self) -> Step {
        let next = Self { cancel_requested: false, paused_by_disable: false, pending: false, ..self };
        (next.to(Status::Idle), close(RunStatus::Cancelled))
    }

    fn failed(self) -> Step {
        let next = Self { paused_by_disable: false, pending: false, ..self };
        (next.to(Status::Failed), close(RunStatus::Failed))
    }

    /// Nothing is left to resume. What waited for the run begins, and a person's pause is reached.
    fn failed_beside(self, before: Status) -> Step {
        let next = Self { paused_by_disable: false, ..self };
        let paused = self.status == Status::PauseRequested && !self.paused_by_disable;
        match before {
            Status::Failed => self.failed(),
            Status::Paused => (next.to(Status::Paused), close(RunStatus::Failed)),
            _ if paused => (next.to(Status::Paused), close(RunStatus::Failed)),
            _ if self.pending && self.enabled => {
                let (next, opened) = Self { pending: false, ..next }.open();
                (next, Effect { open_run: opened.open_run, ..close(RunStatus::Failed) })
            }
            _ => (Self { pending: false, ..next }.to(Status::Idle), close(RunStatus::Failed)),
        }
    }
}

fn close(status: RunStatus) -> Effect {
    Effect { close_run: Some(status), ..Effect::default() }
}
