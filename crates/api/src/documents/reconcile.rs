//! Comparisons of targets with their sources: asked for, under way, and come to a verdict.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;
use vitrina_core::values::progress;
use vitrina_core::{
    Difference as Found, DifferenceKind, Figures, Level, ReconcileStage, ReconcileStatus, ReconcileTrigger,
    SideFigures, Verdict,
};
use vitrina_store::{KEPT, LastVerdict, MOST_DIFFERENCES, ReconcileRecord};

use super::{RunAccepted, Untakeable, words};

/// What POST …/reconcile takes; all of it may be left out.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconcileOrder {
    /// `count` compares how many rows there are and the ends of keys and cursor, `hash` checksums of all rows, `rows`
    /// does the same and keeps the rows that differ.
    #[serde(default = "hash")]
    #[schema(value_type = words::ReconcileLevel, default = "hash")]
    pub level: Level,
    /// So many differences are kept at most.
    #[serde(default = "kept", deserialize_with = "limit")]
    #[schema(minimum = 0, maximum = 100_000, default = 10_000)]
    pub limit: i32,
}

impl Default for ReconcileOrder {
    fn default() -> Self {
        Self { level: hash(), limit: kept() }
    }
}

fn hash() -> Level {
    Level::Hash
}

fn kept() -> i32 {
    KEPT
}

fn limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let limit = i32::deserialize(deserializer)?;
    match (0..=MOST_DIFFERENCES).contains(&limit) {
        true => Ok(limit),
        false => Err(D::Error::custom(format!("limit is {limit}: 0 to {MOST_DIFFERENCES}"))),
    }
}

/// A comparison of a target with its source.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Reconcile {
    pub id: Uuid,
    pub pipeline_id: Uuid,
    pub pipeline: String,
    #[schema(value_type = words::ReconcileLevel)]
    pub level: Level,
    /// So many differences are kept at most.
    pub limit: i32,
    #[schema(value_type = words::ReconcileTrigger)]
    pub trigger: ReconcileTrigger,
    pub requested_by: Option<String>,
    #[schema(value_type = words::ReconcileStatus)]
    pub status: ReconcileStatus,
    pub cancel_requested: bool,
    pub runner: Option<String>,
    /// Why no runner that is alive can take it; told of one that is asked for alone, and null otherwise.
    pub waiting: Option<Untakeable>,
    pub progress: Option<ReconcileProgress>,
    /// Null until it is DONE.
    #[schema(value_type = Option<words::ReconcileVerdict>)]
    pub verdict: Option<Verdict>,
    pub figures: Option<ReconcileFigures>,
    /// Speaks for the whole target, and may stand beside its pipeline. A proof of a repair does so only where everything
    /// that differed was repaired, and a count not where a closer look has found rows that differ.
    pub whole: bool,
    /// It has compared another configuration than the pipeline has now: its query, its functions, its target or the target's
    /// key, mapping or document were changed since.
    #[serde(default)]
    #[schema(required)]
    pub outdated: bool,
    /// The one whose repair it proves: it compares only the keys which that one has found.
    pub repair_of: Option<Uuid>,
    /// The run that repairs what that one has found, or the run that goes before it.
    pub repair_run_id: Option<Uuid>,
    /// Proves the newest repair of what this one has found.
    pub proved_by: Option<Uuid>,
    pub error_code: Option<String>,
    pub error: Option<String>,
    pub requested_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
}

impl Reconcile {
    pub fn is_open(&self) -> bool {
        matches!(self.status, ReconcileStatus::Requested | ReconcileStatus::Running)
    }
}

impl From<ReconcileRecord> for Reconcile {
    fn from(record: ReconcileRecord) -> Self {
        let span = record.started_at.zip(record.finished_at);
        let took = |(start, end): (Timestamp, Timestamp)| end.duration_since(start).as_millis();
        Self {
            id: record.id,
            pipeline_id: record.pipeline_id.0,
            pipeline: record.pipeline,
            level: record.level,
            limit: record.keep,
            trigger: record.trigger,
            requested_by: record.requested_by,
            status: record.status,
            cancel_requested: record.cancel_requested,
            runner: record.runner,
            waiting: record.waiting.map(Untakeable::from),
            progress: record.progress.map(ReconcileProgress::from),
            verdict: record.verdict,
            figures: record.figures.map(ReconcileFigures::from),
            whole: record.whole,
            outdated: record.outdated,
            repair_of: record.repair_of,
            repair_run_id: record.repair_run_id.map(|run| run.0),
            proved_by: record.proved_by,
            error_code: record.error_code,
            error: record.error,
            requested_at: record.requested_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            duration_ms: span.map(took).and_then(|took| i64::try_from(took).ok()),
        }
    }
}

/// How far a comparison has come.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReconcileProgress {
    #[schema(value_type = words::ReconcileStage)]
    pub stage: ReconcileStage,
    pub done: u64,
    pub total: u64,
}

impl From<vitrina_core::ReconcileProgress> for ReconcileProgress {
    fn from(progress: vitrina_core::ReconcileProgress) -> Self {
        Self { stage: progress.stage, done: progress.done, total: progress.total }
    }
}

/// What a comparison has counted.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ReconcileFigures {
    pub source: ReconcileSide,
    pub target: ReconcileSide,
    /// Ranges of keys whose checksums were compared, and how many of them differ.
    pub ranges: u64,
    pub differing_ranges: u64,
    /// The source has them, the target does not.
    pub missing: u64,
    /// The target has them, the source does not.
    pub extra: u64,
    pub different: u64,
    /// Differ because they have changed at the source since the checkpoint: the next run writes them.
    pub in_flight: u64,
    /// Rows with an open reject: they are told of there, and not compared.
    pub rejected: u64,
    /// More rows differ than were looked at one by one.
    pub capped: bool,
    /// Rows that were read one by one, beside the scan of either side.
    pub rows_read: u64,
}

impl ReconcileFigures {
    pub fn differences(&self) -> u64 {
        self.missing + self.extra + self.different
    }
}

impl From<Figures> for ReconcileFigures {
    fn from(figures: Figures) -> Self {
        Self {
            source: figures.source.into(),
            target: figures.target.into(),
            ranges: figures.ranges,
            differing_ranges: figures.differing_ranges,
            missing: figures.missing,
            extra: figures.extra,
            different: figures.different,
            in_flight: figures.in_flight,
            rejected: figures.rejected,
            capped: figures.capped,
            rows_read: figures.rows_read,
        }
    }
}

/// One side of a comparison.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ReconcileSide {
    pub rows: u64,
    /// The smallest values of key and cursor, by column, as text.
    #[serde(default)]
    #[schema(required)]
    pub min: BTreeMap<String, Option<String>>,
    /// The greatest.
    #[serde(default)]
    #[schema(required)]
    pub max: BTreeMap<String, Option<String>>,
    /// When it was looked at, by its own clock.
    pub as_of: Option<Timestamp>,
}

impl From<SideFigures> for ReconcileSide {
    fn from(side: SideFigures) -> Self {
        let SideFigures { rows, min, max, as_of } = side;
        let ends = |ends: BTreeMap<String, Option<String>>| {
            ends.into_iter().map(|(column, end)| (column, end.as_deref().map(progress))).collect()
        };
        let (min, max) = (ends(min), ends(max));
        Self { rows, min, max, as_of }
    }
}

/// The newest verdict on a whole target.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LastReconcile {
    /// Of the reconcile that has come to it.
    pub id: Uuid,
    #[schema(value_type = words::ReconcileLevel)]
    pub level: Level,
    #[schema(value_type = words::ReconcileVerdict)]
    pub verdict: Verdict,
    /// It is about another configuration than the pipeline has now: its query, its functions, its target or the target's key,
    /// mapping or document were changed since.
    #[serde(default)]
    #[schema(required)]
    pub outdated: bool,
    /// Rows that are missing, extra or different.
    pub differences: u64,
    pub missing: u64,
    pub extra: u64,
    pub different: u64,
    pub in_flight: u64,
    pub rejected: u64,
    pub finished_at: Timestamp,
}

impl LastReconcile {
    /// Changes with every verdict, and as it becomes outdated.
    pub(super) fn tag(&self) -> String {
        format!(".{}{}", self.id.simple(), if self.outdated { "o" } else { "" })
    }
}

impl From<LastVerdict> for LastReconcile {
    fn from(last: LastVerdict) -> Self {
        let LastVerdict { id, level, verdict, figures, finished_at, outdated } = last;
        Self {
            id,
            level,
            verdict,
            outdated,
            differences: figures.differences(),
            missing: figures.missing,
            extra: figures.extra,
            different: figures.different,
            in_flight: figures.in_flight,
            rejected: figures.rejected,
            finished_at,
        }
    }
}

/// How a target stands against its source.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Standing {
    /// The newest verdict on the whole target; null where it was never compared.
    #[schema(value_type = Option<words::ReconcileVerdict>)]
    pub verdict: Option<Verdict>,
    /// The verdict is about another configuration than the pipeline has now.
    pub outdated: bool,
    /// The reconcile that has come to it.
    pub reconcile: Option<Reconcile>,
    pub links: StandingLinks,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct StandingLinks {
    /// POST here asks for a new verdict.
    pub request: String,
    /// All reconciles of the pipeline.
    pub history: String,
}

impl Standing {
    pub(crate) fn new(pipeline: Uuid, record: Option<ReconcileRecord>) -> Self {
        let path = |end: &str| format!("/api/v1/pipelines/{pipeline}/{end}");
        let links = StandingLinks { request: path("reconcile"), history: path("reconciles") };
        let verdict = record.as_ref().and_then(|record| record.verdict);
        let outdated = record.as_ref().is_some_and(|record| record.outdated);
        Self { verdict, outdated, reconcile: record.map(Reconcile::from), links }
    }
}

/// A row that differs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    #[schema(value_type = words::DifferenceKind)]
    pub kind: DifferenceKind,
    /// The values of the target's key columns in Postgres text form.
    #[schema(value_type = Vec<Option<String>>)]
    pub key: Value,
    /// The columns that differ, where both sides have the row.
    pub columns: BTreeMap<String, Cells>,
}

/// The values of a column on both sides, as text.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Cells {
    pub source: Option<String>,
    pub target: Option<String>,
}

impl From<Found> for Difference {
    fn from(found: Found) -> Self {
        let cells = |cells: vitrina_core::Cells| Cells { source: cells.source, target: cells.target };
        let columns = found.columns.into_iter().map(|(name, both)| (name, cells(both))).collect();
        Self { kind: found.kind, key: found.key, columns }
    }
}

/// What a repair would do, or does.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Repair {
    /// Rows that are read again and written: those that are missing or different.
    pub upserts: u64,
    /// Rows that are deleted: those that only the target has, unless the source has them by then.
    pub deletes: u64,
    /// More rows differ than were kept: they stay as they are. Reconcile again afterwards.
    pub more: bool,
    pub delete_limit: DeleteLimit,
}

/// What the pipeline's `delete_limit` says to a repair.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeleteLimit {
    /// Highest share of the target that may be deleted.
    pub limit: f64,
    /// The share that the repair deletes.
    pub share: f64,
    /// Of so many rows, as the reconcile has counted them.
    pub target_rows: u64,
    /// Whether the repair may delete so much.
    pub ok: bool,
}

/// The run that repairs, and the reconcile that proves it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RepairAccepted {
    #[serde(flatten)]
    pub run: RunAccepted,
    /// Compares exactly these rows again when the run has ended.
    pub proof_id: Uuid,
    #[serde(flatten)]
    pub repair: Repair,
}
