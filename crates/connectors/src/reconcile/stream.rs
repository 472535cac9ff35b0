//! The rows of a pipeline as they would be written: read, taken through its functions, and written nowhere.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde_json::json;
use vitrina_core::{Backfill, Destination, Mode, Position, Result, Source, Transform};

use super::{Key, Order};
use crate::rejects::without_null_keys;
use crate::{sources, transforms};

pub(crate) struct Stream {
    source: Box<dyn Source>,
    steps: Vec<Box<dyn Transform>>,
    from: Position,
    key: Vec<String>,
    finished: bool,
    /// Rows that were read and are not among those that came.
    refused: u64,
}

/// Which rows are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<'a> {
    All,
    /// One that is no value of its column's type has no row.
    Keys(&'a [Key]),
    /// As a person has typed it: such a one is an error.
    Typed(&'a Key),
}

impl Stream {
    /// Its source can be asked for keys.
    pub(crate) fn takes_keys(order: &Order<'_>) -> bool {
        order.pipeline.python_source().is_none()
    }

    pub(crate) async fn open(order: &Order<'_>, key: &[String], wanted: Wanted<'_>) -> Result<Self> {
        let backfill = match wanted {
            Wanted::Keys(keys) => Some(Backfill::Keys(keys.iter().map(|key| json!(key)).collect())),
            Wanted::Typed(key) => Some(Backfill::Keys(vec![json!(key)])),
            Wanted::All => None,
        };
        let lease = order.lease();
        let strict_keys = matches!(wanted, Wanted::Typed(_));
        let source = sources::Order { strict_keys, ..order.source(&lease, Mode::Full, backfill.as_ref()) };
        let mut source = order.sources.open(&source).await?;
        let mut steps = transforms::open(&transforms::Order {
            pipeline: order.pipeline,
            python: order.python,
            run_id: order.id.to_string(),
            mode: Mode::Full.to_string(),
            done: 0,
        })?;
        let destination = Destination { key: key.to_vec(), server: None, takes_ids: false };
        source.begin(&destination).await?;
        steps.iter_mut().for_each(|step| step.begin(&destination));
        let (from, key) = (Position::start(), key.to_vec());
        Ok(Self { source, steps, from, key, finished: false, refused: 0 })
    }

    /// The columns of the rows, where they are known before them.
    pub(crate) fn schema(&self) -> Option<SchemaRef> {
        self.source.schema().filter(|_| self.steps.is_empty())
    }

    /// How many rows were refused so far: by the source, by a function, or for want of a key.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// The next rows that have a key; `None` when there are no more.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.finished {
            return Ok(None);
        }
        let Some(mut batch) = self.source.read(&self.from).await? else { return Ok(None) };
        for step in &mut self.steps {
            batch = step.apply(batch).await?;
        }
        self.finished = batch.ends_pass();
        if let Some(to) = batch.to {
            self.from = to;
        }
        let (mut rows, mut rejected) = (batch.rows, batch.rejected);
        without_null_keys(&mut rows, &mut rejected, &self.key)?;
        self.refused += rejected.len() as u64;
        Ok(Some(rows))
    }
}
