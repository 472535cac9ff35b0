//! Ends sessions of owners that have stopped sending heartbeats: a lock that one of them holds may be all that keeps its
//! pipeline from being taken over.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use vitrina_core::{LeaseToken, PipelineId};
use vitrina_store::{Result, Silent, Store};

use crate::RunnerSettings;

/// Whoever can take over needs no more than that.
const GRACE: Duration = Duration::from_secs(1);
/// Where it is still silent, its sessions are looked for again.
const AGAIN: Duration = Duration::from_secs(30);
/// For all of them; a server that does not answer is tried another time.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct SessionReaper {
    settings: Arc<RunnerSettings>,
    store: Store,
    /// When to act on an owner.
    due: HashMap<(PipelineId, LeaseToken), Instant>,
    /// In the background, because a mart that does not answer must not hold up the runner.
    ending: JoinSet<()>,
}

impl SessionReaper {
    pub(crate) fn new(settings: Arc<RunnerSettings>, store: Store) -> Self {
        Self { settings, store, due: HashMap::new(), ending: JoinSet::new() }
    }

    /// Cuts off the silent owners of pipelines that are not this runner's own.
    pub(crate) async fn cut_off(&mut self, own: &[PipelineId]) -> Result<()> {
        let silent = self.store.silent(&self.settings.abilities()).await?;
        let silent: Vec<Silent> = silent.into_iter().filter(|one| !own.contains(&one.pipeline)).collect();
        self.forget_all_but(&silent);
        while self.ending.try_join_next().is_some() {}
        if self.ending.is_empty() {
            let due: Vec<Silent> = silent.into_iter().filter(|one| self.is_due(one)).collect();
            if !due.is_empty() {
                self.ending.spawn(end_sessions(Arc::clone(&self.settings), due));
            }
        }
        Ok(())
    }

    /// Those whose owner was heard of again, or replaced.
    fn forget_all_but(&mut self, silent: &[Silent]) {
        self.due.retain(|key, _| silent.iter().any(|one| (one.pipeline, one.token) == *key));
    }

    fn is_due(&mut self, silent: &Silent) -> bool {
        let now = Instant::now();
        let due = self.due.entry((silent.pipeline, silent.token)).or_insert(now + GRACE);
        let is_due = now >= *due;
        if is_due {
            *due = now + AGAIN;
        }
        is_due
    }
}

async fn end_sessions(settings: Arc<RunnerSettings>, silent: Vec<Silent>) {
    let mut by_connection: BTreeMap<String, Vec<(PipelineId, LeaseToken)>> = BTreeMap::new();
    for Silent { pipeline, token, connections } in silent {
        for connection in connections {
            // The token's own sessions too: the owner is as good as gone.
            by_connection.entry(connection).or_default().push((pipeline, LeaseToken(token.0 + 1)));
        }
    }
    for (connection, leases) in by_connection {
        let ended = timeout(PATIENCE, settings.connections.end_older(&connection, &leases)).await;
        if !matches!(ended, Ok(Ok(()))) {
            tracing::debug!(connection, "cannot look for sessions of silent owners");
        }
    }
}
