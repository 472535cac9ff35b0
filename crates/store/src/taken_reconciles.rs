//! Comparisons in the hands of a runner: taken under a lease, kept, concluded, or given back.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;
use vitrina_core::{Findings, Level, Owner, Pipeline, PipelineId, ReconcileProgress, Target};

use crate::pipelines::{PipelineRef, find};
use crate::reconciles::{compared_configuration, keys};
use crate::steps::effective_target;
use crate::targets::target;
use crate::{Error, Result, RunnerAbilities, Store};

/// A comparison whose runner has died so often is not taken again.
const ATTEMPTS: i32 = 3;

/// A comparison that a runner holds, and all it needs.
#[derive(Debug, Clone)]
pub struct TakenReconcile {
    pub id: Uuid,
    pub owner: Owner,
    /// What tells the meta-store from others, now.
    pub installation: Uuid,
    pub level: Level,
    pub keep: usize,
    pub pipeline: Pipeline,
    pub target: Target,
    /// Only these keys are compared.
    pub keys: Option<Vec<Value>>,
    /// Rows that the repaired comparison has met and that no target can hold.
    pub refused_before: u64,
    /// A hash of pipeline and target, as they are here.
    configuration: String,
}

/// The oldest that this runner can make and nobody else holds. A proof waits for the end of its repair.
const TAKE: &str = "
with chosen as materialized (
    select c.id from etl.etl_reconciles c
     where (status = 'REQUESTED' or (status = 'RUNNING' and lease_until < clock_timestamp()))
       and connections_needed <@ $3 and tasks_needed <@ $4
       and (repair_of is null or not exists (
                select from etl.etl_pipelines p left join etl.etl_runs r on r.id = p.run_id
                 where p.id = c.pipeline_id and (p.pending_request ? 'keys' or r.keys is not null or (
                        p.status = 'PAUSED' and (select last.keys is not null from etl.etl_runs last
                                                  where last.pipeline_id = p.id order by last.requested_at desc limit 1)))))
     order by requested_at limit 1 for update skip locked)
update etl.etl_reconciles c
   set status = 'RUNNING', owner = $1, runner = $2, attempts = attempts + 1, progress = null,
       started_at = coalesce(started_at, clock_timestamp()), lease_until = clock_timestamp() + $5 * interval '1 second'
  from chosen where c.id = chosen.id
returning c.id, c.pipeline_id, c.level, c.keep, c.repair_of, c.cancel_requested, c.attempts,
          (select id from etl.etl_installation)";

type Taken = (Uuid, Uuid, String, i32, Option<Uuid>, bool, i32, Uuid);

impl Store {
    pub async fn take_reconcile(
        &self,
        runner: &RunnerAbilities,
        lease: Duration,
    ) -> Result<Option<TakenReconcile>> {
        let owner = Owner::draw();
        let taken: Option<Taken> = sqlx::query_as(TAKE)
            .bind(owner.0)
            .bind(&runner.name)
            .bind(&runner.connections)
            .bind(&runner.python_tasks)
            .bind(lease.as_secs_f64())
            .fetch_optional(&self.pool)
            .await?;
        let Some((id, pipeline, level, keep, repair_of, cancelled, attempts, installation)) = taken else {
            return Ok(None);
        };
        if cancelled {
            self.conclude_reconcile(id, owner, Ended::Cancelled).await?;
            return Box::pin(self.take_reconcile(runner, lease)).await;
        }
        if attempts > ATTEMPTS {
            let error = "its runners have died of it, or were ended, before it was done".to_owned();
            self.conclude_reconcile(id, owner, Ended::Failed("reconcile.abandoned", error)).await?;
            return Box::pin(self.take_reconcile(runner, lease)).await;
        }
        // One snapshot: the hash is that of exactly this configuration, whoever edits it meanwhile.
        let mut tx = self.pool.begin_with("begin isolation level repeatable read, read only").await?;
        let record = find(&mut tx, &PipelineRef::Id(PipelineId(pipeline))).await?;
        let target = target(&mut tx, &effective_target(&record)?).await?;
        let configuration = configuration(&mut tx, pipeline).await?;
        let (keys, refused_before) = match repair_of {
            Some(repaired) => uncertain(&mut tx, repaired).await?,
            None => (None, 0),
        };
        tx.commit().await?;
        let level =
            level.parse().map_err(|error: vitrina_core::UnknownWord| Error::Unusable(error.to_string()))?;
        let keep = usize::try_from(keep).unwrap_or_default();
        let pipeline = record.config;
        Ok(Some(TakenReconcile {
            id,
            owner,
            installation,
            level,
            keep,
            pipeline,
            target,
            keys,
            refused_before,
            configuration,
        }))
    }

    /// Keeps one that takes long; answers whether it is to stop.
    pub async fn keep_reconcile(
        &self,
        taken: &TakenReconcile,
        lease: Duration,
        progress: Option<&ReconcileProgress>,
    ) -> Result<bool> {
        let cancelled: Option<bool> = sqlx::query_scalar(
            "update etl.etl_reconciles
                set lease_until = clock_timestamp() + $3 * interval '1 second', progress = coalesce($4, progress)
              where id = $1 and owner = $2 returning cancel_requested",
        )
        .bind(taken.id)
        .bind(taken.owner.0)
        .bind(lease.as_secs_f64())
        .bind(progress.map(|progress| json!(progress)))
        .fetch_optional(&self.pool)
        .await?;
        cancelled.ok_or(Error::LeaseLost)
    }

    /// All that it has found becomes visible at once. A weaker look that finds nothing does not speak against rows that a
    /// closer one has found to differ.
    pub async fn finish_reconcile(&self, taken: &TakenReconcile, findings: &Findings) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        let sql = format!(
            "update etl.etl_reconciles c
                set status = 'DONE', verdict = $3, figures = $4, configuration = $5, owner = null, lease_until = null, progress = null,
                    finished_at = clock_timestamp(),
                    -- Not where it has not looked at all that differs, nor where a later one has seen more.
                    whole = whole and not ($3 <> 'differs' and ($4 -> 'capped')::bool)
                        -- Nor what compared some rows by another configuration than the one that found them.
                        and not ($6 and exists (
                        select from etl.etl_reconciles repaired
                         where repaired.id = c.repair_of and repaired.configuration <> $5))
                        and not (repair_of is not null and exists (
                        select from etl.etl_reconciles later join etl.etl_reconciles repaired on repaired.id = c.repair_of
                         where later.pipeline_id = c.pipeline_id and later.status = 'DONE' and later.whole
                           and later.repair_of is null and later.requested_at > repaired.requested_at))
                        and not ($3 <> 'differs' and {is_open})
              where id = $1 and owner = $2",
            is_open = closer_finding_is_open(),
        );
        let done = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(taken.id)
            .bind(taken.owner.0)
            .bind(findings.verdict.as_str())
            .bind(json!(findings.figures))
            .bind(&taken.configuration)
            .bind(taken.keys.is_some())
            .execute(&mut *tx)
            .await?;
        if done.rows_affected() == 0 {
            return Err(Error::LeaseLost);
        }
        for (chunk, differences) in findings.differences.chunks(1000).enumerate() {
            sqlx::query(
                "insert into etl.etl_differences (reconcile_id, n, kind, key, columns)
                 select $1, $2 + d.n, d.item ->> 'kind', d.item -> 'key', d.item -> 'columns'
                   from jsonb_array_elements($3) with ordinality d (item, n)",
            )
            .bind(taken.id)
            .bind(i64::try_from(chunk * 1000).unwrap_or(i64::MAX))
            .bind(json!(differences))
            .execute(&mut *tx)
            .await?;
        }
        Ok(tx.commit().await?)
    }

    pub async fn fail_reconcile(&self, taken: &TakenReconcile, code: &str, error: String) -> Result<()> {
        self.conclude_reconcile(taken.id, taken.owner, Ended::Failed(code, error)).await
    }

    pub async fn stop_reconcile(&self, taken: &TakenReconcile) -> Result<()> {
        self.conclude_reconcile(taken.id, taken.owner, Ended::Cancelled).await
    }

    /// Gives it back, for another runner to begin anew; one that is to stop ends here.
    pub async fn release_reconcile(&self, taken: &TakenReconcile) -> Result<()> {
        sqlx::query(
            "update etl.etl_reconciles
                set status = case when cancel_requested then 'CANCELLED' else 'REQUESTED' end,
                    finished_at = case when cancel_requested then clock_timestamp() end,
                    owner = null, lease_until = null, progress = null, attempts = attempts - 1
              where id = $1 and owner = $2",
        )
        .bind(taken.id)
        .bind(taken.owner.0)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    async fn conclude_reconcile(&self, id: Uuid, owner: Owner, ended: Ended<'_>) -> Result<()> {
        let (status, code, error) = match ended {
            Ended::Failed(code, error) => ("FAILED", Some(code), Some(error)),
            Ended::Cancelled => ("CANCELLED", None, None),
        };
        sqlx::query(
            "update etl.etl_reconciles
                set status = $3, error_code = $4, error = left($5, 4000), owner = null, lease_until = null,
                    finished_at = clock_timestamp()
              where id = $1 and owner = $2",
        )
        .bind(id)
        .bind(owner.0)
        .bind(status)
        .bind(code)
        .bind(error)
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

/// How closely a comparison of this level and these figures looks: at numbers, at what was written, at what is there.
fn closeness(level: &str, figures: &str) -> String {
    format!(
        "case when {level} = 'count' then 0 when coalesce(({figures} -> 'as_written')::bool, false) then 1 else 2 end"
    )
}

/// Is the verdict that is shown `differs`, and did the last closer look than `c` say so? What was loaded whole since is
/// what was written: there a look at that is close enough.
fn closer_finding_is_open() -> String {
    let (own, closer) = (closeness("c.level", "$4::jsonb"), closeness("closer.level", "closer.figures"));
    format!(
        "coalesce((select shown.verdict = 'differs' from etl.etl_reconciles shown
                    where shown.pipeline_id = c.pipeline_id and shown.status = 'DONE' and shown.whole
                    order by shown.requested_at desc limit 1), false)
         and coalesce((select closer.verdict = 'differs' and (c.level = 'count' or not exists (
                            select from etl.etl_runs r
                             where r.pipeline_id = c.pipeline_id and r.status = 'SUCCESS' and r.mode = 'full'
                               and r.keys is null and r.backfill_range is null and not r.rollback
                               and r.started_at > closer.finished_at))
                         from etl.etl_reconciles closer
                        where closer.pipeline_id = c.pipeline_id and closer.status = 'DONE' and closer.whole
                          and {closer} > {own}
                        order by closer.requested_at desc limit 1), false)"
    )
}

enum Ended<'a> {
    Failed(&'a str, String),
    Cancelled,
}

async fn configuration(connection: &mut PgConnection, pipeline: Uuid) -> Result<String> {
    let sql = format!("select {} from etl.etl_pipelines p where p.id = $1", compared_configuration());
    Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(pipeline).fetch_one(connection).await?)
}

/// What the proof of a repair compares: the keys that differed, beside rows that no target can hold. Rows that were on
/// their way then were not kept: to tell what has become of them, all is compared.
async fn uncertain(connection: &mut PgConnection, repaired: Uuid) -> Result<(Option<Vec<Value>>, u64)> {
    let (refused, in_flight): (Option<i64>, Option<i64>) = sqlx::query_as(
        "select (figures ->> 'refused')::bigint, (figures ->> 'in_flight')::bigint
           from etl.etl_reconciles where id = $1",
    )
    .bind(repaired)
    .fetch_one(&mut *connection)
    .await?;
    if in_flight.unwrap_or_default() > 0 {
        return Ok((None, 0));
    }
    Ok((Some(keys(connection, repaired).await?), refused.unwrap_or_default().unsigned_abs()))
}
