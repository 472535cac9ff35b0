//! Owners that have fallen silent: their sessions are ended, because a lock that one of them holds may be all that
//! keeps its pipeline from being taken over.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::task::JoinSet;
use vitrina_core::LeaseToken;
use vitrina_store::{Result, Silent, Store};

use crate::RunnerSettings;

pub(crate) struct Silence {
    settings: Arc<RunnerSettings>,
    store: Store,
    /// In the background, because a mart that does not answer must not hold up the runner.
    ending: JoinSet<()>,
}

impl Silence {
    pub(crate) fn new(settings: Arc<RunnerSettings>, store: Store) -> Self {
        Self { settings, store, ending: JoinSet::new() }
    }

    pub(crate) async fn end_sessions(&mut self) -> Result<()> {
        while self.ending.try_join_next().is_some() {}
        if !self.ending.is_empty() {
            return Ok(());
        }
        for silent in self.store.silent(&self.settings.abilities()).await? {
            self.ending.spawn(end_sessions(Arc::clone(&self.settings), silent));
        }
        Ok(())
    }
}

async fn end_sessions(settings: Arc<RunnerSettings>, silent: Silent) {
    let Silent { pipeline, token, connections } = silent;
    for connection in connections.iter().collect::<BTreeSet<_>>() {
        // Its own sessions too: the owner is as good as gone.
        let ended = settings.connections.end_older(connection, pipeline, LeaseToken(token.0 + 1)).await;
        if let Err(error) = ended {
            tracing::debug!(pipeline_id = %pipeline, connection, %error, "cannot look for sessions of a silent owner");
        }
    }
}
