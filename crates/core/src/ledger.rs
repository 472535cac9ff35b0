//! The meta-store as a sink sees it: where batches are entered and rejects are kept. A mart beside the
//! meta-store enters its batches by itself, in the transaction that writes it; every other target does
//! it through here, after its own commit.

use std::fmt;

use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

use crate::{Checkpoint, Holder, Issued, Lease, Outcome, Owner, PipelineId, Result};

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

/// What the meta-store knows of the lease that a target was acquired with last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognized {
    /// It has issued it, or there is none.
    Issued,
    /// It has not, and a person has decided that this meta-store is the rightful one: `accept` it once that is provided for.
    Adopted,
    /// It has not: another copy of this meta-store has, or this one did before it was restored from a backup.
    Unknown,
}

/// Makes a literal of a text, for the session that a statement is sent in.
pub type Quote = fn(&str) -> String;

#[async_trait]
pub trait Ledger: fmt::Debug + Send + Sync {
    /// Checks the fence, moves the checkpoint by compare-and-set and keeps figures and rejects.
    async fn commit(&self, entry: &Entry<'_>) -> Result<Committed>;

    /// The same as a statement, for a transaction in the meta-store's own database. It answers one row: the version, and
    /// whether someone asked for a pause or a cancel meanwhile.
    fn commit_statement(&self, entry: &Entry<'_>, quote: Quote) -> String;

    /// Asks any database for one row: whether there is a meta-store in it, and whether that knows who holds what.
    fn presence_statement(&self) -> &'static str;

    /// Asks a database with a meta-store for one row: the installation's id, and whether this owner holds the pipeline, request or
    /// comparison of this id. One of an older release does not know: it is not this one, which has all migrations.
    fn identity_statement(&self, knows_holders: bool, id: Uuid, owner: Owner) -> String;

    /// Replaces the state by what the target itself vouches for.
    async fn adopt(&self, lease: &Lease, state: &State) -> Result<()>;

    /// Keeps the rejects of a batch by themselves: it may not commit, because of them. Answers how many of
    /// the run nobody has acknowledged.
    async fn keep_rejects(&self, lease: &Lease, outcome: &Outcome) -> Result<u64>;

    async fn open_rejects(&self, lease: &Lease) -> Result<Vec<OpenReject>>;

    /// Errs where the lease is lost.
    async fn hold(&self, lease: &Lease) -> Result<()>;

    /// Asked before a target is acquired whose holder the claim's own `Issued` does not cover.
    async fn recognize(&self, lease: &Lease, holder: Option<Holder>) -> Result<Recognized>;

    /// From now on the holder counts as issued, and no other is accepted.
    async fn accept(&self, lease: &Lease, holder: Holder) -> Result<()>;

    /// The leases of these pipelines, also of deleted ones whose targets have not been left yet.
    async fn issued(&self, pipelines: &[PipelineId]) -> Result<Issued>;

    /// Those of these pipelines that are still there and write to this target; only its rows of this value, where one is given.
    async fn writing(
        &self,
        pipelines: &[PipelineId],
        target: &str,
        shared_value: Option<&str>,
    ) -> Result<Vec<PipelineId>>;

    /// Those of these pipelines that a runner is at work on.
    async fn running(&self, pipelines: &[PipelineId]) -> Result<Vec<PipelineId>>;
}
