//! What travels: rows with the scope they answer for, and the commit that makes them count.

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use uuid::Uuid;

use jiff::Timestamp;

use crate::{Checkpoint, FirstLoad, Lease, Position, RowChange, RunId, Share};

/// Rows that are read, written and acknowledged together.
#[derive(Debug, Clone)]
pub struct Batch {
    pub rows: RecordBatch,
    /// There are no rows, and nobody knows which columns they would have had; those that are there are certain.
    pub columns_unknown: bool,
    pub scope: Scope,
    pub rejected: Vec<Reject>,
    pub from: Position,
    /// Where the checkpoint goes with this batch; `None` leaves it where it is, as a backfill does.
    pub to: Option<Position>,
    /// How far a backfill over a range has come with this batch.
    pub backfilled_to: Option<Vec<String>>,
    /// Rows as the source returned them, before transforms dropped or added any.
    pub rows_read: u64,
}

impl Batch {
    /// The pass ends with this batch.
    pub fn ends_pass(&self) -> bool {
        self.to.as_ref().is_some_and(|to| to.pass.is_none())
    }
}

/// The one column of a scope that names documents by their ids, whatever keys those were made of.
pub const DOCUMENT_ID: &str = "_id";

/// The change keys a batch answers for: what is in scope and not among the rows has vanished.
#[derive(Debug, Clone)]
pub enum Scope {
    /// Exactly these change keys, one column each.
    Keys(RecordBatch),
    /// All keys there are, once the last batch of the load has come.
    Load {
        /// Nothing of this load has come before.
        begins: bool,
    },
    /// Nothing vanishes by this batch.
    Nothing,
}

/// A row that could not be converted, or that a transform or sink refused. Data, not an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reject {
    /// JSON array of the key columns' values in Postgres text form, NULL being null.
    pub key: Value,
    pub code: String,
    pub message: String,
    /// For people to look at; never written back.
    pub row: Value,
}

/// What must become true together with a batch: the fence holds, and the checkpoint moves.
#[derive(Debug, Clone)]
pub struct Commit {
    pub lease: Lease,
    pub run: RunId,
    /// The version of `etl_state` this batch started from; a mismatch is `checkpoint.moved`.
    pub from_version: i64,
    /// The checkpoint this batch started from; the sink advances it to the batch's end.
    pub from: Checkpoint,
    /// Highest share of the target's rows that may be deleted until a pass completes, and within an hour.
    pub delete_limit: f64,
    /// Rows that the run has deleted already, where it is a backfill: that has no checkpoint of its own to count them in.
    pub backfill_deleted: u64,
    /// By the meta-store's clock.
    pub now: Timestamp,
    /// Highest number of rejects a run may add that nobody has acknowledged.
    pub reject_limit: i64,
    pub first_load: FirstLoad,
    pub timings: Timings,
}

impl Commit {
    /// The checkpoint behind a batch that leads to `to`.
    pub fn advance(&self, to: Position, change: RowChange) -> Checkpoint {
        self.from.advance(self.run, to, change, self.now)
    }

    /// What the delete limit is held against with this many deletes more, of a target that had `rows_before` rows.
    pub fn share(&self, deleting: u64, rows_before: u64) -> Share {
        let deleting = if deleting == 0 { 0 } else { self.backfill_deleted + deleting };
        self.from.deletes.share(deleting, rows_before, self.now)
    }
}

/// Where the time of a batch went, as far as it is known when the batch commits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timings {
    pub read_ms: u64,
    pub transform_ms: u64,
}

/// What became of a batch's rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub read: u64,
    pub inserted: u64,
    pub updated: u64,
    pub unchanged: u64,
    pub deleted: u64,
    pub rejected: u64,
    pub bytes: u64,
}

impl Counts {
    pub fn written(&self) -> u64 {
        self.inserted + self.updated
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.unchanged += other.unchanged;
        self.deleted += other.deleted;
        self.rejected += other.rejected;
        self.bytes += other.bytes;
    }
}

/// A sink's answer to a batch.
#[derive(Debug, Clone)]
pub struct Written {
    pub counts: Counts,
    /// The checkpoint after this batch, and its version in `etl_state`.
    pub checkpoint: Checkpoint,
    pub version: i64,
    /// Someone asked for a pause or a cancel meanwhile.
    pub interrupted: bool,
}

/// What the meta-store keeps of a batch beside its checkpoint, in the words of `etl.commit_batch`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    #[serde(flatten)]
    pub counts: Counts,
    pub read_ms: u64,
    pub transform_ms: u64,
    pub write_ms: u64,
    pub reject_limit: i64,
    pub rejects: Vec<Reject>,
    /// Keys whose open reject is over: the row was written, or has left the source.
    pub closed: Vec<Value>,
    /// How far a backfill over a range has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfilled_to: Option<Vec<String>>,
    /// The load that these rejects belong to.
    pub load: Option<Uuid>,
    /// The load has seen every row: rejects that it did not meet again are over.
    pub close_others: bool,
}
