//! A backfill by keys: their rows are read again, and the checkpoint stays where it is.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use vitrina_core::{Batch, DOCUMENT_ID, Error, Position, Result, Scope};

use super::asked_keys::{AskedKeys, no_value};
use super::dirty::Page;
use super::pending::Pending;
use super::reader::Reader;
use super::recompute::{Recompute, nothing};

pub(super) struct KeyBackfill {
    pending: Pending,
    /// Of keys and ids that no row of the source has: whatever the target has under them goes.
    absent: VecDeque<RecordBatch>,
}

/// How keys are taken.
#[derive(Debug)]
pub(super) struct KeyRules {
    /// A key that no row can have is an error.
    pub(super) strict: bool,
    /// The target's rows have the keys that their source has.
    pub(super) keeps_keys: bool,
}

impl KeyBackfill {
    pub(super) async fn new(
        mut asked: AskedKeys,
        rules: &KeyRules,
        mut recompute: Recompute,
        reader: &Reader,
    ) -> Result<Self> {
        let mut unreadable = Vec::new();
        if rules.keeps_keys || rules.strict {
            unreadable = asked.take_unreadable(recompute.columns(), reader).await?;
        }
        if rules.strict && !unreadable.is_empty() {
            return Err(no_value(recompute.columns()));
        }
        if !unreadable.is_empty() {
            let columns: Vec<&str> = recompute.columns().iter().map(|column| column.name.as_str()).collect();
            tracing::warn!(
                keys = unreadable.len(),
                "{} of the keys can be of no row: they are no values of {}",
                unreadable.len(),
                columns.join(", ")
            );
        }
        let mut absent: VecDeque<RecordBatch> = VecDeque::new();
        for some in unreadable.chunks(recompute.step) {
            absent.push_back(recompute.scope(some)?);
        }
        for some in asked.ids.chunks(recompute.step) {
            absent.push_back(of_ids(some)?);
        }
        let dirty = recompute.take_spelled(asked.keys);
        let mut pending = Pending::new(recompute);
        pending.fill(Page { dirty, end: None, last: true });
        Ok(Self { pending, absent })
    }

    pub(super) async fn read(&mut self, reader: &mut Reader, from: &Position) -> Result<Option<Batch>> {
        let next = self.pending.next(reader).await?;
        if let Some(recomputed) = next.recomputed {
            return Ok(Some(recomputed.batch(nothing(reader, from))));
        }
        let absent = self.absent.pop_front();
        Ok(absent.map(|scope| Batch { scope: Scope::Keys(scope), ..nothing(reader, from) }))
    }
}

fn of_ids(ids: &[String]) -> Result<RecordBatch> {
    let schema = Schema::new(vec![Field::new(DOCUMENT_ID, DataType::Utf8, false)]);
    let ids: StringArray = ids.iter().map(|id| Some(id.as_str())).collect();
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids) as ArrayRef])
        .map_err(|error| Error::defect("source.scope", &error))
}
