//! One row of a pipeline, wherever it is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use vitrina_core::{Level, Verdict};

use super::{Difference, Reject, words};

/// Where a row is, and what is known of its way there.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Row {
    /// The values of the target's key columns, as the target writes them; as they were asked for where nobody could look.
    pub key: Vec<String>,
    /// What source and target have now; null where a runner could not look, and `problem` says why.
    pub look: Option<RowLook>,
    pub problem: Option<RowProblem>,
    /// It was refused, and has neither succeeded nor left the source since.
    pub reject: Option<Reject>,
    pub last_write: LastWrite,
    /// The newest run that has read this very key again: a backfill, a repair, or rejects that were read again.
    pub backfill: Option<RowBackfill>,
    /// What the last verdict on the whole target says of it; null where it was never compared.
    pub reconcile: Option<RowReconcile>,
}

/// A row on both sides, by the pipeline's own query and functions.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RowLook {
    pub state: RowState,
    pub key_columns: Vec<String>,
    /// All columns that the pipeline writes.
    pub columns: Vec<RowColumn>,
    /// False where the target's types cannot hold what the source has: its values are shown as they were read.
    pub fits: bool,
    /// Where the sides differ: the next run reads it. Null where that cannot be told: in mode full nothing names what has
    /// changed, and a long pass is not read through.
    pub in_flight: Option<bool>,
    /// The runner that looked.
    pub runner: String,
}

/// Seen from the target, as in a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowState {
    Equal,
    Different,
    /// The source has it, the target does not.
    Missing,
    /// The target has it, the source does not.
    Extra,
    /// Neither has it.
    Absent,
}

/// Cells are texts as Postgres writes the values; null is NULL, or no row.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RowColumn {
    pub name: String,
    pub source: Option<String>,
    pub target: Option<String>,
    pub differs: bool,
}

/// Why nobody could look.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RowProblem {
    #[schema(example = "runner.none")]
    pub code: String,
    pub detail: String,
}

/// The last write of a run to the row, by the mark that it bears; what others change past the mark is not seen by it.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LastWrite {
    /// What it is known by; null where nothing tells.
    pub by: Option<MarkedBy>,
    /// When, by the target's clock.
    pub at: Option<Timestamp>,
    /// Where only the run is known: when it began, so not before that.
    pub since: Option<Timestamp>,
    /// The one that wrote it, of all that write to the target.
    pub pipeline: Option<String>,
    pub run_id: Option<Uuid>,
    pub batch_id: Option<i64>,
    /// Why the run is not known.
    pub unknown: Option<WriteUnknown>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MarkedBy {
    /// The target's touch column says when.
    TouchColumn,
    /// The version of the document holds the lease it was written under.
    DocumentVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteUnknown {
    /// Nobody could look.
    NotSeen,
    /// The target does not have the row.
    NotThere,
    /// The row carries no mark: the target has no touch column, or several pipelines share the document.
    NoMark,
    /// The touch column goes by another clock than the meta-store's.
    OtherClock,
    /// Several pipelines were writing to the target then.
    SeveralWriters,
    /// No run that is still kept was writing then: it is forgotten, or somebody else wrote.
    NoRun,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RowBackfill {
    pub run_id: Uuid,
    #[schema(value_type = words::RunStatus)]
    pub status: String,
    pub finished_at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RowReconcile {
    pub id: Uuid,
    #[schema(value_type = words::ReconcileLevel)]
    pub level: Level,
    #[schema(value_type = words::ReconcileVerdict)]
    pub verdict: Verdict,
    /// It is about another configuration than the pipeline has now.
    #[serde(default)]
    #[schema(required)]
    pub outdated: bool,
    pub finished_at: Timestamp,
    /// Whether the row is among those that differ; null where not all of them were kept.
    pub listed: Option<bool>,
    /// How it differed then.
    pub difference: Option<Difference>,
}
