//! Keeps one runner turning: look around, request what is due, claim, wait for a reason to turn again.
//! A turn never fails for good: while the meta-store is away the runner waits and goes on by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use vitrina_core::{Error, PipelineId, Remedy, Result};
use vitrina_store::{Error as StoreError, Store, Wakeup, Wakeups};

use crate::dispatcher::Dispatcher;
use crate::reconciles::Reconciles;
use crate::requests::Requests;
use crate::session_reaper::SessionReaper;
use crate::untaken::UntakenRuns;
use crate::{RunLog, RunnerSettings, counters, retention};

/// A meta-store that says nothing for so long, on a line that is cut without a word, is asked again.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(15);
/// The longest that others wait to hear of this runner, however seldom it looks for requests: who was silent for 30 seconds
/// counts as gone.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How often history is looked for that need not be kept any longer.
const BETWEEN_SWEEPS: Duration = Duration::from_secs(300);
/// After so long without a notification the session that listens is replaced.
const SILENT_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Runner {
    settings: Arc<RunnerSettings>,
    store: Store,
    run_log: Option<RunLog>,
}

/// What other runners leave undone.
struct Others {
    session_reaper: SessionReaper,
    untaken: UntakenRuns,
}

/// Why the runner turns.
#[derive(Debug, Default)]
struct Turn {
    /// Somebody may want the runs of these to stop.
    look: Vec<PipelineId>,
    /// A run was requested, or a place has become free.
    fill: bool,
    /// Something is asked, or an answer was given.
    ask: bool,
    /// Time for everything: heartbeat, schedules, silent owners.
    round: bool,
}

impl Turn {
    const FILL: Self = Self { look: Vec::new(), fill: true, ask: false, round: false };
    const ASK: Self = Self { look: Vec::new(), fill: false, ask: true, round: false };
    const ROUND: Self = Self { look: Vec::new(), fill: true, ask: true, round: true };

    fn hear(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Requested => self.fill = true,
            Wakeup::Interrupted(pipeline) => self.look.push(pipeline),
            Wakeup::Asked => self.ask = true,
            Wakeup::Round | Wakeup::Anything => (self.fill, self.ask, self.round) = (true, true, true),
            Wakeup::Changed => {}
        }
    }

    fn is_idle(&self) -> bool {
        self.look.is_empty() && !self.fill && !self.ask && !self.round
    }
}

impl Runner {
    pub fn new(settings: RunnerSettings, store: Store) -> Self {
        Self { settings: Arc::new(settings), store, run_log: None }
    }

    /// Keeps in the meta-store what is told of its runs; `run_log` must hear it as a layer of the subscriber.
    #[must_use]
    pub fn with_run_log(self, run_log: RunLog) -> Self {
        Self { run_log: Some(run_log), ..self }
    }

    /// Works until `shutdown`, or until it is asked to drain, then finishes the batches under way and gives its
    /// pipelines back.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        let stop = shutdown.child_token();
        let mut dispatcher = self.dispatcher(stop.child_token()).await?;
        let mut requests = self.requests();
        let mut reconciles = self.reconciles();
        let _log_keeper = self.keep_run_log();
        self.look_around().await?;
        let (mut wakeups, _listening) = self.listen().await?;
        let _deleting = self.delete_old_history();
        let mut others = Others {
            session_reaper: SessionReaper::new(Arc::clone(&self.settings), self.store.clone()),
            untaken: UntakenRuns::default(),
        };
        tracing::info!(runner = %self.settings.name, max_concurrent = self.settings.max_concurrent, "the runner is ready");

        let (mut turn, mut next_round) = (Turn::ROUND, Instant::now());
        while !stop.is_cancelled() {
            turn.look.iter().for_each(|pipeline| dispatcher.look(*pipeline));
            if turn.round {
                next_round = self.round(&mut dispatcher, &mut others, &stop).await;
            }
            if turn.fill {
                self.fill(&mut dispatcher).await;
            }
            if turn.ask {
                self.take_requests(&mut requests, &mut reconciles).await;
            }
            turn = tokio::select! {
                () = stop.cancelled() => break,
                turn = reason(&mut wakeups) => turn,
                () = dispatcher.one_ended() => Turn::FILL,
                () = requests.one_ended() => Turn::ASK,
                () = reconciles.one_ended() => Turn::ASK,
                () = sleep_until(next_round) => Turn::ROUND,
            };
        }
        reconciles.hand_back().await;
        self.stop(dispatcher).await;
        Ok(())
    }

    /// Executes everything that is waiting, and returns when nothing is left to claim or to end.
    pub async fn work_off(&self) -> Result<()> {
        let mut dispatcher = self.dispatcher(CancellationToken::new()).await?;
        let mut reconciles = self.reconciles();
        let _log_keeper = self.keep_run_log();
        loop {
            dispatcher.fill().await.map_err(Error::from)?;
            if dispatcher.is_idle() {
                reconciles.fill().await.map_err(Error::from)?;
                if reconciles.is_idle() {
                    self.flush_run_log().await;
                    return Ok(());
                }
                reconciles.one_ended().await;
                continue;
            }
            dispatcher.one_ended().await;
            dispatcher.fail_panicked().await;
        }
    }

    async fn dispatcher(&self, stop: CancellationToken) -> Result<Dispatcher> {
        self.store.check_schema().await.map_err(Error::from)?;
        let dispatcher = Dispatcher::new(Arc::clone(&self.settings), self.store.clone(), stop);
        Ok(dispatcher.logging_to(self.run_log.clone()))
    }

    fn keep_run_log(&self) -> JoinSet<()> {
        let mut keeper = JoinSet::new();
        if let Some(run_log) = self.run_log.clone() {
            keeper.spawn(run_log.keep(self.store.clone()));
        }
        keeper
    }

    async fn flush_run_log(&self) {
        if let Some(run_log) = &self.run_log {
            run_log.flush().await;
        }
    }

    /// In its own time: rounds do not wait for it.
    fn delete_old_history(&self) -> JoinSet<()> {
        let (store, keep) = (self.store.clone(), self.settings.keep_history);
        let mut deleting = JoinSet::new();
        deleting.spawn(async move {
            loop {
                retention::sweep(&store, keep).await;
                sleep(BETWEEN_SWEEPS).await;
            }
        });
        deleting
    }

    fn requests(&self) -> Requests {
        Requests::new(Arc::clone(&self.settings), self.store.clone())
    }

    fn reconciles(&self) -> Reconciles {
        Reconciles::new(Arc::clone(&self.settings), self.store.clone())
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
        self.store.review_schedules().await.map_err(Error::from)?;
        self.store.note_health(&self.settings.name, &health).await.map_err(Error::from)
    }

    async fn announce(&self) -> vitrina_store::Result<()> {
        self.store.announce(&self.settings.abilities(), self.settings.max_concurrent).await?;
        self.store.publish_tasks(&self.settings.name, &self.settings.tasks()).await
    }

    async fn listen(&self) -> Result<(UnboundedReceiver<Wakeup>, JoinSet<()>)> {
        let wakeups = self.store.wakeups().await.map_err(Error::from)?;
        let (sender, receiver) = unbounded_channel();
        let mut listening = JoinSet::new();
        listening.spawn(forward(self.store.clone(), wakeups, sender));
        Ok((receiver, listening))
    }

    /// Answers when the next one is due.
    async fn round(
        &self,
        dispatcher: &mut Dispatcher,
        others: &mut Others,
        stop: &CancellationToken,
    ) -> Instant {
        self.settings.connections.tidy();
        let went = timeout(UNANSWERED, self.look_after(dispatcher, others, stop));
        let went = tokio::select! {
            () = stop.cancelled() => Ok(None),
            went = went => went.unwrap_or(Err(StoreError::Unanswered)),
        };
        let alarm = went.unwrap_or_else(|error| away(&error, dispatcher));
        let poll = self.settings.poll_interval.min(HEARTBEAT);
        Instant::now() + alarm.map_or(poll, |alarm| alarm.min(poll))
    }

    async fn look_after(
        &self,
        dispatcher: &mut Dispatcher,
        others: &mut Others,
        stop: &CancellationToken,
    ) -> vitrina_store::Result<Option<Duration>> {
        if self.still_here(dispatcher).await? {
            tracing::info!("the runner is asked to drain");
            stop.cancel();
            return Ok(None);
        }
        if dispatcher.takes_over() {
            others.session_reaper.cut_off(&dispatcher.own()).await?;
        }
        dispatcher.make_room(self.store.suspect_waits(&self.settings.abilities()).await?);
        match self.store.request_due().await? {
            0 => {}
            requested => tracing::info!(requested, "requested scheduled runs"),
        }
        others.untaken.report(&self.store).await?;
        self.store.tidy_requests().await?;
        self.store.next_alarm().await
    }

    async fn still_here(&self, dispatcher: &Dispatcher) -> vitrina_store::Result<bool> {
        let (active, taken_over) = (dispatcher.active(), dispatcher.taken_over());
        let answer = self.store.still_here(&self.settings.name, active, taken_over).await?;
        counters::heartbeat(&self.settings.name, active);
        match answer {
            Some(drain) => Ok(drain),
            None => self.announce().await.map(|()| false),
        }
    }

    async fn fill(&self, dispatcher: &mut Dispatcher) {
        let filled = timeout(UNANSWERED, dispatcher.fill()).await.unwrap_or(Err(StoreError::Unanswered));
        if let Err(error) = filled {
            away(&error, dispatcher);
        }
    }

    async fn take_requests(&self, requests: &mut Requests, reconciles: &mut Reconciles) {
        let taking = async {
            requests.fill().await?;
            reconciles.fill().await
        };
        let taken = timeout(UNANSWERED, taking).await.unwrap_or(Err(StoreError::Unanswered));
        if let Err(error) = taken {
            tracing::warn!(%error, "requests cannot be taken now");
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
        self.flush_run_log().await;
        let farewell = self.store.farewell(&self.settings.name);
        timeout(Duration::from_secs(2), farewell).await.ok();
    }
}

fn what_is_wrong(error: &Error) -> &'static str {
    if error.remedy == Remedy::Release { "unreachable" } else { "refused" }
}

fn away(error: &StoreError, dispatcher: &mut Dispatcher) -> Option<Duration> {
    tracing::warn!(%error, "the meta-store does not answer; the runner goes on trying");
    dispatcher.wait_for_owners();
    None
}

/// In a task of its own, because waiting for a notification must not be interrupted half-way. A session that has been
/// silent for long may be one whose line was cut without a word: another one takes its place.
async fn forward(store: Store, mut wakeups: Wakeups, sender: UnboundedSender<Wakeup>) {
    loop {
        let wakeup = match timeout(SILENT_FOR, wakeups.next()).await {
            Ok(wakeup) => wakeup,
            Err(_) => match timeout(UNANSWERED, store.wakeups()).await {
                Ok(Ok(new)) => {
                    wakeups = new;
                    Wakeup::Anything
                }
                _ => continue,
            },
        };
        if sender.send(wakeup).is_err() {
            return;
        }
    }
}

/// Waits for a wake-up that is a reason to turn, and takes all that have come with it.
async fn reason(wakeups: &mut UnboundedReceiver<Wakeup>) -> Turn {
    let mut turn = Turn::default();
    while turn.is_idle() {
        match wakeups.recv().await {
            Some(wakeup) => turn.hear(wakeup),
            None => std::future::pending().await,
        }
    }
    while let Ok(wakeup) = wakeups.try_recv() {
        turn.hear(wakeup);
    }
    turn
}
