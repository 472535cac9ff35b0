//! Claims pipelines up to `max_concurrent` and hands each to an executor of its own, so that a slow,
//! failing or panicking pipeline leaves its neighbours alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use vitrina_core::{Lease, PipelineId};
use vitrina_store::{Claim, Result, Store, Suspects, Terms};

use crate::exclusive_slot::ExclusiveSlot;
use crate::executor::Executor;
use crate::{RunLog, RunnerSettings, counters};

/// A stopping runner does not wait longer than this for a meta-store that does not answer.
const HAND_BACK: Duration = Duration::from_secs(5);

pub(crate) struct Dispatcher {
    settings: Arc<RunnerSettings>,
    store: Store,
    shutdown: CancellationToken,
    executions: JoinSet<()>,
    under_way: HashMap<Id, Execution>,
    panicked: Vec<Lease>,
    taken_over: u64,
    run_log: Option<RunLog>,
    exclusive_slot: ExclusiveSlot,
    /// A claim that was asked for and is not answered yet: dropped, its pipeline would be nobody's.
    claiming: JoinSet<Result<Option<Claim>>>,
    /// After an outage live owners are waited for until they have had the time to say so.
    takeovers_from: Instant,
}

struct Execution {
    lease: Lease,
    /// Makes its next heartbeat come at once.
    beat: Arc<Notify>,
    /// It may be what kills runners: it gets no neighbours.
    suspect: bool,
}

impl Dispatcher {
    pub(crate) fn new(settings: Arc<RunnerSettings>, store: Store, shutdown: CancellationToken) -> Self {
        Self {
            exclusive_slot: ExclusiveSlot::new(settings.lease),
            settings,
            store,
            shutdown,
            executions: JoinSet::new(),
            under_way: HashMap::new(),
            panicked: Vec::new(),
            taken_over: 0,
            run_log: None,
            claiming: JoinSet::new(),
            takeovers_from: Instant::now(),
        }
    }

    pub(crate) fn logging_to(self, run_log: Option<RunLog>) -> Self {
        Self { run_log, ..self }
    }

    pub(crate) fn active(&self) -> usize {
        self.executions.len()
    }

    /// Pipelines that others left behind, since the start.
    pub(crate) fn taken_over(&self) -> u64 {
        self.taken_over
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.executions.is_empty()
    }

    /// Claims until nothing waits or nothing more fits.
    pub(crate) async fn fill(&mut self) -> Result<()> {
        self.fail_panicked().await;
        let before = self.taken_over;
        let filled = self.claim_all().await;
        if self.taken_over > before {
            let pipelines = self.taken_over - before;
            tracing::warn!(pipelines, "took over pipelines that another runner left behind");
        }
        filled
    }

    async fn claim_all(&mut self) -> Result<()> {
        while self.has_room() && !self.shutdown.is_cancelled() {
            let Some(claim) = self.claim().await? else { break };
            if claim.takeover {
                self.taken_over += 1;
                counters::takeover(&self.settings.name);
            }
            self.begin(claim);
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        let alone = self.under_way.values().any(|execution| execution.suspect);
        let reserved = self.exclusive_slot.is_held_free() && !self.is_idle();
        self.active() < self.settings.max_concurrent && !alone && !reserved
    }

    /// Safe to be interrupted: the answer is kept for the next time.
    async fn claim(&mut self) -> Result<Option<Claim>> {
        loop {
            let terms = self.terms();
            let only_suspects = terms.suspects == Suspects::Only;
            if self.claiming.is_empty() {
                let (store, abilities) = (self.store.clone(), self.settings.abilities());
                self.claiming.spawn(async move { store.claim(&abilities, &terms).await });
            }
            let claimed = self.claiming.join_next().await;
            match claimed.and_then(std::result::Result::ok).unwrap_or(Ok(None))? {
                None if only_suspects => self.exclusive_slot.not_needed(),
                claimed => return Ok(claimed),
            }
        }
    }

    fn terms(&self) -> Terms {
        let suspects = match self.is_idle() {
            true if self.exclusive_slot.is_held_free() => Suspects::Only,
            true => Suspects::Too,
            false => Suspects::Never,
        };
        Terms {
            lease_length: self.settings.lease,
            suspects,
            takeovers: self.takes_over(),
            besides: self.own().iter().map(|pipeline| pipeline.0).collect(),
        }
    }

    /// What is executed here.
    pub(crate) fn own(&self) -> Vec<PipelineId> {
        self.under_way.values().map(|execution| execution.lease.pipeline).collect()
    }

    /// For how long a suspect has waited, if one waits.
    pub(crate) fn make_room(&mut self, waited: Option<Duration>) {
        self.exclusive_slot.asked_for(waited);
    }

    pub(crate) fn takes_over(&self) -> bool {
        Instant::now() >= self.takeovers_from
    }

    /// The meta-store was away: who has not renewed a lease since may not have been able to.
    pub(crate) fn wait_for_owners(&mut self) {
        self.takeovers_from = Instant::now() + self.settings.lease / 2;
    }

    fn begin(&mut self, claim: Claim) {
        let beat = Arc::new(Notify::new());
        let execution =
            Execution { lease: claim.lease, beat: Arc::clone(&beat), suspect: claim.is_suspect() };
        if execution.suspect {
            tracing::warn!(
                pipeline = claim.pipeline.name,
                stalls = claim.stalls,
                "a pipeline that may have killed its runners is executed alone"
            );
        }
        let executor =
            Executor::new(Arc::clone(&self.settings), self.store.clone(), self.shutdown.clone(), beat);
        let executor = executor.logging_to(self.run_log.clone());
        let task = self.executions.spawn(executor.execute(claim));
        self.under_way.insert(task.id(), execution);
        counters::active(&self.settings.name, self.active());
    }

    /// Has the pipeline's execution look at once whether it is to stop.
    pub(crate) fn look(&self, pipeline: PipelineId) {
        let its = self.under_way.values().filter(|execution| execution.lease.pipeline == pipeline);
        its.for_each(|execution| execution.beat.notify_one());
    }

    /// Waits for one execution to end; for ever if there is none. Safe to be interrupted: what there is
    /// to do about a panic is noted, and done by the next `fill`.
    pub(crate) async fn one_ended(&mut self) {
        match self.executions.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, ()))) => drop(self.under_way.remove(&id)),
            Some(Err(error)) => {
                let lease = self.under_way.remove(&error.id()).map(|execution| execution.lease);
                self.panicked.extend(lease.filter(|_| error.is_panic()));
            }
        }
        counters::active(&self.settings.name, self.active());
    }

    /// A panic ends its own pipeline only.
    pub(crate) async fn fail_panicked(&mut self) {
        while let Some(lease) = self.panicked.last().copied() {
            self.fail_after_panic(&lease).await;
            self.panicked.pop();
        }
    }

    async fn fail_after_panic(&self, lease: &Lease) {
        let message = "the runner hit a bug while it executed this pipeline; its log has the details";
        tracing::error!(pipeline_id = %lease.pipeline, "{message}");
        if let Err(error) = self.store.fail(lease, "runner.panic", message, false).await {
            tracing::warn!(pipeline_id = %lease.pipeline, %error, "the failure could not be recorded; the lease will expire");
        }
    }

    /// Ends whatever still runs. Open transactions roll back; leases are handed back at once.
    pub(crate) async fn abandon(mut self) {
        self.executions.shutdown().await;
        let late = timeout(HAND_BACK, self.claiming.join_next()).await.ok().flatten();
        let late = late.and_then(|claimed| claimed.ok()?.ok()?).map(|claim| claim.lease);
        for lease in self.under_way.into_values().map(|execution| execution.lease).chain(late) {
            let release =
                self.store.release(&lease, "runner.stopped", "the runner was stopped", Duration::ZERO);
            let released = timeout(HAND_BACK, release).await;
            if !matches!(released, Ok(Ok(_))) {
                tracing::debug!(pipeline_id = %lease.pipeline, "a lease could not be handed back; it will expire");
            }
        }
    }
}
