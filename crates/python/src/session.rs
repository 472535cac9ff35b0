//! The functions of one run, called batch by batch in one worker.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vitrina_core::values::value;
use vitrina_core::{Error, Result};
use vitrina_pgcopy::{Kind, Scalar};

use crate::frames::Frame;
use crate::pool::Python;
use crate::registry::{Form, PythonTask};
use crate::worker::Worker;
use crate::{arrow, rows};

/// What a function may know of the run it works for.
#[derive(Debug, Clone, Serialize)]
pub struct Context {
    pub pipeline: String,
    pub run_id: String,
    pub mode: String,
    /// Counts from 1.
    pub batch: u64,
    /// How many rows a source is asked for at a time.
    pub batch_size: i32,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Transformed {
    pub rows: RecordBatch,
    pub refused: Vec<Refused>,
}

/// A row that a function does not want.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Refused {
    /// Its place in the batch that was given.
    pub row: usize,
    pub code: String,
    pub message: String,
}

/// A column as it is told to a function, and by one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
}

#[derive(Deserialize)]
struct Done {
    #[serde(default)]
    rejects: Vec<Refused>,
    #[serde(default)]
    columns: Vec<Column>,
}

#[derive(Debug)]
pub struct Session {
    python: Arc<Python>,
    worker: Option<Worker>,
    /// A source is open in it: it serves nobody else.
    pub(crate) is_held: bool,
    /// Columns of the last rows that a task has returned: of no rows, and of one with nothing but NULL in it, it may not know
    /// them.
    shapes: Shapes,
}

/// Columns by the names of tasks, for all sessions of one run.
type Shapes = Arc<Mutex<HashMap<String, SchemaRef>>>;

impl Session {
    pub(crate) fn new(python: Arc<Python>) -> Self {
        Self { python, worker: None, is_held: false, shapes: Shapes::default() }
    }

    /// Of the same run, in a worker of its own.
    #[must_use]
    pub fn beside(&self) -> Self {
        let (python, shapes) = (Arc::clone(&self.python), Arc::clone(&self.shapes));
        Self { python, worker: None, is_held: false, shapes }
    }

    fn shape(&self, task: &PythonTask) -> Option<SchemaRef> {
        self.shapes().get(&task.name).cloned()
    }

    fn shapes(&self) -> MutexGuard<'_, HashMap<String, SchemaRef>> {
        self.shapes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn transform(
        &mut self,
        task: &PythonTask,
        given: &RecordBatch,
        context: &Context,
    ) -> Result<Transformed> {
        let body = match task.batch {
            Form::Arrow => arrow::write(given)?,
            Form::Rows => rows::write(given)?,
        };
        let header = json!({
            "call": "transform", "task": task.name, "context": context, "columns": columns(given),
        });
        let mut frame = self.call(task, &[(header, body)]).await?;
        let done: Done = serde_json::from_value(frame.header["done"].take()).map_err(|error| {
            Error::bug(
                "python.protocol",
                format!("the answer of {:?}: {}", task.name, value(&error.to_string())),
            )
        })?;
        if let Some(refused) = done.rejects.iter().find(|refused| refused.row >= given.num_rows()) {
            let message =
                format!("python task {:?} refuses row {}, which is not there", task.name, refused.row);
            return Err(Error::fix("python.contract", message));
        }
        let rows = self.rows(task, given, &frame.body, &done.columns)?;
        Ok(Transformed { rows, refused: done.rejects })
    }

    /// The columns that a task returns are known: its rows have them of themselves, or have been seen.
    pub fn knows_columns(&self, task: &PythonTask) -> bool {
        task.tells_columns() || self.shape(task).is_some()
    }

    /// What a function has returned, with types that Postgres has.
    pub(crate) fn rows(
        &mut self,
        task: &PythonTask,
        given: &RecordBatch,
        body: &[u8],
        columns: &[Column],
    ) -> Result<RecordBatch> {
        let rows = match task.batch {
            Form::Arrow => arrow::read(body, &task.name)?,
            Form::Rows => rows::read(body, columns, &task.name)?,
        };
        let rows = self.typed(task, given, &rows)?;
        if rows.num_rows() > 0 {
            self.require_same_columns(task, &rows)?;
            self.shapes().insert(task.name.clone(), rows.schema());
            return Ok(rows);
        }
        Ok(self.shape(task).map_or(rows, RecordBatch::new_empty))
    }

    pub(crate) async fn call(&mut self, task: &PythonTask, calls: &[(Value, Vec<u8>)]) -> Result<Frame> {
        let mut worker = match self.worker.take() {
            Some(worker) if self.is_held || worker.served < self.python.settings.batches_a_worker => worker,
            tired => {
                drop(tired);
                self.python.take().await?
            }
        };
        let had_served = worker.served > 0;
        let mut answer = worker.call(&task.name, calls, &self.python.settings).await;
        let may_be_others = had_served && !self.is_held;
        if answer.as_ref().is_err_and(|error| error.code == "python.memory") && may_be_others {
            // What it held may have been left by the batches before.
            worker = self.python.begin().await?;
            answer = worker.call(&task.name, calls, &self.python.settings).await;
        }
        if worker.is_free {
            self.worker = Some(worker);
        }
        answer
    }

    /// A target whose columns come and go with the batches would depend on how rows fall into them.
    fn require_same_columns(&self, task: &PythonTask, rows: &RecordBatch) -> Result<()> {
        let Some(shape) = self.shape(task) else { return Ok(()) };
        let names = |schema: &Schema| -> BTreeSet<String> {
            schema.fields().iter().map(|field| field.name().clone()).collect()
        };
        let (before, now) = (names(&shape), names(&rows.schema()));
        let Some(odd) = before.symmetric_difference(&now).next() else { return Ok(()) };
        let message = format!(
            "python task {:?} returns the column {odd:?} with some batches and not with others",
            task.name
        );
        Err(Error::fix("python.contract", message)
            .hint("return every column with every batch, NULL where it has no value"))
    }

    /// With the source's own types where a column has not changed, and only such types as Postgres has.
    fn typed(&self, task: &PythonTask, given: &RecordBatch, rows: &RecordBatch) -> Result<RecordBatch> {
        let (schema, mut columns) = (rows.schema(), rows.columns().to_vec());
        let mut fields: Vec<FieldRef> = Vec::with_capacity(columns.len());
        for (field, column) in schema.fields().iter().zip(&mut columns) {
            let was = given.schema().field_with_name(field.name()).cloned().ok();
            let field = match (field.data_type(), was) {
                (DataType::Null, was) => {
                    let before = self.shape(task);
                    let before = before.and_then(|shape| shape.field_with_name(field.name()).cloned().ok());
                    let field = Arc::new(before.or(was).unwrap_or_else(|| untyped(field.name())));
                    *column = arrow_array::new_null_array(field.data_type(), rows.num_rows());
                    field
                }
                (data_type, Some(was))
                    if was.data_type() == data_type && !is_told(field, &was) && !is_untyped(&was) =>
                {
                    Arc::new(was.with_nullable(true))
                }
                (data_type, _) if Kind::of_arrow(data_type).is_none() => {
                    return Err(no_such_type(&task.name, field));
                }
                _ => Arc::new(typed_by_values(field)),
            };
            fields.push(field);
        }
        arrow::batch(fields, columns, rows.num_rows())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A generator that is open may hold a transaction, or a lock: it ends with its worker.
        if let Some(worker) = self.worker.take().filter(|_| !self.is_held) {
            self.python.give_back(worker);
        }
    }
}

/// Metadata of a column that nothing but NULL has come in yet.
const UNTYPED: &str = "vitrina_untyped";

fn untyped(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true).with_metadata([(UNTYPED.into(), "true".into())].into())
}

/// It may have come in without one, and be handed back with its mark.
fn typed_by_values(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(UNTYPED);
    field.clone().with_nullable(true).with_metadata(metadata)
}

/// Nobody has said which type the column has: NULL fits into any that is there, but none can be made for it.
pub fn is_untyped(field: &Field) -> bool {
    field.metadata().contains_key(UNTYPED)
}

/// The function says itself which of the types that share this form of Arrow it means. What has no form of its own
/// travels as text, and comes back as such.
fn is_told(field: &Field, was: &Field) -> bool {
    let (told, before) = (Kind::of_field(field), Kind::of_field(was));
    let is_text = told == Some(Kind::Scalar(Scalar::Text)) && before == Some(Kind::AsText);
    field.metadata().contains_key("pg_oid") && told != before && !is_text
}

fn columns(rows: &RecordBatch) -> Vec<Column> {
    let column = |field: &FieldRef| {
        let kind = Kind::of_field(field).unwrap_or(Kind::AsText);
        Column { name: field.name().clone(), type_name: kind.postgres_type().to_owned() }
    };
    rows.schema().fields().iter().map(column).collect()
}

fn no_such_type(task: &str, field: &Field) -> Error {
    let (name, data_type) = (field.name(), field.data_type());
    Error::fix(
        "python.contract",
        format!("python task {task:?} returns {name:?} as {data_type}, for which Postgres has no type"),
    )
    .hint(
        "cast it to an integer, a float, a string, a boolean, a date, a timestamp or a list of one of these",
    )
}
