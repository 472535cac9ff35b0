//! The stations of a batch. Connectors report; only the runner retries, sleeps and decides.

use arrow_schema::SchemaRef;
use async_trait::async_trait;

use crate::{Batch, Commit, Error, Lease, Position, Result, RunId, State, Written};

/// Where rows come from. The executor calls `begin` once, then `read` with the position of the batch
/// before; a batch that ends the pass is the last one, and so is `None`. An error leaves the position
/// where it was.
#[async_trait]
pub trait Source: Send {
    /// The columns of the rows to come, where they are known before the rows.
    fn schema(&self) -> Option<SchemaRef>;

    /// The key of the rows, as far as the source can prove one: for a target that names none and does not exist yet.
    async fn propose_key(&mut self) -> Result<Option<Vec<String>>> {
        Ok(None)
    }

    /// Learns where the rows go.
    async fn begin(&mut self, destination: &Destination) -> Result<()>;

    async fn read(&mut self, from: &Position) -> Result<Option<Batch>>;

    /// How it will read, and what that costs; once it has begun.
    async fn advise(&self) -> Result<Vec<Advice>>;

    /// Nobody has asked for a batch for a while: whatever is held open at the source is let go. The next
    /// `read` goes on from its position.
    async fn rest(&mut self) -> Result<()>;
}

/// Where the rows of a source go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Destination {
    /// The target's key, by which a load is ordered and a backfill chosen.
    pub key: Vec<String>,
    /// The database server it lives on, where it lives on one: a crash takes back what both had not written yet,
    /// and so what comes from there needs no waiting for its disk.
    pub server: Option<String>,
    /// Its rows are documents, which have an id whatever key it was made of: a backfill may name one by its id.
    pub takes_ids: bool,
}

/// Something to know of a pipeline before it runs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Advice {
    /// It works, but could work better.
    pub warning: bool,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Advice {
    pub fn fine(message: impl Into<String>) -> Self {
        Self { warning: false, message: message.into(), hint: None }
    }

    pub fn warning(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { warning: true, message: message.into(), hint: Some(hint.into()) }
    }
}

/// A step between source and sink. It may drop, add and change rows; `from`, `to` and `scope` are
/// the reader's and pass through untouched. An error is the whole batch's error.
#[async_trait]
pub trait Transform: Send {
    /// Learns where the rows go.
    fn begin(&mut self, destination: &Destination);

    async fn apply(&mut self, batch: Batch) -> Result<Batch>;
}

/// Where rows go. One instance serves one lease; the executor calls `seal`, once more when it has changed the
/// checkpoint by a person's decision, then `write` batch by batch.
#[async_trait]
pub trait Sink: Send {
    /// Shuts older owners out before the first write of a lease, and answers the state that the target
    /// itself vouches for: what is in it may be more, or less, than the meta-store knows.
    async fn seal(&mut self, lease: &Lease, state: State) -> Result<State>;

    /// Writes and, in the same transaction where the target has one, commits fence, rejects and
    /// checkpoint. `Ok` means all of it is durable; an error means none of it is, or that its answer was
    /// lost: the next `seal` tells.
    async fn write(&mut self, batch: &Batch, commit: &Commit) -> Result<Written>;

    /// Has readers see what they saw before the last load, and the meta-store the checkpoint that belongs to it.
    /// The same run may ask again, where its answer was lost.
    async fn roll_back(&mut self, _: RunId, _: &State) -> Result<()> {
        Err(Error::fix("sink.no_rollback", "only an index keeps what was there before its last load"))
    }

    /// Nothing is on its way any more: the next owner need not shut this one out. A sink that was left otherwise has to be.
    async fn close(&mut self) -> Result<()> {
        Ok(())
    }

    /// Removes what an abandoned pass has left in or beside the target. Only space depends on it.
    async fn clear(&mut self) -> Result<()>;
}
