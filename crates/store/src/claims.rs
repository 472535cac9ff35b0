//! Claims, leases and heartbeats: how a runner comes to own a pipeline and how it gives it back.
//! A claim is one statement on the database's clock; the token it raises fences all later writes.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use uuid::Uuid;
use vitrina_core::{
    Backfill, Code, Decision, Event, Issued, Lease, LeaseToken, Mode, Owner, Pipeline, PipelineId, RunId,
    Status, Target,
};

use crate::steps::{Ending, close_attempt};
use crate::terms::{LONE_STALLS, SUSPECT, Suspects, Terms};
use crate::waiting::{has_all, may_continue};
use crate::{Error, Result, StepDone, Store, Trigger};

/// What this runner can execute: it claims nothing else.
#[derive(Debug, Clone, Default)]
pub struct RunnerAbilities {
    pub name: String,
    pub connections: Vec<String>,
    pub python_tasks: Vec<String>,
    /// Of these tasks.
    pub code: Code,
}

/// A pipeline that this runner owns, and all it needs to execute the open run.
#[derive(Debug, Clone)]
pub struct Claim {
    pub lease: Lease,
    /// What tells the meta-store from others, now: a person may have changed it since the runner started.
    pub installation: Uuid,
    /// All leases of the pipeline that may be met at its target, this one included.
    pub issued: Issued,
    pub run: RunId,
    pub pipeline: Pipeline,
    pub target: Target,
    pub mode: Mode,
    /// Rows to read again, instead of a pass.
    pub backfill: Option<Backfill>,
    /// Readers get what they saw before the last load, and that is all.
    pub rollback: bool,
    /// It continues the load that an earlier run left.
    pub resume: bool,
    /// What becomes of the checkpoint before the run goes on from it.
    pub decision: Option<Decision>,
    /// The status it was found in.
    pub(crate) was: Status,
    /// Another runner's lease had expired.
    pub takeover: bool,
    /// A pause or cancel was asked for before this claim.
    pub interrupted: bool,
    /// Leases that expired since the last committed batch.
    pub stalls: i32,
    pub trigger: Trigger,
    /// Batches of this run that earlier attempts have committed.
    pub batches: u64,
    /// Rows that these have deleted.
    pub rows_deleted: u64,
    /// The caller's trace, as its header told it.
    pub traceparent: Option<String>,
    pub lease_length: Duration,
    /// When the meta-store gave it, and when that was heard here.
    pub(crate) claimed_at: Timestamp,
    pub(crate) heard_at: Instant,
}

impl Claim {
    /// The time by the meta-store's clock, never later than it is there: whatever clock this machine has does not
    /// matter. Lag is told by that clock as well.
    pub fn now(&self) -> Timestamp {
        self.claimed_at.checked_add(self.heard_at.elapsed()).unwrap_or(self.claimed_at)
    }

    /// It must be the only pipeline of its runner.
    pub fn is_suspect(&self) -> bool {
        self.stalls >= SUSPECT
    }

    /// The status that the pipeline had before, and the one it has now.
    pub fn step(&self) -> (Status, Status) {
        let now = if self.was == Status::PauseRequested { self.was } else { Status::Running };
        (self.was, now)
    }

    fn is_hopeless(&self) -> bool {
        self.stalls >= SUSPECT + LONE_STALLS && !self.interrupted
    }
}

/// What a heartbeat learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    pub interrupted: bool,
}

#[derive(Deserialize)]
struct Snapshot {
    pipeline: Pipeline,
    target: Target,
}

impl Store {
    /// Takes the pipeline that has waited longest: requested, or left behind by a runner that died.
    pub async fn claim(&self, runner: &RunnerAbilities, terms: &Terms) -> Result<Option<Claim>> {
        let lease_length = terms.lease_length;
        loop {
            let owner = Owner::draw();
            let row = sqlx::query(sqlx::AssertSqlSafe(CLAIM.as_str()))
                .bind(&runner.python_tasks)
                .bind(&runner.connections)
                .bind(&runner.name)
                .bind(owner.0)
                .bind(lease_length.as_secs_f64())
                .bind(terms.suspects == Suspects::Only)
                .bind(terms.suspects == Suspects::Too)
                .bind(SUSPECT)
                .bind(terms.takeovers)
                .bind(&terms.besides)
                .bind(serde_json::json!(runner.code))
                .fetch_optional(&self.pool)
                .await?;
            let Some(row) = row else { return Ok(None) };
            let pipeline = PipelineId(row.try_get("id")?);
            let lease = Lease { pipeline, owner, token: LeaseToken(row.try_get("lease_token")?) };
            match read_claim(&row, lease, lease_length) {
                Ok(claim) if claim.is_hopeless() => {
                    let message = format!(
                        "{LONE_STALLS} runners in turn fell silent with this pipeline and nothing else to do"
                    );
                    self.fail(&lease, "run.stalled", &message, false).await?
                }
                Ok(claim) => return Ok(Some(claim)),
                // Owned by now, and never to be read by this release: left alone it would be claimed for ever.
                Err(error) => self.fail(&lease, "run.unreadable", &error.to_string(), false).await?,
            };
        }
    }

    /// A heartbeat. An error other than `LeaseLost` says nothing about the lease.
    pub async fn renew(&self, lease: &Lease) -> Result<Pulse> {
        let mut connection = self.pool.acquire().await?;
        renew(&mut connection, lease).await
    }

    /// The data has ended: the run is closed, and whatever waited for it begins.
    pub async fn finish(&self, lease: &Lease) -> Result<StepDone> {
        self.report(lease, Event::DataEnd, &Ending::default()).await
    }

    /// As `finish`, after a pass that was opened at `as_of` and has found nothing that a batch could have told of.
    pub async fn finish_unchanged(&self, lease: &Lease, as_of: Timestamp) -> Result<StepDone> {
        self.report(lease, Event::DataEnd, &Ending { as_of: Some(as_of), ..Ending::default() }).await
    }

    /// Between two batches of an interrupted run: it becomes PAUSED or CANCELLED.
    pub async fn interrupt(&self, lease: &Lease) -> Result<StepDone> {
        self.report(lease, Event::BatchDone, &Ending::default()).await
    }

    /// `drop_pass` where the pass itself is what went wrong: the next run reads from its beginning.
    pub async fn fail(&self, lease: &Lease, code: &str, error: &str, drop_pass: bool) -> Result<StepDone> {
        let ending = Ending { code: Some(code), error: Some(error), drop_pass, ..Ending::default() };
        self.report(lease, Event::Fail, &ending).await
    }

    /// Gives the pipeline back with its run open, to be claimed again after a while.
    pub async fn release(
        &self,
        lease: &Lease,
        code: &str,
        reason: &str,
        retry_after: Duration,
    ) -> Result<StepDone> {
        let ending = Ending {
            code: Some(code),
            error: Some(reason),
            retry_after: Some(retry_after),
            ..Ending::default()
        };
        self.report(lease, Event::Release, &ending).await
    }

    /// Closes the open attempt with its error and opens the next one of the same run.
    pub async fn retry(
        &self,
        lease: &Lease,
        runner: &str,
        run: RunId,
        code: &str,
        error: &str,
    ) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        // Not only held: a claim that sees an expired lease and none of the attempts below would open one beside them.
        renew(&mut tx, lease).await?;
        let ending = Ending { code: Some(code), error: Some(error), ..Ending::default() };
        close_attempt(&mut tx, run, &ending).await?;
        sqlx::query(
            "insert into etl.etl_attempts (run_id, pipeline_id, token, runner) values ($1, $2, $3, $4)",
        )
        .bind(run.0)
        .bind(lease.pipeline.0)
        .bind(lease.token.0)
        .bind(runner)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// How often the pipeline was given back since its last committed batch.
    pub async fn releases(&self, pipeline: PipelineId) -> Result<u32> {
        let releases: i32 = sqlx::query_scalar("select releases from etl.etl_pipelines where id = $1")
            .bind(pipeline.0)
            .fetch_one(&self.pool)
            .await?;
        Ok(releases.unsigned_abs())
    }

    /// It has reached both ends of its data once. Runs are forgotten after a while, what they came to is not.
    pub async fn has_worked(&self, pipeline: PipelineId) -> Result<bool> {
        let sql = "select exists (select from etl.etl_state where pipeline_id = $1 and as_of is not null)
                       or exists (select from etl.etl_runs where pipeline_id = $1 and status = 'SUCCESS')";
        Ok(sqlx::query_scalar(sql).bind(pipeline.0).fetch_one(&self.pool).await?)
    }
}

async fn renew(connection: &mut PgConnection, lease: &Lease) -> Result<Pulse> {
    let row = sqlx::query(
        "update etl.etl_pipelines p set lease_until = clock_timestamp() + lease_length
          where id = $1 and owner = $2 and lease_token = $3 and status in ('RUNNING', 'PAUSE_REQUESTED')
         returning status = 'PAUSE_REQUESTED' or (select cancel_requested from etl.etl_runs r where r.id = p.run_id) as interrupted",
    )
    .bind(lease.pipeline.0)
    .bind(lease.owner.0)
    .bind(lease.token.0)
    .fetch_optional(connection)
    .await?
    .ok_or(Error::LeaseLost)?;
    Ok(Pulse { interrupted: row.try_get("interrupted")? })
}

fn read_claim(row: &PgRow, lease: Lease, lease_length: Duration) -> Result<Claim> {
    let snapshot: Snapshot = serde_json::from_value(row.try_get::<Value, _>("snapshot")?)?;
    let was: Status = row.try_get::<String, _>("was")?.parse().map_err(|_| unreadable("status"))?;
    let owners: Vec<Uuid> = row.try_get("owners")?;
    Ok(Claim {
        lease,
        installation: row.try_get("installation")?,
        issued: Issued { owners: owners.into_iter().map(Owner).collect(), adopts: row.try_get("adopts")? },
        run: RunId(row.try_get("run_id")?),
        pipeline: snapshot.pipeline,
        target: snapshot.target,
        mode: row.try_get::<String, _>("mode")?.parse().map_err(|_| unreadable("mode"))?,
        backfill: Backfill::of(document(row, "keys")?, document(row, "backfill_range")?),
        rollback: row.try_get("rollback")?,
        resume: row.try_get("resume")?,
        decision: serde_json::from_value(row.try_get::<Option<String>, _>("checkpoint")?.into())?,
        was,
        takeover: was != Status::RunRequested,
        interrupted: was == Status::PauseRequested || row.try_get("cancel_requested")?,
        stalls: row.try_get("stalls")?,
        trigger: serde_json::from_value(row.try_get::<String, _>("trigger")?.into())?,
        batches: row.try_get::<i64, _>("batches")?.unsigned_abs(),
        rows_deleted: row.try_get::<i64, _>("rows_deleted")?.unsigned_abs(),
        traceparent: row.try_get("traceparent")?,
        lease_length,
        claimed_at: Timestamp::from_microsecond(row.try_get("claimed_at")?)
            .map_err(|_| unreadable("claimed_at"))?,
        heard_at: Instant::now(),
    })
}

fn document<T: DeserializeOwned>(row: &PgRow, column: &str) -> Result<Option<T>> {
    Ok(serde_json::from_value(row.try_get::<Option<Value>, _>(column)?.unwrap_or_default())?)
}

fn unreadable(column: &str) -> Error {
    Error::Unusable(format!("column {column} holds an unknown word"))
}

/// `for no key update skip locked` in a MATERIALIZED CTE: a plain sub-select may be evaluated more
/// than once under stale statistics and claim several rows. `enabled` guards new work only: a
/// disabled pipeline whose runner died must still reach PAUSED. The second half of the `or`
/// survives a clock that jumps back. A row that changed under the statement is looked at as it is now, all other tables as they
/// were: a run that was opened meanwhile is not there yet, and `exists` leaves its pipeline to the next claim. It would become
/// RUNNING, and nobody would know of it. Counting `e` makes the old attempt end before the new one opens:
/// the order of CTEs that write is otherwise undefined. What a runner can take is said in `waiting`, which also tells who
/// waits for one that can. The token never goes back, even in a restored meta-store, and is above all that a run was stopped
/// by at its target.
static CLAIM: LazyLock<String> = LazyLock::new(|| {
    let (able, may_continue) = (has_all("$2", "$1"), may_continue("$11"));
    format!("with {CHOSEN} and {able} and {may_continue} {IN_TURN}), {TAKEN}")
});

const CHOSEN: &str = "c as materialized (
    select p.id, p.status as was from etl.etl_pipelines p
     where p.status in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED')
       and case p.status when 'RUN_REQUESTED' then p.enabled and coalesce(p.retry_at, '-infinity') <= clock_timestamp()
           else p.lease_until < clock_timestamp() or p.lease_until > clock_timestamp() + 2 * p.lease_length end
       and ($9 or p.status = 'RUN_REQUESTED') and p.id <> all($10)
       and exists (select from etl.etl_runs r where r.id = p.run_id)
       and ($7 or $6 = (p.stalls + (p.status <> 'RUN_REQUESTED')::int >= $8)
            or (not $6 and (p.status = 'PAUSE_REQUESTED'
                            or (select r.cancel_requested from etl.etl_runs r where r.id = p.run_id))))";

const IN_TURN: &str = "order by p.requested_at for no key update of p skip locked limit 1";

const TAKEN: &str = "
p as (
    update etl.etl_pipelines p
       set status = case c.was when 'PAUSE_REQUESTED' then c.was else 'RUNNING' end, owner = $4,
           lease_token = greatest(p.lease_token + 1, extract(epoch from clock_timestamp())::bigint - 1735689600,
                                  (select t.target_token + 1 from etl.etl_lease_owners t where t.pipeline_id = p.id)),
           retry_at = null, lease_length = $5 * interval '1 second',
           lease_until = clock_timestamp() + $5 * interval '1 second',
           stalls = p.stalls + (c.was <> 'RUN_REQUESTED')::int
      from c where p.id = c.id
    returning p.id, p.run_id, p.lease_token, p.stalls, c.was),
r as (
    update etl.etl_runs r set status = 'RUNNING', started_at = coalesce(started_at, clock_timestamp())
      from p where r.id = p.run_id and r.status in ('REQUESTED', 'RUNNING')
    returning r.id, r.cancel_requested, r.mode, r.keys, r.backfill_range, r.checkpoint, r.snapshot,
              r.trigger, r.batches, r.rows_deleted, r.traceparent, r.rollback, r.resume),
e as (
    update etl.etl_attempts a set ended_at = clock_timestamp(), error_code = 'lease.expired',
           error = 'the runner did not renew its lease'
      from p where a.run_id = p.run_id and a.ended_at is null
    returning a.id),
o as (
    insert into etl.etl_lease_owners as o (pipeline_id, owners) select p.id, array[$4::uuid] from p
    on conflict (pipeline_id) do update set owners = etl.with_lease_owner(o.owners, $4)
    returning o.owners, o.adopts),
a as (
    insert into etl.etl_attempts (run_id, pipeline_id, token, runner)
    select p.run_id, p.id, p.lease_token, $3 from p join r on r.id = p.run_id
     where (select count(*) from e) >= 0
    returning id)
select p.*, (extract(epoch from clock_timestamp()) * 1000000)::bigint as claimed_at, r.cancel_requested, r.mode, r.keys, r.backfill_range, r.checkpoint,
       r.snapshot, r.trigger, r.batches, r.rows_deleted, r.traceparent, r.rollback, r.resume, o.owners, o.adopts,
       (select id from etl.etl_installation) as installation from p join r on r.id = p.run_id, a, o";
