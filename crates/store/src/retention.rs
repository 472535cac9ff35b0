//! Deletes history that is older than it has to be kept: the oldest first, in short transactions, by one process at a time.

use std::time::Duration;

use sqlx::{PgConnection, Row};
use uuid::Uuid;
use vitrina_core::RunId;

use crate::{Result, Store};

/// Runs of one step at most. Each of them costs a look into every table that refers to runs.
const RUNS_A_STEP: usize = 500;
/// Batches of the runs of one step at most, and lines of the log of a run that alone has more batches.
const BATCHES_A_STEP: i64 = 5000;
/// Comparisons of one step at most: each of them may hold 100,000 differences.
const RECONCILES_A_STEP: i64 = 10;
/// Held for the length of a step.
const LOCK: &str = "select pg_try_advisory_xact_lock(hashtextextended('vitrina.retention', 0))";

/// Where many runs are old, the planner would read all of them for the first few.
const BY_INDEX: &str = "set local enable_seqscan = off";

/// Runs that ended longer ago than this, but for a pipeline's newest, and its newest success. From the time where the step
/// before has ended: what stays is not looked at again by every step. `now()`, because an index can serve it: the time of
/// the clock may change with every row. The next run in its order, because `exists` may be answered by reading the table
/// from its begin, where the rows are that were just deleted.
const OLD_RUNS: &str = "
select r.id, r.finished_at::text, r.batches from etl.etl_runs r
 where r.finished_at < now() - $1 * interval '1 second' and r.finished_at >= $2::timestamptz
   and (select true from etl.etl_runs newer where newer.pipeline_id = r.pipeline_id and newer.requested_at > r.requested_at
         order by newer.requested_at limit 1)
   and (r.status <> 'SUCCESS' or (
        select true from etl.etl_runs newer where newer.pipeline_id = r.pipeline_id and newer.requested_at > r.requested_at
           and newer.status = 'SUCCESS' order by newer.requested_at limit 1))
 order by r.finished_at limit $3 for update skip locked";

/// Comparisons that ended longer ago than this, but for the newest verdict of every pipeline and what it proves.
const OLD_RECONCILES: &str = "
with chosen as materialized (
    select c.id from etl.etl_reconciles c
     where c.finished_at < now() - $1 * interval '1 second'
       and (c.status <> 'DONE' or not c.whole or (
                select true from etl.etl_reconciles newer
                 where newer.pipeline_id = c.pipeline_id and newer.requested_at > c.requested_at
                   and newer.status = 'DONE' and newer.whole order by newer.requested_at limit 1))
       and not exists (select from etl.etl_reconciles proof where proof.repair_of = c.id)
     order by c.finished_at limit $2 for update skip locked)
delete from etl.etl_reconciles c using chosen where c.id = chosen.id";

/// What is older than it has to be kept, as far as it is deleted.
#[derive(Debug)]
pub struct Retention {
    store: Store,
    keep: Duration,
    /// Older runs have been looked at.
    from: String,
    pub runs: u64,
    pub reconciles: u64,
}

/// What a step has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionStep {
    /// There may be more to delete.
    Deleted,
    Done,
    /// Another process is deleting.
    Busy,
}

struct OldRun {
    id: RunId,
    finished_at: String,
    batches: i64,
}

impl Store {
    /// To delete what ended longer ago than `keep`: runs with their attempts, batches and logs, and comparisons with their
    /// differences.
    pub fn retention(&self, keep: Duration) -> Retention {
        Retention { store: self.clone(), keep, from: "-infinity".to_owned(), runs: 0, reconciles: 0 }
    }
}

impl Retention {
    /// A short transaction.
    pub async fn step(&mut self) -> Result<RetentionStep> {
        let mut tx = self.store.pool.begin().await?;
        if !sqlx::query_scalar::<_, bool>(LOCK).fetch_one(&mut *tx).await? {
            return Ok(RetentionStep::Busy);
        }
        sqlx::query(BY_INDEX).execute(&mut *tx).await?;
        let runs = self.old_runs(&mut tx).await?;
        let some = affordable(&runs);
        let deleted = match some {
            [long] if long.batches > BATCHES_A_STEP => shorten(&mut tx, long.id).await?,
            _ => true,
        };
        let ids: Vec<Uuid> = some.iter().filter(|_| deleted).map(|run| run.id.0).collect();
        if !ids.is_empty() {
            sqlx::query("delete from etl.etl_runs where id = any($1)").bind(&ids).execute(&mut *tx).await?;
        }
        let reconciles = sqlx::query(OLD_RECONCILES)
            .bind(self.keep.as_secs_f64())
            .bind(RECONCILES_A_STEP)
            .execute(&mut *tx)
            .await?
            .rows_affected();
        tx.commit().await?;
        self.runs += ids.len() as u64;
        self.reconciles += reconciles;
        if let Some(last) = some.last() {
            self.from.clone_from(&last.finished_at);
        }
        let is_more = ids.len() < runs.len() || runs.len() == RUNS_A_STEP || reconciles > 0;
        Ok(if is_more { RetentionStep::Deleted } else { RetentionStep::Done })
    }

    async fn old_runs(&self, tx: &mut PgConnection) -> Result<Vec<OldRun>> {
        let rows = sqlx::query(OLD_RUNS)
            .bind(self.keep.as_secs_f64())
            .bind(&self.from)
            .bind(RUNS_A_STEP as i64)
            .fetch_all(tx)
            .await?;
        let run = |row: &sqlx::postgres::PgRow| {
            Ok(OldRun { id: RunId(row.try_get(0)?), finished_at: row.try_get(1)?, batches: row.try_get(2)? })
        };
        rows.iter().map(run).collect()
    }
}

/// As many of the first runs as a step may delete; the first one in any case.
fn affordable(runs: &[OldRun]) -> &[OldRun] {
    let mut batches = 0;
    let fits = |run: &&OldRun| {
        batches += run.batches;
        batches <= BATCHES_A_STEP
    };
    let count = runs.iter().take_while(fits).count();
    &runs[..count.max(1).min(runs.len())]
}

/// Deletes the first batches and lines of the log of a run that has many. Answers whether it may go with what is left.
async fn shorten(tx: &mut PgConnection, run: RunId) -> Result<bool> {
    let mut is_short = true;
    for table in ["etl.etl_batches", "etl.etl_logs"] {
        let sql = format!(
            "delete from {table} where id in (select id from {table} where run_id = $1 order by id limit $2)"
        );
        let deleted =
            sqlx::query(sqlx::AssertSqlSafe(sql)).bind(run.0).bind(BATCHES_A_STEP).execute(&mut *tx);
        is_short &= i64::try_from(deleted.await?.rows_affected()).unwrap_or(i64::MAX) < BATCHES_A_STEP;
    }
    Ok(is_short)
}
