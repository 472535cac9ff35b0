//! How far a pipeline has come: shown, changed, and what it has been.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use uuid::Uuid;
use vitrina_core::Checkpoint;
use vitrina_core::values::{progress, progress_of};
use vitrina_store::{CheckpointRecord, StateRecord};

/// How far a pipeline has come.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PipelineState {
    /// Position and what it was made under; only the source that made it can read it.
    #[schema(value_type = Object)]
    pub checkpoint: Value,
    /// Grows with every change of the checkpoint; also the ETag.
    pub version: i64,
    pub updated_at: Timestamp,
    pub last_processed_key: Option<String>,
    pub last_processed_id: Option<String>,
}

impl From<StateRecord> for PipelineState {
    fn from(record: StateRecord) -> Self {
        Self {
            checkpoint: told(&record.checkpoint),
            version: record.version,
            updated_at: record.updated_at,
            last_processed_key: record.last_processed_key.as_deref().map(progress),
            last_processed_id: record.last_processed_id.as_deref().map(progress),
        }
    }
}

/// A position holds keys of rows.
fn told(checkpoint: &Checkpoint) -> Value {
    let mut told = json!(checkpoint);
    if let Some(position) = told.get_mut("position") {
        *position = progress_of(position.take());
    }
    told
}

/// What completed passes had established at some time.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CheckpointVersion {
    /// What `restore` takes.
    pub version: i64,
    #[schema(value_type = Object)]
    pub checkpoint: Value,
    /// `pass`, `keep`, `reset`, `edit`, `restore`, or `mart` where the checkpoint beside the mart counted.
    pub reason: String,
    /// The run that moved it; null where a person did.
    pub run_id: Option<Uuid>,
    pub created_at: Timestamp,
}

impl From<CheckpointRecord> for CheckpointVersion {
    fn from(record: CheckpointRecord) -> Self {
        Self {
            version: record.version,
            checkpoint: told(&record.checkpoint),
            reason: record.reason,
            run_id: record.run_id.map(|run| run.0),
            created_at: record.created_at,
        }
    }
}

/// What PATCH …/state takes: one of both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateEdit {
    /// Where the next run goes on.
    pub(crate) position: Option<NewPosition>,
    /// A version of the history.
    pub(crate) restore: Option<i64>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPosition {
    /// As `checkpoint.position.done` is shown; of a cursor, `bound` is enough. An open pass is dropped.
    #[schema(value_type = Object)]
    pub(crate) done: Map<String, Value>,
}

/// What a change would do, and has not done.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct StateForecast {
    /// The checkpoint as it would be.
    #[schema(value_type = Object)]
    pub checkpoint: Value,
    /// The version it would change.
    pub version: i64,
    /// How many rows of the source would be read again, by its planner; null when it cannot be asked.
    pub rows: Option<u64>,
    /// Why `rows` is null.
    pub reason: Option<String>,
}

/// What a call that changes a checkpoint answers: the state as it is now, or what a dry run has found.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum StateAnswer {
    Changed(PipelineState),
    Forecast(StateForecast),
}

impl StateForecast {
    pub(crate) fn new(checkpoint: &Checkpoint, version: i64, rows: Result<u64, String>) -> Self {
        let reason = rows.as_ref().err().cloned();
        Self { checkpoint: told(checkpoint), version, rows: rows.ok(), reason }
    }
}
