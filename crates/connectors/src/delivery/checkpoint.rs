//! The checkpoint behind a batch.

use vitrina_core::{Batch, Checkpoint, Commit, Error, Load, LoadPath, Outcome, Result, RowChange};

/// Behind rows that were written among those that are there.
pub(crate) fn after_upsert(batch: &Batch, commit: &Commit, change: RowChange) -> Checkpoint {
    match &batch.to {
        Some(to) => commit.advance(to.clone(), change),
        // What a load has gathered is older than what the backfill has just written: it starts anew.
        None if commit.from.load.is_some_and(|load| load.path == LoadPath::Staged) => {
            commit.from.without_pass()
        }
        None => commit.from.clone(),
    }
}

/// Rejects of the batch belong to the load, and its last batch has seen every row.
pub(crate) fn enter_load(load: Load, batch: &Batch, outcome: &mut Outcome) {
    outcome.load = Some(load.id);
    outcome.close_others = batch.ends_pass();
}

/// Behind a batch of a load, which is open until its last one.
pub(crate) fn after_load(
    load: Load,
    batch: &Batch,
    commit: &Commit,
    change: RowChange,
) -> Result<Checkpoint> {
    let to = batch.to.clone().ok_or_else(|| Error::bug("sink.load", "a load leads nowhere"))?;
    let checkpoint = commit.advance(to, change);
    Ok(Checkpoint { load: (!batch.ends_pass()).then_some(load), ..checkpoint })
}
