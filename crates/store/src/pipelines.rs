//! Pipelines as they are configured, with the state of their control columns.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{Lifecycle, Pipeline, PipelineId, RunId, Status};

use crate::reconciles::last_verdict;
use crate::runs::RUN_AS_DOCUMENT;
use crate::scope::{Scope, within};
use crate::{Error, LastVerdict, Result, RunRecord, Store, Waiting};

/// How a person names a pipeline: by id or by name. A name is never a uuid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PipelineRef {
    Id(PipelineId),
    Name(String),
}

impl From<&str> for PipelineRef {
    fn from(text: &str) -> Self {
        Uuid::parse_str(text).map_or_else(|_| Self::Name(text.to_owned()), |id| Self::Id(PipelineId(id)))
    }
}

impl PipelineRef {
    pub(crate) fn id(&self) -> Option<Uuid> {
        if let Self::Id(id) = self { Some(id.0) } else { None }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        if let Self::Name(name) = self { Some(name) } else { None }
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
    pub next_reconcile_at: Option<Timestamp>,
    pub reconcile_schedule_error: Option<String>,
    pub next_full_run_at: Option<Timestamp>,
    pub full_schedule_error: Option<String>,
    pub last_run: Option<RunRecord>,
    pub last_verdict: Option<LastVerdict>,
    /// Why nobody executes what it waits for; looked for only where it is shown.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// What the source had committed before is in the target.
    pub as_of: Option<Timestamp>,
    /// How long ago that is, by the clock that tells `as_of`.
    pub lag_seconds: Option<f64>,
}

impl PipelineRecord {
    fn may_wait(&self) -> bool {
        match self.status {
            Status::Idle => self.config.schedule_interval.is_some() || self.config.full_schedule.is_some(),
            status => status.is_active(),
        }
    }

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

/// Where the rows of a pipeline `p` go: the last task's own target, else the pipeline's.
pub(crate) const EFFECTIVE_TARGET: &str =
    "coalesce((select nullif(btrim(k.target_table), '') from etl.etl_pipeline_tasks k where k.pipeline_id = p.id
                order by k.order_index desc limit 1), p.target_table)";

/// A pipeline as one JSON document: its columns, its plan, the open run's cancel flag, its last run and verdict.
pub(crate) fn as_document() -> String {
    format!(
        "to_jsonb(p)
         || (select jsonb_build_object('as_of', s.as_of,
                        'lag_seconds', case when s.as_of is not null then greatest(0, extract(epoch from clock_timestamp() - s.as_of)) end)
               from etl.etl_state s where s.pipeline_id = p.id)
         || jsonb_build_object(
             'plan', coalesce((select jsonb_agg(to_jsonb(t) order by t.order_index)
                                 from etl.etl_pipeline_tasks t where t.pipeline_id = p.id), '[]'),
             'cancel_requested', coalesce((select r.cancel_requested from etl.etl_runs r where r.id = p.run_id), false),
             'last_run', (select {RUN_AS_DOCUMENT} from etl.etl_runs r where r.pipeline_id = p.id
                           order by r.requested_at desc limit 1),
             'last_verdict', {})",
        last_verdict()
    )
}

impl Store {
    pub async fn pipeline(&self, reference: &PipelineRef) -> Result<PipelineRecord> {
        let mut record = find_within(&mut *self.pool.acquire().await?, reference, &self.scope).await?;
        if record.may_wait() {
            let id = record.config.id.0;
            record.waiting = self.reasons(&[id]).await?.remove(&id);
        }
        Ok(record)
    }
}

/// What is outside of a scope is answered as what does not exist.
pub(crate) fn check_within(scope: &Scope, record: &PipelineRecord, reference: &PipelineRef) -> Result<()> {
    match scope.includes(&record.config.tags) {
        true => Ok(()),
        false => Err(Error::NoSuchPipeline(reference.to_string())),
    }
}

/// Whatever its scope. Without why it waits, which is of no use to who changes it.
pub(crate) async fn find(connection: &mut PgConnection, reference: &PipelineRef) -> Result<PipelineRecord> {
    find_within(connection, reference, &Scope::EVERYTHING).await
}

async fn find_within(
    connection: &mut PgConnection,
    reference: &PipelineRef,
    scope: &Scope,
) -> Result<PipelineRecord> {
    let (document, within) = (as_document(), within("p", 3));
    let sql =
        format!("select {document} from etl.etl_pipelines p where (p.id = $1 or p.name = $2) and {within}");
    let (id, name) = match reference {
        PipelineRef::Id(id) => (Some(id.0), None),
        PipelineRef::Name(name) => (None, Some(name.as_str())),
    };
    let document: Option<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .bind(id)
        .bind(name)
        .bind(scope.tags())
        .fetch_optional(connection)
        .await?;
    let document = document.ok_or_else(|| Error::NoSuchPipeline(reference.to_string()))?;
    Ok(serde_json::from_value(document)?)
}
