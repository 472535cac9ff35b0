//! What the API takes and answers, as far as the commands read it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;
use vitrina_core::{
    CursorRange, Decision, Figures, Level, Mode, OnActive, ReconcileProgress, ReconcileStatus,
    ReconcileTrigger, RunStatus, Status, Verdict as ReconcileVerdict,
};

#[derive(Debug, Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next_cursor: Option<String>,
}

/// What applying files would do.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    pub(crate) hash: String,
    pub(crate) ok: bool,
    pub(crate) changes: Vec<PlannedChange>,
    pub(crate) checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PlannedChange {
    /// `create`, `edit`, `delete` or `decide`.
    pub(crate) action: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) fields: Vec<FieldChange>,
    pub(crate) effects: Vec<Effect>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Effect {
    pub(crate) detail: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FieldChange {
    pub(crate) field: String,
    pub(crate) before: Value,
    pub(crate) after: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Applied {
    pub(crate) changes: Vec<PlannedChange>,
}

/// All that was found out about a configuration.
#[derive(Debug, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) ok: bool,
    pub(crate) checks: Vec<Check>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) code: String,
    /// `ok`, `warning` or `error`.
    pub(crate) severity: String,
    pub(crate) field: String,
    pub(crate) detail: String,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) hint: Option<String>,
}

/// Something that was noticed during a run.
#[derive(Debug, Deserialize)]
pub(crate) struct LogLine {
    pub(crate) at: Timestamp,
    pub(crate) level: String,
    pub(crate) message: String,
    pub(crate) fields: serde_json::Map<String, Value>,
}

/// Sample rows of a query.
#[derive(Debug, Deserialize)]
pub(crate) struct Preview {
    pub(crate) columns: Vec<PreviewColumn>,
    pub(crate) rows: Vec<Vec<Option<String>>>,
    pub(crate) has_more: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PreviewColumn {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Connection {
    pub(crate) name: String,
    pub(crate) address: Option<String>,
    pub(crate) allowed_schemas: Option<Vec<String>>,
    pub(crate) runners: Vec<ConnectionFinding>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ConnectionFinding {
    pub(crate) runner: String,
    pub(crate) problem: Option<String>,
}

/// What a runner found at a connection.
#[derive(Debug, Deserialize)]
pub(crate) struct ConnectionTest {
    pub(crate) ok: bool,
    pub(crate) runner: String,
    pub(crate) connect_ms: Option<u64>,
    pub(crate) server: Option<String>,
    pub(crate) problem: Option<String>,
    pub(crate) missing_grants: Vec<String>,
    #[serde(default)]
    pub(crate) tried: Option<String>,
}

/// Where a row is, and what is known of its way there.
#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) key: Vec<String>,
    pub(crate) look: Option<RowLook>,
    pub(crate) problem: Option<RowProblem>,
    pub(crate) reject: Option<RowReject>,
    pub(crate) last_write: LastWrite,
    pub(crate) backfill: Option<RowBackfill>,
    pub(crate) reconcile: Option<RowReconcile>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RowLook {
    pub(crate) state: String,
    pub(crate) fits: bool,
    pub(crate) in_flight: Option<bool>,
    pub(crate) columns: Vec<RowColumn>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RowColumn {
    pub(crate) name: String,
    pub(crate) source: Option<String>,
    pub(crate) target: Option<String>,
    pub(crate) differs: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RowProblem {
    pub(crate) detail: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RowReject {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) run_id: Uuid,
    pub(crate) rejected_at: Timestamp,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LastWrite {
    pub(crate) at: Option<Timestamp>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) pipeline: Option<String>,
    pub(crate) run_id: Option<Uuid>,
    pub(crate) batch_id: Option<i64>,
    pub(crate) unknown: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RowBackfill {
    pub(crate) run_id: Uuid,
    pub(crate) status: String,
    pub(crate) finished_at: Timestamp,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RowReconcile {
    pub(crate) id: Uuid,
    #[serde(default)]
    pub(crate) outdated: bool,
    pub(crate) finished_at: Timestamp,
    pub(crate) listed: Option<bool>,
    pub(crate) difference: Option<vitrina_core::Difference>,
}

/// A page of rejects, and all reasons there are.
#[derive(Debug, Deserialize)]
pub(crate) struct Rejects {
    pub(crate) items: Vec<Reject>,
    pub(crate) next_cursor: Option<String>,
    pub(crate) groups: Vec<RejectGroup>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Reject {
    pub(crate) id: String,
    pub(crate) key: Value,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) acknowledged_at: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RejectGroup {
    pub(crate) code: String,
    pub(crate) rejects: u64,
    pub(crate) acknowledged: u64,
    pub(crate) first_rejected_at: Timestamp,
    pub(crate) last_rejected_at: Timestamp,
}

/// Which rejects are meant; all of them when nothing is given.
#[derive(Debug, Serialize)]
pub(crate) struct RejectChoice {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ids: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RejectsChanged {
    pub(crate) rejects: u64,
}

/// The run over the keys of rejects.
#[derive(Debug, Deserialize)]
pub(crate) struct Retry {
    #[serde(flatten)]
    pub(crate) accepted: Accepted,
    pub(crate) rejects: u64,
    /// Others were chosen too, and are not among its keys.
    pub(crate) more: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Pipeline {
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) enabled: bool,
    pub(crate) mode: Mode,
    pub(crate) target: String,
    pub(crate) next_run_at: Option<Timestamp>,
    pub(crate) schedule_error: Option<String>,
    #[serde(default)]
    pub(crate) next_full_run_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) full_schedule_error: Option<String>,
    pub(crate) last_run: Option<Run>,
    #[serde(default)]
    pub(crate) waiting: Option<Waiting>,
    #[serde(default)]
    pub(crate) last_reconcile: Option<LastReconcile>,
}

/// Why no runner can take a reconcile.
#[derive(Debug, Deserialize)]
pub(crate) struct Untakeable {
    pub(crate) message: String,
}

/// Why nobody executes what a pipeline waits for.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Waiting {
    message: String,
    pub(crate) since: Timestamp,
    pub(crate) until: Option<Timestamp>,
}

impl Waiting {
    /// What there is to say, and what to do about it.
    pub(crate) fn parts(&self) -> (&str, Option<&str>) {
        match self.message.split_once("\nhint: ") {
            Some((detail, hint)) => (detail, Some(hint)),
            None => (&self.message, None),
        }
    }
}

/// As far as it matters to who deletes it.
#[derive(Debug, Deserialize)]
pub(crate) struct PipelineDetail {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) target: String,
    pub(crate) version: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) connection: String,
    pub(crate) key: Vec<String>,
    pub(crate) create_if_missing: bool,
    pub(crate) pipelines: Vec<String>,
}

/// Who changed what.
#[derive(Debug, Deserialize)]
pub(crate) struct AuditEntry {
    pub(crate) at: Timestamp,
    pub(crate) actor: String,
    pub(crate) action: String,
    pub(crate) subject: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

/// The newest verdict on a target.
#[derive(Debug, Deserialize)]
pub(crate) struct LastReconcile {
    pub(crate) level: Level,
    pub(crate) verdict: ReconcileVerdict,
    /// It is about a configuration that was changed since.
    #[serde(default)]
    pub(crate) outdated: bool,
    pub(crate) differences: u64,
    pub(crate) finished_at: Timestamp,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PipelineStatus {
    pub(crate) name: String,
    pub(crate) status: Status,
    pub(crate) enabled: bool,
    pub(crate) cancel_requested: bool,
    pub(crate) pending: bool,
    pub(crate) retry_at: Option<Timestamp>,
    pub(crate) stalls: u32,
    pub(crate) next_run_at: Option<Timestamp>,
    pub(crate) schedule_error: Option<String>,
    #[serde(default)]
    pub(crate) next_full_run_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) full_schedule_error: Option<String>,
    pub(crate) last_run: Option<Run>,
    #[serde(default)]
    pub(crate) waiting: Option<Waiting>,
    #[serde(default)]
    pub(crate) last_reconcile: Option<LastReconcile>,
}

/// What a reconcile is asked for with.
#[derive(Debug, Serialize)]
pub(crate) struct ReconcileOrder {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<Level>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u32>,
}

/// A comparison of a target with its source.
#[derive(Debug, Deserialize)]
pub(crate) struct Reconcile {
    pub(crate) id: Uuid,
    pub(crate) pipeline: String,
    pub(crate) level: Level,
    pub(crate) trigger: ReconcileTrigger,
    pub(crate) status: ReconcileStatus,
    pub(crate) repair_of: Option<Uuid>,
    #[serde(default)]
    pub(crate) waiting: Option<Untakeable>,
    pub(crate) progress: Option<ReconcileProgress>,
    pub(crate) verdict: Option<ReconcileVerdict>,
    #[serde(default)]
    pub(crate) outdated: bool,
    pub(crate) figures: Option<Figures>,
    pub(crate) error: Option<String>,
    pub(crate) requested_at: Timestamp,
    pub(crate) duration_ms: Option<u64>,
}

impl Reconcile {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.status, ReconcileStatus::Requested | ReconcileStatus::Running)
    }
}

/// How a target stands against its source.
#[derive(Debug, Deserialize)]
pub(crate) struct Standing {
    pub(crate) reconcile: Option<Reconcile>,
}

/// What a repair does.
#[derive(Debug, Deserialize)]
pub(crate) struct Repair {
    pub(crate) upserts: u64,
    pub(crate) deletes: u64,
    /// More rows differ than were kept.
    pub(crate) more: bool,
    pub(crate) delete_limit: DeleteLimit,
}

#[derive(Debug, Deserialize)]
pub(crate) struct DeleteLimit {
    pub(crate) limit: f64,
    pub(crate) target_rows: u64,
    pub(crate) ok: bool,
}

/// The run that repairs, and the reconcile that proves it.
#[derive(Debug, Deserialize)]
pub(crate) struct Repairing {
    #[serde(flatten)]
    pub(crate) accepted: Accepted,
    pub(crate) proof_id: Uuid,
    #[serde(flatten)]
    pub(crate) repair: Repair,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Run {
    pub(crate) id: Uuid,
    pub(crate) pipeline: String,
    pub(crate) status: RunStatus,
    pub(crate) mode: Mode,
    /// A backfill of so many keys.
    pub(crate) backfill_keys: Option<u64>,
    /// A backfill over a range of the cursor.
    #[serde(default)]
    pub(crate) backfill_range: Option<CursorRange>,
    pub(crate) trigger: String,
    pub(crate) requested_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) rows_read: u64,
    pub(crate) rows_written: u64,
    pub(crate) rows_unchanged: u64,
    pub(crate) rows_deleted: u64,
    pub(crate) rows_rejected: u64,
    pub(crate) error_code: Option<String>,
    pub(crate) error: Option<String>,
}

/// How far a pipeline has come.
#[derive(Debug, Deserialize)]
pub(crate) struct State {
    pub(crate) checkpoint: Value,
    pub(crate) version: i64,
    pub(crate) updated_at: Timestamp,
    pub(crate) last_processed_key: Option<String>,
    pub(crate) last_processed_id: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CheckpointVersion {
    pub(crate) version: i64,
    pub(crate) checkpoint: Value,
    pub(crate) reason: String,
    pub(crate) run_id: Option<Uuid>,
    pub(crate) created_at: Timestamp,
}

/// What is to become of a checkpoint.
#[derive(Debug)]
pub(crate) enum StateWish {
    /// A version of the history.
    Restore(i64),
    Reset,
}

/// What a change of the checkpoint would do.
#[derive(Debug, Deserialize)]
pub(crate) struct Forecast {
    pub(crate) checkpoint: Value,
    pub(crate) version: i64,
    pub(crate) rows: Option<u64>,
    pub(crate) reason: Option<String>,
}

/// What a run is asked for with.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Order {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) on_active: Option<OnActive>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) rollback: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) resume: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Accepted {
    pub(crate) run_id: Uuid,
    pub(crate) status: RunStatus,
    /// The request waits for the end of `run_id`.
    pub(crate) pending: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Health {
    pub(crate) status: String,
    pub(crate) meta_store: String,
    #[serde(default)]
    pub(crate) sources: Vec<SourcePulse>,
    pub(crate) runners: Vec<RunnerPulse>,
}

impl Health {
    /// The meta-store, all sources and a runner are there.
    pub(crate) fn is_sound(&self) -> bool {
        self.status == "ok"
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Runner {
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) alive: bool,
    pub(crate) host: String,
    pub(crate) pid: i32,
    pub(crate) version: String,
    pub(crate) active_runs: u32,
    pub(crate) max_concurrent: u32,
    pub(crate) connections: Vec<String>,
    pub(crate) heartbeat_at: Timestamp,
}

/// A registered function, of one runner.
#[derive(Debug, Deserialize)]
pub(crate) struct PythonTask {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) runner: String,
    pub(crate) alive: bool,
    pub(crate) version_hash: String,
    pub(crate) doc: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RunnerPulse {
    pub(crate) alive: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SourcePulse {
    pub(crate) connection: String,
    pub(crate) problem: Option<String>,
}
