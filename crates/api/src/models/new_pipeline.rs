//! What POST /pipelines takes. Defaults are those of the table.

use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;
use vitrina_core::{Capture, FirstLoad, Mode, Pipeline, PipelineId, PipelineKind, ReadBy, TaskPlan};

use super::{Task, Watch, words};

/// A pipeline to be. `name` and `target_table` are needed, and one of `source_query`,
/// `source_table` and `tasks`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPipeline {
    // Left out, they are empty, and the rules report them together with everything else.
    #[serde(default)]
    #[schema(required)]
    name: String,
    #[serde(default)]
    #[schema(required, example = "analytics.film_dim")]
    target_table: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default = "sql", rename = "type")]
    #[schema(value_type = words::PipelineKind)]
    kind: PipelineKind,
    /// `postgres` or `python`.
    #[serde(default = "postgres")]
    source_type: String,
    /// A named connection of the server's configuration.
    #[serde(default = "source")]
    source_connection: String,
    source_table: Option<String>,
    source_query: Option<String>,
    #[serde(default = "full")]
    #[schema(value_type = words::Mode)]
    mode: Mode,
    #[serde(default = "thousand")]
    #[schema(minimum = 1, maximum = 100_000)]
    batch_size: i32,
    #[serde(default = "yes")]
    enabled: bool,
    schedule_interval: Option<String>,
    incremental_key: Option<String>,
    incremental_id_key: Option<String>,
    #[serde(default = "cursor")]
    #[schema(value_type = words::Capture)]
    capture: Capture,
    /// The columns of the mart by which changes are named; left out, the target's key.
    #[serde(default)]
    change_key: Vec<String>,
    /// Further tables whose changes make rows of the mart dirty.
    #[serde(default)]
    watch: Vec<Watch>,
    #[serde(default = "ten_minutes")]
    late_window_seconds: i64,
    /// Highest share of the mart that one pass may delete.
    #[serde(default = "a_fifth")]
    delete_limit: f64,
    /// Highest number of rejects that a run may add and nobody has acknowledged.
    #[serde(default)]
    #[schema(minimum = 0)]
    reject_limit: i64,
    /// How the source of a load is read.
    #[serde(default = "auto")]
    #[schema(value_type = words::ReadBy)]
    read: ReadBy,
    /// How a mart that is empty gets its first rows.
    #[serde(default = "direct")]
    #[schema(value_type = words::FirstLoad)]
    first_load: FirstLoad,
    python_task: Option<String>,
    /// A task plan; where there is one it wins over `source_query`.
    #[serde(default)]
    tasks: Vec<Task>,
}

impl NewPipeline {
    /// The tasks' `order_index`, as the request lists them.
    pub(crate) fn task_order(&self) -> Vec<i32> {
        self.tasks.iter().map(|task| task.order_index).collect()
    }

    pub(crate) fn into_pipeline(self) -> Pipeline {
        Pipeline {
            id: PipelineId(Uuid::now_v7()),
            name: self.name,
            description: self.description,
            tags: self.tags,
            kind: self.kind,
            source_type: self.source_type,
            source_connection: self.source_connection,
            source_table: self.source_table,
            source_query: self.source_query,
            target_table: self.target_table,
            mode: self.mode,
            batch_size: self.batch_size,
            enabled: self.enabled,
            schedule_interval: self.schedule_interval,
            incremental_key: self.incremental_key,
            incremental_id_key: self.incremental_id_key,
            capture: self.capture,
            change_key: self.change_key,
            watch: self.watch.into_iter().map(Into::into).collect(),
            late_window_seconds: self.late_window_seconds,
            delete_limit: self.delete_limit,
            reject_limit: self.reject_limit,
            read: self.read,
            first_load: self.first_load,
            python_task: self.python_task,
            plan: TaskPlan::new(self.tasks.into_iter().map(Into::into).collect()),
        }
    }
}

fn sql() -> PipelineKind {
    PipelineKind::Sql
}
fn postgres() -> String {
    "postgres".to_owned()
}
fn source() -> String {
    "source".to_owned()
}
fn full() -> Mode {
    Mode::Full
}
fn thousand() -> i32 {
    1000
}
fn yes() -> bool {
    true
}
fn cursor() -> Capture {
    Capture::Cursor
}
fn ten_minutes() -> i64 {
    600
}
fn a_fifth() -> f64 {
    0.2
}
fn auto() -> ReadBy {
    ReadBy::Auto
}
fn direct() -> FirstLoad {
    FirstLoad::Direct
}
