//! Rows that were refused and wait for someone to look: listed, acknowledged, discarded, or read again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vitrina_core::{PipelineId, RunId};

use crate::{LOCK_TIMEOUT, Result, Store, from_documents};

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

/// Where a page of rejects ended. It holds when that reject is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectCursor {
    pub rejected_at: Timestamp,
    pub key_hash: String,
}

impl From<&RejectRecord> for RejectCursor {
    fn from(last: &RejectRecord) -> Self {
        Self { rejected_at: last.rejected_at, key_hash: last.key_hash.clone() }
    }
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
    /// Newest first.
    pub async fn rejects(
        &self,
        pipeline: PipelineId,
        choice: &RejectChoice,
        after: Option<&RejectCursor>,
        limit: i64,
    ) -> Result<Vec<RejectRecord>> {
        let sql = format!(
            "select to_jsonb(r) from etl.etl_rejects r
              where {CHOSEN} and ($4::text is null or (rejected_at, key_hash) < ($4::timestamptz, $5))
              order by rejected_at desc, key_hash desc limit $6"
        );
        let documents: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(pipeline.0)
            .bind(&choice.code)
            .bind(&choice.keys)
            .bind(after.map(|cursor| cursor.rejected_at.to_string()))
            .bind(after.map(|cursor| cursor.key_hash.as_str()))
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
        from_documents(documents)
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
        from_documents(documents)
    }

    /// They stay, and no longer count against the pipeline's limit. Answers how many there are.
    pub async fn acknowledge_rejects(&self, pipeline: PipelineId, choice: &RejectChoice) -> Result<u64> {
        let change =
            "update etl.etl_rejects set acknowledged_at = coalesce(acknowledged_at, clock_timestamp())";
        self.change_rejects(pipeline, choice, change).await
    }

    /// Forgets them. A row that is refused again comes back. Answers how many there were.
    pub async fn discard_rejects(&self, pipeline: PipelineId, choice: &RejectChoice) -> Result<u64> {
        self.change_rejects(pipeline, choice, "delete from etl.etl_rejects").await
    }

    /// Behind the pipeline's row, as commits of batches are: two orders of locks would deadlock.
    async fn change_rejects(&self, pipeline: PipelineId, choice: &RejectChoice, change: &str) -> Result<u64> {
        let mut tx = self.pool.begin().await?;
        sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
        sqlx::query("select 1 from etl.etl_pipelines where id = $1 for no key update")
            .bind(pipeline.0)
            .execute(&mut *tx)
            .await?;
        let sql = format!("{change} where {CHOSEN}");
        let changed = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(pipeline.0)
            .bind(&choice.code)
            .bind(&choice.keys)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(changed.rows_affected())
    }

    /// The keys to read again, oldest reject first.
    pub async fn reject_keys(
        &self,
        pipeline: PipelineId,
        choice: &RejectChoice,
        limit: i64,
    ) -> Result<Vec<Value>> {
        let sql =
            format!("select key from etl.etl_rejects where {CHOSEN} order by rejected_at, key_hash limit $4");
        Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(pipeline.0)
            .bind(&choice.code)
            .bind(&choice.keys)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?)
    }
}
