//! One step of a task plan, on its way in and out.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One step of a plan: SQL first, then registered Python transforms.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    pub(super) order_index: i32,
    /// `SQL` or `PYTHON`.
    #[serde(default)]
    #[schema(required)]
    task_type: String,
    /// SQL text, or the name of a registered Python task. A first step may leave it empty and name its `source_table`: it
    /// reads all columns of that.
    #[serde(default)]
    #[schema(required)]
    body: String,
    source_table: Option<String>,
    target_table: Option<String>,
}

impl From<Task> for vitrina_core::Task {
    fn from(task: Task) -> Self {
        let Task { order_index, task_type, body, source_table, target_table } = task;
        Self { order_index, task_type, body, source_table, target_table }
    }
}

impl From<vitrina_core::Task> for Task {
    fn from(task: vitrina_core::Task) -> Self {
        let vitrina_core::Task { order_index, task_type, body, source_table, target_table } = task;
        Self { order_index, task_type, body, source_table, target_table }
    }
}
