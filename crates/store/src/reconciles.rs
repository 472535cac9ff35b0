//! Comparisons of targets with their sources: asked for, listed and kept with what they have found. What a runner does
//! with one is in `taken_reconciles`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{
    Difference, DifferenceKind, Figures, Level, PipelineId, ReconcileProgress, ReconcileStatus,
    ReconcileTrigger, RunId, Verdict,
};

use crate::pipelines::{EFFECTIVE_TARGET, PipelineRef, find};
use crate::scope::of_pipeline_within;
use crate::steps::effective_target;
use crate::targets::target;
use crate::{Result, Store, Untakeable, from_documents};

/// So many differences are kept at most.
pub const MOST_DIFFERENCES: i32 = 100_000;
/// So many where nobody has said.
pub const KEPT: i32 = 10_000;
/// A comparison to be made.
#[derive(Debug, Clone)]
pub struct ReconcileOrder {
    pub level: Level,
    /// So many differences are kept.
    pub keep: i32,
    pub trigger: ReconcileTrigger,
    pub requested_by: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReconcileRecord {
    pub id: Uuid,
    pub pipeline_id: PipelineId,
    pub pipeline: String,
    pub level: Level,
    pub keep: i32,
    pub trigger: ReconcileTrigger,
    pub requested_by: Option<String>,
    /// The one whose repair it proves.
    pub repair_of: Option<Uuid>,
    /// The run that repairs what that one has found.
    pub repair_run_id: Option<RunId>,
    /// Proves the newest repair of what this one has found.
    pub proved_by: Option<Uuid>,
    /// Speaks for the whole target: all of it was compared, or all that such a comparison had found.
    pub whole: bool,
    pub status: ReconcileStatus,
    pub cancel_requested: bool,
    pub runner: Option<String>,
    pub progress: Option<ReconcileProgress>,
    pub verdict: Option<Verdict>,
    pub figures: Option<Figures>,
    pub error_code: Option<String>,
    pub error: Option<String>,
    /// It has compared another configuration than the pipeline has now.
    pub outdated: bool,
    pub requested_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// What a runner must have to take it.
    pub connections_needed: Vec<String>,
    pub tasks_needed: Vec<String>,
    /// Why no runner takes it; looked for where it is shown alone.
    #[serde(default)]
    pub waiting: Option<Untakeable>,
}

impl ReconcileRecord {
    /// Whether so many differences are all that there were.
    fn has_kept_all(&self, kept: i64) -> bool {
        let all = |figures: &Figures| {
            !figures.capped && i64::try_from(figures.differences()).is_ok_and(|found| found <= kept)
        };
        self.figures.as_ref().is_some_and(all)
    }

    pub fn is_open(&self) -> bool {
        matches!(self.status, ReconcileStatus::Requested | ReconcileStatus::Running)
    }
}

/// The newest verdict that speaks for the whole of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastVerdict {
    pub id: Uuid,
    pub level: Level,
    pub verdict: Verdict,
    pub figures: Figures,
    pub finished_at: Timestamp,
    /// It is about another configuration than the pipeline has now.
    pub outdated: bool,
}

/// A comparison that was asked for, or one that was open already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requested {
    pub(crate) id: Uuid,
    pub(crate) is_new: bool,
}

/// What a repair would do.
#[derive(Debug, Clone, Default)]
pub struct RepairPlan {
    /// Each a JSON array of the target's key columns: they are read again.
    pub keys: Vec<Value>,
    /// How many of them the source has.
    pub upserts: u64,
    /// How many of them only the target has.
    pub deletes: u64,
}

/// A hash of all that decides which rows the target of a pipeline `p` must have: what sets the pace of runs, or names what has
/// changed, is left out. A comparison keeps it as it was in the snapshot that it read its configuration from.
pub(crate) fn compared_configuration() -> String {
    format!(
        "(select encode(sha256(convert_to(jsonb_build_array(
                    p.type, p.source_type, p.source_connection, p.source_table, p.source_query, p.python_task, p.shared_value, e.target,
                    (select jsonb_agg(jsonb_build_array(k.task_type, k.body, k.source_table) order by k.order_index)
                       from etl.etl_pipeline_tasks k where k.pipeline_id = p.id),
                    (select jsonb_build_array(t.connection, t.key, t.touch_column, t.mapping, t.shared, t.document - 'aliases' - 'take_over')
                       from etl.etl_targets t where t.name = e.target))::text, 'UTF8')), 'hex')
            from (select {EFFECTIVE_TARGET} as target) e)"
    )
}

/// A reconcile `c` as one JSON document. One that kept no configuration is from before that was kept.
fn as_document() -> String {
    format!(
        "to_jsonb(c) || (select jsonb_build_object(
            'pipeline', p.name, 'outdated', coalesce(c.configuration <> {}, false),
            'proved_by', (select v.id from etl.etl_reconciles v where v.repair_of = c.id order by v.requested_at desc limit 1))
           from etl.etl_pipelines p where p.id = c.pipeline_id)",
        compared_configuration()
    )
}

/// The last verdict of a pipeline `p`, as one JSON document.
pub(crate) fn last_verdict() -> String {
    format!(
        "(select json_build_object('id', c.id, 'level', c.level, 'verdict', c.verdict, 'figures', c.figures,
                                   'finished_at', c.finished_at, 'outdated', coalesce(c.configuration <> {}, false))
            from etl.etl_reconciles c where c.pipeline_id = p.id and c.status = 'DONE' and c.whole
           order by c.requested_at desc limit 1)",
        compared_configuration()
    )
}

impl Store {
    /// Asks for a comparison. One of the same level that waits or runs is joined.
    pub async fn request_reconcile(&self, pipeline: PipelineId, order: &ReconcileOrder) -> Result<Uuid> {
        let mut tx = self.pool.begin().await?;
        let requested = request(&mut tx, pipeline, order).await?;
        tx.commit().await?;
        Ok(requested.id)
    }

    pub async fn reconcile(&self, id: Uuid) -> Result<Option<ReconcileRecord>> {
        let sql = format!(
            "select {} from etl.etl_reconciles c where c.id = $1 and {}",
            as_document(),
            of_pipeline_within("c.pipeline_id", 2)
        );
        let document: Option<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(id)
            .bind(self.scope.tags())
            .fetch_optional(&self.pool)
            .await?;
        let mut record: Option<ReconcileRecord> = document.map(serde_json::from_value).transpose()?;
        if let Some(record) = record.as_mut().filter(|record| record.status == ReconcileStatus::Requested) {
            record.waiting = self.untakeable(&record.connections_needed, &record.tasks_needed).await?;
        }
        Ok(record)
    }

    /// Of one pipeline or of all, newest first, from before the one that is named.
    pub async fn reconciles(
        &self,
        pipeline: Option<PipelineId>,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<ReconcileRecord>> {
        let sql = format!(
            "select {} from etl.etl_reconciles c
              where ($1::uuid is null or c.pipeline_id = $1) and ($2::uuid is null or c.id < $2) and {}
              order by c.id desc limit $3",
            as_document(),
            of_pipeline_within("c.pipeline_id", 4),
        );
        let documents: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(pipeline.map(|pipeline| pipeline.0))
            .bind(before)
            .bind(limit)
            .bind(self.scope.tags())
            .fetch_all(&self.pool)
            .await?;
        from_documents(documents)
    }

    /// The newest comparison that has come to a verdict on the whole target.
    pub async fn last_verdict(&self, pipeline: PipelineId) -> Result<Option<ReconcileRecord>> {
        let sql = format!(
            "select {} from etl.etl_reconciles c
              where c.pipeline_id = $1 and c.status = 'DONE' and c.whole order by c.requested_at desc limit 1",
            as_document()
        );
        let document: Option<Value> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(pipeline.0).fetch_optional(&self.pool).await?;
        Ok(document.map(serde_json::from_value).transpose()?)
    }

    /// Those that are open, and those that have just ended.
    pub async fn moving_reconciles(&self) -> Result<Vec<ReconcileRecord>> {
        let sql = format!(
            "select {} from etl.etl_reconciles c
              where (c.status in ('REQUESTED', 'RUNNING') or c.finished_at > now() - interval '10 seconds') and {}
              order by c.requested_at",
            as_document(),
            of_pipeline_within("c.pipeline_id", 1),
        );
        let documents: Vec<Value> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(self.scope.tags())
            .fetch_all(&self.pool)
            .await?;
        from_documents(documents)
    }

    /// In their order, behind number `after`.
    pub async fn differences(
        &self,
        reconcile: Uuid,
        kind: Option<DifferenceKind>,
        after: i32,
        limit: i64,
    ) -> Result<Vec<(i32, Difference)>> {
        let rows: Vec<(i32, Value)> = sqlx::query_as(
            "select n, jsonb_build_object('kind', kind, 'key', key, 'columns', columns) from etl.etl_differences
              where reconcile_id = $1 and ($2::text is null or kind = $2) and n > $3 order by n limit $4",
        )
        .bind(reconcile)
        .bind(kind.map(DifferenceKind::as_str))
        .bind(after)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(|(n, document)| Ok((n, serde_json::from_value(document)?))).collect()
    }

    /// One that waits is cancelled at once, one that runs as soon as its runner hears of it. `None` where there is none.
    pub async fn cancel_reconcile(&self, id: Uuid) -> Result<Option<ReconcileRecord>> {
        sqlx::query(
            "update etl.etl_reconciles
                set cancel_requested = true,
                    status = case status when 'REQUESTED' then 'CANCELLED' else status end,
                    finished_at = case status when 'REQUESTED' then clock_timestamp() end
              where id = $1 and status in ('REQUESTED', 'RUNNING')",
        )
        .bind(id)
        .execute(&self.pool)
        .await?;
        self.reconcile(id).await
    }

    /// What is to be read again to repair what a comparison has found, as far as it was kept.
    pub async fn repair_plan(&self, reconcile: Uuid) -> Result<RepairPlan> {
        let mut connection = self.pool.acquire().await?;
        let extra = sqlx::query_scalar(
            "select count(*) from etl.etl_differences where reconcile_id = $1 and kind = 'extra'",
        );
        let extra: i64 = extra.bind(reconcile).fetch_one(&mut *connection).await?;
        let (keys, deletes) =
            (keys(&mut connection, reconcile).await?, u64::try_from(extra).unwrap_or_default());
        Ok(RepairPlan { upserts: (keys.len() as u64).saturating_sub(deletes), keys, deletes })
    }

    /// Asks for a comparison of what `record` has found, to be made when the run that repairs it has ended. Where that
    /// run stands in line, `run` is the one before it.
    pub async fn request_proof(
        &self,
        record: &ReconcileRecord,
        run: RunId,
        requested_by: Option<String>,
    ) -> Result<Uuid> {
        let mut tx = self.pool.begin().await?;
        let order = ReconcileOrder {
            level: Level::Rows,
            keep: record.keep,
            trigger: ReconcileTrigger::Repair,
            requested_by,
        };
        let kept: i64 =
            sqlx::query_scalar("select count(*) from etl.etl_differences where reconcile_id = $1")
                .bind(record.id)
                .fetch_one(&mut *tx)
                .await?;
        let proves = Proves { of: record.id, run, all: record.whole && record.has_kept_all(kept) };
        let proof = insert(&mut tx, record.pipeline_id, &order, Some(proves)).await?;
        tx.commit().await?;
        Ok(proof)
    }
}

/// What a comparison is to prove.
struct Proves {
    of: Uuid,
    run: RunId,
    /// What it proves is all that was found.
    all: bool,
}

pub(crate) async fn request(
    tx: &mut PgConnection,
    pipeline: PipelineId,
    order: &ReconcileOrder,
) -> Result<Requested> {
    // One after the other: two that come at once would not see each other.
    sqlx::query("select pg_advisory_xact_lock(hashtextextended('reconcile ' || $1, 0))")
        .bind(pipeline.0.to_string())
        .execute(&mut *tx)
        .await?;
    let open: Option<Uuid> = sqlx::query_scalar(
        "select id from etl.etl_reconciles
          where pipeline_id = $1 and level = $2 and keep >= $3 and status in ('REQUESTED', 'RUNNING') and not cancel_requested
            and repair_of is null order by requested_at limit 1",
    )
    .bind(pipeline.0)
    .bind(order.level.as_str())
    .bind(order.keep)
    .fetch_optional(&mut *tx)
    .await?;
    match open {
        Some(id) => Ok(Requested { id, is_new: false }),
        None => Ok(Requested { id: insert(tx, pipeline, order, None).await?, is_new: true }),
    }
}

async fn insert(
    tx: &mut PgConnection,
    pipeline: PipelineId,
    order: &ReconcileOrder,
    proves: Option<Proves>,
) -> Result<Uuid> {
    // Whoever deletes it meanwhile comes before this, or after it.
    sqlx::query("select 1 from etl.etl_pipelines where id = $1 for key share")
        .bind(pipeline.0)
        .execute(&mut *tx)
        .await?;
    let record = find(tx, &PipelineRef::Id(pipeline)).await?;
    let target = target(tx, &effective_target(&record)?).await?;
    let id = Uuid::now_v7();
    sqlx::query(
        "insert into etl.etl_reconciles (id, pipeline_id, level, keep, trigger, requested_by, connections_needed, tasks_needed,
                                         repair_of, repair_run_id, whole)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(id)
    .bind(pipeline.0)
    .bind(order.level.as_str())
    .bind(order.keep.clamp(0, MOST_DIFFERENCES))
    .bind(order.trigger.as_str())
    .bind(&order.requested_by)
    .bind(vec![record.config.source_connection.clone(), target.connection])
    .bind(record.config.python_tasks())
    .bind(proves.as_ref().map(|proves| proves.of))
    .bind(proves.as_ref().map(|proves| proves.run.0))
    .bind(proves.is_none_or(|proves| proves.all))
    .execute(tx)
    .await?;
    Ok(id)
}

/// What a comparison has found, by its keys.
pub(crate) async fn keys(connection: &mut PgConnection, reconcile: Uuid) -> Result<Vec<Value>> {
    let keys = sqlx::query_scalar("select key from etl.etl_differences where reconcile_id = $1 order by n");
    Ok(keys.bind(reconcile).fetch_all(connection).await?)
}
