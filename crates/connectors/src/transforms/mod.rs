//! Steps between source and sink, by the names of a task plan.

use vitrina_core::{Error, Pipeline, Result, Transform};

/// The transforms of a pipeline, in order. A name that is not registered here is refused before
/// anything runs; no code ever comes from the database.
pub fn open(pipeline: &Pipeline) -> Result<Vec<Box<dyn Transform>>> {
    match pipeline.python_tasks().first() {
        None => Ok(Vec::new()),
        Some(name) => Err(Error::fix(
            "python.unknown_task",
            format!("python task {name:?} is not registered with this runner"),
        )
        .hint("register it in a module of the runner's configuration")),
    }
}
