//! Pipelines as they are configured, with the state of their control columns.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{Lifecycle, Pipeline, PipelineId, RunId, Status, Target, TargetName};

use crate::runs::RUN_AS_DOCUMENT;
use crate::{Error, Result, RunRecord, Store};

/// How a person names a pipeline: by id or by name. A name is never a uuid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineRef {
    Id(PipelineId),
    Name(String),
}

impl From<&str> for PipelineRef {
    fn from(text: &str) -> Self {
        Uuid::parse_str(text).map_or_else(|_| Self::Name(text.to_owned()), |id| Self::Id(PipelineId(id)))
    }
}

impl fmt::Display for PipelineRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PipelineRecord {
    #[serde(flatten)]
    pub config: Pipeline,
    pub status: Status,
    pub version: i64,
    pub run_id: Option<RunId>,
    pub requested_at: Option<Timestamp>,
    pub retry_at: Option<Timestamp>,
    pub next_run_at: Option<Timestamp>,
    pub schedule_error: Option<String>,
    /// Leases that expired since the last committed batch.
    pub stalls: i32,
    pub paused_by_disable: bool,
    pub pending_request: Option<Value>,
    pub cancel_requested: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub last_run: Option<RunRecord>,
}

impl PipelineRecord {
    pub fn lifecycle(&self) -> Lifecycle {
        Lifecycle {
            status: self.status,
            enabled: self.config.enabled,
            cancel_requested: self.cancel_requested,
            paused_by_disable: self.paused_by_disable,
            pending: self.pending_request.is_some(),
        }
    }
}

/// A pipeline as one JSON document: its columns, its plan, the open run's cancel flag, its last run.
fn as_document() -> String {
    format!(
        "to_jsonb(p)
         || jsonb_build_object(
             'plan', coalesce((select jsonb_agg(to_jsonb(t) order by t.order_index)
                                 from etl.etl_pipeline_tasks t where t.pipeline_id = p.id), '[]'),
             'cancel_requested', coalesce((select r.cancel_requested from etl.etl_runs r where r.id = p.run_id), false),
             'last_run', (select {RUN_AS_DOCUMENT} from etl.etl_runs r where r.pipeline_id = p.id
                           order by r.requested_at desc limit 1))"
    )
}

impl Store {
    /// All pipelines by name.
    pub async fn pipelines(&self) -> Result<Vec<PipelineRecord>> {
        let sql = format!("select {} from etl.etl_pipelines p order by p.name", as_document());
        let documents: Vec<Value> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        documents.into_iter().map(|document| Ok(serde_json::from_value(document)?)).collect()
    }

    pub async fn pipeline(&self, reference: &PipelineRef) -> Result<PipelineRecord> {
        let mut connection = self.pool.acquire().await?;
        find(&mut connection, reference).await
    }

    /// Saves a new pipeline with its plan. Its state row comes with it, by trigger.
    pub async fn create_pipeline(&self, pipeline: &Pipeline) -> Result<PipelineRecord> {
        let mut tx = self.pool.begin().await?;
        let document = serde_json::to_value(pipeline)?;
        let inserted = sqlx::query(
            "insert into etl.etl_pipelines
                (id, name, description, tags, type, source_type, source_connection, source_table, source_query, target_table,
                 mode, batch_size, enabled, schedule_interval, incremental_key, incremental_id_key, capture, change_key, watch,
                 late_window_seconds, delete_limit, reject_limit, read, first_load, python_task)
             select id, name, description, tags, type, source_type, source_connection, source_table, source_query, target_table,
                    mode, batch_size, enabled, schedule_interval, incremental_key, incremental_id_key, capture, change_key, watch,
                    late_window_seconds, delete_limit, reject_limit, read, first_load, python_task
               from jsonb_populate_record(null::etl.etl_pipelines, $1)",
        )
        .bind(&document)
        .execute(&mut *tx)
        .await;
        inserted.map_err(|error| name_taken(error, &pipeline.name))?;
        replace_plan(&mut tx, pipeline).await?;
        let record = find(&mut tx, &PipelineRef::Id(pipeline.id)).await?;
        tx.commit().await?;
        Ok(record)
    }

    /// Deletes a pipeline that no run is open for, with its history.
    pub async fn delete_pipeline(&self, id: PipelineId) -> Result<bool> {
        let deleted = sqlx::query(
            "delete from etl.etl_pipelines where id = $1 and status not in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED')",
        )
        .bind(id.0)
        .execute(&self.pool)
        .await?;
        Ok(deleted.rows_affected() == 1)
    }

    pub async fn target(&self, name: &TargetName) -> Result<Target> {
        let mut connection = self.pool.acquire().await?;
        target(&mut connection, name).await
    }
}

pub(crate) async fn find(connection: &mut PgConnection, reference: &PipelineRef) -> Result<PipelineRecord> {
    let sql = format!("select {} from etl.etl_pipelines p where p.id = $1 or p.name = $2", as_document());
    let (id, name) = match reference {
        PipelineRef::Id(id) => (Some(id.0), None),
        PipelineRef::Name(name) => (None, Some(name.as_str())),
    };
    let document: Option<Value> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(id).bind(name).fetch_optional(connection).await?;
    let document = document.ok_or_else(|| Error::NoSuchPipeline(reference.to_string()))?;
    Ok(serde_json::from_value(document)?)
}

pub(crate) async fn target(connection: &mut PgConnection, name: &TargetName) -> Result<Target> {
    let document: Option<Value> =
        sqlx::query_scalar("select to_jsonb(t) from etl.etl_targets t where name = $1")
            .bind(name.to_string())
            .fetch_optional(connection)
            .await?;
    document.map_or_else(|| Ok(Target::undescribed(name)), |document| Ok(serde_json::from_value(document)?))
}

async fn replace_plan(connection: &mut PgConnection, pipeline: &Pipeline) -> Result<()> {
    sqlx::query("delete from etl.etl_pipeline_tasks where pipeline_id = $1")
        .bind(pipeline.id.0)
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "insert into etl.etl_pipeline_tasks (pipeline_id, order_index, task_type, body, source_table, target_table)
         select $1, order_index, task_type, body, source_table, target_table
           from jsonb_populate_recordset(null::etl.etl_pipeline_tasks, $2)",
    )
    .bind(pipeline.id.0)
    .bind(serde_json::to_value(&pipeline.plan)?)
    .execute(connection)
    .await?;
    Ok(())
}

fn name_taken(error: sqlx::Error, name: &str) -> Error {
    match error.as_database_error().and_then(|refusal| refusal.constraint()) {
        Some("etl_pipelines_name_key") => Error::NameTaken(name.to_owned()),
        _ => Error::Database(error),
    }
}
