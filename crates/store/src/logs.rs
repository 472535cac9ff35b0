//! What runners have to say of a run, kept beside it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vitrina_core::{PipelineId, RunId};

use crate::{Result, Store, from_documents};

/// A line to be kept.
#[derive(Debug, Clone, Serialize)]
pub struct LogLine {
    pub run_id: RunId,
    pub pipeline_id: PipelineId,
    pub at: Timestamp,
    /// error, warn or info.
    pub level: &'static str,
    pub message: String,
    pub fields: Map<String, Value>,
}

/// A line as it was kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogRecord {
    pub id: i64,
    pub run_id: RunId,
    pub pipeline_id: PipelineId,
    pub at: Timestamp,
    pub level: String,
    pub message: String,
    pub fields: Map<String, Value>,
}

impl Store {
    /// In this order. Lines of runs that are gone meanwhile are left out.
    pub async fn add_logs(&self, lines: &[LogLine]) -> Result<()> {
        sqlx::query(
            "insert into etl.etl_logs (run_id, pipeline_id, at, level, message, fields)
             select l.run_id, l.pipeline_id, l.at, l.level, l.message, l.fields
               from rows from (jsonb_to_recordset($1) as (run_id uuid, pipeline_id uuid, at timestamptz, level text, message text, fields jsonb))
                    with ordinality l (run_id, pipeline_id, at, level, message, fields, place)
               join etl.etl_runs r on r.id = l.run_id
              order by l.place",
        )
        .bind(serde_json::to_value(lines)?)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// What was said of a run behind the line `after`, in the order it was written.
    pub async fn logs(&self, run: RunId, after: Option<i64>, limit: i64) -> Result<Vec<LogRecord>> {
        let documents: Vec<Value> = sqlx::query_scalar(
            "select to_jsonb(l) from etl.etl_logs l where run_id = $1 and id > coalesce($2, 0) order by id limit $3",
        )
        .bind(run.0)
        .bind(after)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        from_documents(documents)
    }
}
