//! A registered Python function that yields rows, each batch with the position behind it. A pass begins where the last
//! one has ended, or at the beginning where everything is to be read.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use async_trait::async_trait;
use serde_json::{Value, json};
use vitrina_core::{Advice, Batch, Destination, Error, Mode, Position, Result, Scope, Source};
use vitrina_python::{Context, Reading, TaskUse, Yielded, unknown};

use super::{Kind, Order};

#[derive(Debug)]
pub(super) struct Python;

#[async_trait]
impl Kind for Python {
    fn source_type(&self) -> &'static str {
        "python"
    }

    async fn open(&self, order: &Order<'_>) -> Result<Box<dyn Source>> {
        let name = order.pipeline.python_source().ok_or_else(|| {
            Error::fix("pipeline.python_task", "source_type python needs python_task, the name of a source")
        })?;
        if order.backfill.is_some() {
            let message = "a Python source has no keys to be asked for: it is read from a position";
            return Err(Error::fix("backfill.python", message).hint("run the pipeline in mode full"));
        }
        let python = order.python.ok_or_else(|| unknown(name))?;
        let task = python.registry().find(name, TaskUse::Source)?.clone();
        let context = Context {
            pipeline: order.pipeline.name.clone(),
            run_id: order.run_id.clone(),
            mode: order.mode.to_string(),
            batch: 1,
            batch_size: order.pipeline.batch_size,
        };
        let reading = Reading::new(python.session(), task, context);
        Ok(Box::new(PythonSource { reading, mode: order.mode, shape: None, finished: false }))
    }
}

struct PythonSource {
    reading: Reading,
    mode: Mode,
    /// Columns of the rows so far.
    shape: Option<SchemaRef>,
    finished: bool,
}

#[async_trait]
impl Source for PythonSource {
    fn schema(&self) -> Option<SchemaRef> {
        self.reading.declared()
    }

    async fn begin(&mut self, _: &Destination) -> Result<()> {
        Ok(())
    }

    async fn read(&mut self, from: &Position) -> Result<Option<Batch>> {
        if self.finished {
            return Ok(None);
        }
        match self.reading.next(&self.start(from)).await? {
            Yielded::Rows { rows, position } => {
                let columns_unknown = rows.num_columns() == 0;
                if !columns_unknown {
                    self.shape = Some(rows.schema());
                }
                let pass = Some(json!({ "position": position }));
                let batch = self.batch(rows, from, Position { pass, ..from.clone() });
                Ok(Some(Batch { columns_unknown, ..batch }))
            }
            Yielded::End { position } => {
                self.finished = true;
                let to = Position { done: json!({ "position": position }), ..Position::default() };
                let is_news = self.mode == Mode::Full || *from != to;
                is_news.then(|| self.end(from, to)).transpose()
            }
        }
    }

    async fn advise(&self) -> Result<Vec<Advice>> {
        Ok(vec![Advice::fine(
            "rows come from a Python function; in mode incremental it alone tells what is new",
        )])
    }

    async fn rest(&mut self) -> Result<()> {
        Ok(())
    }
}

impl PythonSource {
    fn start(&self, from: &Position) -> Value {
        match (&from.pass, self.mode) {
            (Some(pass), _) => pass["position"].clone(),
            (None, Mode::Incremental) => from.done["position"].clone(),
            (None, Mode::Full) => Value::Null,
        }
    }

    fn batch(&self, rows: RecordBatch, from: &Position, to: Position) -> Batch {
        let scope = match self.mode {
            Mode::Full => Scope::Load { begins: from.pass.is_none() },
            Mode::Incremental => Scope::Nothing,
        };
        let rows_read = rows.num_rows() as u64;
        Batch {
            rows,
            columns_unknown: false,
            scope,
            rejected: Vec::new(),
            from: from.clone(),
            to: Some(to),
            backfilled_to: None,
            rows_read,
        }
    }

    /// The end of a pass brings no rows, but has their columns where anything has come since it was opened here.
    fn end(&self, from: &Position, to: Position) -> Result<Batch> {
        if let Some(shape) = self.shape.clone().or_else(|| self.reading.declared()) {
            return Ok(self.batch(RecordBatch::new_empty(shape), from, to));
        }
        if self.mode == Mode::Full && from.pass.is_none() {
            return Err(Error::fix(
                "python.no_rows",
                "the Python source has yielded nothing, and declares no columns",
            )
            .hint(
                "declare them, @source(output={\"id\": \"bigint\"}), if an empty target is what it means",
            ));
        }
        let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
        Ok(Batch { columns_unknown: true, ..self.batch(nothing, from, to) })
    }
}
