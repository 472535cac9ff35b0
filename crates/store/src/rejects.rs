//! Rows that were refused and wait for someone to look: listed, acknowledged, discarded, or read again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vitrina_core::{PipelineId, RunId};

use crate::{Result, Store};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RejectRecord {
    /// Names the reject where the key itself would be too long.
    pub key_hash: String,
    pub key: Value,
    pub run_id: RunId,
    pub code: String,
    pub message: String,
    pub row: Value,
    pub rejected_at: Timestamp,
    pub acknowledged_at: Option<Timestamp>,
}

/// Rejects that share a reason.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RejectGroup {
    pub code: String,
    pub rejects: i64,
    pub acknowledged: i64,
    pub first_rejected_at: Timestamp,
    pub last_rejected_at: Timestamp,
}

/// Which rejects of a pipeline are meant; all of them when nothing is given.
#[derive(Debug, Clone, Default)]
pub struct RejectChoice {
    pub code: Option<String>,
    /// Hashes of keys.
    pub keys: Option<Vec<String>>,
}

const CHOSEN: &str =
    "pipeline_id = $1 and ($2::text is null or code = $2) and ($3::text[] is null or key_hash = any($3))";

impl Store {
    /// Newest first, after those up to and including `after`, which is the last key hash of the page before.
    pub async fn rejects(
        &self,
        pipeline: PipelineId,
        choice: &RejectChoice,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<RejectRecord>> {
        let sql = format!(
            "select to_jsonb(r) from etl.etl_rejects r
              where {CHOSEN} and ($4::text is null
                    or (rejected_at, key_hash) < (select rejected_at, key_hash from etl.etl_rejects
                                                   where pipeline_id = $1 and key_hash = $4))
              order by rejected_at desc, key_hash desc limit $5"
        );
        let documents: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(pipeline.0)
            .bind(&choice.code)
            .bind(&choice.keys)
            .bind(after)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
        documents.into_iter().map(|document| Ok(serde_json::from_value(document)?)).collect()
    }

    /// By reason, the most frequent first.
    pub async fn reject_groups(&self, pipeline: PipelineId) -> Result<Vec<RejectGroup>> {
        let documents: Vec<Value> = sqlx::query_scalar(
            "select to_jsonb(g) from (
                select code, count(*) as rejects, count(acknowledged_at) as acknowledged,
                       min(rejected_at) as first_rejected_at, max(rejected_at) as last_rejected_at
                  from etl.etl_rejects where pipeline_id = $1 group by code order by count(*) desc, code) g",
        )
        .bind(pipeline.0)
        .fetch_all(&self.pool)
        .await?;
        documents.into_iter().map(|document| Ok(serde_json::from_value(document)?)).collect()
    }

    /// They stay, and no longer count against the pipeline's limit. Answers how many there are.
    pub async fn acknowledge_rejects(&self, pipeline: PipelineId, choice: &RejectChoice) -> Result<u64> {
        self.change_rejects(
            pipeline,
            choice,
            "update etl.etl_rejects set acknowledged_at = coalesce(acknowledged_at, clock_timestamp())",
        )
        .await
    }

    /// Forgets them. A row that is refused again comes back. Answers how many there were.
    pub async fn discard_rejects(&self, pipeline: PipelineId, choice: &RejectChoice) -> Result<u64> {
        self.change_rejects(pipeline, choice, "delete from etl.etl_rejects").await
    }

    /// In the order of their keys, as commits of batches take them.
    async fn change_rejects(&self, pipeline: PipelineId, choice: &RejectChoice, change: &str) -> Result<u64> {
        let sql = format!(
            "with chosen as materialized (select key_hash from etl.etl_rejects where {CHOSEN} order by key_hash for update)
             {change} where pipeline_id = $1 and key_hash in (select key_hash from chosen)"
        );
        let changed = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(pipeline.0)
            .bind(&choice.code)
            .bind(&choice.keys)
            .execute(&self.pool)
            .await?;
        Ok(changed.rows_affected())
    }

    /// The keys to read again, oldest first.
    pub async fn reject_keys(&self, pipeline: PipelineId, choice: &RejectChoice) -> Result<Vec<Value>> {
        let sql = format!("select key from etl.etl_rejects where {CHOSEN} order by rejected_at, key_hash");
        Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(pipeline.0)
            .bind(&choice.code)
            .bind(&choice.keys)
            .fetch_all(&self.pool)
            .await?)
    }
}
