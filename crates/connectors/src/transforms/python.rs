//! Registered Python functions, one after the other in one worker.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use vitrina_core::values::value;
use vitrina_core::{Batch, DOCUMENT_ID, Destination, Error, Result, Scope, Transform};
use vitrina_python::{Context, Python, PythonTask, Session, TaskUse, Transformed};

use crate::arrow_text::nullable_texts;
use crate::rejects::reject;

pub(super) struct Steps {
    session: Session,
    tasks: Vec<PythonTask>,
    context: Context,
    /// How far a batch is behind the one before: between the two come those of the other lanes.
    stride: u64,
    /// The target's, by which rows that are refused are named.
    key: Vec<String>,
}

impl Steps {
    pub(super) fn new(python: &Arc<Python>, names: &[&str], context: Context) -> Result<Self> {
        let find = |name: &&str| python.registry().find(name, TaskUse::Transform).cloned();
        let tasks = names.iter().map(find).collect::<Result<_>>()?;
        Ok(Self { session: python.session(), tasks, context, stride: 1, key: Vec::new() })
    }

    /// For so many batches at a time, which come to them in turn.
    pub(super) fn lanes(mut self, count: usize) -> Vec<Self> {
        self.stride = count as u64;
        self.context.batch += 1;
        let beside = |lane: u64| Self {
            session: self.session.beside(),
            tasks: self.tasks.clone(),
            context: Context { batch: self.context.batch + lane, ..self.context.clone() },
            stride: self.stride,
            key: Vec::new(),
        };
        let others: Vec<Self> = (1..self.stride).map(beside).collect();
        std::iter::once(self).chain(others).collect()
    }

    /// The columns of what becomes of rows with these, where that can be told without rows.
    pub(super) async fn columns(&mut self, of: SchemaRef) -> Result<Option<SchemaRef>> {
        let mut rows = RecordBatch::new_empty(of);
        for task in &self.tasks {
            if !task.tells_columns() {
                return Ok(None);
            }
            rows = self.session.transform(task, &rows, &self.context).await?.rows;
        }
        Ok(Some(rows.schema()))
    }
}

#[async_trait]
impl Transform for Steps {
    fn begin(&mut self, destination: &Destination) {
        self.key.clone_from(&destination.key);
    }

    async fn apply(&mut self, mut batch: Batch) -> Result<Batch> {
        let context = self.context.clone();
        self.context.batch += self.stride;
        let scope = Answered::of(&batch)?;
        for task in &self.tasks {
            let Transformed { rows, refused } = self.session.transform(task, &batch.rows, &context).await?;
            for refused in refused {
                require_key(task, &batch, &self.key)?;
                let code = format!("python.{}", refused.code);
                let message = value(&refused.message);
                batch.rejected.push(reject(&batch.rows, refused.row, &self.key, &code, message)?);
            }
            if rows.num_rows() == 0 && !self.session.knows_columns(task) {
                // Nothing is left for the functions behind it, and nobody knows which columns it would have had.
                batch.rows = certain(&batch, &self.key)?;
                batch.columns_unknown = true;
                return Ok(batch);
            }
            batch.rows = rows;
        }
        scope.map_or(Ok(()), |scope| scope.hold(&batch.rows))?;
        Ok(batch)
    }
}

/// No rows, with the columns of the key and of the change key: nothing else is certain of rows that are not there.
fn certain(given: &Batch, key: &[String]) -> Result<RecordBatch> {
    let (rows, mut columns) = (&given.rows, key.to_vec());
    if let Scope::Keys(scope) = &given.scope {
        columns.extend(scope.schema().fields().iter().map(|field| field.name().clone()));
    }
    let is_certain = |place: &usize| columns.contains(rows.schema().field(*place).name());
    let places: Vec<usize> = (0..rows.num_columns()).filter(is_certain).collect();
    let rows = rows.slice(0, 0).project(&places);
    rows.map_err(|error| Error::defect("python.rows", &error))
}

/// A row that is refused stays in the target as it was, and nobody could tell which one that is.
fn require_key(task: &PythonTask, batch: &Batch, key: &[String]) -> Result<()> {
    let Some(missing) = key.iter().find(|column| batch.rows.column_by_name(column).is_none()) else {
        return Ok(());
    };
    let message = format!(
        "python task {:?} refuses a row, and the rows that it gets have no {missing:?}, which is in the target's key",
        task.name
    );
    Err(Error::fix("python.contract", message).hint("return the key in the query, or leave the row out"))
}

/// The change keys that a batch answers for. Rows of others would be overwritten or deleted by the batches of those.
struct Answered {
    columns: Vec<String>,
    keys: HashSet<Vec<Option<String>>>,
}

impl Answered {
    /// `None` where the batch answers for no keys of its own, or for some that only the source can compare.
    fn of(batch: &Batch) -> Result<Option<Self>> {
        let Scope::Keys(scope) = &batch.scope else { return Ok(None) };
        let columns: Vec<String> = scope.schema().fields().iter().map(|field| field.name().clone()).collect();
        // Ids of documents are no keys of rows.
        if columns == [DOCUMENT_ID] {
            return Ok(None);
        }
        let keys =
            (0..scope.num_rows()).map(|row| nullable_texts(scope, &columns, row)).collect::<Result<_>>()?;
        let answered = Self { columns, keys };
        let is_comparable = answered.stranger(&batch.rows)?.is_none();
        Ok(is_comparable.then_some(answered))
    }

    fn stranger(&self, rows: &RecordBatch) -> Result<Option<usize>> {
        for row in 0..rows.num_rows() {
            if !self.keys.contains(&nullable_texts(rows, &self.columns, row)?) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn hold(&self, rows: &RecordBatch) -> Result<()> {
        let missing = self.columns.iter().find(|column| rows.column_by_name(column).is_none());
        let message = match missing {
            Some(missing) => {
                format!("the Python functions return no {missing:?}, by which changes are followed")
            }
            None if self.stranger(rows)?.is_some() => {
                let columns = self.columns.join(", ");
                format!("the Python functions return rows of another ({columns}) than they were given")
            }
            None => return Ok(()),
        };
        Err(Error::fix("python.contract", message).hint(
            "in mode incremental a batch answers for the keys that it was given: keep these columns as they are, or name others as change_key",
        ))
    }
}
