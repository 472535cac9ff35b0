//! `vitrina python`: the functions that runners have registered.

use anyhow::Result;
use vitrina_api::documents::PythonTask;

use crate::context::Context;
use crate::exit::Exit;
use crate::output;

pub(crate) const EXAMPLES: &str = "\
Examples:
  vitrina python   names, docs and versions of the code";

pub(crate) async fn list(context: &Context) -> Result<Exit> {
    let tasks = context.client()?.python_tasks().await?;
    context.output.show(&tasks.document, || match tasks.known.items.as_slice() {
        [] => "no runner has registered a Python function; docs/python.md tells how".to_owned(),
        tasks => {
            let header = ["function", "kind", "runner", "version", "about"];
            output::yielding(header, tasks.iter().map(row), &["about", "version", "runner"])
        }
    });
    Ok(Exit::Done)
}

fn row(task: &PythonTask) -> [String; 5] {
    let about = task.doc.lines().next().unwrap_or_default().to_owned();
    let runner = if task.alive { task.runner.clone() } else { format!("{} (away)", task.runner) };
    [task.name.clone(), task.kind.clone(), runner, task.version_hash.clone(), about]
}
