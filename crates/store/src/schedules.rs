//! Schedules of runs, of full loads and of reconciles: what is due is requested once, by whichever runner looks first.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use sqlx::{PgConnection, Row};
use vitrina_core::{Event, Level, Mode, PipelineId, ReconcileTrigger, Schedule, Status};

use crate::pipelines::{PipelineRecord, PipelineRef, find};
use crate::reconciles::{self, KEPT, ReconcileOrder};
use crate::steps::{Ending, step};
use crate::{Error, Result, RunRecord, RunRequest, StepDone, Store};

/// What a pipeline does by itself, and the columns that say when.
struct Timetable {
    schedule: &'static str,
    next: &'static str,
    error: &'static str,
    request: Request,
}

#[derive(Clone, Copy)]
enum Request {
    /// Of this mode, or of the pipeline's own.
    Run(Option<Mode>),
    Reconcile,
}

const RUNS: Timetable = Timetable {
    schedule: "schedule_interval",
    next: "next_run_at",
    error: "schedule_error",
    request: Request::Run(None),
};
const FULL_RUNS: Timetable = Timetable {
    schedule: "full_schedule",
    next: "next_full_run_at",
    error: "full_schedule_error",
    request: Request::Run(Some(Mode::Full)),
};
const RECONCILES: Timetable = Timetable {
    schedule: "reconcile_schedule",
    next: "next_reconcile_at",
    error: "reconcile_schedule_error",
    request: Request::Reconcile,
};

struct Due {
    id: PipelineId,
    schedule: String,
    /// Its time has come, not only its schedule to be looked at.
    is_late: bool,
    /// By the database's clock.
    now: Timestamp,
}

/// Where something is due that somebody else holds, it is looked at again after this long.
const HELD: Duration = Duration::from_millis(200);
/// So many at a time: whoever requests them has other things to do in between.
const AT_ONCE: usize = 20;
/// A time that comes while something is in the way of its request is put off by this much.
const PUT_OFF: &str = "5 seconds";

impl Store {
    /// Requests runs and reconciles that are due, each once however many of its times were missed; answers how many
    /// runs. There may be more: then the next alarm comes soon.
    pub async fn request_due(&self) -> Result<usize> {
        self.request_due_reconciles().await?;
        // A full run includes what one of the pipeline's own mode would do: where both are due, it is the one to open.
        let full_runs = self.request_by(&FULL_RUNS).await?;
        Ok(full_runs + self.request_by(&RUNS).await?)
    }

    /// The same of reconciles alone.
    pub async fn request_due_reconciles(&self) -> Result<usize> {
        self.request_by(&RECONCILES).await
    }

    async fn request_by(&self, timetable: &Timetable) -> Result<usize> {
        let mut requested = 0;
        for _ in 0..AT_ONCE {
            let mut tx = self.pool.begin().await?;
            let Some(due) = take_due(&mut tx, timetable).await? else { break };
            match on_time(&mut tx, &due, timetable).await {
                Ok(Done { requested: one_more, step }) => {
                    tx.commit().await?;
                    step.iter().for_each(StepDone::tell);
                    requested += usize::from(one_more);
                }
                Err(error) if error.may_pass() => return Err(error),
                Err(error) => {
                    tx.rollback().await?;
                    tracing::warn!(pipeline_id = %due.id, %error, by = timetable.schedule, "what is scheduled could not be requested");
                    set_next(&mut *self.pool.acquire().await?, &due, timetable).await?;
                }
            }
        }
        Ok(requested)
    }

    /// Has schedules looked at anew that an older release could not read, and times that were computed by a clock
    /// that was wrong. Those that are right come out the same.
    pub async fn review_schedules(&self) -> Result<()> {
        for Timetable { next, error, .. } in [RUNS, FULL_RUNS, RECONCILES] {
            let sql = format!(
                "update etl.etl_pipelines set {next} = null, {error} = null
                  where {error} is not null or {next} > now() + interval '1 minute'"
            );
            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await?;
        }
        Ok(())
    }

    /// How long until a schedule, a retry or an expired lease is worth a look.
    pub async fn next_alarm(&self) -> Result<Option<Duration>> {
        let seconds: Option<f64> = sqlx::query_scalar(ALARM).fetch_one(&self.pool).await?;
        Ok(seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(HELD)))
    }
}

/// What has come of something that was due.
#[derive(Default)]
struct Done {
    requested: bool,
    step: Option<StepDone>,
}

async fn take_due(tx: &mut PgConnection, timetable: &Timetable) -> Result<Option<Due>> {
    let sql = sqlx::AssertSqlSafe(timetable.due());
    let Some(row) = sqlx::query(sql).fetch_optional(tx).await? else { return Ok(None) };
    let now = Timestamp::from_microsecond(row.try_get("now")?);
    Ok(Some(Due {
        id: PipelineId(row.try_get("id")?),
        schedule: row.try_get("schedule")?,
        is_late: row.try_get("is_late")?,
        now: now.map_err(|error| Error::Unusable(error.to_string()))?,
    }))
}

async fn on_time(tx: &mut PgConnection, due: &Due, timetable: &Timetable) -> Result<Done> {
    let mut done = Done::default();
    if due.is_late {
        match timetable.request {
            Request::Run(mode) => match request_run(tx, due, mode).await? {
                Some(step) => done = Done { requested: step.effect.open_run, step: Some(step) },
                None => return put_off(tx, due, timetable).await.map(|()| done),
            },
            Request::Reconcile => done.requested = request_reconcile(tx, due).await?,
        }
    }
    set_next(tx, due, timetable).await?;
    Ok(done)
}

/// What it led to: a pipeline that is paused or has failed only waits for its next time. `None` while a person's
/// request is in the way, or a run that a full one can neither join nor wait behind.
async fn request_run(tx: &mut PgConnection, due: &Due, mode: Option<Mode>) -> Result<Option<StepDone>> {
    let record = find(tx, &PipelineRef::Id(due.id)).await?;
    if is_a_persons(record.pending_request.as_ref())? || (mode.is_some() && would_be_dropped(&record, mode)) {
        return Ok(None);
    }
    let request = RunRequest { mode, scheduled: true, ..RunRequest::default() };
    step(tx, record, Event::ScheduleDue, &request, &Ending::default()).await.map(Some)
}

/// One that is still open is enough.
async fn request_reconcile(tx: &mut PgConnection, due: &Due) -> Result<bool> {
    let order = ReconcileOrder {
        level: Level::Hash,
        keep: KEPT,
        trigger: ReconcileTrigger::Schedule,
        requested_by: None,
    };
    Ok(reconciles::request(tx, due.id, &order).await?.is_new)
}

/// The next run of a pipeline's own mode reads what a dropped one would have read. The next full run may be a day away.
fn would_be_dropped(record: &PipelineRecord, mode: Option<Mode>) -> bool {
    let waits_behind = record.status == Status::Running && !record.cancel_requested;
    let loads = |run: &RunRecord| Some(run.mode) == mode && !run.is_backfill() && !run.rollback;
    let joins = record.status == Status::RunRequested && record.last_run.as_ref().is_some_and(loads);
    record.status.is_active() && !waits_behind && !joins
}

fn is_a_persons(pending: Option<&Value>) -> Result<bool> {
    let Some(pending) = pending else { return Ok(false) };
    Ok(!serde_json::from_value::<RunRequest>(pending.clone())?.scheduled)
}

async fn put_off(tx: &mut PgConnection, due: &Due, timetable: &Timetable) -> Result<()> {
    let sql = format!(
        "update etl.etl_pipelines set {} = clock_timestamp() + $2::text::interval where id = $1",
        timetable.next
    );
    sqlx::query(sqlx::AssertSqlSafe(sql)).bind(due.id.0).bind(PUT_OFF).execute(tx).await?;
    Ok(())
}

async fn set_next(connection: &mut PgConnection, due: &Due, timetable: &Timetable) -> Result<()> {
    let (next, error) = match due.schedule.parse::<Schedule>() {
        Ok(schedule) => match schedule.next(due.id, due.now) {
            Some(next) => (Some(next.to_string()), None),
            None => (None, Some("its times are over".to_owned())),
        },
        Err(error) => (None, Some(error.to_string())),
    };
    if let Some(error) = &error {
        tracing::warn!(pipeline_id = %due.id, error, by = timetable.schedule, "a pipeline has a schedule that says nothing");
    }
    sqlx::query(sqlx::AssertSqlSafe(timetable.set_next()))
        .bind(due.id.0)
        .bind(next)
        .bind(error)
        .bind(&due.schedule)
        .execute(connection)
        .await?;
    Ok(())
}

impl Timetable {
    fn due(&self) -> String {
        let Self { schedule, next, error, .. } = self;
        format!(
            "select id, {schedule} as schedule, {next} is not null as is_late,
                    (extract(epoch from clock_timestamp()) * 1000000)::bigint as now
               from etl.etl_pipelines
              where enabled and {schedule} is not null and {error} is null and coalesce({next}, '-infinity') <= now()
              order by coalesce({next}, '-infinity') limit 1 for no key update skip locked"
        )
    }

    /// The schedule may have been changed since it was read, where that was in another transaction.
    fn set_next(&self) -> String {
        let Self { schedule, next, error, .. } = self;
        format!(
            "update etl.etl_pipelines set {next} = $2::timestamptz, {error} = left($3, 1000)
              where id = $1 and {schedule} = $4"
        )
    }
}

const ALARM: &str = "
select extract(epoch from least(
           (select next_run_at from etl.etl_pipelines
             where enabled and schedule_interval is not null and schedule_error is null
               and coalesce(next_run_at, '-infinity') > '-infinity'
             order by coalesce(next_run_at, '-infinity') limit 1),
           (select next_full_run_at from etl.etl_pipelines
             where enabled and full_schedule is not null and full_schedule_error is null
               and coalesce(next_full_run_at, '-infinity') > '-infinity'
             order by coalesce(next_full_run_at, '-infinity') limit 1),
           (select next_reconcile_at from etl.etl_pipelines
             where enabled and reconcile_schedule is not null and reconcile_schedule_error is null
               and coalesce(next_reconcile_at, '-infinity') > '-infinity'
             order by coalesce(next_reconcile_at, '-infinity') limit 1),
           (select min(lease_until) from etl.etl_reconciles
             where status in ('REQUESTED', 'RUNNING') and lease_until > clock_timestamp()),
           (select min(at) from (
                select case status when 'RUN_REQUESTED' then retry_at else lease_until end as at from etl.etl_pipelines
                 where status in ('RUN_REQUESTED', 'RUNNING', 'PAUSE_REQUESTED')) active
             where at > clock_timestamp())) - clock_timestamp())::float8";
