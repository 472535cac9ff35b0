//! What a runner is configured with.

use std::sync::Arc;
use std::time::Duration;

use vitrina_connectors::{Connections, sinks, sources};
use vitrina_core::{AllowedTargets, Code};
use vitrina_python::{Python, PythonTask};
use vitrina_store::{PublishedTask, RunnerAbilities};

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
    /// A load that an earlier run opened longer ago is not continued by another run.
    pub load_max_age: Duration,
    /// How long runs, their batches and their logs are kept.
    pub keep_history: Duration,
    pub allowed_targets: AllowedTargets,
    pub connections: Connections,
    /// What it can read from.
    pub sources: sources::Kinds,
    /// What it can write to.
    pub sinks: sinks::Kinds,
    /// Functions that plans may name.
    pub python: Option<Arc<Python>>,
}

impl RunnerSettings {
    /// What others may know of the functions that it has.
    pub(crate) fn tasks(&self) -> Vec<PublishedTask> {
        let told = |task: &PythonTask| PublishedTask {
            name: task.name.clone(),
            kind: task.kind.as_str(),
            version_hash: task.version_hash.clone(),
            doc: task.doc.clone(),
        };
        let registered = self.python.iter().flat_map(|python| &python.registry().tasks);
        registered.map(told).collect()
    }

    pub(crate) fn abilities(&self) -> RunnerAbilities {
        let code = self.code();
        let python_tasks = code.keys().cloned().collect();
        RunnerAbilities { name: self.name.clone(), connections: self.connections.names(), python_tasks, code }
    }

    /// Versions of all functions that are registered here.
    pub(crate) fn code(&self) -> Code {
        self.python.as_ref().map(|python| python.registry().versions()).unwrap_or_default()
    }
}
