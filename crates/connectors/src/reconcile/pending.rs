//! What the next pass of a pipeline will read: keys that have changed at the source behind the checkpoint. Read by the
//! pipeline's own source, which nothing is committed to.

use std::collections::HashSet;

use jiff::Timestamp;
use vitrina_core::{
    Batch, Checkpoint, Destination, DifferenceKind, Mode, Position, Reject, Result, Resumption, RunId, Scope,
    Source,
};

use super::Order;
use super::pair::Pair;
use super::suspects::{Suspect, Suspects};
use crate::arrow_text::nullable_texts;

pub(super) struct Pending<'a> {
    order: &'a Order<'a>,
    key: Vec<String>,
    /// `None` where nothing is known to come: a full load, or a checkpoint that says nothing of these rows.
    from: Option<Position>,
}

type ChangeKey = Vec<Option<String>>;

/// Which of the rows that differ are on their way.
#[derive(Debug, Default)]
pub(super) struct Found {
    keys: HashSet<ChangeKey>,
    /// Everything is read.
    all: bool,
    /// By a load: what it does not bring is deleted.
    all_deletes: bool,
}

impl Found {
    /// A load takes the place of what could not be told.
    pub(super) fn is_load(&self) -> bool {
        self.all_deletes
    }

    pub(super) fn has(&self, suspect: &Suspect) -> bool {
        self.all_deletes
            || (self.all && suspect.kind != DifferenceKind::Extra)
            || suspect.changes.iter().any(|key| self.keys.contains(key))
    }
}

impl<'a> Pending<'a> {
    pub(super) fn of(order: &'a Order<'a>, checkpoint: &Checkpoint, pair: &dyn Pair) -> Self {
        let key = pair.key().to_vec();
        let by = Resumption {
            run: RunId(order.id),
            mode: order.pipeline.mode,
            decision: None,
            on_change: order.pipeline.on_change,
            config_hash: order.pipeline.config_hash(order.target),
            key: key.clone(),
            // Which keys have changed does not depend on what becomes of their rows.
            code: checkpoint.code.clone(),
            columns: checkpoint.columns.clone(),
            // A load under way reads all there is.
            continues_since: Some(Timestamp::MIN),
        };
        let resumed = checkpoint.clone().resume(&by).ok();
        let from = resumed.filter(|_| order.pipeline.mode == Mode::Incremental);
        Self { order, key, from: from.map(|checkpoint| checkpoint.position) }
    }

    /// Anything at all.
    pub(super) async fn is_any(&self) -> Result<bool> {
        let mut any = self.reads_all();
        if !any {
            self.each(|batch| {
                let named = matches!(&batch.scope, Scope::Keys(keys) if keys.num_rows() > 0);
                any = named || batch.rows.num_rows() > 0 || matches!(batch.scope, Scope::Load { .. });
                Ok(!any)
            })
            .await?;
        }
        Ok(any)
    }

    /// Those among the suspects that the next pass will read.
    pub(super) async fn find(&self, suspects: &Suspects) -> Result<Found> {
        let wanted: HashSet<&ChangeKey> = suspects.iter().flat_map(|suspect| &suspect.changes).collect();
        let mut found = Found { all: self.reads_all(), ..Found::default() };
        if !found.all {
            self.each(|batch| {
                self.note(batch, &wanted, &mut found)?;
                Ok(!found.all)
            })
            .await?;
        }
        Ok(found)
    }

    /// No pass has ever been completed.
    fn reads_all(&self) -> bool {
        self.from.as_ref().is_some_and(|from| from.done.is_null())
    }

    /// The batches of the next pass, and of the one behind it where a pass was left open: what has changed since is
    /// that one's. Goes on as long as it is told to.
    async fn each(&self, mut visit: impl FnMut(&Batch) -> Result<bool>) -> Result<()> {
        let Some(mut from) = self.from.clone() else { return Ok(()) };
        let passes = if from.pass.is_some() { 2 } else { 1 };
        for _ in 0..passes {
            let mut source = self.open().await?;
            while let Some(batch) = source.read(&from).await? {
                if !visit(&batch)? {
                    return Ok(());
                }
                let ends = batch.ends_pass();
                from = batch.to.unwrap_or(from);
                if ends {
                    break;
                }
            }
        }
        Ok(())
    }

    fn note(&self, batch: &Batch, wanted: &HashSet<&ChangeKey>, found: &mut Found) -> Result<()> {
        let (rows, columns) = match &batch.scope {
            Scope::Keys(keys) => {
                (keys, keys.schema().fields().iter().map(|field| field.name().clone()).collect())
            }
            Scope::Load { .. } => {
                (found.all, found.all_deletes) = (true, true);
                return Ok(());
            }
            Scope::Nothing => (&batch.rows, self.order.pipeline.change_key_or(&self.key).to_vec()),
        };
        let named = (0..rows.num_rows()).map(|row| nullable_texts(rows, &columns, row));
        let refused = batch.rejected.iter().filter(|_| columns == self.key).filter_map(key_of);
        for key in named.chain(refused.map(Ok)) {
            let key = key?;
            if wanted.contains(&key) {
                found.keys.insert(key);
            }
        }
        Ok(())
    }

    async fn open(&self) -> Result<Box<dyn Source>> {
        let lease = self.order.lease();
        let mut source = self.order.sources.open(&self.order.source(&lease, Mode::Incremental, None)).await?;
        source.begin(&Destination { key: self.key.clone(), server: None, takes_ids: false }).await?;
        Ok(source)
    }
}

/// A row that the pass reads and cannot write. One without a cursor is not read: it is only told of.
fn key_of(reject: &Reject) -> Option<ChangeKey> {
    match reject.code.as_str() {
        "row.null_cursor" => None,
        _ => serde_json::from_value(reject.key.clone()).ok(),
    }
}
