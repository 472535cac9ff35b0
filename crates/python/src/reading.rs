//! A source that is a function: batches, each with the position behind it.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use serde::Deserialize;
use serde_json::{Value, json};
use vitrina_core::values::value;
use vitrina_core::{Error, Result};
use vitrina_pgcopy::arrow_schema;

use crate::registry::PythonTask;
use crate::session::{Column, Context, Session};

/// What a source has yielded.
#[derive(Debug)]
pub enum Yielded {
    Rows {
        rows: RecordBatch,
        position: Value,
    },
    /// Nothing follows.
    End {
        position: Value,
    },
}

#[derive(Debug)]
pub struct Reading {
    session: Session,
    task: PythonTask,
    context: Context,
    is_open: bool,
}

#[derive(Deserialize)]
struct Batch {
    position: Value,
    #[serde(default)]
    columns: Vec<Column>,
}

impl Reading {
    pub fn new(session: Session, task: PythonTask, context: Context) -> Self {
        Self { session, task, context, is_open: false }
    }

    /// The columns that the function declares, where it does.
    pub fn declared(&self) -> Option<SchemaRef> {
        let declared = self.task.output.as_ref()?;
        let columns: Vec<_> =
            declared.iter().map(|(name, of)| vitrina_pgcopy::Column::of_type(name, of)).collect();
        Some(arrow_schema(&columns))
    }

    /// `from` counts for the first batch: from there on the function knows where it is.
    pub async fn next(&mut self, from: &Value) -> Result<Yielded> {
        let mut calls = Vec::new();
        if !std::mem::replace(&mut self.is_open, true) {
            let task = &self.task.name;
            let open = json!({"call": "source", "task": task, "position": from, "columns": null, "context": self.context});
            calls.push((open, Vec::new()));
        } else {
            self.session.is_held = true;
        }
        calls.push((json!({"call": "next"}), Vec::new()));
        let answer = self.session.call(&self.task, &calls).await;
        self.session.is_held = answer.as_ref().is_ok_and(|frame| frame.header.get("end").is_none());
        let mut frame = answer?;
        if let Some(end) = frame.header.get_mut("end") {
            return Ok(Yielded::End { position: end["position"].take() });
        }
        let batch: Batch = serde_json::from_value(frame.header["batch"].take()).map_err(|error| {
            Error::bug(
                "python.protocol",
                format!("the answer of {:?}: {}", self.task.name, value(&error.to_string())),
            )
        })?;
        let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let rows = self.session.rows(&self.task, &nothing, &frame.body, &batch.columns)?;
        Ok(Yielded::Rows { rows, position: batch.position })
    }
}
