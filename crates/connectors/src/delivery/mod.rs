//! How a batch is delivered, the same for every target: refused rows become rejects, up to a limit; deletes have a limit too; and a checkpoint
//! moves with the data that it speaks of. A target does what only it can: write rows, delete by key, and commit.

mod checkpoint;
pub(crate) mod delete_limit;
pub(crate) mod duplicates;
mod open_rejects;

use std::time::Instant;

use async_trait::async_trait;
use vitrina_core::{
    Batch, Checkpoint, Commit, Committed, Error, ErrorKind, Ledger, Outcome, Result, Written,
};

pub(crate) use checkpoint::{after_load, after_upsert, enter_load};
pub(crate) use open_rejects::{OpenRejects, check_reject_limit};

/// What a batch loses by a row that the target refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnBadRow {
    /// All of it: the quick way, for rows that pass.
    FailBatch,
    /// The row alone: those that are refused are found and left out.
    Reject,
}

/// Why a batch was not delivered.
#[derive(Debug)]
pub(crate) enum Failure {
    /// One of its rows is to blame: the others may pass.
    Row(Error),
    /// It cannot pass, whatever its rows.
    Batch(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Batch(error)
    }
}

/// What a target can do. When, and how often, is decided by `deliver`.
#[async_trait]
pub(crate) trait Target: Send + Sync {
    fn rejects(&mut self) -> &mut OpenRejects;

    fn ledger(&self) -> &dyn Ledger;

    /// What is left of a batch that has too many rejects, and what to do then.
    fn reject_limit_hint(&self) -> &'static str;

    /// Asked before anything of a batch is written. Answers the batch that is written instead, where the target cannot take all of its rows.
    async fn prepare(&mut self, batch: &Batch) -> Result<Option<Batch>>;

    /// Writes and commits a batch that needs no look at what is there, where the target has a shorter way for it.
    async fn write_pipelined(&mut self, _: &Batch, _: &Commit) -> Result<Option<Written>, Failure> {
        Ok(None)
    }

    /// Writes rows and deletes; answers the checkpoint behind them. Readers may see them before `commit` where the target
    /// has no transactions: then they are written again if that fails.
    async fn write(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        on_bad_row: OnBadRow,
        outcome: &mut Outcome,
    ) -> Result<Checkpoint, Failure>;

    /// With the data, or right after it where the target has no transactions.
    async fn commit(
        &mut self,
        batch: &Batch,
        commit: &Commit,
        checkpoint: &Checkpoint,
        outcome: &Outcome,
    ) -> Result<Committed>;

    /// Takes back what `write` has done, where the target can.
    async fn abandon(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Rows go the quick way first. Where one of them is to blame for a failure, all of them are written again, and refused one by one.
pub(crate) async fn deliver(target: &mut impl Target, batch: &Batch, commit: &Commit) -> Result<Written> {
    let prepared = target.prepare(batch).await?;
    let batch = prepared.as_ref().unwrap_or(batch);
    let mut delivered = attempt(target, batch, commit, OnBadRow::FailBatch).await;
    if let Err(Failure::Row(_)) = delivered {
        target.abandon().await?;
        delivered = attempt(target, batch, commit, OnBadRow::Reject).await;
    }
    match delivered {
        Ok(written) => Ok(written),
        Err(Failure::Row(error) | Failure::Batch(error)) => {
            // The session may be gone; then so is its transaction.
            target.abandon().await.ok();
            Err(keep_rejects(target, error, commit).await)
        }
    }
}

async fn attempt(
    target: &mut impl Target,
    batch: &Batch,
    commit: &Commit,
    on_bad_row: OnBadRow,
) -> Result<Written, Failure> {
    let started = Instant::now();
    if on_bad_row == OnBadRow::FailBatch
        && let Some(written) = target.write_pipelined(batch, commit).await?
    {
        return Ok(written);
    }
    let mut outcome = target.rejects().outcome(batch, commit);
    let checkpoint = target.write(batch, commit, on_bad_row, &mut outcome).await?;
    target.rejects().close(&mut outcome);
    outcome.write_ms = millis(started);
    let committed = target.commit(batch, commit, &checkpoint, &outcome).await?;
    target.rejects().committed(&outcome);
    Ok(written(&outcome, checkpoint, committed))
}

pub(crate) fn written(outcome: &Outcome, checkpoint: Checkpoint, committed: Committed) -> Written {
    let Committed { version, interrupted } = committed;
    Written { counts: outcome.counts, checkpoint, version, interrupted }
}

/// The rejects of a batch that fails because of them are kept, so that they can be looked at.
async fn keep_rejects(target: &mut impl Target, error: Error, commit: &Commit) -> Error {
    if error.kind != ErrorKind::RejectLimit {
        return error;
    }
    let rejects = target.rejects().take_last();
    let told = open_rejects::limit_error(&rejects, commit).hint(target.reject_limit_hint());
    let outcome = Outcome { rejects, ..Outcome::default() };
    target.ledger().keep_rejects(&commit.lease, &outcome).await.err().unwrap_or(told)
}

pub(crate) fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
