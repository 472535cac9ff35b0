//! Configuration as people write it: what POST /pipelines takes, what a file holds, and what an edit starts from.
//! Defaults are those of the tables.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::openapi::schema::{Array, ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use vitrina_core::{
    Capture, FirstLoad, LONGEST_TAG, MOST_TAGS, Mode, OnChange, Pipeline, PipelineId, PipelineKind, ReadBy,
    Target, TargetName, TaskPlan,
};

use super::{Document, SharedTarget};
use super::{Task, Watch, words};
use crate::app::Rules;

/// A pipeline as it is written. `name` and `target_table` are needed, and one of `source_query`,
/// `source_table` and `tasks`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipelineConfig {
    // Left out, they are empty, and the rules report them together with everything else.
    /// Letters, digits, `_`, `-` and `.`; no uuid.
    #[serde(default)]
    #[schema(required, min_length = 1, max_length = 100)]
    pub(crate) name: String,
    #[serde(default)]
    #[schema(required, example = "analytics.film_dim")]
    target_table: String,
    #[serde(default)]
    #[schema(max_length = 10_000)] // LONGEST_DESCRIPTION
    description: String,
    #[serde(default)]
    #[schema(schema_with = tags)]
    pub(crate) tags: Vec<String>,
    #[serde(default = "sql", rename = "type")]
    #[schema(value_type = words::PipelineKind)]
    kind: PipelineKind,
    /// `postgres` or `python`.
    #[serde(default = "postgres")]
    source_type: String,
    /// A named connection of the server's configuration; left out, the only source that it has, else `source`.
    source_connection: Option<String>,
    source_table: Option<String>,
    source_query: Option<String>,
    /// What its rows have in the column by which its target is shared.
    #[schema(example = "ru")]
    shared_value: Option<String>,
    #[serde(default = "full")]
    #[schema(value_type = words::Mode)]
    mode: Mode,
    #[serde(default = "thousand")]
    #[schema(minimum = 1, maximum = 100_000)]
    batch_size: i32,
    /// True where it is left out; a file that leaves it out leaves it as it is.
    pub(crate) enabled: Option<bool>,
    schedule_interval: Option<String>,
    /// When it is loaded in full, whatever its `mode`; written as `schedule_interval` is.
    #[schema(example = "0 2 * * *")]
    full_schedule: Option<String>,
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
    #[schema(minimum = 0, maximum = 315_360_000)]
    late_window_seconds: i64,
    /// Highest share of the mart that one pass may delete.
    #[serde(default = "a_fifth")]
    #[schema(minimum = 0, maximum = 1)]
    delete_limit: f64,
    /// Highest number of rejects that a run may add and nobody has acknowledged.
    #[serde(default)]
    #[schema(minimum = 0)]
    reject_limit: i64,
    /// How far the target may lag behind its source before somebody should look.
    #[schema(minimum = 1)]
    freshness_limit_seconds: Option<i64>,
    /// When the target is compared with its source; written as `schedule_interval` is.
    #[schema(example = "0 3 * * *")]
    reconcile_schedule: Option<String>,
    /// How the source of a load is read.
    #[serde(default = "auto")]
    #[schema(value_type = words::ReadBy)]
    read: ReadBy,
    /// How a mart that is empty gets its first rows.
    #[serde(default = "direct")]
    #[schema(value_type = words::FirstLoad)]
    first_load: FirstLoad,
    /// What an incremental run does with a checkpoint of another configuration: ask, keep it, or reset it and read everything
    /// again.
    #[serde(default = "ask")]
    #[schema(value_type = words::OnChange)]
    on_change: OnChange,
    python_task: Option<String>,
    /// A task plan; where there is one it wins over `source_query`.
    #[serde(default)]
    tasks: Vec<Task>,
}

/// Bounded, as lists of pipelines carry them.
fn tags() -> Array {
    let tag =
        ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(LONGEST_TAG));
    ArrayBuilder::new().items(tag).max_items(Some(MOST_TAGS)).build()
}

impl PipelineConfig {
    /// The tasks' `order_index`, as the request lists them.
    pub(crate) fn task_order(&self) -> Vec<i32> {
        self.tasks.iter().map(|task| task.order_index).collect()
    }

    /// What it leaves out is as by default at this server.
    pub(crate) fn into_pipeline(self, id: PipelineId, rules: &Rules) -> Pipeline {
        Pipeline {
            id,
            name: self.name,
            description: self.description,
            tags: self.tags,
            kind: self.kind,
            source_type: self.source_type,
            source_connection: self.source_connection.unwrap_or_else(|| rules.usual_source().to_owned()),
            source_table: self.source_table,
            source_query: self.source_query,
            target_table: self.target_table,
            shared_value: self.shared_value,
            mode: self.mode,
            batch_size: self.batch_size,
            enabled: self.enabled.unwrap_or(true),
            schedule_interval: self.schedule_interval,
            full_schedule: self.full_schedule,
            incremental_key: self.incremental_key,
            incremental_id_key: self.incremental_id_key,
            capture: self.capture,
            change_key: self.change_key,
            watch: self.watch.into_iter().map(Into::into).collect(),
            late_window_seconds: self.late_window_seconds,
            delete_limit: self.delete_limit,
            reject_limit: self.reject_limit,
            freshness_limit_seconds: self.freshness_limit_seconds,
            reconcile_schedule: self.reconcile_schedule,
            read: self.read,
            first_load: self.first_load,
            on_change: self.on_change,
            python_task: self.python_task,
            plan: TaskPlan::new(self.tasks.into_iter().map(Into::into).collect()),
        }
    }
}

impl From<Pipeline> for PipelineConfig {
    fn from(pipeline: Pipeline) -> Self {
        Self {
            name: pipeline.name,
            target_table: pipeline.target_table,
            description: pipeline.description,
            tags: pipeline.tags,
            kind: pipeline.kind,
            source_type: pipeline.source_type,
            source_connection: Some(pipeline.source_connection),
            source_table: pipeline.source_table,
            source_query: pipeline.source_query,
            shared_value: pipeline.shared_value,
            mode: pipeline.mode,
            batch_size: pipeline.batch_size,
            enabled: Some(pipeline.enabled),
            schedule_interval: pipeline.schedule_interval,
            full_schedule: pipeline.full_schedule,
            incremental_key: pipeline.incremental_key,
            incremental_id_key: pipeline.incremental_id_key,
            capture: pipeline.capture,
            change_key: pipeline.change_key,
            watch: pipeline.watch.into_iter().map(Into::into).collect(),
            late_window_seconds: pipeline.late_window_seconds,
            delete_limit: pipeline.delete_limit,
            reject_limit: pipeline.reject_limit,
            freshness_limit_seconds: pipeline.freshness_limit_seconds,
            reconcile_schedule: pipeline.reconcile_schedule,
            read: pipeline.read,
            first_load: pipeline.first_load,
            on_change: pipeline.on_change,
            python_task: pipeline.python_task,
            tasks: pipeline.plan.tasks.into_iter().map(Into::into).collect(),
        }
    }
}

/// A merge-patch of a pipeline: any fields of `PipelineConfig`, null for those that are set back to their default.
pub(crate) struct PipelineConfigPatch;

impl PartialSchema for PipelineConfigPatch {
    /// The fields of the whole, none of them needed and each of them nullable.
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut object)) = PipelineConfig::schema() else {
            return PipelineConfig::schema();
        };
        object.required.clear();
        let null = || RefOr::from(ObjectBuilder::new().schema_type(Type::Null).build());
        for property in object.properties.values_mut() {
            let whole = std::mem::replace(property, null());
            *property = OneOfBuilder::new().item(null()).item(whole).into();
        }
        RefOr::T(Schema::Object(object))
    }
}

impl ToSchema for PipelineConfigPatch {}

/// A target as it is written; its name stands beside it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetConfig {
    /// A named connection of the server's configuration; left out, `marts` for tables and `search` for indexes.
    pub(crate) connection: Option<String>,
    /// The columns by which rows are found; left out, the table's primary key.
    #[serde(default)]
    pub(crate) key: Vec<String>,
    /// A column that is set to the time of writing on rows that changed, and on no others.
    pub(crate) touch_column: Option<String>,
    /// Whether a runner may create it from its query.
    #[serde(default)]
    pub(crate) create_if_missing: bool,
    /// The mapping of an index.
    #[schema(value_type = Option<Object>)]
    pub(crate) mapping: Option<Map<String, Value>>,
    /// The settings of an index.
    #[schema(value_type = Option<Object>)]
    pub(crate) settings: Option<Map<String, Value>>,
    /// How rows become documents of an index.
    #[serde(default, skip_serializing_if = "Document::is_plain")]
    pub(crate) document: Document,
    /// By what several pipelines share a mart; left out, one pipeline writes to it.
    pub(crate) shared: Option<SharedTarget>,
}

impl TargetConfig {
    pub(crate) fn into_target(self, name: &TargetName) -> Target {
        let undescribed = Target::undescribed(name);
        Target {
            connection: self.connection.unwrap_or(undescribed.connection),
            key: self.key,
            touch_column: self.touch_column,
            create_if_missing: self.create_if_missing,
            mapping: self.mapping.map(Value::Object),
            settings: self.settings.map(Value::Object),
            document: self.document.into(),
            shared: self.shared.and_then(SharedTarget::rules),
            ..undescribed
        }
    }
}

impl From<Target> for TargetConfig {
    fn from(target: Target) -> Self {
        let object = |value: Option<Value>| value.and_then(|value| value.as_object().cloned());
        Self {
            connection: Some(target.connection),
            key: target.key,
            touch_column: target.touch_column,
            create_if_missing: target.create_if_missing,
            mapping: object(target.mapping),
            settings: object(target.settings),
            document: target.document.into(),
            shared: target.shared.map(Into::into),
        }
    }
}

fn sql() -> PipelineKind {
    PipelineKind::Sql
}
fn postgres() -> String {
    "postgres".to_owned()
}
fn full() -> Mode {
    Mode::Full
}
fn thousand() -> i32 {
    1000
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
fn ask() -> OnChange {
    OnChange::Ask
}
