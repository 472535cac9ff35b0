//! Steps between source and sink, by the names of a task plan.

mod python;

use std::sync::Arc;

use arrow_schema::SchemaRef;
use vitrina_core::{Pipeline, Result, Transform};
use vitrina_python::{Context, Python, unknown};

/// What steps need of the run they serve.
#[derive(Debug)]
pub struct Order<'a> {
    pub pipeline: &'a Pipeline,
    /// Where this runner has one.
    pub python: Option<&'a Arc<Python>>,
    pub run_id: String,
    pub mode: String,
    /// Batches that the run has committed.
    pub done: u64,
}

/// All steps of a pipeline in order, as often as batches may be worked on at a time; none where it has no steps. A name that
/// is not registered here is refused before anything runs; no code ever comes from the database.
pub fn open(order: &Order<'_>) -> Result<Vec<Box<dyn Transform>>> {
    let Some(first) = steps(order)? else { return Ok(Vec::new()) };
    let lanes = order.python.map_or(1, |python| python.workers_a_run());
    Ok(first.lanes(lanes).into_iter().map(|steps| Box::new(steps) as Box<dyn Transform>).collect())
}

/// The columns that rows with these have behind the transforms; `None` where that shows when they run.
pub async fn columns(order: &Order<'_>, of: SchemaRef) -> Result<Option<SchemaRef>> {
    match steps(order)? {
        Some(mut steps) => steps.columns(of).await,
        None => Ok(Some(of)),
    }
}

fn steps(order: &Order<'_>) -> Result<Option<python::Steps>> {
    let names = order.pipeline.transforms();
    let Some(first) = names.first() else { return Ok(None) };
    let python = order.python.ok_or_else(|| unknown(first))?;
    let context = Context {
        pipeline: order.pipeline.name.clone(),
        run_id: order.run_id.clone(),
        mode: order.mode.clone(),
        batch: order.done,
        batch_size: order.pipeline.batch_size,
    };
    python::Steps::new(python, &names, context).map(Some)
}
