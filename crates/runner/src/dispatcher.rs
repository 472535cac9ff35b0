//! Claims pipelines up to `max_concurrent` and hands each to an executor of its own, so that a slow,
//! failing or panicking pipeline leaves its neighbours alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vitrina_core::Lease;
use vitrina_store::{Result, Store};

use crate::RunnerSettings;
use crate::executor::Executor;

/// A stopping runner does not wait longer than this for a meta-store that does not answer.
const HAND_BACK: Duration = Duration::from_secs(5);

pub(crate) struct Dispatcher {
    settings: Arc<RunnerSettings>,
    store: Store,
    installation: Uuid,
    shutdown: CancellationToken,
    executions: JoinSet<()>,
    leases: HashMap<Id, Lease>,
    panicked: Vec<Lease>,
}

impl Dispatcher {
    pub(crate) fn new(
        settings: Arc<RunnerSettings>,
        store: Store,
        installation: Uuid,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            settings,
            store,
            installation,
            shutdown,
            executions: JoinSet::new(),
            leases: HashMap::new(),
            panicked: Vec::new(),
        }
    }

    pub(crate) fn active(&self) -> usize {
        self.executions.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.executions.is_empty()
    }

    /// Claims until nothing waits or nothing more fits.
    pub(crate) async fn fill(&mut self) -> Result<()> {
        self.fail_panicked().await;
        let abilities = self.settings.abilities();
        let mut taken_over = 0;
        while self.active() < self.settings.max_concurrent && !self.shutdown.is_cancelled() {
            let Some(claim) = self.store.claim(&abilities, self.settings.lease).await? else { break };
            taken_over += usize::from(claim.takeover);
            let lease = claim.lease;
            let executor = Executor::new(
                Arc::clone(&self.settings),
                self.store.clone(),
                self.installation,
                self.shutdown.clone(),
            );
            let task = self.executions.spawn(executor.execute(claim));
            self.leases.insert(task.id(), lease);
        }
        if taken_over > 0 {
            tracing::warn!(pipelines = taken_over, "took over pipelines that another runner left behind");
        }
        Ok(())
    }

    /// Waits for one execution to end; for ever if there is none. Safe to be interrupted: what there is
    /// to do about a panic is noted, and done by the next `fill`.
    pub(crate) async fn one_ended(&mut self) {
        match self.executions.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, ()))) => drop(self.leases.remove(&id)),
            Some(Err(error)) => {
                let lease = self.leases.remove(&error.id());
                self.panicked.extend(lease.filter(|_| error.is_panic()));
            }
        }
    }

    /// A panic ends its own pipeline only.
    pub(crate) async fn fail_panicked(&mut self) {
        for lease in std::mem::take(&mut self.panicked) {
            self.fail_after_panic(&lease).await;
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
        for lease in self.leases.into_values() {
            let release =
                self.store.release(&lease, "runner.stopped", "the runner was stopped", Duration::ZERO);
            let released = timeout(HAND_BACK, release).await;
            if !matches!(released, Ok(Ok(_))) {
                tracing::debug!(pipeline_id = %lease.pipeline, "a lease could not be handed back; it will expire");
            }
        }
    }
}
