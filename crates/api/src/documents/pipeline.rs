//! A pipeline as it is shown: in a list, alone, and to a poller.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use vitrina_core::{Capture, FirstLoad, Mode, OnChange, PipelineKind, ReadBy, Status};
use vitrina_store::{PipelineListing, PipelineRecord};

use super::{Check, LastReconcile, Run, Task, Waiting, Watch, words};

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PipelineSummary {
    pub id: Uuid,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    #[serde(rename = "type")]
    #[schema(value_type = words::PipelineKind)]
    pub kind: PipelineKind,
    #[schema(value_type = words::Status)]
    pub status: Status,
    pub enabled: bool,
    #[schema(value_type = words::Mode)]
    pub mode: Mode,
    /// Where the rows go: the last task's own target, else `target_table`.
    pub target: String,
    pub schedule_interval: Option<String>,
    /// When it runs next by itself; null until a runner has looked at its schedule, and while it is disabled.
    pub next_run_at: Option<Timestamp>,
    /// Why its schedule says nothing.
    pub schedule_error: Option<String>,
    /// When it is loaded in full, whatever its mode.
    pub full_schedule: Option<String>,
    /// When it is loaded in full next by itself.
    pub next_full_run_at: Option<Timestamp>,
    /// Why its `full_schedule` says nothing.
    pub full_schedule_error: Option<String>,
    /// The open run.
    pub active_run: Option<Uuid>,
    /// The newest run, open or closed.
    pub last_run: Option<Run>,
    /// Why nobody executes what it waits for; null where it is executed, or waits for nothing.
    pub waiting: Option<Waiting>,
    pub freshness: Freshness,
    /// The newest verdict on whether the target equals its source; null where it was never compared.
    pub last_reconcile: Option<LastReconcile>,
    /// When it is compared next by itself.
    pub next_reconcile_at: Option<Timestamp>,
    /// Why its `reconcile_schedule` says nothing.
    pub reconcile_schedule_error: Option<String>,
    /// Grows with every change of the configuration; also the ETag.
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// How far a target is behind its source.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Freshness {
    /// What the source had committed before is in the target; null until a first pass has ended.
    pub as_of: Option<Timestamp>,
    /// How long ago that is.
    pub lag_seconds: Option<f64>,
    /// How long it may be before somebody should look; null is no limit.
    pub limit_seconds: Option<i64>,
    /// The lag is over its limit; null where there is no limit, or nothing to measure.
    pub late: Option<bool>,
}

impl Freshness {
    fn new(as_of: Option<Timestamp>, lag_seconds: Option<f64>, limit_seconds: Option<i64>) -> Self {
        let late = lag_seconds.zip(limit_seconds).map(|(lag, limit)| lag > limit as f64);
        Self { as_of, lag_seconds, limit_seconds, late }
    }
}

impl From<PipelineListing> for PipelineSummary {
    fn from(listed: PipelineListing) -> Self {
        let freshness = Freshness::new(listed.as_of, listed.lag_seconds, listed.freshness_limit_seconds);
        Self {
            id: listed.id.0,
            target: listed.target,
            name: listed.name,
            description: listed.description,
            tags: listed.tags,
            kind: listed.kind,
            status: listed.status,
            enabled: listed.enabled,
            mode: listed.mode,
            schedule_interval: listed.schedule_interval,
            next_run_at: listed.next_run_at,
            schedule_error: listed.schedule_error,
            full_schedule: listed.full_schedule,
            next_full_run_at: listed.next_full_run_at,
            full_schedule_error: listed.full_schedule_error,
            active_run: listed.run_id.map(|run| run.0),
            last_run: listed.last_run.map(Run::from),
            waiting: listed.waiting.map(Waiting::from),
            freshness,
            last_reconcile: listed.last_verdict.map(LastReconcile::from),
            next_reconcile_at: listed.next_reconcile_at,
            reconcile_schedule_error: listed.reconcile_schedule_error,
            version: listed.version,
            created_at: listed.created_at,
            updated_at: listed.updated_at,
        }
    }
}

/// A pipeline with all of its configuration.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PipelineDetail {
    #[serde(flatten)]
    summary: PipelineSummary,
    source_type: String,
    source_connection: String,
    source_table: Option<String>,
    source_query: Option<String>,
    target_table: String,
    shared_value: Option<String>,
    batch_size: i32,
    incremental_key: Option<String>,
    incremental_id_key: Option<String>,
    #[schema(value_type = words::Capture)]
    capture: Capture,
    change_key: Vec<String>,
    watch: Vec<Watch>,
    late_window_seconds: i64,
    delete_limit: f64,
    reject_limit: i64,
    freshness_limit_seconds: Option<i64>,
    reconcile_schedule: Option<String>,
    #[schema(value_type = words::ReadBy)]
    read: ReadBy,
    #[schema(value_type = words::FirstLoad)]
    first_load: FirstLoad,
    #[schema(value_type = words::OnChange)]
    on_change: OnChange,
    python_task: Option<String>,
    tasks: Vec<Task>,
}

impl From<PipelineRecord> for PipelineDetail {
    fn from(record: PipelineRecord) -> Self {
        let config = record.config.clone();
        Self {
            summary: PipelineListing::from(record).into(),
            source_type: config.source_type,
            source_connection: config.source_connection,
            source_table: config.source_table,
            source_query: config.source_query,
            target_table: config.target_table,
            shared_value: config.shared_value,
            batch_size: config.batch_size,
            incremental_key: config.incremental_key,
            incremental_id_key: config.incremental_id_key,
            capture: config.capture,
            change_key: config.change_key,
            watch: config.watch.into_iter().map(Watch::from).collect(),
            late_window_seconds: config.late_window_seconds,
            delete_limit: config.delete_limit,
            reject_limit: config.reject_limit,
            freshness_limit_seconds: config.freshness_limit_seconds,
            reconcile_schedule: config.reconcile_schedule,
            read: config.read,
            first_load: config.first_load,
            on_change: config.on_change,
            python_task: config.python_task,
            tasks: config.plan.tasks.into_iter().map(Task::from).collect(),
        }
    }
}

/// A pipeline as it was saved.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SavedPipeline {
    #[serde(flatten)]
    pub(crate) pipeline: PipelineDetail,
    /// What its runs would wait for, as things are.
    pub(crate) warnings: Vec<Check>,
}

/// A new version of a configuration that was looked at again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reloaded {
    pub(crate) pipeline: PipelineDetail,
    /// In which fields it differs from what the newest run worked on; null where it has never run.
    #[schema(example = json!(["batch_size"]))]
    pub(crate) changed_since_last_run: Option<Vec<String>>,
}

/// Small, for pollers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PipelineStatus {
    pub id: Uuid,
    pub name: String,
    #[schema(value_type = words::Status)]
    pub status: Status,
    pub enabled: bool,
    /// The active run is to be cancelled.
    pub cancel_requested: bool,
    /// One more run begins when the active one has ended.
    pub pending: bool,
    /// Why nobody executes what it waits for; null where it is executed, or waits for nothing.
    pub waiting: Option<Waiting>,
    /// When a run that was given back for want of a connection is tried again.
    pub retry_at: Option<Timestamp>,
    /// When it runs next by itself.
    pub next_run_at: Option<Timestamp>,
    /// Leases that expired since its last committed batch. From 2 on only a runner that is idle takes it.
    pub stalls: i32,
    /// Why its schedule says nothing.
    pub schedule_error: Option<String>,
    /// When it is loaded in full next by itself.
    pub next_full_run_at: Option<Timestamp>,
    /// Why its `full_schedule` says nothing.
    pub full_schedule_error: Option<String>,
    pub active_run: Option<Run>,
    /// The newest run, open or closed.
    pub last_run: Option<Run>,
    pub freshness: Freshness,
    /// The newest verdict on whether the target equals its source; null where it was never compared.
    pub last_reconcile: Option<LastReconcile>,
}

impl PipelineStatus {
    /// Changes with all that a poller waits for, and with why it waits; not with the figures of a run under way.
    pub(crate) fn etag(&self) -> String {
        let run = self.last_run.as_ref().map(Run::stage).unwrap_or_default();
        let flags = [self.enabled, self.cancel_requested, self.pending].map(u8::from);
        let verdict = self.last_reconcile.as_ref().map(LastReconcile::tag).unwrap_or_default();
        let waiting = self.waiting.as_ref().map(|waiting| format!(".{}", waiting.code)).unwrap_or_default();
        format!("\"{}.{}{}{}.{run}{verdict}{waiting}\"", self.status, flags[0], flags[1], flags[2])
    }
}

impl From<&PipelineListing> for PipelineStatus {
    fn from(listed: &PipelineListing) -> Self {
        let run = || listed.last_run.clone().map(Run::from);
        let open = |run: &Run| run.is(listed.run_id);
        Self {
            id: listed.id.0,
            name: listed.name.clone(),
            status: listed.status,
            enabled: listed.enabled,
            cancel_requested: listed.cancel_requested,
            pending: listed.pending,
            waiting: listed.waiting.clone().map(Waiting::from),
            retry_at: listed.retry_at,
            next_run_at: listed.next_run_at,
            stalls: listed.stalls,
            schedule_error: listed.schedule_error.clone(),
            next_full_run_at: listed.next_full_run_at,
            full_schedule_error: listed.full_schedule_error.clone(),
            active_run: run().filter(open),
            last_run: run(),
            freshness: Freshness::new(listed.as_of, listed.lag_seconds, listed.freshness_limit_seconds),
            last_reconcile: listed.last_verdict.clone().map(LastReconcile::from),
        }
    }
}
