//! Runs, attempts and checkpoints, read for people and pollers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vitrina_core::{Checkpoint, CursorRange, Decision, Mode, PipelineId, RunId, RunStatus};

use crate::{Result, Store, Trigger};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    pub id: RunId,
    pub pipeline_id: PipelineId,
    pub status: RunStatus,
    pub trigger: Trigger,
    pub mode: Mode,
    /// A backfill of so many keys. The list itself may be long, and who lists or polls runs need not see it.
    pub backfill_keys: Option<u64>,
    /// A backfill over this range of the cursor.
    pub backfill_range: Option<CursorRange>,
    /// What was decided about the checkpoint when the run was asked for.
    pub checkpoint: Option<Decision>,
    pub cancel_requested: bool,
    pub requested_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub rows_read: u64,
    pub rows_written: u64,
    pub rows_unchanged: u64,
    pub rows_deleted: u64,
    pub rows_rejected: u64,
    pub bytes: u64,
    pub batches: u64,
    pub error_code: Option<String>,
    pub error: Option<String>,
}

impl RunRecord {
    pub fn is_backfill(&self) -> bool {
        self.backfill_keys.is_some() || self.backfill_range.is_some()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub id: i64,
    pub runner: String,
    pub token: i64,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub error_code: Option<String>,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateRecord {
    pub checkpoint: Checkpoint,
    pub version: i64,
    pub updated_at: Timestamp,
    pub last_processed_key: Option<String>,
    pub last_processed_id: Option<String>,
    /// What the source had committed before this moment is in the target, by the meta-store's clock.
    pub as_of: Option<Timestamp>,
}

/// A run `r` as one JSON document, without what only its runner needs.
pub(crate) const RUN_AS_DOCUMENT: &str =
    "to_jsonb(r) - 'snapshot' - 'keys' || jsonb_build_object('backfill_keys', jsonb_array_length(r.keys))";

impl Store {
    /// Newest first.
    pub async fn runs(&self, pipeline: PipelineId, limit: i64) -> Result<Vec<RunRecord>> {
        let sql = format!(
            "select {RUN_AS_DOCUMENT} from etl.etl_runs r where pipeline_id = $1 order by requested_at desc limit $2"
        );
        let documents: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(pipeline.0)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
        documents.into_iter().map(|document| Ok(serde_json::from_value(document)?)).collect()
    }

    pub async fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        let sql = format!("select {RUN_AS_DOCUMENT} from etl.etl_runs r where id = $1");
        let document: Option<Value> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(id.0).fetch_optional(&self.pool).await?;
        Ok(document.map(serde_json::from_value).transpose()?)
    }

    /// What a backfill reads again.
    pub async fn backfill_keys(&self, run: RunId) -> Result<Option<Vec<Value>>> {
        let keys: Option<Value> = sqlx::query_scalar("select keys from etl.etl_runs where id = $1")
            .bind(run.0)
            .fetch_optional(&self.pool)
            .await?
            .flatten();
        Ok(serde_json::from_value(keys.unwrap_or_default())?)
    }

    /// In the order they happened.
    pub async fn attempts(&self, run: RunId) -> Result<Vec<AttemptRecord>> {
        let documents: Vec<Value> =
            sqlx::query_scalar("select to_jsonb(a) from etl.etl_attempts a where run_id = $1 order by id")
                .bind(run.0)
                .fetch_all(&self.pool)
                .await?;
        documents.into_iter().map(|document| Ok(serde_json::from_value(document)?)).collect()
    }

    pub async fn state(&self, pipeline: PipelineId) -> Result<StateRecord> {
        let document: Value =
            sqlx::query_scalar("select to_jsonb(s) from etl.etl_state s where pipeline_id = $1")
                .bind(pipeline.0)
                .fetch_one(&self.pool)
                .await?;
        Ok(serde_json::from_value(document)?)
    }
}
