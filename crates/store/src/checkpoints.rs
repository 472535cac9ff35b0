//! Checkpoints that people look at and change, and what they have been.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{Checkpoint, Code, Decision, Lease, Pipeline, PipelineId, RunId, Target};

use crate::steps::hold;
use crate::{Error, LOCK_TIMEOUT, Result, Store, from_documents};

/// What completed passes had established at some time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// The version of the state that it came with.
    pub version: i64,
    pub checkpoint: Checkpoint,
    /// The run that moved it; none where a person did.
    pub run_id: Option<RunId>,
    pub reason: String,
    pub created_at: Timestamp,
}

/// How a person changes a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateChange {
    Edit,
    Restore,
    Reset,
}

impl StateChange {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Edit => "edit",
            Self::Restore => "restore",
            Self::Reset => "reset",
        }
    }
}

/// Compare and set, with a row of history.
const CHANGE: &str = "
with changed as (
    update etl.etl_state set checkpoint = $3, version = version + 1, updated_at = clock_timestamp()
     where pipeline_id = $1 and version = $2 returning version)
select version from changed, etl.keep_checkpoint($1, version, $3, $4, $5)";

impl Store {
    /// Carries out what a run was asked to do about its checkpoint.
    pub async fn decide(
        &self,
        lease: &Lease,
        run: RunId,
        decision: Decision,
        from_version: i64,
        checkpoint: &Checkpoint,
    ) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        hold(&mut tx, lease).await?;
        let version: Option<i64> = sqlx::query_scalar(CHANGE)
            .bind(lease.pipeline.0)
            .bind(from_version)
            .bind(json!(checkpoint))
            .bind(run.0)
            .bind(decision.as_str())
            .fetch_optional(&mut *tx)
            .await?;
        // Only another owner of the pipeline could have moved it.
        version.ok_or(Error::LeaseLost)?;
        Ok(tx.commit().await?)
    }

    /// Replaces the checkpoint of a pipeline that no run is open for.
    pub async fn change_state(
        &self,
        pipeline: PipelineId,
        from_version: i64,
        change: StateChange,
        checkpoint: &Checkpoint,
    ) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
        refuse_open_run(&mut tx, pipeline).await?;
        let changed: Option<i64> = sqlx::query_scalar(CHANGE)
            .bind(pipeline.0)
            .bind(from_version)
            .bind(json!(checkpoint))
            .bind(None::<Uuid>)
            .bind(change.as_str())
            .fetch_optional(&mut *tx)
            .await?;
        if changed.is_none() {
            return Err(Error::CheckpointMoved { current: self.state(pipeline).await?.version });
        }
        Ok(tx.commit().await?)
    }

    pub async fn checkpoint(&self, pipeline: PipelineId, version: i64) -> Result<Option<CheckpointRecord>> {
        let document: Option<Value> = sqlx::query_scalar(
            "select to_jsonb(c) from etl.etl_checkpoints c where pipeline_id = $1 and version = $2",
        )
        .bind(pipeline.0)
        .bind(version)
        .fetch_optional(&self.pool)
        .await?;
        Ok(document.map(serde_json::from_value).transpose()?)
    }

    /// Of those among these pipelines that have read something.
    pub async fn checkpoints_of(&self, pipelines: &[PipelineId]) -> Result<HashMap<PipelineId, Checkpoint>> {
        let ids: Vec<Uuid> = pipelines.iter().map(|pipeline| pipeline.0).collect();
        let found: Vec<(Uuid, Value)> =
            sqlx::query_as("select pipeline_id, checkpoint from etl.etl_state where pipeline_id = any($1)")
                .bind(&ids)
                .fetch_all(&self.pool)
                .await?;
        found.into_iter().map(|(id, stored)| Ok((PipelineId(id), serde_json::from_value(stored)?))).collect()
    }

    /// Newest first.
    pub async fn checkpoints(&self, pipeline: PipelineId, limit: i64) -> Result<Vec<CheckpointRecord>> {
        let documents: Vec<Value> = sqlx::query_scalar(
            "select to_jsonb(c) from etl.etl_checkpoints c where pipeline_id = $1 order by version desc limit $2",
        )
        .bind(pipeline.0)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        from_documents(documents)
    }
}

/// Answers the checkpoint that was there.
pub(crate) async fn decide_checkpoint(
    tx: &mut PgConnection,
    pipeline: PipelineId,
    decision: Decision,
    config_hash: String,
) -> Result<Value> {
    let (stored, version): (Value, i64) =
        sqlx::query_as("select checkpoint, version from etl.etl_state where pipeline_id = $1 for update")
            .bind(pipeline.0)
            .fetch_one(&mut *tx)
            .await?;
    let checkpoint: Checkpoint = serde_json::from_value(stored.clone())?;
    sqlx::query(CHANGE)
        .bind(pipeline.0)
        .bind(version)
        .bind(json!(checkpoint.decided(decision, config_hash)))
        .bind(None::<Uuid>)
        .bind(decision.as_str())
        .execute(tx)
        .await?;
    Ok(stored)
}

/// Locks the pipeline, as every change of its state does.
pub(crate) async fn refuse_open_run(tx: &mut PgConnection, pipeline: PipelineId) -> Result<()> {
    let open: Option<bool> = sqlx::query_scalar(
        "select status in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED') from etl.etl_pipelines where id = $1 for no key update",
    )
    .bind(pipeline.0)
    .fetch_optional(tx)
    .await?;
    match open {
        None => Err(Error::NoSuchPipeline(pipeline.to_string())),
        Some(true) => Err(Error::RunOpen),
        Some(false) => Ok(()),
    }
}

/// As far as the meta-store knows: whether the mart has another key by now is the runner's to see.
pub(crate) async fn refuse_another_configuration(
    tx: &mut PgConnection,
    config: &Pipeline,
    target: &Target,
) -> Result<()> {
    let stored: Value = sqlx::query_scalar("select checkpoint from etl.etl_state where pipeline_id = $1")
        .bind(config.id.0)
        .fetch_one(&mut *tx)
        .await?;
    let checkpoint: Checkpoint = serde_json::from_value(stored)?;
    if checkpoint.is_of_another(&config.config_hash(target), &[]) {
        return Err(Error::ConfigChanged);
    }
    let mut refused = None;
    for code in published_code(tx, config).await? {
        match checkpoint.require_code(&code) {
            // This runner can go on from it.
            Ok(()) => return Ok(()),
            Err(asked) => refused = Some(asked),
        }
    }
    refused.map_or(Ok(()), |asked| Err(Error::CodeChanged(asked.to_string())))
}

/// The versions that runners have which could take the pipeline; where none could, nobody knows.
async fn published_code(tx: &mut PgConnection, config: &Pipeline) -> Result<Vec<Code>> {
    let published: Vec<Value> = sqlx::query_scalar(
        "select jsonb_object_agg(t.name, t.version_hash)
           from etl.etl_pipelines p
           join etl.etl_runners r on $2 <@ r.python_tasks and p.connections_needed <@ r.connections
           join etl.etl_python_tasks t on t.runner = r.name and t.name = any ($2)
          where p.id = $1 and r.status = 'READY' and r.heartbeat_at > clock_timestamp() - interval '30 seconds'
          group by r.name",
    )
    .bind(config.id.0)
    .bind(config.python_tasks())
    .fetch_all(tx)
    .await?;
    published.into_iter().map(|code| Ok(serde_json::from_value(code)?)).collect()
}
