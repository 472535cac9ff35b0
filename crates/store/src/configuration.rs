//! Changes of the configuration: any number of them in one transaction, each against the version it was made for, and
//! each with its row of the audit. What may change when is `core`'s to say, under the row's lock.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;
use vitrina_core::{Capture, Decision, Event, Pipeline, PipelineId, Target, TargetName};

use crate::access::{Actor, write_audit};
use crate::checkpoints::{decide_checkpoint, refuse_open_run};
use crate::lease_owners::issued;
use crate::pipelines::{check_within, find};
use crate::requests::{Request, leave};
use crate::scope::check_changes;
use crate::steps::{Ending, step};
use crate::targets::{described, target};
use crate::{
    Error, LOCK_TIMEOUT, PipelineRecord, PipelineRef, Result, RunRequest, Scope, Store, TargetRecord, writers,
};

/// One change. `version` is the one that its actor has seen.
#[derive(Debug, Clone)]
pub enum Change {
    CreatePipeline(Pipeline),
    EditPipeline {
        after: Pipeline,
        version: i64,
    },
    DeletePipeline {
        id: PipelineId,
        version: Option<i64>,
    },
    /// What becomes of a checkpoint of the configuration before these changes, or before earlier ones. Without a version where
    /// one of these changes leads to it.
    Decide {
        pipeline: PipelineId,
        decision: Decision,
        version: Option<i64>,
    },
    /// Without a version there must be no such target yet.
    PutTarget {
        target: Target,
        version: Option<i64>,
    },
    DeleteTarget {
        name: String,
        version: Option<i64>,
    },
}

impl Change {
    /// The order of all locks: targets before the pipelines that write to them, each kind by its key.
    fn rank(&self) -> (u8, String) {
        match self {
            Self::PutTarget { target, .. } => (0, target.name.clone()),
            Self::EditPipeline { after, .. } => (1, after.id.to_string()),
            Self::DeletePipeline { id, .. } => (1, id.to_string()),
            Self::CreatePipeline(pipeline) => (2, pipeline.id.to_string()),
            Self::DeleteTarget { name, .. } => (3, name.clone()),
            Self::Decide { pipeline, .. } => (4, pipeline.to_string()),
        }
    }
}

const PIPELINE_COLUMNS: &str =
    "name, description, tags, type, source_type, source_connection, source_table, source_query, target_table,
     shared_value, mode, batch_size, schedule_interval, full_schedule, incremental_key, incremental_id_key, capture, change_key, watch,
     late_window_seconds, delete_limit, reject_limit, freshness_limit_seconds, reconcile_schedule, read, first_load,
     on_change, python_task";

impl Store {
    /// All of them or none; and none where one is outside of the scope.
    pub async fn configure(&self, changes: &[Change], actor: &Actor) -> Result<()> {
        let mut ordered: Vec<&Change> = changes.iter().collect();
        ordered.sort_by_cached_key(|change| change.rank());
        let mut tx = self.pool.begin().await?;
        sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
        let targets = lock_targets(&mut tx, changes).await?;
        check_changes(&mut tx, changes, &self.scope).await?;
        let before = writers::Snapshot::take(&mut tx, &targets, &self.scope).await?;
        for change in ordered {
            carry_out(&mut tx, change, actor, &self.scope).await?;
        }
        before.refuse_new_writers(&writers::Snapshot::take(&mut tx, &targets, &self.scope).await?)?;
        Ok(tx.commit().await?)
    }

    /// Saves a new pipeline in the name of the installation itself.
    pub async fn create_pipeline(&self, pipeline: &Pipeline) -> Result<PipelineRecord> {
        let nobody = Actor { name: "vitrina".to_owned(), request_id: String::new() };
        self.configure(&[Change::CreatePipeline(pipeline.clone())], &nobody).await?;
        self.pipeline(&PipelineRef::Id(pipeline.id)).await
    }

    /// Makes a new version of the configuration as it is: runners use it from their next claim.
    pub async fn raise_version(&self, id: PipelineId) -> Result<PipelineRecord> {
        let mut tx = self.pool.begin().await?;
        sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
        sqlx::query(
            "with raised as (update etl.etl_pipelines set version = version + 1, updated_at = clock_timestamp()
                              where id = $1 returning id)
             select pg_notify('vitrina', id || ' CONFIG') from raised",
        )
        .bind(id.0)
        .execute(&mut *tx)
        .await?;
        let record = find(&mut tx, &PipelineRef::Id(id)).await?;
        tx.commit().await?;
        Ok(record)
    }
}

/// All of them first and by name, whatever is done with them: with the pipelines that write to them, so that none is
/// forgotten while a pipeline is on its way to it. Two pipelines on their way to one that nobody has described lock its name.
async fn lock_targets(tx: &mut PgConnection, changes: &[Change]) -> Result<Vec<String>> {
    let name = |change: &Change| match change {
        Change::PutTarget { target, .. } => Some(target.name.clone()),
        Change::DeleteTarget { name, .. } => Some(name.clone()),
        Change::CreatePipeline(pipeline) | Change::EditPipeline { after: pipeline, .. } => {
            Some(pipeline.effective_target().to_owned())
        }
        Change::DeletePipeline { .. } | Change::Decide { .. } => None,
    };
    let names: BTreeSet<String> = changes.iter().filter_map(name).collect();
    let names: Vec<String> = names.into_iter().collect();
    sqlx::query(
        "select pg_advisory_xact_lock(hashtextextended('vitrina.target ' || name, 0)) from unnest($1) name",
    )
    .bind(&names)
    .execute(&mut *tx)
    .await?;
    sqlx::query("select 1 from etl.etl_targets where name = any($1) order by name for update")
        .bind(&names)
        .execute(tx)
        .await?;
    Ok(names)
}

async fn carry_out(tx: &mut PgConnection, change: &Change, actor: &Actor, scope: &Scope) -> Result<()> {
    match change {
        Change::CreatePipeline(pipeline) => create(tx, pipeline, actor).await,
        Change::EditPipeline { after, version } => edit(tx, after, *version, actor, scope).await,
        Change::DeletePipeline { id, version } => delete(tx, *id, *version, actor, scope).await,
        Change::Decide { pipeline, decision, version } => {
            let config = locked(tx, *pipeline, *version, scope).await?.config;
            decide(tx, &config, *decision, actor).await
        }
        Change::PutTarget { target, version } => put_target(tx, target, *version, actor).await,
        Change::DeleteTarget { name, version } => delete_target(tx, name, *version, actor).await,
    }
}

/// Its state row comes with it, by trigger.
async fn create(tx: &mut PgConnection, pipeline: &Pipeline, actor: &Actor) -> Result<()> {
    require_shared_value(tx, pipeline).await?;
    let sql = format!(
        "insert into etl.etl_pipelines (id, enabled, {PIPELINE_COLUMNS})
         select id, enabled, {PIPELINE_COLUMNS} from jsonb_populate_record(null::etl.etl_pipelines, $1)"
    );
    let document = serde_json::to_value(pipeline)?;
    let inserted = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(&document).execute(&mut *tx).await;
    inserted.map_err(|error| name_taken(error, &pipeline.name))?;
    write_plan(tx, pipeline).await?;
    write_audit(tx, actor, "pipeline.create", &subject(pipeline.id), None, Some(document)).await
}

/// The target is as these changes leave it. A name that is none is refused elsewhere.
async fn require_shared_value(tx: &mut PgConnection, pipeline: &Pipeline) -> Result<()> {
    let Ok(name) = pipeline.effective_target().parse() else { return Ok(()) };
    match pipeline.shared_violation(&target(tx, &name).await?) {
        Some(violation) => Err(Error::SharedValue(violation)),
        None => Ok(()),
    }
}

async fn edit(
    tx: &mut PgConnection,
    after: &Pipeline,
    version: i64,
    actor: &Actor,
    scope: &Scope,
) -> Result<()> {
    let before = locked(tx, after.id, Some(version), scope).await?;
    let fields = before.config.edit(after, before.status)?;
    if fields.is_empty() {
        return Ok(());
    }
    if fields.iter().any(|field| ["shared_value", "target_table", "tasks"].contains(&field.as_str())) {
        require_shared_value(tx, after).await?;
    }
    let sql = format!(
        "update etl.etl_pipelines set ({PIPELINE_COLUMNS}) =
            (select {PIPELINE_COLUMNS} from jsonb_populate_record(null::etl.etl_pipelines, $2)) where id = $1"
    );
    let written = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(after.id.0)
        .bind(serde_json::to_value(after)?)
        .execute(&mut *tx)
        .await;
    written.map_err(|error| name_taken(error, &after.name))?;
    leave_target_behind(tx, &before.config, after).await?;
    if fields.iter().any(|field| field == "tasks") {
        sqlx::query("delete from etl.etl_pipeline_tasks where pipeline_id = $1")
            .bind(after.id.0)
            .execute(&mut *tx)
            .await?;
        write_plan(tx, after).await?;
    }
    if before.config.enabled != after.enabled {
        // A disabled pipeline pauses, an enabled one may go on: the same step as the calls of these names take.
        let event = if after.enabled { Event::Enable } else { Event::Disable };
        let record = find(tx, &PipelineRef::Id(after.id)).await?;
        step(tx, record, event, &RunRequest::default(), &Ending::default()).await?;
    }
    let (old, new) = (picked(&before.config, &fields)?, picked(after, &fields)?);
    write_audit(tx, actor, "pipeline.edit", &subject(after.id), Some(old), Some(new)).await
}

async fn delete(
    tx: &mut PgConnection,
    id: PipelineId,
    version: Option<i64>,
    actor: &Actor,
    scope: &Scope,
) -> Result<()> {
    let before = locked(tx, id, version, scope).await?;
    if before.status.is_active() {
        return Err(Error::RunOpen);
    }
    leave_to_forget(tx, &before.config).await?;
    sqlx::query("delete from etl.etl_pipelines where id = $1").bind(id.0).execute(&mut *tx).await?;
    let document = serde_json::to_value(&before.config)?;
    write_audit(tx, actor, "pipeline.delete", &subject(id), Some(document), None).await
}

/// The configuration is by now as these changes leave it.
async fn decide(tx: &mut PgConnection, config: &Pipeline, decision: Decision, actor: &Actor) -> Result<()> {
    let pipeline = config.id;
    refuse_open_run(tx, pipeline).await?;
    let Ok(name) = config.effective_target().parse() else { return Ok(()) };
    let hash = config.config_hash(&target(tx, &name).await?);
    let before = decide_checkpoint(tx, pipeline, decision, hash).await?;
    let action = format!("state.{decision}");
    write_audit(tx, actor, &action, &subject(pipeline), Some(before), None).await
}

/// What it has left at its ends only a runner can remove. A name that is no target has nothing beside it, and only the
/// followers of a change log are known to their source.
async fn leave_to_forget(tx: &mut PgConnection, pipeline: &Pipeline) -> Result<()> {
    if let Ok(name) = pipeline.effective_target().parse() {
        leave_target(tx, pipeline.id, &name).await?;
    }
    if pipeline.capture == Capture::Changelog {
        let connection = pipeline.source_connection.clone();
        let source = serde_json::json!({"type": pipeline.source_type, "connection": connection});
        let payload = serde_json::json!({"pipeline": pipeline.id, "source": source});
        leave(tx, &forget(payload, connection)).await?;
    }
    Ok(())
}

/// The pipeline writes elsewhere from now on: others may have what it had. The checkpoint that it has beside its marts is one
/// for all that are in a database, and stays.
async fn leave_target_behind(tx: &mut PgConnection, before: &Pipeline, after: &Pipeline) -> Result<()> {
    match before.effective_target().parse() {
        Ok(name) if before.effective_target() != after.effective_target() => {
            leave_target(tx, before.id, &name).await
        }
        _ => Ok(()),
    }
}

async fn leave_target(tx: &mut PgConnection, pipeline: PipelineId, name: &TargetName) -> Result<()> {
    let target = target(tx, name).await?;
    let issued = issued(tx, &[pipeline]).await?;
    let payload = serde_json::json!({"pipeline": pipeline, "target": target, "issued": issued});
    leave(tx, &forget(payload, target.connection)).await?;
    Ok(())
}

fn forget(payload: Value, connection: String) -> Request {
    Request {
        kind: "forget",
        pipeline: None,
        payload,
        connections: vec![connection],
        python_tasks: Vec::new(),
        expires_in: Duration::from_secs(30 * 86_400),
        requested_by: "vitrina".to_owned(),
    }
}

async fn put_target(
    tx: &mut PgConnection,
    target: &Target,
    version: Option<i64>,
    actor: &Actor,
) -> Result<()> {
    let before = locked_target(tx, &target.name).await?;
    match (before.as_ref().map(|record| record.version), version) {
        (Some(current), seen) if seen != Some(current) => return Err(Error::VersionMoved { current }),
        (None, Some(_)) => return Err(Error::NoSuchTarget(target.name.clone())),
        _ => {}
    }
    let columns = "connection, key, touch_column, create_if_missing, mapping, settings, document, shared";
    let sql = match version {
        Some(_) => format!(
            "update etl.etl_targets t set ({columns}) =
                (select {columns} from jsonb_populate_record(null::etl.etl_targets, $1)) where t.name = $1 ->> 'name'"
        ),
        // Someone else's, who was faster, is not overwritten.
        None => format!(
            "insert into etl.etl_targets (name, {columns})
             select name, {columns} from jsonb_populate_record(null::etl.etl_targets, $1) on conflict (name) do nothing"
        ),
    };
    let document = serde_json::to_value(target)?;
    let written = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(&document).execute(&mut *tx).await?;
    if written.rows_affected() == 0 {
        let faster = described(tx, &target.name).await?;
        return Err(Error::VersionMoved { current: faster.map_or(0, |record| record.version) });
    }
    let old = before.map(|record| serde_json::to_value(record.target)).transpose()?;
    if old.as_ref() == Some(&document) {
        return Ok(());
    }
    write_audit(tx, actor, "target.put", &format!("target {}", target.name), old, Some(document)).await
}

async fn delete_target(tx: &mut PgConnection, name: &str, version: Option<i64>, actor: &Actor) -> Result<()> {
    let before = locked_target(tx, name).await?.ok_or_else(|| Error::NoSuchTarget(name.to_owned()))?;
    if version.is_some_and(|seen| seen != before.version) {
        return Err(Error::VersionMoved { current: before.version });
    }
    if !before.pipelines.is_empty() {
        return Err(Error::TargetUsed(before.pipelines));
    }
    sqlx::query("delete from etl.etl_targets where name = $1").bind(name).execute(&mut *tx).await?;
    let old = serde_json::to_value(before.target)?;
    write_audit(tx, actor, "target.delete", &format!("target {name}"), Some(old), None).await
}

/// Locked by a statement of its own: one that waits for the lock reads the row as it was before.
async fn locked(
    tx: &mut PgConnection,
    id: PipelineId,
    version: Option<i64>,
    scope: &Scope,
) -> Result<PipelineRecord> {
    sqlx::query("select 1 from etl.etl_pipelines where id = $1 for no key update")
        .bind(id.0)
        .execute(&mut *tx)
        .await?;
    let reference = PipelineRef::Id(id);
    let record = find(tx, &reference).await?;
    check_within(scope, &record, &reference)?;
    match version {
        Some(seen) if seen != record.version => Err(Error::VersionMoved { current: record.version }),
        _ => Ok(record),
    }
}

async fn locked_target(tx: &mut PgConnection, name: &str) -> Result<Option<TargetRecord>> {
    sqlx::query("select 1 from etl.etl_targets where name = $1 for update")
        .bind(name)
        .execute(&mut *tx)
        .await?;
    described(tx, name).await
}

async fn write_plan(tx: &mut PgConnection, pipeline: &Pipeline) -> Result<()> {
    if pipeline.plan.tasks.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "insert into etl.etl_pipeline_tasks (pipeline_id, order_index, task_type, body, source_table, target_table)
         select $1, order_index, task_type, body, source_table, target_table
           from jsonb_populate_recordset(null::etl.etl_pipeline_tasks, $2)",
    )
    .bind(pipeline.id.0)
    .bind(serde_json::to_value(&pipeline.plan)?)
    .execute(tx)
    .await?;
    Ok(())
}

fn picked(pipeline: &Pipeline, fields: &[String]) -> Result<Value> {
    let document = serde_json::to_value(pipeline)?;
    let value = |field: &String| document[if field == "tasks" { "plan" } else { field.as_str() }].clone();
    Ok(fields.iter().map(|field| (field.clone(), value(field))).collect::<serde_json::Map<_, _>>().into())
}

fn subject(id: PipelineId) -> String {
    format!("pipeline {id}")
}

fn name_taken(error: sqlx::Error, name: &str) -> Error {
    match error.as_database_error().and_then(|refusal| refusal.constraint()) {
        Some("etl_pipelines_name_key") => Error::NameTaken(name.to_owned()),
        _ => Error::Database(error),
    }
}
