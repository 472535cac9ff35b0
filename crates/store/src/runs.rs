//! Runs, attempts, batches and checkpoints, read for people and pollers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vitrina_core::{Checkpoint, CursorRange, Decision, Mode, Pipeline, PipelineId, RunId, RunStatus, Status};

use crate::scope::of_pipeline_within;
use crate::{Result, Store, Trigger, from_documents};

/// Where a page of runs ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCursor {
    pub requested_at: Timestamp,
    pub id: RunId,
}

impl From<&RunRecord> for RunCursor {
    fn from(last: &RunRecord) -> Self {
        Self { requested_at: last.requested_at, id: last.id }
    }
}

/// Which runs are meant; all of them when nothing is given.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunChoice {
    pub pipeline: Option<PipelineId>,
    pub status: Option<RunStatus>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    pub id: RunId,
    pub pipeline_id: PipelineId,
    /// The pipeline's name as it is now.
    pub pipeline: String,
    pub status: RunStatus,
    pub trigger: Trigger,
    pub mode: Mode,
    /// A backfill of so many keys. The list itself may be long, and who lists or polls runs need not see it.
    pub backfill_keys: Option<u64>,
    /// A backfill over this range of the cursor.
    pub backfill_range: Option<CursorRange>,
    /// What was decided about the checkpoint when the run was asked for.
    pub checkpoint: Option<Decision>,
    /// Readers get what they saw before the last load; nothing is read.
    pub rollback: bool,
    /// Of a backfill or a rollback: the status of its pipeline when it was requested.
    #[serde(default)]
    pub status_before: Option<Status>,
    /// It continues the load that an earlier run left.
    pub resume: bool,
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

    /// Works beside the passes of its pipeline, whose status its failure does not change.
    pub fn is_beside(&self) -> bool {
        self.is_backfill() || self.rollback
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

/// A committed batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BatchRecord {
    pub id: i64,
    pub token: i64,
    pub committed_at: Timestamp,
    pub rows_read: u64,
    pub rows_inserted: u64,
    pub rows_updated: u64,
    pub rows_unchanged: u64,
    pub rows_deleted: u64,
    pub rows_rejected: u64,
    pub bytes: u64,
    pub read_ms: u64,
    pub transform_ms: u64,
    pub write_ms: u64,
}

/// A pipeline's runs over a window of time, taken together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunFigures {
    /// By status.
    pub runs: std::collections::BTreeMap<String, u64>,
    pub rows_read: u64,
    pub rows_written: u64,
    pub rows_unchanged: u64,
    pub rows_deleted: u64,
    pub rows_rejected: u64,
    pub bytes: u64,
    pub batches: u64,
    /// Of closed runs, from their first claim to their end.
    pub total_duration_ms: u64,
    pub average_duration_ms: Option<u64>,
    pub maximum_duration_ms: Option<u64>,
    #[serde(default)]
    pub last_error: Option<String>,
    #[serde(default)]
    pub last_error_code: Option<String>,
    #[serde(default)]
    pub last_error_at: Option<Timestamp>,
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

/// A run `r` as one JSON document, without what only its runner needs: that may be long, and is not even read.
pub(crate) const RUN_AS_DOCUMENT: &str = "json_build_object('id', r.id, 'pipeline_id', r.pipeline_id,
    'pipeline', (select n.name from etl.etl_pipelines n where n.id = r.pipeline_id),
    'status', r.status, 'trigger', r.trigger, 'mode', r.mode,
    'backfill_keys', jsonb_array_length(r.keys), 'backfill_range', r.backfill_range, 'checkpoint', r.checkpoint,
    'rollback', r.rollback, 'status_before', r.status_before, 'resume', r.resume, 'cancel_requested', r.cancel_requested,
    'requested_at', r.requested_at, 'started_at', r.started_at, 'finished_at', r.finished_at,
    'rows_read', r.rows_read, 'rows_written', r.rows_written, 'rows_unchanged', r.rows_unchanged,
    'rows_deleted', r.rows_deleted, 'rows_rejected', r.rows_rejected, 'bytes', r.bytes, 'batches', r.batches,
    'error_code', r.error_code, 'error', r.error)";

const FIGURES: &str = "
with chosen as (
    select *, extract(epoch from finished_at - started_at) * 1000 as ms from etl.etl_runs
     where pipeline_id = $1 and requested_at > now() - $2 * interval '1 second')
select jsonb_build_object(
    'runs', (select coalesce(jsonb_object_agg(status, n), '{}') from (select status, count(*) n from chosen group by status) s),
    'rows_read', coalesce(sum(rows_read), 0), 'rows_written', coalesce(sum(rows_written), 0),
    'rows_unchanged', coalesce(sum(rows_unchanged), 0), 'rows_deleted', coalesce(sum(rows_deleted), 0),
    'rows_rejected', coalesce(sum(rows_rejected), 0), 'bytes', coalesce(sum(bytes), 0), 'batches', coalesce(sum(batches), 0),
    'total_duration_ms', round(coalesce(sum(ms), 0)), 'average_duration_ms', round(avg(ms)), 'maximum_duration_ms', round(max(ms)))
    || coalesce((select jsonb_build_object('last_error', error, 'last_error_code', error_code, 'last_error_at', finished_at)
                   from chosen where error is not null order by finished_at desc nulls last limit 1), '{}')
  from chosen";

impl Store {
    /// Newest first.
    pub async fn runs(
        &self,
        choice: RunChoice,
        after: Option<&RunCursor>,
        limit: i64,
    ) -> Result<Vec<RunRecord>> {
        let sql = format!(
            "select {RUN_AS_DOCUMENT} from etl.etl_runs r
              where ($1::uuid is null or pipeline_id = $1) and ($2::text is null or status = $2)
                and ($3::text is null or (requested_at, id) < ($3::timestamptz, $4::uuid)) and {}
              order by requested_at desc, id desc limit $5",
            of_pipeline_within("r.pipeline_id", 6),
        );
        let documents: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(choice.pipeline.map(|pipeline| pipeline.0))
            .bind(choice.status.map(RunStatus::as_str))
            .bind(after.map(|after| after.requested_at.to_string()))
            .bind(after.map(|after| after.id.0))
            .bind(limit)
            .bind(self.scope.tags())
            .fetch_all(&self.pool)
            .await?;
        from_documents(documents)
    }

    /// Runs that are open, or have been until a moment ago. `now()`, because an index can serve it: the time of the clock may
    /// change with every row, and all runs would be read.
    pub async fn moving_runs(&self) -> Result<Vec<RunRecord>> {
        let sql = format!(
            "select {RUN_AS_DOCUMENT} from etl.etl_runs r
              where (status in ('REQUESTED', 'RUNNING') or finished_at > now() - interval '10 seconds') and {}
              order by requested_at",
            of_pipeline_within("r.pipeline_id", 1),
        );
        let documents: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(self.scope.tags())
            .fetch_all(&self.pool)
            .await?;
        from_documents(documents)
    }

    /// The number of the newest batch; 0 where there is none.
    pub async fn last_batch(&self, run: RunId) -> Result<i64> {
        let newest = sqlx::query_scalar("select coalesce(max(id), 0) from etl.etl_batches where run_id = $1");
        Ok(newest.bind(run.0).fetch_one(&self.pool).await?)
    }

    /// In the order they were committed, after the batch `after_id`.
    pub async fn batches(&self, run: RunId, after_id: i64, limit: i64) -> Result<Vec<BatchRecord>> {
        let documents: Vec<Value> = sqlx::query_scalar(
            "select to_jsonb(b) from etl.etl_batches b where run_id = $1 and id > $2 order by id limit $3",
        )
        .bind(run.0)
        .bind(after_id)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        from_documents(documents)
    }

    /// Of the runs that were asked for in the last `seconds`.
    pub async fn run_figures(&self, pipeline: PipelineId, seconds: i64) -> Result<RunFigures> {
        let document: Value =
            sqlx::query_scalar(FIGURES).bind(pipeline.0).bind(seconds).fetch_one(&self.pool).await?;
        Ok(serde_json::from_value(document)?)
    }

    /// The configuration that the newest run worked on.
    pub async fn last_snapshot(&self, pipeline: PipelineId) -> Result<Option<Pipeline>> {
        let document: Option<Value> = sqlx::query_scalar(
            "select snapshot -> 'pipeline' from etl.etl_runs where pipeline_id = $1 order by requested_at desc limit 1",
        )
        .bind(pipeline.0)
        .fetch_optional(&self.pool)
        .await?;
        Ok(document.map(serde_json::from_value).transpose()?)
    }

    pub async fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        let sql = format!(
            "select {RUN_AS_DOCUMENT} from etl.etl_runs r where id = $1 and {}",
            of_pipeline_within("r.pipeline_id", 2)
        );
        let document: Option<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(id.0)
            .bind(self.scope.tags())
            .fetch_optional(&self.pool)
            .await?;
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
        from_documents(documents)
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
