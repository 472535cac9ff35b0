//! Runs: asked for, under way, and closed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;
use vitrina_core::values::progress;
use vitrina_core::{CursorRange, Decision, Mode, OnActive, RunId, RunStatus};
use vitrina_store::{AttemptRecord, BatchRecord, LogRecord, RunFigures, RunRecord, Trigger};

use super::key::{Bound, Key, bound, keys};
use super::words;

/// What POST …/run takes; all of it may be left out.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunOrder {
    /// The pipeline's own mode, or the paused run's, when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Mode>)]
    pub mode: Option<Mode>,
    /// A backfill: only these keys are read again, and the checkpoint stays. Each is a list of the values of
    /// the target's key columns, or the value alone where there is one column.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "keys")]
    #[schema(min_items = 1, max_items = 10_000)]
    pub keys: Option<Vec<Key>>,
    /// A backfill: only rows with `from <= incremental_key < to` are read again, and the checkpoint stays. One of
    /// the two may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "bound")]
    #[schema(value_type = Option<Bound>)]
    pub from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "bound")]
    #[schema(value_type = Option<Bound>)]
    pub to: Option<String>,
    /// What becomes of the checkpoint: `keep` goes on from what completed passes established, `reset` reads
    /// everything from the start. Needed when the pipeline was changed since the checkpoint was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Decision>)]
    pub checkpoint: Option<Decision>,
    /// Nothing is read: readers get the index they saw before the last load, and the checkpoint that belongs to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
    /// Continues what the last run left when it failed, its load or its backfill. Without it, a load that failed begins anew;
    /// a paused one is continued in any case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume: bool,
    /// What happens when a run is active: `join` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::OnActive>)]
    pub on_active: Option<OnActive>,
}

/// What POST …/pause and …/cancel take; may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reason {
    /// Kept in the audit.
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RunAccepted {
    /// The run that was opened or joined. With `pending`, the one that goes before.
    pub run_id: Uuid,
    #[schema(value_type = words::RunStatus)]
    pub status: RunStatus,
    /// The request waits for the end of `run_id`.
    pub pending: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Run {
    pub id: Uuid,
    pub pipeline_id: Uuid,
    /// The pipeline's name as it is now.
    pub pipeline: String,
    #[schema(value_type = words::RunStatus)]
    pub status: RunStatus,
    /// Who asked: `api`, `schedule`, `resume` or `pending`.
    #[schema(value_type = String)]
    pub trigger: Trigger,
    #[schema(value_type = words::Mode)]
    pub mode: Mode,
    /// A backfill of so many keys; null where the run is none.
    pub backfill_keys: Option<u64>,
    /// A backfill over a range of the cursor; null where the run is none.
    pub backfill_range: Option<Range>,
    /// What was decided about the checkpoint when the run was asked for.
    #[schema(value_type = Option<words::Decision>)]
    pub checkpoint: Option<Decision>,
    /// Readers get the index they saw before the last load; nothing is read.
    pub rollback: bool,
    /// It continues the load that an earlier run left open.
    pub resume: bool,
    pub cancel_requested: bool,
    pub requested_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// From the first claim to the end; null while it is open.
    pub duration_ms: Option<i64>,
    pub rows_read: u64,
    pub rows_written: u64,
    pub rows_unchanged: u64,
    pub rows_deleted: u64,
    pub rows_rejected: u64,
    pub bytes: u64,
    pub batches: u64,
    pub error_code: Option<String>,
    pub error: Option<String>,
}

/// Rows with `from <= incremental_key < to`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Range {
    pub from: Option<String>,
    pub to: Option<String>,
    /// The cursor that all rows have been written up to.
    pub at: Option<Vec<String>>,
}

impl From<CursorRange> for Range {
    fn from(CursorRange { from, to, at }: CursorRange) -> Self {
        let at = at.map(|at| at.iter().map(|text| progress(text)).collect());
        Self { from: from.as_deref().map(progress), to: to.as_deref().map(progress), at }
    }
}

impl Run {
    /// Which run this is and how it stands.
    pub(crate) fn stage(&self) -> String {
        format!("{}.{}", self.id, self.status)
    }

    pub(crate) fn is(&self, id: Option<RunId>) -> bool {
        id.is_some_and(|id| id.0 == self.id)
    }
}

impl From<RunRecord> for Run {
    fn from(record: RunRecord) -> Self {
        let duration =
            record.started_at.zip(record.finished_at).map(|(start, end)| end.duration_since(start));
        Self {
            id: record.id.0,
            pipeline_id: record.pipeline_id.0,
            pipeline: record.pipeline,
            status: record.status,
            trigger: record.trigger,
            mode: record.mode,
            backfill_keys: record.backfill_keys,
            backfill_range: record.backfill_range.map(Range::from),
            rollback: record.rollback,
            resume: record.resume,
            checkpoint: record.checkpoint,
            cancel_requested: record.cancel_requested,
            requested_at: record.requested_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            duration_ms: duration.and_then(|duration| i64::try_from(duration.as_millis()).ok()),
            rows_read: record.rows_read,
            rows_written: record.rows_written,
            rows_unchanged: record.rows_unchanged,
            rows_deleted: record.rows_deleted,
            rows_rejected: record.rows_rejected,
            bytes: record.bytes,
            batches: record.batches,
            error_code: record.error_code,
            error: record.error,
        }
    }
}

/// A run with its attempts, in the order they happened.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunDetail {
    #[serde(flatten)]
    run: Run,
    attempts: Vec<Attempt>,
}

impl RunDetail {
    pub(crate) fn new(run: RunRecord, attempts: Vec<AttemptRecord>) -> Self {
        Self { run: run.into(), attempts: attempts.into_iter().map(Attempt::from).collect() }
    }
}

/// One claim of a run by a runner, or a retry within it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Attempt {
    id: i64,
    runner: String,
    token: i64,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    error_code: Option<String>,
    error: Option<String>,
}

impl From<AttemptRecord> for Attempt {
    fn from(record: AttemptRecord) -> Self {
        let AttemptRecord { id, runner, token, started_at, ended_at, error_code, error } = record;
        Self { id, runner, token, started_at, ended_at, error_code, error }
    }
}

/// Something that was noticed during a run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    pub id: i64,
    pub at: Timestamp,
    /// `info`, `warn` or `error`.
    pub level: String,
    pub message: String,
    /// What it is about: batch, rows, times, error code.
    #[schema(value_type = Object)]
    pub fields: Map<String, Value>,
}

impl From<LogRecord> for LogLine {
    fn from(record: LogRecord) -> Self {
        let LogRecord { id, at, level, message, fields, .. } = record;
        Self { id, at, level, message, fields }
    }
}

/// One committed batch of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Batch {
    id: i64,
    /// Of the claim that committed it.
    token: i64,
    committed_at: Timestamp,
    rows_read: u64,
    rows_inserted: u64,
    rows_updated: u64,
    rows_unchanged: u64,
    rows_deleted: u64,
    rows_rejected: u64,
    bytes: u64,
    read_ms: u64,
    transform_ms: u64,
    write_ms: u64,
}

impl From<BatchRecord> for Batch {
    fn from(record: BatchRecord) -> Self {
        Self {
            id: record.id,
            token: record.token,
            committed_at: record.committed_at,
            rows_read: record.rows_read,
            rows_inserted: record.rows_inserted,
            rows_updated: record.rows_updated,
            rows_unchanged: record.rows_unchanged,
            rows_deleted: record.rows_deleted,
            rows_rejected: record.rows_rejected,
            bytes: record.bytes,
            read_ms: record.read_ms,
            transform_ms: record.transform_ms,
            write_ms: record.write_ms,
        }
    }
}

/// The runs of a pipeline over a window of time, taken together.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunMetrics {
    /// Runs that were asked for in so many seconds before now.
    window_seconds: i64,
    /// How many runs have which status.
    #[schema(example = json!({"SUCCESS": 12, "FAILED": 1}))]
    runs: BTreeMap<String, u64>,
    rows_read: u64,
    rows_written: u64,
    rows_unchanged: u64,
    rows_deleted: u64,
    rows_rejected: u64,
    bytes: u64,
    batches: u64,
    /// Of closed runs, from their first claim to their end.
    total_duration_ms: u64,
    average_duration_ms: Option<u64>,
    maximum_duration_ms: Option<u64>,
    last_error: Option<String>,
    last_error_code: Option<String>,
    last_error_at: Option<Timestamp>,
}

impl RunMetrics {
    pub(crate) fn new(window_seconds: i64, figures: RunFigures) -> Self {
        Self {
            window_seconds,
            runs: figures.runs,
            rows_read: figures.rows_read,
            rows_written: figures.rows_written,
            rows_unchanged: figures.rows_unchanged,
            rows_deleted: figures.rows_deleted,
            rows_rejected: figures.rows_rejected,
            bytes: figures.bytes,
            batches: figures.batches,
            total_duration_ms: figures.total_duration_ms,
            average_duration_ms: figures.average_duration_ms,
            maximum_duration_ms: figures.maximum_duration_ms,
            last_error: figures.last_error,
            last_error_code: figures.last_error_code,
            last_error_at: figures.last_error_at,
        }
    }
}
