//! What the installation says about itself.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use vitrina_store::RunnerRecord;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Runner {
    name: String,
    version: String,
    host: String,
    pid: i32,
    max_concurrent: i32,
    active_runs: i32,
    /// Pipelines that others left behind, since it started.
    taken_over: i64,
    connections: Vec<String>,
    python_tasks: Vec<String>,
    /// `READY`, `DRAINING` or `STOPPED`.
    status: String,
    started_at: Timestamp,
    heartbeat_at: Timestamp,
    /// Its heartbeat is recent by the database's clock.
    alive: bool,
}

impl From<RunnerRecord> for Runner {
    fn from(record: RunnerRecord) -> Self {
        Self {
            name: record.name,
            version: record.version,
            host: record.host,
            pid: record.pid,
            max_concurrent: record.max_concurrent,
            active_runs: record.active_runs,
            taken_over: record.taken_over,
            connections: record.connections,
            python_tasks: record.python_tasks,
            status: record.status,
            started_at: record.started_at,
            heartbeat_at: record.heartbeat_at,
            alive: record.alive,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok` or `unavailable`.
    pub(crate) status: &'static str,
    /// What asking it has shown: `ok` or `unavailable`.
    pub(crate) meta_store: &'static str,
    pub(crate) runners: Vec<RunnerPulse>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunnerPulse {
    pub(crate) name: String,
    pub(crate) alive: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Live {
    pub(crate) status: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Version {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}
