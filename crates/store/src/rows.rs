//! What is known of one row by its key: its reject, its difference, and who may have written it.

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;
use vitrina_core::{Difference, PipelineId, RunId};

use crate::pipelines::EFFECTIVE_TARGET;
use crate::scope::within;
use crate::{RejectRecord, Result, Store};

/// The run and the batch that were writing at some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writing {
    pub pipeline: String,
    pub run: RunId,
    pub batch: i64,
}

/// A run that has read a key again because it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowBackfill {
    pub run: RunId,
    pub status: String,
    pub finished_at: Timestamp,
}

/// Backfills that are looked through, newest first.
const BACKFILLS: i64 = 100;

impl Store {
    /// `key` is a JSON array of texts, as everywhere below.
    pub async fn reject_of(&self, pipeline: PipelineId, key: &Value) -> Result<Option<RejectRecord>> {
        let document: Option<Value> = sqlx::query_scalar(
            "select to_jsonb(r) from etl.etl_rejects r where pipeline_id = $1 and key_hash = md5($2::jsonb::text)",
        )
        .bind(pipeline.0)
        .bind(key)
        .fetch_optional(&self.pool)
        .await?;
        Ok(document.map(serde_json::from_value).transpose()?)
    }

    /// Among those that a comparison has kept.
    pub async fn difference_of(&self, reconcile: Uuid, key: &Value) -> Result<Option<Difference>> {
        let document: Option<Value> = sqlx::query_scalar(
            "select jsonb_build_object('kind', kind, 'key', key, 'columns', columns) from etl.etl_differences
              where reconcile_id = $1 and key = $2 limit 1",
        )
        .bind(reconcile)
        .bind(key)
        .fetch_optional(&self.pool)
        .await?;
        Ok(document.map(serde_json::from_value).transpose()?)
    }

    /// The batches that a mart beside the meta-store may have been written by at this moment of their clock, one of each
    /// pipeline that writes to it. Batches of a pipeline follow each other: the first one that was committed after it is the
    /// one, if its run was under way. `None` is a batch of a pipeline outside of the scope.
    pub async fn writing_at(&self, target: &str, at: Timestamp) -> Result<Vec<Option<Writing>>> {
        let sql = format!(
            "select distinct on (p.id) p.name, b.run_id, b.id, {within}
               from etl.etl_pipelines p join etl.etl_runs r on r.pipeline_id = p.id join etl.etl_batches b on b.run_id = r.id
              where {EFFECTIVE_TARGET} = $1 and r.started_at <= $2::timestamptz
                and (r.finished_at is null or r.finished_at >= $2::timestamptz) and b.committed_at >= $2::timestamptz
              order by p.id, b.committed_at, b.id",
            within = within("p", 3),
        );
        let found: Vec<(String, Uuid, i64, bool)> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(target)
            .bind(at.to_string())
            .bind(self.scope.tags())
            .fetch_all(&self.pool)
            .await?;
        let writing = |(pipeline, run, batch, seen): (_, _, _, bool)| {
            seen.then_some(Writing { pipeline, run: RunId(run), batch })
        };
        Ok(found.into_iter().map(writing).collect())
    }

    /// The run that had a lease of this token, and since when.
    pub async fn run_of_token(&self, pipeline: PipelineId, token: i64) -> Result<Option<(RunId, Timestamp)>> {
        let run: Option<(Uuid, String)> = sqlx::query_as(
            "select a.run_id, to_char(a.started_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')
               from etl.etl_attempts a join etl.etl_runs r on r.id = a.run_id
              where r.pipeline_id = $1 and a.token = $2 order by a.id desc limit 1",
        )
        .bind(pipeline.0)
        .bind(token)
        .fetch_optional(&self.pool)
        .await?;
        Ok(run.and_then(|(run, since)| Some((RunId(run), since.parse().ok()?))))
    }

    /// The newest that has ended, among the last backfills by keys.
    pub async fn backfill_of(&self, pipeline: PipelineId, key: &Value) -> Result<Option<RowBackfill>> {
        let found: Option<(Uuid, String, String)> = sqlx::query_as(
            "select id, status, to_char(finished_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') from (
                select id, status, finished_at, keys from etl.etl_runs
                 where pipeline_id = $1 and keys is not null and finished_at is not null
                 order by requested_at desc limit $3) backfills
              where exists (select from jsonb_array_elements(keys) k where k = $2) limit 1",
        )
        .bind(pipeline.0)
        .bind(key)
        .bind(BACKFILLS)
        .fetch_optional(&self.pool)
        .await?;
        let parsed = |(run, status, at): (Uuid, String, String)| {
            Some(RowBackfill { run: RunId(run), status, finished_at: at.parse().ok()? })
        };
        Ok(found.and_then(parsed))
    }
}
