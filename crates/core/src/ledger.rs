//! The meta-store as a sink sees it: where batches are entered and rejects are kept. A mart beside the
//! meta-store enters its batches by itself, in the transaction that writes it; every other target does
//! it through here, after its own commit.

use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

use crate::{Checkpoint, Lease, Outcome, Result};

/// A checkpoint and the number it is compared and set by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    pub checkpoint: Checkpoint,
    pub version: i64,
}

/// A batch to be entered: the state it started from, the checkpoint it leads to, what became of its rows.
#[derive(Debug)]
pub struct Entry<'a> {
    pub lease: &'a Lease,
    pub from_version: i64,
    pub checkpoint: &'a Checkpoint,
    pub outcome: &'a Outcome,
}

/// The answer to an entered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    pub version: i64,
    /// Someone asked for a pause or a cancel meanwhile.
    pub interrupted: bool,
}

/// A row that was refused and has not succeeded since.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenReject {
    pub key: Value,
    pub acknowledged: bool,
    /// The load that met it last.
    pub load: Option<Uuid>,
}

#[async_trait]
pub trait Ledger: Send + Sync {
    /// Checks the fence, moves the checkpoint by compare-and-set and keeps figures and rejects.
    async fn commit(&self, entry: &Entry<'_>) -> Result<Committed>;

    /// Replaces the state by what the target itself vouches for.
    async fn adopt(&self, lease: &Lease, state: &State) -> Result<()>;

    /// Keeps the rejects of a batch by themselves: it may not commit, because of them. Answers how many of
    /// the run nobody has acknowledged.
    async fn keep_rejects(&self, lease: &Lease, outcome: &Outcome) -> Result<u64>;

    async fn open_rejects(&self, lease: &Lease) -> Result<Vec<OpenReject>>;
}
