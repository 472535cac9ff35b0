//! What a worker has registered: functions by name. Names are all that the meta-store and the API ever know of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vitrina_core::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskUse {
    Transform,
    Source,
}

impl TaskUse {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transform => "transform",
            Self::Source => "source",
        }
    }
}

/// How rows travel to a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    Arrow,
    Rows,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PythonTask {
    pub name: String,
    pub kind: TaskUse,
    pub(crate) batch: Form,
    /// What the function is annotated with.
    #[serde(rename = "type")]
    pub batch_type: String,
    /// Changes with the code.
    pub version_hash: String,
    #[serde(default)]
    pub doc: String,
    /// Columns that it needs, with their types.
    #[serde(default)]
    pub input: Option<BTreeMap<String, String>>,
    /// Columns that it adds, with their types.
    #[serde(default)]
    pub output: Option<BTreeMap<String, String>>,
}

impl PythonTask {
    /// Even a batch without rows has its columns. Dicts that are not there have none.
    pub fn tells_columns(&self) -> bool {
        self.batch == Form::Arrow
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    pub tasks: Vec<PythonTask>,
}

impl Registry {
    /// Changes with the code of the functions, by their names.
    pub fn versions(&self) -> BTreeMap<String, String> {
        self.tasks.iter().map(|task| (task.name.clone(), task.version_hash.clone())).collect()
    }

    /// A name that is not registered is refused: it is never looked for anywhere else.
    pub fn find(&self, name: &str, kind: TaskUse) -> Result<&PythonTask> {
        let found = self.tasks.iter().find(|task| task.name == name);
        match found {
            Some(task) if task.kind == kind => Ok(task),
            Some(task) => {
                let message =
                    format!("python task {name:?} is a {}, not a {}", task.kind.as_str(), kind.as_str());
                Err(Error::fix("python.other_kind", message))
            }
            None => Err(unknown(name)),
        }
    }
}

pub fn unknown(name: &str) -> Error {
    Error::fix("python.unknown_task", format!("python task {name:?} is not registered with this runner"))
        .hint(
            "register it with @transform in a module that python.modules of the runner's configuration names",
        )
}
