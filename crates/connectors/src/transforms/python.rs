//! Registered Python functions, one after the other in one worker.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use vitrina_core::{Batch, Destination, Error, Result, Transform};
use vitrina_python::{Context, Python, PythonTask, Session, TaskUse, Transformed};

use crate::rejects::reject;

pub(super) struct Steps {
    session: Session,
    tasks: Vec<PythonTask>,
    context: Context,
    /// The target's, by which rows that are refused are named.
    key: Vec<String>,
}

impl Steps {
    pub(super) fn new(python: &Arc<Python>, names: &[&str], context: Context) -> Result<Self> {
        let find = |name: &&str| python.registry().find(name, TaskUse::Transform).cloned();
        let tasks = names.iter().map(find).collect::<Result<_>>()?;
        Ok(Self { session: python.session(), tasks, context, key: Vec::new() })
    }
}

impl Steps {
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
        self.context.batch += 1;
        for task in &self.tasks {
            let Transformed { rows, refused } =
                self.session.transform(task, &batch.rows, &self.context).await?;
            for refused in refused {
                require_key(task, &batch, &self.key)?;
                let code = format!("python.{}", refused.code);
                batch.rejected.push(reject(&batch.rows, refused.row, &self.key, &code, refused.message)?);
            }
            batch.rows = match rows.num_rows() == 0 && !self.session.knows_columns(task) {
                true => only(&rows, &self.key)?,
                false => rows,
            };
        }
        Ok(batch)
    }
}

/// Of rows that are not there nothing but the key is certain to be among their columns.
fn only(rows: &RecordBatch, key: &[String]) -> Result<RecordBatch> {
    let places: Vec<usize> = key.iter().filter_map(|column| rows.schema().index_of(column).ok()).collect();
    rows.project(&places).map_err(|error| Error::bug("python.rows", error.to_string()))
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
