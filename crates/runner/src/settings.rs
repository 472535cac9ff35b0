//! What a runner is configured with.

use std::time::Duration;

use vitrina_connectors::{Connections, sinks};
use vitrina_core::AllowedTargets;
use vitrina_store::RunnerAbilities;

#[derive(Debug, Clone)]
pub struct RunnerSettings {
    pub name: String,
    pub max_concurrent: usize,
    pub poll_interval: Duration,
    pub lease: Duration,
    pub shutdown_timeout: Duration,
    /// How long a pause or cancel waits for the batch under way before that is rolled back.
    pub pause_timeout: Duration,
    /// Bounds the memory of a batch, whatever its `batch_size`.
    pub max_batch_bytes: usize,
    /// How long a slow sink may keep a transaction open at the source.
    pub source_patience: Duration,
    /// A follower of a change log that is silent for longer is not waited for.
    pub changelog_max_age: Duration,
    /// How long runs, their batches and their logs are kept.
    pub keep_history: Duration,
    pub allowed_targets: AllowedTargets,
    pub connections: Connections,
    /// What it can write to.
    pub sinks: sinks::Kinds,
}

impl RunnerSettings {
    pub(crate) fn abilities(&self) -> RunnerAbilities {
        RunnerAbilities {
            name: self.name.clone(),
            connections: self.connections.names(),
            python_tasks: Vec::new(),
        }
    }
}
