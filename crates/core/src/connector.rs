//! The stations of a batch. Connectors report; only the runner retries, sleeps and decides.

use async_trait::async_trait;

use crate::{Batch, Commit, Lease, Position, Result, Written};

/// Where rows come from. The executor calls `read` with the position of the last committed batch;
/// a batch whose `to` has no pass ends it, and so does `None`. An error leaves the position where it was.
#[async_trait]
pub trait Source: Send {
    async fn read(&mut self, from: &Position) -> Result<Option<Batch>>;
}

/// A step between source and sink. It may drop, add and change rows; `from`, `to` and `scope` are
/// the reader's and pass through untouched. An error is the whole batch's error.
#[async_trait]
pub trait Transform: Send {
    async fn apply(&mut self, batch: Batch) -> Result<Batch>;
}

/// Where rows go. One instance serves one lease; the executor calls `seal` once, then `write`
/// batch by batch.
#[async_trait]
pub trait Sink: Send {
    /// Shuts older owners out, before the first write of a lease.
    async fn seal(&mut self, lease: &Lease) -> Result<()>;

    /// Writes and, in the same transaction where the target has one, commits fence, rejects and
    /// checkpoint. `Ok` means all of it is durable; an error means none of it is.
    async fn write(&mut self, batch: &Batch, commit: &Commit) -> Result<Written>;
}
