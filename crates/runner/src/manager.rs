//! Keeps one runner turning: look around, request what is due, claim, wait for a reason to turn again.
//! A turn never fails for good: while the meta-store is away the runner waits and goes on by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use vitrina_core::{Error, PipelineId, Remedy, Result};
use vitrina_store::{Store, Wakeup, Wakeups};

use crate::RunnerSettings;
use crate::dispatcher::Dispatcher;
use crate::silence::Silence;

/// A meta-store that says nothing for so long, on a line that is cut without a word, is asked again.
const UNANSWERED: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Runner {
    settings: Arc<RunnerSettings>,
    store: Store,
}

/// Why the runner turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// A run was requested, or a place has become free.
    Fill,
    /// Somebody may want this pipeline's run to stop.
    Look(PipelineId),
    /// Time for everything: heartbeat, schedules, silent owners.
    Round,
}

impl Runner {
    pub fn new(settings: RunnerSettings, store: Store) -> Self {
        Self { settings: Arc::new(settings), store }
    }

    /// Works until `shutdown`, or until it is asked to drain, then finishes the batches under way and gives its
    /// pipelines back.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        let stop = shutdown.child_token();
        let mut dispatcher = self.dispatcher(stop.child_token()).await?;
        self.look_around().await?;
        let (mut wakeups, _listening) = self.listen().await?;
        let mut silence = Silence::new(Arc::clone(&self.settings), self.store.clone());
        tracing::info!(runner = %self.settings.name, max_concurrent = self.settings.max_concurrent, "the runner is ready");

        let (mut turn, mut next_round) = (Turn::Round, Instant::now());
        while !stop.is_cancelled() {
            match turn {
                Turn::Look(pipeline) => dispatcher.look(pipeline),
                Turn::Fill => self.fill(&mut dispatcher).await,
                Turn::Round => {
                    next_round = self.round(&dispatcher, &mut silence, &stop).await;
                    self.fill(&mut dispatcher).await;
                }
            }
            turn = tokio::select! {
                () = stop.cancelled() => break,
                turn = reason(&mut wakeups) => turn,
                () = dispatcher.one_ended() => Turn::Fill,
                () = sleep_until(next_round) => Turn::Round,
            };
        }
        self.stop(dispatcher).await;
        Ok(())
    }

    /// Executes everything that is waiting, and returns when nothing is left to claim or to end.
    pub async fn drain(&self) -> Result<()> {
        let mut dispatcher = self.dispatcher(CancellationToken::new()).await?;
        loop {
            dispatcher.fill().await.map_err(Error::from)?;
            if dispatcher.is_idle() {
                return Ok(());
            }
            dispatcher.one_ended().await;
            dispatcher.fail_panicked().await;
        }
    }

    async fn dispatcher(&self, stop: CancellationToken) -> Result<Dispatcher> {
        self.store.check_schema().await.map_err(Error::from)?;
        let installation = self.store.installation().await.map_err(Error::from)?;
        Ok(Dispatcher::new(Arc::clone(&self.settings), self.store.clone(), installation, stop))
    }

    /// Announces the runner with what it finds at its connections. A server that is away now may be
    /// back when a pipeline needs it: the runner starts all the same, and says so.
    async fn look_around(&self) -> Result<()> {
        let found = self.settings.connections.probe().await;
        for (connection, problem) in &found {
            if let Some(error) = problem {
                tracing::warn!(connection, %error, "a connection does not work");
            }
        }
        let health: BTreeMap<_, _> =
            found.iter().map(|(name, problem)| (name.clone(), problem.as_ref().map(what_is_wrong))).collect();
        self.announce().await.map_err(Error::from)?;
        self.store.note_health(&self.settings.name, &health).await.map_err(Error::from)
    }

    async fn announce(&self) -> vitrina_store::Result<()> {
        self.store.announce(&self.settings.abilities(), self.settings.max_concurrent).await
    }

    async fn listen(&self) -> Result<(UnboundedReceiver<Wakeup>, JoinSet<()>)> {
        let wakeups = self.store.wakeups().await.map_err(Error::from)?;
        let (sender, receiver) = unbounded_channel();
        let mut listening = JoinSet::new();
        listening.spawn(forward(wakeups, sender));
        Ok((receiver, listening))
    }

    /// Answers when the next one is due.
    async fn round(
        &self,
        dispatcher: &Dispatcher,
        silence: &mut Silence,
        stop: &CancellationToken,
    ) -> Instant {
        self.settings.connections.tidy();
        let poll = self.settings.poll_interval;
        let went = async {
            if self.still_here(dispatcher).await? {
                tracing::info!("the runner is asked to drain");
                stop.cancel();
                return Ok(poll);
            }
            silence.end_sessions().await?;
            match self.store.request_due().await? {
                0 => {}
                requested => tracing::info!(requested, "requested scheduled runs"),
            }
            Ok::<_, vitrina_store::Error>(
                self.store.next_alarm().await?.map_or(poll, |alarm| alarm.min(poll)),
            )
        };
        let wait = tokio::select! {
            () = stop.cancelled() => poll,
            went = timeout(UNANSWERED, went) => match went {
                Ok(Ok(wait)) => wait,
                Ok(Err(error)) => warn(&error, poll),
                Err(_) => warn(&"no answer in time", poll),
            },
        };
        Instant::now() + wait
    }

    async fn still_here(&self, dispatcher: &Dispatcher) -> vitrina_store::Result<bool> {
        let (active, taken_over) = (dispatcher.active(), dispatcher.taken_over());
        match self.store.still_here(&self.settings.name, active, taken_over).await? {
            Some(drain) => Ok(drain),
            None => self.announce().await.map(|()| false),
        }
    }

    async fn fill(&self, dispatcher: &mut Dispatcher) {
        match timeout(UNANSWERED, dispatcher.fill()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn(&error, ()),
            // A claim whose answer was lost is nobody's; its lease will expire.
            Err(_) => warn(&"no answer in time", ()),
        }
    }

    async fn stop(&self, mut dispatcher: Dispatcher) {
        tracing::info!(
            active = dispatcher.active(),
            "the runner stops: batches under way are finished, leases handed back"
        );
        let ended = async {
            while !dispatcher.is_idle() {
                dispatcher.one_ended().await;
                dispatcher.fail_panicked().await;
            }
        };
        if timeout(self.settings.shutdown_timeout, ended).await.is_err() {
            tracing::warn!("some batches did not end in time; their transactions are rolled back");
        }
        dispatcher.abandon().await;
        let farewell = self.store.farewell(&self.settings.name);
        timeout(Duration::from_secs(2), farewell).await.ok();
    }
}

fn what_is_wrong(error: &Error) -> &'static str {
    if error.remedy == Remedy::Release { "unreachable" } else { "refused" }
}

fn warn<T>(error: &dyn std::fmt::Display, then: T) -> T {
    tracing::warn!(%error, "the meta-store does not answer; the runner goes on trying");
    then
}

/// In a task of its own, because waiting for a notification must not be interrupted half-way.
async fn forward(mut wakeups: Wakeups, sender: UnboundedSender<Wakeup>) {
    while sender.send(wakeups.next().await).is_ok() {}
}

/// Waits for a wake-up that is a reason to turn.
async fn reason(wakeups: &mut UnboundedReceiver<Wakeup>) -> Turn {
    loop {
        match wakeups.recv().await {
            Some(Wakeup::Requested) => return Turn::Fill,
            Some(Wakeup::Interrupted(pipeline)) => return Turn::Look(pipeline),
            Some(Wakeup::Round | Wakeup::Anything) => return Turn::Round,
            Some(Wakeup::Changed) => {}
            None => std::future::pending().await,
        }
    }
}
